"""Methods of a group that torch lets be called in two ways: with lists and options, as
torch.distributed does, and with single tensors, a root, an operation and a timeout.

Calls of the second kind are converted into the first. Names and defaults are those
of torch's own ProcessGroup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._C import _distributed_c10d as c10d


@dataclass(frozen=True)
class Form:
    """The signature of a method, in both ways of calling it."""

    tensors: tuple[tuple[str, ...], ...]  # accepted names of each argument before the options
    options: type  # type of the options argument, which is last
    rest: tuple[str, ...] = ()  # options that may be given one by one; a timeout may follow
    single: int | None = None  # index of the argument that is one tensor if all others are, too

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Converts a call of either kind to lists of tensors and options.

        Raises TypeError for wrong arguments, as a call of a function would.
        """
        if len(kwargs) == 1 and type(kwargs.get("opts")) is self.options and not self.tensors:
            return [kwargs["opts"]]
        count = len(self.tensors)
        named = dict(kwargs)
        found = [*args[:count], *(_take(named, names) for names in self.tensors[len(args) :])]
        if self.single is not None and isinstance(found[self.single], torch.Tensor):
            found = [[each] for each in found]
        return [*found, self._options(args[count:], named)]

    def _options(self, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if args and isinstance(args[0], self.options):
            named["opts"], args = args[0], args[1:]
        names = (*self.rest, "timeout")
        if len(args) > len(names):
            raise TypeError(
                f"takes {', '.join(names)} after the tensors, not {len(args)} arguments"
            )
        named |= zip(names, args, strict=False)
        options = named.pop("opts", None) or self.options()
        for name, value in named.items():
            if name not in names:
                raise TypeError(f"unknown argument: {name}")
            if value is not None:
                setattr(options, _FIELDS[name], value)
        return options


_FIELDS: Final = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}
_SPLITS: Final = (("output_split_sizes",), ("input_split_sizes",))
_OUT: Final = ("output_tensors", "output_tensor", "output")
_IN: Final = ("input_tensors", "input_tensor", "input")

# Keyed by torch's older names of the methods.
FORMS: Final = {
    "allreduce": Form((("tensors", "tensor"),), c10d.AllreduceOptions, ("op",), 0),
    "reduce": Form((("tensors", "tensor"),), c10d.ReduceOptions, ("root", "op"), 0),
    "broadcast": Form((("tensors", "tensor"),), c10d.BroadcastOptions, ("root",), 0),
    "allgather": Form((_OUT, _IN), c10d.AllgatherOptions, (), 1),
    "gather": Form((_OUT, _IN), c10d.GatherOptions, ("root",), 1),
    "scatter": Form((_OUT, _IN), c10d.ScatterOptions, ("root",), 0),
    "reduce_scatter": Form((_OUT, _IN), c10d.ReduceScatterOptions, ("op",), 0),
    "alltoall_base": Form((_OUT, _IN, *_SPLITS), c10d.AllToAllOptions),
    "alltoall": Form((_OUT, _IN), c10d.AllToAllOptions),
    "barrier": Form((), c10d.BarrierOptions),
}


def _take(named: dict[str, Any], names: Sequence[str]) -> Any:
    """Removes the argument that was given by one of its names, and returns it."""
    for name in names:
        if name in named:
            return named.pop(name)
    raise TypeError(f"missing argument: {names[0]}")
