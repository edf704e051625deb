"""SMP's name of the module that has DistributedModel."""

from pawl.compat.smdistributed.modelparallel.torch._model import DistributedModel

__all__ = ["DistributedModel"]
