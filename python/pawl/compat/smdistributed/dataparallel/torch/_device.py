"""Which GPU a rank works on."""

from __future__ import annotations

import torch

from pawl import _core


def pin() -> None:
    """One a process: that of its local rank. Scripts say "cuda" before they say which one."""
    local_rank = _core.env()["local_rank"]
    if local_rank < torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
