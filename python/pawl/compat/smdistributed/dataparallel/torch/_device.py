"""The GPU that a rank works on."""

from __future__ import annotations

import torch

from pawl import _core


def pin() -> None:
    """Selects the GPU of the local rank, once a process. Scripts name "cuda"
    before they select one.
    """
    local_rank = _core.env()["local_rank"]
    if local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
