"""Names of a module's tensors, which wrappers around it, or around its submodules, change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

# Parts that wrappers insert into the names of a module's parameters.
_PREFIXES: Final = (
    "_orig_mod.",  # torch.compile
    "module.",  # DistributedDataParallel, DataParallel
    "_fsdp_wrapped_module.",
    "_checkpoint_wrapped_module.",
)


def without(name: str, parts: Iterable[str]) -> str:
    """A parameter's name without these parts, wherever they stand: the module or any submodule may
    be wrapped. Only whole components count: "module." is not a part of "submodule.".
    """
    for part in parts:
        components, gone = name.split("."), part.rstrip(".").split(".")
        name = ".".join(_without(components, gone))
    return name


def _without(components: list[str], gone: list[str]) -> Iterator[str]:
    at = 0
    while at < len(components):
        if components[at : at + len(gone)] == gone:
            at += len(gone)
        else:
            yield components[at]
            at += 1


def for_names(live: Iterable[str], saved: Iterable[str]) -> str:
    """A hint for names of a module's parameters that do not fit: how to make them
    fit, "" if unknown.
    """
    live, saved = set(live), set(saved)
    if live == saved:
        return ""
    for part in _PREFIXES:
        there = [without(name, [part]) for name in saved]
        here = {without(name, [part]) for name in live}
        if len(set(there)) == len(saved) and set(there) == here:
            return f' (the names differ by {part!r}: restore(..., strip="{part}") takes it out)'
    return ""


def strip_names(
    saved: Mapping[str, Any], live: Iterable[str], parts: tuple[str, ...]
) -> dict[str, Any] | None:
    """A module's saved state under the names of a live one that differ only by these parts. None:
    without them, two names are the same.
    """
    live = list(live)
    mine = {without(name, parts): name for name in live}
    if len(mine) < len(live):
        return None
    found: OrderedDict[str, Any] = OrderedDict()
    for name, value in saved.items():
        bare = without(name, parts)
        found[mine.get(bare, bare)] = value
    versions = getattr(saved, "_metadata", None)
    if versions is not None:  # _metadata has the modules' versions, by module name
        named = {without(name, parts): version for name, version in versions.items()}
        modules = {name.rpartition(".")[0] for name in found}
        above = {module[:at] for module in modules for at in _dots(module)}
        renamed = {module: without(module, parts) for module in {"", *modules, *above}}
        found._metadata = {  # type: ignore[attr-defined]
            module: named[bare] for module, bare in renamed.items() if bare in named
        }
    return found if len(found) == len(saved) else None


def _dots(name: str) -> list[int]:
    return [at for at, letter in enumerate(name) if letter == "."]
