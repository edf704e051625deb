"""SMDDP's DistributedDataParallel up to 1.3: torch's, with the behaviour that
scripts for it rely on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from pawl.errors import error

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(TorchDDP):
    """Averages gradients over all ranks; parameters and buffers are rank 0's at the start.

    Buffers are not sent in ``forward``, whatever ``broadcast_buffers`` says: SMDDP could not, and
    in scripts for it rank 0 evaluates alone, where it would wait for the others.
    ``bucket_cap_mb``: None is 25.

    Raises PawlError for a ``process_group`` other than the one of all ranks.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: list[int] | None = None,
        output_device: int | None = None,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
    ) -> None:
        if process_group not in (None, torch.distributed.group.WORLD):
            raise error("PAWL_ENOTSUP", "smddp: process_group: group.WORLD is the only one")
        super().__init__(
            module, device_ids=device_ids, output_device=output_device, bucket_cap_mb=bucket_cap_mb
        )
        self.broadcast_buffers = False  # set only now, after the base class has sent them once
