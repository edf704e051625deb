"""From the user's state to named partitions: the name of each, and whether all ranks share it.

Shared means that all ranks hold the same bytes and each writes a part of one file. Partitions are
shared if DistributedDataParallel keeps them alike: a module wrapped in it, and an optimizer all of
whose parameters belong to such modules in the same state. A wrapped module with persistent buffers
is not shared: running statistics differ from rank to rank between two forward passes. Register
constant tables with persistent=False to have their module saved once.
"""

from __future__ import annotations

import logging
import operator
import re
import weakref
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer

from pawl._ckpt import _fence, _parts

log = logging.getLogger("pawl")

RNG: Final = "rng"  # the partition that is added for each rank
NAME_MAX_BYTES: Final = 180
STEP_MAX: Final = (1 << 63) - 1
_RANKED: Final = re.compile(r"-rank\d+$")


class Piece(NamedTuple):
    """One partition to be saved."""

    name: str
    shared: bool  # True: all ranks hold the same value
    value: Any  # object to be pickled: a state_dict, a _parts.Saved, or the value itself


def check_step(step: Any) -> int:
    """A training step as an int. Raises TypeError or ValueError for anything else."""
    if isinstance(step, bool):
        raise TypeError("step must be an int, not a bool")
    value = operator.index(step)
    if not 0 <= value <= STEP_MAX:
        raise ValueError(f"step must be between 0 and 2**63 - 1, not {value}")
    return value


def check_names(state: Any) -> None:
    """Raises TypeError or ValueError naming the key that cannot be a partition's name."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be a dict of names, not a {type(state).__qualname__}")
    for name in state:
        why = _bad_name(name)
        if why is not None:
            raise (ValueError if isinstance(name, str) else TypeError)(
                f"state[{name!r}]: a partition's name {why}"
            )


def _bad_name(name: Any) -> str | None:
    if not isinstance(name, str):
        return f"must be a str, not a {type(name).__qualname__}"
    if name == RNG:
        return "must not be 'rng': the generators' state is saved under it"
    if not name or "/" in name or "\0" in name or name.startswith("."):
        return "must not be empty, begin with '.', or contain '/' or a zero byte"
    if name == "complete.txt" or _RANKED.search(name):
        return "must not be 'complete.txt' or end in -rank and a number: files are called so"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode"
    if size > NAME_MAX_BYTES:
        return f"must not be longer than {NAME_MAX_BYTES} bytes in UTF-8"
    return None


def has_state(obj: Any) -> bool:
    """Whether obj is saved by its state_dict()."""
    return not isinstance(obj, type) and callable(getattr(obj, "state_dict", None))


class Sharing:
    """Decides which partitions the ranks share. Remembers the answer while nothing changes."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._key: Any = None  # the state that the answer below is for
        self._names: frozenset[str] = frozenset()
        self._warned: set[str] = set()  # modules whose buffers were mentioned to the user

    def split(self, state: Mapping[str, Any], diverged: set[str]) -> list[Piece]:
        """The partitions of state, in its order; registers the optimizers in it with the guard."""
        values = {}
        for name, wrapped in state.items():
            obj = _parts.unwrap(wrapped)
            if isinstance(obj, Optimizer):
                _fence.mask_of(obj)
            divided = _parts.find(obj)
            if divided is not None:
                values[name] = _parts.describe(name, obj, divided)
            else:
                values[name] = obj.state_dict() if has_state(obj) else obj
        shared = self._shared(state, values) - diverged if self._world > 1 else frozenset()
        return [Piece(name, name in shared, value) for name, value in values.items()]

    def _shared(self, state: Mapping[str, Any], values: dict[str, Any]) -> frozenset[str]:
        key: list[Any] = []
        for name, obj in state.items():
            if isinstance(obj, DistributedDataParallel):
                key.append((name, weakref.ref(obj), list(values[name])))
            elif isinstance(obj, Optimizer):
                key.append((name, weakref.ref(obj), [id(p) for p in _params_of(obj)]))
            else:
                key.append(name)
        if key != self._key:
            self._names = self._find(state, values)
            self._key = key
        return self._names

    def _find(self, state: Mapping[str, Any], values: dict[str, Any]) -> frozenset[str]:
        names = set()
        alike: set[int] = set()  # parameters that DDP keeps equal on all ranks
        for name, obj in state.items():
            if isinstance(obj, DistributedDataParallel):
                ignored = set(getattr(obj, "parameters_to_ignore", ()))
                named = obj.module.named_parameters()
                alike.update(id(p) for n, p in named if n not in ignored)
                if not ignored and not self._has_buffers(name, obj, values[name]):
                    names.add(name)
        for name, obj in state.items():
            if isinstance(obj, Optimizer) and not _is_sharded(obj):
                params = _params_of(obj)
                if params and all(id(p) in alike for p in params):
                    names.add(name)
        return frozenset(names)

    def _has_buffers(self, name: str, module: torch.nn.Module, saved: Any) -> bool:
        buffers = [key for key, _ in module.named_buffers(remove_duplicate=False) if key in saved]
        extra = [key for key in saved if key.endswith("_extra_state")]
        if buffers and name not in self._warned:
            self._warned.add(name)
            log.info(
                "state[%r] has persistent buffers (%s, ...), which may differ by rank: every "
                "rank's copy is saved",
                name,
                buffers[0],
            )
        return bool(buffers or extra)


def _params_of(optimizer: Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _is_sharded(optimizer: Optimizer) -> bool:
    """Whether each rank holds another part of its state, as of a ZeroRedundancyOptimizer."""
    return any(kind.__module__.startswith("torch.distributed.") for kind in type(optimizer).__mro__)


def only_names(only: Any, state: Mapping[str, Any]) -> list[str]:
    """The names to restore, in the order of state. Raises ValueError naming one
    that is not in it.
    """
    if only is None:
        return [*state, RNG]
    if isinstance(only, str):
        raise TypeError("only must be a list of names, not a str")
    wanted = set(only)
    unknown = sorted(wanted - set(state) - {RNG})
    if unknown:
        raise ValueError(f"only={unknown}: state has no such names")
    return [name for name in [*state, RNG] if name in wanted]
