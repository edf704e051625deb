"""SMDDP's DistributedDataParallel up to 1.3, under the shorter of its two names."""

from pawl.compat.smdistributed.dataparallel.torch.parallel.distributed import (
    DistributedDataParallel,
)

__all__ = ["DistributedDataParallel"]
