"""``adaptdl.torch``: AdaptDL's names for pawl.elastic."""

from pawl.compat.adaptdl.torch import (
    accumulator,
    data,
    epoch,
    gradient_noise_scale,
    iterator,
    parallel,
    scaling_rules,
)
from pawl.compat.adaptdl.torch.data import AdaptiveDataLoader
from pawl.elastic import (
    Accumulator,
    AdaptiveDataParallel,
    ElasticSampler,
    current_dataloader,
    current_epoch,
    finished_epochs,
    init_process_group,
    remaining_epochs_until,
)

__all__ = [
    "Accumulator",
    "AdaptiveDataLoader",
    "AdaptiveDataParallel",
    "ElasticSampler",
    "accumulator",
    "current_dataloader",
    "current_epoch",
    "data",
    "epoch",
    "finished_epochs",
    "gradient_noise_scale",
    "init_process_group",
    "iterator",
    "parallel",
    "remaining_epochs_until",
    "scaling_rules",
]
