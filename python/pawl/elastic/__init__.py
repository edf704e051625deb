"""Training whose batch size, learning rate and ranks adapt to the machines.

    import pawl.elastic as el
    model = el.AdaptiveDataParallel(model, optimizer, lr_scheduler)
    loader = el.AdaptiveDataLoader(dataset, batch_size=128, shuffle=True)
    loader.autoscale_batch_size(1024, local_bsz_bounds=(16, 256), gradient_accumulation=True)
    for epoch in el.remaining_epochs_until(30):
        for batch in loader:
            ...

The names are those of AdaptDL's ``adaptdl.torch``.
"""

from pawl.elastic._accumulator import Accumulator
from pawl.elastic._boundary import step_boundary
from pawl.elastic._context import init_process_group
from pawl.elastic._data import (
    AdaptiveDataLoader,
    AdaptiveDataLoaderHelper,
    AdaptiveDataLoaderMixin,
    current_dataloader,
)
from pawl.elastic._epochs import current_epoch, finished_epochs, remaining_epochs_until
from pawl.elastic._model import AdaptiveDataParallel
from pawl.elastic._rules import (
    AdamScale,
    AdaScale,
    LEGWScale,
    LinearScale,
    ScalingRuleBase,
    SqrtScale,
)
from pawl.elastic._sampler import ElasticSampler
from pawl.elastic._states import State, load_state

__all__ = [
    "Accumulator",
    "AdaScale",
    "AdamScale",
    "AdaptiveDataLoader",
    "AdaptiveDataLoaderHelper",
    "AdaptiveDataLoaderMixin",
    "AdaptiveDataParallel",
    "ElasticSampler",
    "LEGWScale",
    "LinearScale",
    "ScalingRuleBase",
    "SqrtScale",
    "State",
    "current_dataloader",
    "current_epoch",
    "finished_epochs",
    "init_process_group",
    "load_state",
    "remaining_epochs_until",
    "step_boundary",
]
