"""``adaptdl.torch.data``: loaders whose batches are AdaptDL's.

All ranks have equally many samples in a step, which therefore has some more than ``batch_size``
where that is not a multiple of the ranks; and loops may be outside of epochs.
"""

from __future__ import annotations

from pawl import elastic
from pawl.elastic import ElasticSampler, current_dataloader

__all__ = [
    "AdaptiveDataLoader",
    "AdaptiveDataLoaderHelper",
    "AdaptiveDataLoaderMixin",
    "ElasticSampler",
    "current_dataloader",
]


class AdaptiveDataLoaderHelper(elastic.AdaptiveDataLoaderHelper):
    """pawl.elastic's helper, with AdaptDL's rounding."""

    _rounds_up = True

    def autoscale_batch_size(
        self,
        max_batch_size: int,
        local_bsz_bounds: tuple[int, int] | None = None,
        gradient_accumulation: bool = False,
    ) -> None:
        """Makes the helper; its loader is the one that trains, unless there is one."""
        super().autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)
        self.train()

    def _sync_local_bsz(self) -> int | None:
        """Called by loaders of users: samples of this rank at once, from now on."""
        return self.current_local_bsz


class AdaptiveDataLoaderMixin(elastic.AdaptiveDataLoaderMixin):
    """pawl.elastic's mixin, with this module's helper."""

    _helper = AdaptiveDataLoaderHelper


class AdaptiveDataLoader(elastic.AdaptiveDataLoader):
    """pawl.elastic's loader, with this module's helper."""

    _helper = AdaptiveDataLoaderHelper
    _needs_epochs = False
