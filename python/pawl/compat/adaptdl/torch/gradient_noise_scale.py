"""``adaptdl.torch.gradient_noise_scale``: statistics of a gradient's noise.

For an AdaptiveDataParallel they are those that the model has measured. Used by hand, the class
measures by AdaptDL's formulas: hooks of parameters add up squared norms of each replica's
gradients, and after a backward pass in which gradients were reduced these are compared with the
squared norms of the mean.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pawl.elastic import AdaptiveDataParallel, _gns

__all__ = ["AdamGradientNoiseScale", "GradientNoiseScale"]

log = logging.getLogger("pawl")

_KEPT = 0.999  # weight that an average keeps per gradient of an initial batch
_VAR_LEAST = 1e-6
_STEPS_LEAST = 5  # Adam's second moments mean little before this step

_Gradients = list[list[torch.Tensor | None]]  # gradients of each group


class GradientNoiseScale:
    """Averages of each group's squared norm and variance (in an initial batch), and progress.

    The averages are kept in ``optimizer.state["gns"]``. Progress is the number of steps of an
    initial batch that all steps so far were worth.
    """

    def __new__(cls, adp: Any, *args: Any, **kwargs: Any) -> GradientNoiseScale:
        """For an AdaptiveDataParallel, returns an object that reads the model's own statistics."""
        return object.__new__(_OF_MODEL[cls] if isinstance(adp, AdaptiveDataParallel) else cls)

    def __init__(
        self,
        adp: Any,
        optimizer: torch.optim.Optimizer,
        mp_scaler: Any = None,
        num_replicas: int | None = None,
        accum_scale: float | None = None,
    ) -> None:
        """``adp``: its ``require_backward_grad_sync``, as DDP's, says whether gradients are reduced
        in a backward pass. ``mp_scaler``: a GradScaler. ``num_replicas``: default: the default
        process group's. ``accum_scale``: initial batches in a gradient of all replicas; default:
        one for each replica.
        """
        self._adp, self._optimizer, self._mp_scaler = adp, optimizer, mp_scaler
        self._num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        self._accum_scale = float(accum_scale or self._num_replicas)
        self._plain_zero_grad = optimizer.zero_grad
        self._should_zero_grad = True
        self._local: torch.Tensor | None = None  # squared norms of the gradients of a step
        self._reducing: Any = None
        # The last step's gradients, where a step has but one.
        self._previous: _Gradients | None = None
        self._called = False  # True: the callback after the current backward pass is queued
        self.reset_accumulation()
        for number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                parameter.register_hook(functools.partial(self._see, number, parameter))

    @property
    def _state(self) -> dict[str, Any]:
        """The state as it is saved with the optimizer: numbers and lists of
        numbers, one for each group.
        """
        groups = len(self._optimizer.param_groups)
        state: Any = self._optimizer.state
        return state.setdefault(  # type: ignore[no-any-return]
            "gns",
            {
                "progress": 0.0,
                "sqr_avg": [1.0] * groups,
                "var_avg": [0.0] * groups,
                "weight": 0.0,  # weight of both averages
                "biased": False,  # True: measured from gradients of two successive steps
            },
        )

    # ---- statistics ----

    @property
    def raw_sqr_avg(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The gradient's squared norm, of each group of parameters; an estimate may be below 0."""
        return np.array(self._state["sqr_avg"], dtype=np.float64)

    @property
    def raw_var_avg(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The gradient's variance in an initial batch, of each group of parameters."""
        return np.array(self._state["var_avg"], dtype=np.float64)

    def sqr_avg(self) -> float:
        """The squared norm of all groups together."""
        return float(np.maximum(self.raw_sqr_avg, 0.0).sum())

    def var_avg(self) -> float:
        """The variance of all groups together."""
        return float(np.maximum(self.raw_var_avg, _VAR_LEAST).sum())

    def gain(self, scale: float) -> float:
        """Initial batches that a step of ``scale`` of them is worth."""
        sqr, var = self.sqr_avg(), self.var_avg()
        return (var + sqr) / (var / scale + sqr)

    def get_progress(self) -> float:
        """The number of steps of an initial batch that all steps so far were worth."""
        return float(self._state["progress"])

    def set_progress(self, progress: float) -> None:
        """Sets the progress; call it with the same value at all replicas."""
        self._state["progress"] = progress

    # ---- accumulating ----

    @property
    def accum_scale(self) -> float:
        """Initial batches in one gradient of all replicas."""
        return self._accum_scale

    @property
    def accum_count(self) -> int:
        """The number of gradients of the current step so far."""
        return self._accum_count

    @property
    def should_zero_grad(self) -> bool:
        """Whether the gradients are those of a whole step."""
        return self._should_zero_grad

    def reset_accumulation(self, *args: Any, **kwargs: Any) -> None:
        """Begins a step: ``optimizer.zero_grad()``, with nothing accumulated."""
        self._plain_zero_grad(*args, **kwargs)
        self._local = None
        self._accum_count = 0

    def set_accum_scale(self, accum_scale: float) -> None:
        """Sets another batch; gradients that were accumulated with the one before are dropped."""
        if not np.isclose(self._accum_scale, accum_scale):
            self.reset_accumulation()
            self._accum_scale = accum_scale

    # ---- measuring ----

    def _see(self, group: int, parameter: torch.Tensor, grad: torch.Tensor) -> None:
        """Hook of a parameter; grad is this replica's gradient."""
        if self._local is None:
            n = len(self._optimizer.param_groups)
            self._local = torch.zeros(n, dtype=torch.float64, device=grad.device)
        self._local[group] += _square(grad.detach(), self._divisor(group, parameter))
        if not self._called:
            self._called = True
            _call_back(self._behind_backward)

    def _behind_backward(self) -> None:
        self._called = False
        self._accum_count += 1
        self._should_zero_grad = bool(self._adp.require_backward_grad_sync)
        if self._should_zero_grad:
            if self._num_replicas > 1:
                self._reducing = dist.all_reduce(self._local, async_op=True)
            # Runs after DDP's own callback, which is queued before.
            _call_back(self._behind_reducing)

    def _behind_reducing(self) -> None:
        if self._reducing is not None:
            self._reducing.wait()
            self._reducing = None
        unscale = 1.0 if self._mp_scaler is None else 1.0 / self._mp_scaler.get_scale()
        means = self._take_means(unscale)
        total = self._squares(means)
        if not np.isfinite(total).all():
            log.warning("a gradient is not finite: the noise scale leaves this step out")
            return
        count = self._num_replicas * self._accum_count
        scale = self._accum_scale * self._accum_count
        state = self._state
        if count > 1:
            assert self._local is not None
            local = np.array(self._local.tolist()) * unscale**2 / count
            if state["biased"]:
                # Pairs of steps are less reliable than several gradients of one step.
                state["weight"] = 0.0
            state["biased"], self._previous = False, None
            self._add(local, total, count, scale)
            return
        state["biased"] = True
        if self._previous is not None:
            local = (self._squares(self._previous) + total) / 2
            self._add(local, self._squares(_mean_of(self._previous, means)), 2, 2 * scale)
        self._previous = means

    def _take_means(self, unscale: float) -> _Gradients:
        """Replaces gradients by the mean of all that were accumulated, for the optimizer too."""
        means: _Gradients = []
        for group in self._optimizer.param_groups:
            row: list[torch.Tensor | None] = []
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(self._accum_count)
                row.append(None if parameter.grad is None else parameter.grad.float() * unscale)
            means.append(row)
        return means

    def _squares(self, gradients: _Gradients) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Squared norms, of each group."""
        found = []
        for number, (group, row) in enumerate(
            zip(self._optimizer.param_groups, gradients, strict=True)
        ):
            parts = [
                _square(grad, self._divisor(number, parameter))
                for parameter, grad in zip(group["params"], row, strict=True)
                if grad is not None
            ]
            found.append(torch.stack(parts).sum().item() if parts else 0.0)
        return np.array(found)

    def _add(self, local: Any, total: Any, count: int, scale: float) -> None:
        """Adds a step's statistics, for each group: unbiased, whatever count is."""
        sqr = (count * total - local) / (count - 1)
        var = (local - total) * scale / (count - 1)
        state, kept = self._state, _KEPT**scale
        before = kept * state["weight"]
        state["weight"] = before + 1 - kept
        for name, now in (("sqr_avg", sqr), ("var_avg", var)):
            average = (before * np.array(state[name]) + (1 - kept) * now) / state["weight"]
            state[name] = average.tolist()

    def _divisor(self, group: int, parameter: torch.Tensor) -> torch.Tensor | None:
        """The divisor of a parameter's gradient, element by element; None: it is not divided."""
        return None


class AdamGradientNoiseScale(GradientNoiseScale):
    """A GradientNoiseScale of gradients that are divided by the root of Adam's second moments.
    Unlike AdaptDL's, it leaves Adam's state as it is when the batch changes.
    """

    def _divisor(self, group: int, parameter: torch.Tensor) -> torch.Tensor | None:
        state = self._optimizer.state[parameter]
        steps = float(state.get("step", 0))
        if steps < _STEPS_LEAST:
            return None
        of: dict[str, Any] = self._optimizer.param_groups[group]
        correction = 1 - of["betas"][1] ** steps
        root: torch.Tensor = (state["exp_avg_sq"] / correction).sqrt_()
        return root.add_(of["eps"])


class _OfModel(_gns.GradientNoiseScale, GradientNoiseScale):
    """The statistics of an AdaptiveDataParallel."""


class _AdamOfModel(_gns.GradientNoiseScale, AdamGradientNoiseScale):
    """The statistics of an AdaptiveDataParallel with AdamScale, which divides
    gradients as Adam does.
    """


_OF_MODEL: dict[type, type] = {
    GradientNoiseScale: _OfModel,
    AdamGradientNoiseScale: _AdamOfModel,
}


def _square(grad: torch.Tensor, divisor: torch.Tensor | None) -> torch.Tensor:
    return (grad if divisor is None else grad / divisor).square().sum(dtype=torch.float64)


def _mean_of(
    a: Sequence[Sequence[torch.Tensor | None]], b: Sequence[Sequence[torch.Tensor | None]]
) -> _Gradients:
    """The mean of two gradients; where only one of both is there, that one."""
    return [
        [
            one if two is None else two if one is None else (one + two) / 2
            for one, two in zip(*rows, strict=True)
        ]
        for rows in zip(a, b, strict=True)
    ]


def _call_back(act: Callable[[], None]) -> None:
    """Queues a call after the current backward pass, and after other such calls."""
    torch.autograd.Variable._execution_engine.queue_callback(act)  # type: ignore[attr-defined]
