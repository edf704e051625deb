"""Parameters that get their first values once it is known which rank has them.

Modules that are made in ``delayed_init`` have large parameters without memory. A DistributedModel
maps memory for them, which costs nothing until it is written. A profile fills one module after the
other, and empties it again. When the model is divided, each rank fills what it has.

First values come from the module that has a parameter, and depend on the seed and on the path of
each module, not on who fills it, nor on what else is filled.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from pawl.errors import error
from pawl.pipeline._draws import hash64

LEAST_BYTES: Final = 1 << 16  # smaller parameters are made at once
_NAMED_MAX: Final = 8  # names in a message

Initialize = Callable[[nn.Module], Any]


class delayed_init:
    """Modules that are made in it have parameters without memory:
    ``with pp.delayed_init(): model = Transformer(config)``. Buffers, and parameters of fewer than
    ``least_bytes`` bytes, are made at once.

    Give the model to DistributedModel. What the constructors write into such parameters is lost:
    see its argument ``initialize``.
    """

    def __init__(self, least_bytes: int = LEAST_BYTES) -> None:
        self._least_bytes = least_bytes

    def __enter__(self) -> None:
        self._plain = torch.nn.Module.register_parameter
        plain, least_bytes = self._plain, self._least_bytes

        def register(module: nn.Module, name: str, param: Any) -> None:
            plain(module, name, param)
            large = type(param) is nn.Parameter and param.nbytes >= least_bytes
            if large and param.device.type == "cpu":
                bare = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
                module._parameters[name] = bare

        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]

    def __exit__(self, *_: Any) -> None:
        torch.nn.Module.register_parameter = self._plain  # type: ignore[method-assign]


class Delayed:
    """The parameters of a model that have no values yet. ``seed``: of first values."""

    def __init__(self, model: nn.Module, initialize: Initialize | None, seed: int) -> None:
        self._seed = seed
        self._initialize = initialize or getattr(model, "_init_weights", None)
        self._waiting = {n: p for n, p in model.named_parameters() if p.device.type == "meta"}
        self._memory = {name: _map_memory(param) for name, param in self._waiting.items()}
        self._filled: set[str] = set()  # parameters that have values for a while
        # Modules, inner ones first, with the parameters below each, and its own.
        self._modules: list[tuple[str, nn.Module, frozenset[str], frozenset[str]]] = []
        if self._waiting:
            names = {id(p): name for name, p in self._waiting.items()}
            self._list(model, "", names, set())

    def _list(self, module: nn.Module, path: str, names: dict[int, str], seen: set[int]) -> None:
        seen.add(id(module))
        for name, child in module.named_children():
            if id(child) not in seen:
                self._list(child, f"{path}.{name}" if path else name, names, seen)
        below = frozenset(names[id(p)] for p in module.parameters() if id(p) in names)
        own = frozenset(names[id(p)] for p in module.parameters(recurse=False) if id(p) in names)
        if below:
            self._modules.append((path, module, below, own))

    @property
    def waiting(self) -> bool:
        """Whether some parameters have no values."""
        return bool(self._waiting)

    def given(self, names: Iterable[str]) -> None:
        """Says that parameters have been given their values."""
        for name in names:
            self._waiting.pop(name, None)
            self._memory.pop(name, None)

    def fill(self, names: Iterable[str], within: nn.Module | None = None) -> frozenset[str]:
        """Gives parameters their values; returns the names of those that had none. ``within``: the
        modules around this one are left out, as in a profile, where any value will do.
        """
        if not self._waiting:
            return frozenset()
        wanted = frozenset(n for n in names if n in self._waiting and n not in self._filled)
        if not wanted:
            return wanted
        inside = None if within is None else {id(m) for m in within.modules()}
        with torch.no_grad():
            for name in wanted:
                _mark(self._waiting[name])
            state = torch.get_rng_state()
            for path, module, below, own in self._modules:
                if not wanted.isdisjoint(below) and (inside is None or id(module) in inside):
                    self._run(path, module, not wanted.isdisjoint(own))
            torch.set_rng_state(state)
        self._check(wanted)
        self._filled |= wanted
        return wanted

    def keep(self, names: Iterable[str]) -> None:
        """Gives parameters their values for good, and empties all others that have none."""
        names = frozenset(names)
        self.fill(names)
        self.empty(self._waiting.keys() - names)
        self.given(list(self._waiting))

    def empty_all(self) -> None:
        """Takes the memory of all parameters that have values for a while."""
        self.empty(list(self._filled))

    def empty(self, names: Iterable[str]) -> None:
        """Takes the memory of parameters that have values for a while."""
        for name in names:
            self._memory[name].madvise(mmap.MADV_DONTNEED)
            self._filled.discard(name)

    def _run(self, path: str, module: nn.Module, has_some: bool) -> None:
        """Gives a module's parameters values, by the model's function or its own."""
        torch.default_generator.manual_seed(hash64(f"{self._seed}/first values/{path}") >> 1)
        if self._initialize is not None:
            self._initialize(module)
        elif has_some:
            reset = getattr(module, "reset_parameters", None)
            if reset is None:
                raise error(
                    "PAWL_EINVAL",
                    f"pipeline: {path} ({type(module).__name__}) was made in delayed_init, and has "
                    "no reset_parameters(): pass DistributedModel(model, initialize=...), a "
                    "function that gives the parameters of a module their values",
                )
            reset()

    def _check(self, names: frozenset[str]) -> None:
        """Refuses parameters that nobody has given values."""
        left = sorted(n for n in names if _is_marked(self._waiting[n]))
        if left:
            more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
            raise error(
                "PAWL_EINVAL",
                f"pipeline: {', '.join(left[:_NAMED_MAX])}{more} of a model that was made in "
                "delayed_init got no values: what constructors write is lost; give them values in "
                "reset_parameters() or in DistributedModel(model, initialize=...)",
            )


def _map_memory(param: nn.Parameter) -> mmap.mmap:
    """Gives a parameter memory that costs nothing until it is written. The object stays."""
    memory = mmap.mmap(-1, param.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    flat = torch.frombuffer(memory, dtype=param.dtype)
    made = nn.Parameter(flat.as_strided(param.size(), param.stride()), param.requires_grad)
    torch.utils.swap_tensors(param, made)
    return memory


def _mark(param: Tensor) -> None:
    if param.is_floating_point() or param.is_complex():
        param.fill_(float("nan"))


def _is_marked(param: Tensor) -> bool:
    marks = param.is_floating_point() or param.is_complex()
    return marks and bool(param.detach().sum().isnan())
