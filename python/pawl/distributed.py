"""Collectives of Pawl for torch.distributed, beside the backend "pawl" that torch finds by itself.

``dist.init_process_group("pawl")`` needs nothing of this module. See docs/distributed.md.
"""

# No postponed annotations: DDP inspects the annotations of a hook.

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

from pawl._group import _membership, _powersgd, _process_group
from pawl._group._param_server import ParameterServer
from pawl._group._powersgd import PowerSGD
from pawl._group._stats import KindStats, PeerStats, Stats
from pawl.errors import error

__all__ = [
    "KindStats",
    "ParameterServer",
    "PeerStats",
    "PowerSGD",
    "Stats",
    "hook",
    "join",
    "powersgd",
]

_WIRES = {
    None: None,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class _State:
    def __init__(self, group: dist.ProcessGroup, wire: torch.dtype | None) -> None:
        self.group = group
        self.wire = wire


def hook(
    group: dist.ProcessGroup | None = None, wire: str | None = None
) -> tuple[Any, Callable[[Any, dist.GradBucket], Future[torch.Tensor]]]:
    """State and hook for DDP: gradients go through Pawl, whatever backend the rest uses.

        ddp.register_comm_hook(*pawl.distributed.hook())

    All ranks of ``group`` (default: all), and no others, call it: it makes a process group of the
    backend "pawl" for them. Gradients are averaged. ``wire``: "bfloat16" or "float16" halves the
    bytes of 32 bit gradients; sums are made in 32 bits and rounded once.

    Raises PawlError for another ``wire``.
    """
    if wire not in _WIRES:
        raise error("PAWL_EINVAL", f"wire {wire!r}: must be one of {', '.join(map(repr, _WIRES))}")
    beside = group or dist.group.WORLD
    store = dist.distributed_c10d._get_process_group_store(beside)
    made = _process_group.make(
        dist.PrefixStore("pawl-hook/", store), dist.get_rank(beside), dist.get_world_size(beside)
    )
    return _State(made, _WIRES[wire]), _reduce


def _reduce(state: _State, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean of a bucket over all ranks."""
    buffer = bucket.buffer()
    sent = buffer if state.wire is None else buffer.to(state.wire)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG
    future = state.group.allreduce([sent], options).get_future()
    if sent is buffer:
        return future.then(lambda done: done.value()[0])
    return future.then(lambda done: buffer.copy_(done.value()[0]))


def powersgd(
    model: nn.Module,
    rank: int = 1,
    *,
    start_iter: int = 1000,
    min_compression_rate: float = 2.0,
    warm_start: bool = True,
    seed: int = 0,
    group: dist.ProcessGroup | None = None,
) -> tuple[PowerSGD, Callable[[PowerSGD, dist.GradBucket], Future[torch.Tensor]]]:
    """State and hook for DDP: gradients go as matrices of low rank, with error feedback.

        state, hook = pawl.distributed.powersgd(ddp, rank=2, start_iter=500)
        ddp.register_comm_hook(state, hook)

    PowerSGD (Vogels et al. 2019, arXiv:1905.13727): of a gradient seen as an n x m matrix, ranks
    reduce ``rank`` columns of n and of m elements. Each rank adds the rest of its gradient to its
    next one. Sums are begun in one order at all ranks, however many buckets DDP has.

    ``model``: plain or in DDP, on the devices that it is trained on. ``start_iter``: number of
    backward passes that first go uncompressed. A parameter is compressed if that makes it more than
    ``min_compression_rate`` times smaller; others, and vectors, go whole. ``warm_start``: a step
    begins with the last one's result, instead of random numbers from ``seed``. ``group``: DDP's
    (default: all ranks), of any backend. Arguments must be the same at all ranks.

    The state has state_dict and load_state_dict, for checkpoints, and ``compression_ratio``.

    Raises PawlError for wrong arguments.
    """
    if rank < 1 or start_iter < 0 or seed < 0 or not min_compression_rate > 0:
        raise error(
            "PAWL_EINVAL",
            f"powersgd: rank={rank}, start_iter={start_iter}, seed={seed}, min_compression_rate="
            f"{min_compression_rate}: must be at least 1, 0 and 0, and more than 0",
        )
    state = PowerSGD(model, rank, start_iter, min_compression_rate, warm_start, seed, group)
    return state, _powersgd.reduce


def join(door: str, timeout: timedelta = dist.default_pg_timeout) -> dist.ProcessGroup:
    """Makes this process a rank of a running group: waits until the ranks admit it.

        group = pawl.distributed.join(name)      # name: what group.door() returned at a rank

    Use it instead of init_process_group: the group becomes torch's default one here. The other
    ranks have to send their progress (the state, the step) by broadcast. ``timeout``: for being
    admitted, and then of the group's operations.

    Raises PawlError if that rank's join listener is closed or cannot be reached, or if the ranks
    do not admit this process in time.
    """
    return _membership.join(door, timeout)
