"""``adaptdl.torch.epoch``."""

from pawl.elastic import current_epoch, finished_epochs, remaining_epochs_until

__all__ = ["current_epoch", "finished_epochs", "remaining_epochs_until"]
