"""Other backends beside ours, which a string such as ``"cpu:gloo,cuda:pawl"`` names."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist

from pawl.errors import error


def device_map() -> dict[str, str]:
    """The backend that was named for each device, in the call that makes this group.

    torch does not pass it to a creator, and drops all other named backends once it has got a
    ProcessGroup: so it is read from torch's own frame.
    """
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame.f_locals.get("backend_config") if frame is not None else None
    return dict(config.get_device_backend_map()) if config is not None else {}


def other_backend(name: str, options: Any) -> tuple[Any, Any]:
    """(type, backend) of another backend in a string like "cpu:pawl,cuda:nccl"."""
    store = dist.PrefixStore(f"pawl/{name}/", options.store)
    rank, size = options.group_rank, options.group_size
    kinds = dist.ProcessGroup.BackendType
    if name == "gloo":
        made = dist.ProcessGroupGloo(store, rank, size, options.timeout)
        return kinds.GLOO, made
    if name == "nccl" and dist.is_nccl_available():
        nccl = dist.ProcessGroupNCCL.Options()
        nccl._timeout = options.timeout
        return kinds.NCCL, dist.ProcessGroupNCCL(store, rank, size, nccl)
    why = "this torch has none" if name == "nccl" else "gloo and nccl are"
    raise error(
        "PAWL_ENOTSUP",
        f"collectives: backend {name!r} beside pawl is not supported: {why}",
    )


def first_tensor(values: Any) -> torch.Tensor | None:
    """The first tensor in arguments, or in lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := first_tensor(value)) is not None:
            return found
    return None
