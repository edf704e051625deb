"""Events of each call for torch's profilers, like those of torch's own backends.

``pawl:all_reduce`` lasts from the call until the operation is over, which another thread notices:
an asynchronous event. ``pawl::all_reduce`` in it is the call alone, in the caller's thread, with
the tensors' shapes: Python cannot give them to an asynchronous event, and tools that read traces
look for them. (record_param_comms, as NCCL's calls are named there, is torch's own: called by that
name from Python, it crashes.) While no profiler is on, nothing of this is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import record_function
from torch.futures import Future

from pawl._group._register import numbers

if TYPE_CHECKING:
    from pawl._group._process_group import ProcessGroup
    from pawl._group._work import Work

# The part after "pawl:" of an event's name, by torch's older names of methods.
TITLES: Final = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recvAnySource",
    "barrier": "barrier",
}
# Methods whose first argument is the output, not the input.
_OUTPUTS_FIRST: Final = (
    "allgather",
    "allgather_coalesced",
    "_allgather_base",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "gather",
    "scatter",
    "alltoall",
    "alltoall_base",
)


def record(
    group: ProcessGroup, name: str, method: Callable[..., Work], args: Sequence[Any], kwargs: Any
) -> Work:
    """Calls a method of a group, and shows it to the profiler that is on."""
    given = args[1 if name in _OUTPUTS_FIRST else 0 :][:1]
    inputs = _flat(given)
    outputs = _flat(args[:1])
    event = record_function(f"pawl:{TITLES[name]}")
    event.__enter__()
    try:
        with _RecordFunctionFast(
            f"pawl::{TITLES[name]}", inputs, _about(group, name, inputs, outputs)
        ):
            work = method(group, *args, **kwargs)
    except BaseException:
        event.__exit__(None, None, None)
        raise
    ended: Future[None] = Future()
    work.shown = event._call_end_callbacks_on_future(ended)
    caller = threading.get_ident()

    def end(_: Future[None]) -> None:
        # torch takes an event for an asynchronous one only if another thread ends it.
        if threading.get_ident() == caller:
            threading.Thread(target=ended.set_result, args=(None,), daemon=True).start()
        else:
            ended.set_result(None)

    work.call_when_over(end)
    return work


def _flat(values: Sequence[Any]) -> list[torch.Tensor]:
    """All tensors in lists of lists."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _flat(value)
    return found


def _about(
    group: ProcessGroup, name: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> dict[str, Any]:
    """The arguments of an event, named as torch's NCCL backend names them."""
    return {
        "Collective name": TITLES[name],
        "dtype": str(inputs[0].dtype).removeprefix("torch.") if inputs else "",
        "In msg nelems": sum(t.numel() for t in inputs),
        "Out msg nelems": sum(t.numel() for t in outputs),
        "Group size": group.size(),
        "Process Group Name": group.group_name,
        "Process Group Description": group.group_desc,
        "Process Group Ranks": str(numbers(group)),
    }
