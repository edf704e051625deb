"""Models of which each rank has some tensors, whole: the stages of a pipeline.

Each rank saves what it has, under names in the whole model; of what several ranks have alike, the
first one saves. In the tensor table each tensor is a shard that is the whole, so that any rank
finds it. A restore joins the structures that all ranks saved, and reads the tensors that this rank
has. One rank's file of a model is a state_dict that torch loads with strict=False.

An optimizer's parameters are numbered as in the model, and named ("param_names", as torch does).
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch.optim.optimizer import Optimizer

from pawl._ckpt._paths import locate
from pawl._ckpt._shards import Shard
from pawl.errors import error

MARK: Final = "pawl.pipeline"  # key of what all ranks know of the model, see Divided.mark
_NAMES: Final = "param_names"


class Here(NamedTuple):
    """Entries of a state_dict that this rank has, and names of those that it has not."""

    tensors: dict[str, torch.Tensor]
    elsewhere: frozenset[str]
    parameters: frozenset[str]  # names of the parameters among them, without aliases
    strange: tuple[str, ...]  # names of entries that are neither parameters nor buffers


class Divided(Protocol):
    """A model that is divided over ranks by names."""

    def names(self) -> dict[int, str]:
        """id -> name of all parameters of the model, in its order."""

    def saves(self) -> Here:
        """What this rank saves."""

    def saved_parameters(self) -> frozenset[str]:
        """Names of the parameters among these."""

    def has(self) -> Here:
        """What this rank has, be it saved by another one."""

    def restores(self, mark: Mapping[str, Any] | None) -> Here:
        """What this rank restores of a save with this mark; None: of a plain model's."""

    def mark(self) -> dict[str, Any]:
        """Plain values that a restore is given, alike on all ranks: "layout" (how the ranks are
        laid out), "plan", "steps".
        """

    def restored(self, mark: Mapping[str, Any] | None) -> None:
        """Says that the tensors of a save have been restored. Cannot fail."""


_found: dict[int, tuple[torch.nn.Module, Divided]] = {}  # by identity of a module


def register(modules: Iterable[torch.nn.Module], divided: Divided) -> None:
    """Makes known that these modules are a divided model; each of them may be in a state."""
    for module in modules:
        _found[id(module)] = module, divided


def forget(divided: Divided) -> None:
    """Makes its modules plain ones again."""
    for one, (_, other) in list(_found.items()):
        if other is divided:
            del _found[one]


def find(obj: Any) -> Divided | None:
    """The divided model that obj is, or whose parameters it optimizes."""
    if id(obj) in _found:
        return _found[id(obj)][1]
    if _found and isinstance(obj, Optimizer):
        first = next((p for group in obj.param_groups for p in group["params"]), None)
        for _, divided in _found.values():
            if id(first) in divided.names():
                return divided
    return None


def unwrap(obj: Any) -> Any:
    """The optimizer that a wrapper steps, where it says so (``pawl_inner``); any other object."""
    return getattr(obj, "pawl_inner", obj) if isinstance(obj, Optimizer) else obj


# ---- saving ----


class Saved(NamedTuple):
    """A partition's object, and the box that each tensor in it is of a whole one, by id."""

    value: Any
    shards: dict[int, Shard]


def describe(name: str, obj: Any, divided: Divided) -> Saved:
    """What this rank saves of state[name]: the model, or an optimizer of it.

    Raises PawlError (PAWL_ENOTSUP) naming what cannot be saved.
    """
    if isinstance(obj, Optimizer):
        value: Any = _of_optimizer(name, obj, divided, divided.saved_parameters())
    else:
        value = _of_model(name, divided)
    shards: dict[int, Shard] = {}
    return Saved(_contiguous(name, value, value, shards), shards)


def _of_model(name: str, divided: Divided) -> OrderedDict[str, torch.Tensor]:
    here = divided.saves()
    if here.strange:
        raise error("PAWL_ENOTSUP", f"state[{name!r}]: {strangeness(here)}")
    value = OrderedDict(here.tensors)
    value._metadata = OrderedDict({MARK: divided.mark()})  # type: ignore[attr-defined]
    return value


def strangeness(here: Here) -> str:
    """Why a model is not saved or restored by names."""
    return (
        f"{', '.join(here.strange[:8])} of the module's state_dict is neither parameter nor "
        "buffer, and cannot be saved by name"
    )


def local_optimizer(optimizer: Optimizer, divided: Divided) -> dict[str, Any]:
    """The state of the parameters that this rank has, by their numbers in the model, for fit."""
    return _of_optimizer("optimizer", optimizer, divided, divided.has().parameters)


def _of_optimizer(
    name: str, optimizer: Optimizer, divided: Divided, mine: frozenset[str]
) -> dict[str, Any]:
    names = divided.names()
    numbers = {known: i for i, known in enumerate(names.values())}
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if any(id(p) not in names for p in params):
        raise error(
            "PAWL_ENOTSUP",
            f"state[{name!r}] has parameters of the pipelined model and others: make an optimizer "
            "for each",
        )
    found = optimizer.state_dict()
    state = {}
    for index, entry in found["state"].items():
        if not isinstance(index, int):
            state[index] = entry
        elif names[id(params[index])] in mine:
            state[numbers[names[id(params[index])]]] = entry
    groups = []
    for live, group in zip(optimizer.param_groups, found["param_groups"], strict=True):
        known = [names[id(p)] for p in live["params"]]
        groups.append({**group, "params": [numbers[n] for n in known], _NAMES: known})
    return {"state": state, "param_groups": groups, MARK: divided.mark()}


def _contiguous(name: str, whole: Any, item: Any, shards: dict[int, Shard]) -> Any:
    """item with its tensors in row-major order, each noted in shards."""
    if isinstance(item, torch.Tensor):
        if item.layout != torch.strided or item.is_quantized or item.device.type == "meta":
            raise error(
                "PAWL_ENOTSUP",
                f"state[{name!r}]{locate(whole, item) or ''} is a {item.layout} tensor on "
                f"{item.device}: pipelines save dense tensors only",
            )
        if item.requires_grad or not item.is_contiguous():
            item = item.detach().contiguous()
        shards[id(item)] = (tuple(item.shape), (0,) * item.dim())
    elif type(item) in (dict, OrderedDict):
        made = copy.copy(item)
        made.update((key, _contiguous(name, whole, inner, shards)) for key, inner in item.items())
        return made
    elif type(item) in (list, tuple):
        return type(item)(_contiguous(name, whole, inner, shards) for inner in item)
    return item


# ---- restoring ----


def mark_of(value: Any) -> Mapping[str, Any] | None:
    """The mark of a partition that one rank saved of a divided model; None: it is none."""
    if not isinstance(value, dict):
        return None
    metadata = getattr(value, "_metadata", None)
    found = metadata.get(MARK) if isinstance(metadata, dict) else value.get(MARK)
    return found if isinstance(found, dict) else None


def join(values: list[Any]) -> Any:
    """One object of those that the ranks saved; of what several have, the first one's."""
    first = values[0]
    if MARK not in first:
        for other in values[1:]:
            for key, tensor in other.items():
                first.setdefault(key, tensor)
        return first
    state: dict[Any, Any] = {}
    for value in values:
        for key, entry in value["state"].items():
            state.setdefault(key, entry)
    columns = zip(*[value["param_groups"] for value in values], strict=True)
    return {**first, "state": state, "param_groups": [_join_groups(column) for column in columns]}


def _join_groups(groups: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """A group of all parameters. An optimizer may have those of its rank only."""
    first = groups[0]
    if all(group["params"] == first["params"] for group in groups):
        return first
    names = {i: n for g in groups for i, n in zip(g["params"], g[_NAMES], strict=True)}
    order = sorted(names)
    return {**first, "params": order, _NAMES: [names[i] for i in order]}


class Unfit(Exception):
    """A saved optimizer's groups are not those of the live one."""


def fit(saved: Mapping[str, Any], optimizer: Optimizer, divided: Divided | None) -> dict[str, Any]:
    """A saved optimizer's state_dict as that of the live one: by names if both have them, else by
    position. ``divided``: the live one's model, of which only what this rank has is taken.

    Raises Unfit with the reason.
    """
    mark = mark_of(saved)
    names = divided.names() if divided else None
    here = divided.restores(mark).parameters if divided else None
    state: dict[Any, Any] = {k: v for k, v in saved["state"].items() if not isinstance(k, int)}
    groups = []
    place = 0
    if len(saved["param_groups"]) != len(optimizer.param_groups):
        raise Unfit(
            f"saved {len(saved['param_groups'])} groups of parameters, live "
            f"{len(optimizer.param_groups)}"
        )
    for i, (theirs, ours) in enumerate(
        zip(saved["param_groups"], optimizer.param_groups, strict=True)
    ):
        numbers = _numbers(i, theirs, ours["params"], names if mark else None)
        for number, parameter in zip(numbers, ours["params"], strict=True):
            known = names[id(parameter)] if names else None
            if number in saved["state"] and (here is None or known in here):
                state[place] = saved["state"][number]
            place += 1
        options = {k: v for k, v in theirs.items() if k != _NAMES or _NAMES in ours}
        options["params"] = list(range(place - len(numbers), place))
        groups.append(options)
    return {"state": state, "param_groups": groups}


def _numbers(
    index: int, saved: Mapping[str, Any], live: list[Any], names: Mapping[int, str] | None
) -> list[int]:
    """The saved number of each live parameter of a group."""
    if names is None or _NAMES not in saved:
        if len(saved["params"]) != len(live):
            raise Unfit(
                f"parameters of group {index}: saved {len(saved['params'])}, live {len(live)}"
            )
        return list(saved["params"])
    by_name = dict(zip(saved[_NAMES], saved["params"], strict=True))
    unknown = [names[id(p)] for p in live if names[id(p)] not in by_name]
    if unknown:
        raise Unfit(f"group {index} was saved without {', '.join(unknown[:8])}")
    return [by_name[names[id(p)]] for p in live]
