"""``adaptdl.torch.scaling_rules``."""

from __future__ import annotations

from typing import Any

from pawl import elastic
from pawl.elastic import (
    AdamScale,
    AdaScale,
    LinearScale,
    ScalingRuleBase,
    SqrtScale,
    current_dataloader,
)

__all__ = ["AdaScale", "AdamScale", "LEGWScale", "LinearScale", "ScalingRuleBase", "SqrtScale"]


class LEGWScale(elastic.LEGWScale):
    """LEGWScale that takes the initial batch from the loader whose loop is under way."""

    def _initial_batch(self, adp: Any) -> int:
        loader = current_dataloader()
        return super()._initial_batch(adp) if loader is None else loader.batch_size
