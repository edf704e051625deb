"""SMP's gradient scaler: off, since ``model.backward`` scales the loss itself, with ``fp16``."""

from __future__ import annotations

from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """torch's, disabled: it scales by 1, and steps the optimizer."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__("cpu", enabled=False)
