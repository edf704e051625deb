"""``adaptdl.torch.accumulator``."""

from pawl.elastic import Accumulator

__all__ = ["Accumulator"]
