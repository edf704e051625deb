"""SMDDP's collectives up to 1.3: torch.distributed's, of all ranks, by the backend "pawl"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import all_gather, barrier, get_rank, get_world_size, is_initialized

from pawl import _core
from pawl._group import _register, _rendezvous
from pawl.compat.smdistributed.dataparallel.torch import _device

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
]


class ReduceOp:
    """The reductions of all_reduce. AVERAGE takes floats only."""

    AVERAGE = dist.ReduceOp.AVG
    SUM = dist.ReduceOp.SUM
    MIN = dist.ReduceOp.MIN
    MAX = dist.ReduceOp.MAX


class group:
    """The only group."""

    WORLD = None  # torch has this name, too


def is_available() -> bool:
    """Whether a launcher started this process as a rank."""
    return bool(_core.env()["source"] != "none")


def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Meets the other ranks; arguments are ignored.

    Sets torch's variables where the launcher has not, and the CUDA device. Raises PawlError if
    nothing says where rank 0 is, ValueError in a process that no launcher started, or if
    torch.distributed is initialized already.
    """
    _rendezvous.set_variables()
    _register.register()
    _device.pin()
    dist.init_process_group("pawl")


def get_local_rank() -> int:
    """This rank's number on its host."""
    return int(_core.env()["local_rank"])


def all_reduce(
    tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: Any = group.WORLD, async_op: bool = False
) -> dist.Work | None:
    """Sums, or otherwise reduces, all ranks' tensors in place, with the same bits at all ranks."""
    return dist.all_reduce(tensor, ReduceOp.SUM if op is None else op, group, async_op)


def broadcast(
    tensor: torch.Tensor, src: int = 0, group: Any = group.WORLD, async_op: bool = False
) -> dist.Work | None:
    """Sends one rank's tensor to all others."""
    return dist.broadcast(tensor, src, group, async_op)


def all_to_all_single(
    output_t: torch.Tensor,
    input_t: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = group.WORLD,
    async_op: bool = False,
) -> dist.Work | None:
    """Sends rows of a tensor to each rank, and receives theirs."""
    sizes = output_split_sizes, input_split_sizes
    return dist.all_to_all_single(output_t, input_t, *sizes, group, async_op)
