"""``adaptdl.torch.parallel``."""

from pawl.elastic import AdaptiveDataParallel

__all__ = ["AdaptiveDataParallel"]
