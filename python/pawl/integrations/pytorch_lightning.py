"""For `pytorch_lightning`: ``Trainer(plugins=[PawlCheckpointIO()])``; see PawlCheckpointIO."""

from __future__ import annotations

from pawl.integrations._lightning import checkpoint_io

__all__ = ["PawlCheckpointIO"]

PawlCheckpointIO = checkpoint_io("pytorch_lightning")
