"""Collectives of Pawl for torch.distributed, beside the backend "pawl" that torch finds by itself.

``dist.init_process_group("pawl")`` needs nothing of this module. See docs/distributed.md.
"""

# No postponed annotations: DDP looks at those of a hook.

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from pawl import _register
from pawl.errors import error

__all__ = ["hook"]

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

    All ranks of ``group`` (default: all) call it, in the same order as other collectives: it makes
    a process group of the backend "pawl" for them. Gradients are averaged. ``wire``: "bfloat16" or
    "float16" halves the bytes of 32 bit gradients; sums are made in 32 bits and rounded once.

    Raises PawlError for another ``wire``.
    """
    if wire not in _WIRES:
        raise error("PAWL_EINVAL", f"wire {wire!r}: one of {', '.join(map(repr, _WIRES))}")
    _register.register()
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    made = dist.new_group(members, backend="pawl", use_local_synchronization=group is not None)
    return _State(made, _WIRES[wire]), _reduce


def _reduce(state: _State, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The mean of a bucket over all ranks."""
    buffer = bucket.buffer()
    sent = buffer if state.wire is None else buffer.to(state.wire)
    work = dist.all_reduce(sent, dist.ReduceOp.AVG, group=state.group, async_op=True)
    assert work is not None
    future = work.get_future()
    if sent is buffer:
        return future.then(lambda done: done.value()[0])
    return future.then(lambda done: buffer.copy_(done.value()[0]))
