"""A model's statistics of its gradients' noise under AdaptDL's names, for scaling
rules written for those.
"""

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
    """Statistics of a model's gradients. The model measures them, not this object."""

    def __init__(
        self,
        adp: AdaptiveDataParallel,
        optimizer: torch.optim.Optimizer,
        mp_scaler: Any = None,
        num_replicas: int | None = None,
        accum_scale: float | None = None,
    ) -> None:
        """Reads the statistics of ``adp``; the other arguments are ignored."""
        self._adp = adp

    def sqr_avg(self) -> float:
        """The gradient's squared norm."""
        return self._adp.noise.moments()[0]

    def var_avg(self) -> float:
        """The gradient's variance, in an initial batch."""
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
        """The number of steps of an initial batch that all steps so far were worth."""
        return self._adp.progress

    def set_progress(self, progress: float) -> None:
        """Sets the progress; call it with the same value at all replicas."""
        _metrics.current().progress = progress

    @property
    def accum_scale(self) -> float:
        """Initial batches in one gradient of all replicas."""
        loop = _data.training_loop()
        return self._adp.scale / (1 if loop is None else loop.accumulation_steps + 1)

    @property
    def accum_count(self) -> int:
        """The number of gradients of the current step, the current gradient included."""
        loop = _data.training_loop()
        return 0 if loop is None else loop.gradients

    @property
    def should_zero_grad(self) -> bool:
        """Whether ``optimizer.zero_grad()`` does anything: between steps."""
        return self._adp._may_zero

    def reset_accumulation(self, *args: Any, **kwargs: Any) -> None:
        """Does the same as ``optimizer.zero_grad()``: the current step keeps its gradients."""
        self._adp.optimizer.zero_grad(*args, **kwargs)

    def set_accum_scale(self, accum_scale: float) -> None:
        """Raises PawlError for another value than the current one: the loader chooses it."""
        if not math.isclose(accum_scale, self.accum_scale, rel_tol=1e-5):
            raise error(
                "PAWL_ENOTSUP", f"set_accum_scale: {accum_scale}: it is {self.accum_scale} here"
            )
