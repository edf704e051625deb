"""What a model knows of its gradients' noise, under AdaptDL's names: for scaling rules that were
written for those."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pawl import _core
from pawl.elastic import _data, _metrics
from pawl.errors import error

if TYPE_CHECKING:
    from pawl.elastic._model import AdaptiveDataParallel


class GradientNoiseScale:
    """What is known of a model's gradients. It measures nothing itself: the model does."""

    def __init__(
        self,
        adp: AdaptiveDataParallel,
        optimizer: torch.optim.Optimizer,
        mp_scaler: Any = None,
        num_replicas: int | None = None,
        accum_scale: float | None = None,
    ) -> None:
        """Of ``adp``; all else is as it was given to that."""
        self._adp = adp

    def sqr_avg(self) -> float:
        """The gradient's squared norm."""
        return self._adp.noise.moments()[0]

    def var_avg(self) -> float:
        """Its variance, in an initial batch."""
        return self._adp.noise.moments()[1]

    @property
    def raw_sqr_avg(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The squared norm, of each group of parameters."""
        return np.array([sqr for sqr, _ in self._adp.noise.of_groups()])

    @property
    def raw_var_avg(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The variance, of each group of parameters."""
        return np.array([var for _, var in self._adp.noise.of_groups()])

    def gain(self, scale: float) -> float:
        """Initial batches that a step of ``scale`` of them is worth."""
        return _core.gain(self._adp.noise.moments(), scale)

    def get_progress(self) -> float:
        """Steps of an initial batch that those so far were worth."""
        return self._adp.progress

    def set_progress(self, progress: float) -> None:
        """Says what they were worth; the same at all replicas."""
        _metrics.current().progress = progress

    @property
    def accum_scale(self) -> float:
        """Initial batches in one gradient of all replicas."""
        loop = _data.training_loop()
        return self._adp.scale / (1 if loop is None else loop.accumulation_steps + 1)

    @property
    def accum_count(self) -> int:
        """Gradients of the step under way, with the one under way."""
        loop = _data.training_loop()
        return 0 if loop is None else loop.gradients

    @property
    def should_zero_grad(self) -> bool:
        """Whether ``optimizer.zero_grad()`` does anything: between steps."""
        return self._adp._may_zero

    def reset_accumulation(self, *args: Any, **kwargs: Any) -> None:
        """As ``optimizer.zero_grad()``: what a step has of its gradients it keeps."""
        self._adp.optimizer.zero_grad(*args, **kwargs)

    def set_accum_scale(self, accum_scale: float) -> None:
        """Raises PawlError for another one than there is: the loader chooses it."""
        if not math.isclose(accum_scale, self.accum_scale, rel_tol=1e-5):
            raise error(
                "PAWL_ENOTSUP", f"set_accum_scale: {accum_scale}: it is {self.accum_scale} here"
            )
