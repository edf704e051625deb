"""``adaptdl.torch``: AdaptDL's names, of pawl.elastic."""

from pawl.elastic import (
    Accumulator,
    AdaptiveDataLoader,
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
    "current_dataloader",
    "current_epoch",
    "finished_epochs",
    "init_process_group",
    "remaining_epochs_until",
]
