"""Scaling of the learning rate with the batch: AdaptDL's rules, and a square root
for any optimizer.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator, Sequence
from types import MethodType
from typing import Any

import numpy as np
import torch

from pawl import _core
from pawl.elastic import _data

_Factors = float | Sequence[float] | np.ndarray[Any, np.dtype[np.float64]]


@contextlib.contextmanager
def scaled(optimizer: torch.optim.Optimizer, factors: _Factors) -> Iterator[None]:
    """A context in which learning rates are multiplied: by one factor, or one for
    each group of parameters.
    """
    groups = list(optimizer.param_groups)
    rates = [group["lr"] for group in groups]
    each = [float(f) for f in np.ravel(factors)] * (len(groups) if np.ndim(factors) == 0 else 1)
    try:
        for group, rate, factor in zip(groups, rates, each, strict=True):
            group["lr"] = rate * factor
        yield
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate


def _is_elastic(adp: Any) -> bool:
    """Whether adp steps its optimizer itself, by the rule."""
    from pawl.elastic._model import AdaptiveDataParallel  # imported here: _model needs this module

    return isinstance(adp, AdaptiveDataParallel)


class ScalingRuleBase:
    """A factor on each group's learning rate while ``optimizer.step()`` runs;
    schedulers never see it.

    Override ``scale_lr`` for a rule of your own. AdaptiveDataParallel does everything else. By
    hand: call ``initialize``, and then the rule's ``step`` and ``zero_grad`` in place of the
    optimizer's, or the optimizer's if it is patched.
    """

    adp: Any = None
    _optimizer: Any = None
    _plain_step: Any = None

    def initialize(
        self, adp: Any, optimizer: torch.optim.Optimizer, patch_optimizer: bool = False
    ) -> None:
        """Called once, by AdaptiveDataParallel, which patches the optimizer itself.

        By hand: ``adp`` is any object with ``require_backward_grad_sync``, as in DDP, and with a
        GradientNoiseScale of adaptdl.torch.gradient_noise_scale as ``gns``. ``patch_optimizer``:
        makes the optimizer's ``step`` and ``zero_grad`` do the rule's.
        """
        self.adp, self._optimizer = adp, optimizer
        self._plain_step = optimizer.step
        if patch_optimizer:
            for name in ("step", "zero_grad"):
                _patch(optimizer, name, getattr(self, name))

    def scale_lr(self, scale: float) -> _Factors:
        """The factor, or one for each group of parameters, for a step of
        ``scale`` initial batches.
        """
        raise NotImplementedError

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Makes the optimizer's step; does nothing while gradients are accumulated. Raises
        ValueError before ``initialize``.
        """
        adp = self._initialized()
        if _is_elastic(adp):
            return adp.optimizer.step(*args, **kwargs)
        if not adp.require_backward_grad_sync:
            return None
        gns = adp.gns
        scale = gns.accum_scale * gns.accum_count
        with scaled(self._optimizer, self.scale_lr(scale)):
            result = self._plain_step(*args, **kwargs)
        gns.set_progress(gns.get_progress() + gns.gain(scale))
        return result

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clears the optimizer's gradients; does nothing while gradients are accumulated. Raises
        ValueError before ``initialize``.
        """
        adp = self._initialized()
        if _is_elastic(adp):
            adp.optimizer.zero_grad(*args, **kwargs)
        elif adp.gns.should_zero_grad:
            adp.gns.reset_accumulation(*args, **kwargs)
        else:
            warnings.warn("zero_grad() does nothing while gradients are accumulated", stacklevel=2)

    def _initialized(self) -> Any:
        if self.adp is None:
            raise ValueError("pass the scaling rule to AdaptiveDataParallel first")
        return self.adp

    def _by_gain(self, power: float, scale: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The gain to a power, for each group of parameters."""
        gns = self._initialized().gns
        moments = zip(np.ravel(gns.raw_sqr_avg), np.ravel(gns.raw_var_avg), strict=True)
        return np.array(
            [
                _core.lr_factor(
                    (True, power, 0.0),
                    (max(float(sqr), 0.0), max(float(var), _VAR_LEAST)),
                    scale,
                    0.0,
                )
                for sqr, var in moments
            ]
        )


# The least variance of a model's statistics; used where a rule is used by hand, too.
_VAR_LEAST = 1e-6


def _patch(optimizer: torch.optim.Optimizer, name: str, act: Any) -> None:
    """Sets a method of this object: schedulers that patch it once more need one."""

    @functools.wraps(getattr(optimizer, name))
    def call(_: Any, *args: Any, **kwargs: Any) -> Any:
        return act(*args, **kwargs)

    setattr(optimizer, name, MethodType(call, optimizer))


def _by_scale(power: float, scale: float, warmup: float = 0.0, progress: float = 0.0) -> float:
    return _core.lr_factor((False, power, warmup), (1.0, 0.0), scale, progress)


class AdaScale(ScalingRuleBase):
    """The gain, for SGD (Johnson and others, ICML 2020): the number of initial
    batches that a step is worth.
    """

    def scale_lr(self, scale: float) -> _Factors:
        return self._by_gain(1.0, scale)


class AdamScale(AdaScale):
    """The gain to the power of 0.5, for Adam and other optimizers that divide by
    a root of squares.
    """

    def scale_lr(self, scale: float, power: float = 0.5) -> _Factors:
        return self._by_gain(power, scale)


class LinearScale(ScalingRuleBase):
    """The scale itself (Goyal and others, 2017)."""

    def scale_lr(self, scale: float) -> _Factors:
        return _by_scale(1.0, scale)


class SqrtScale(ScalingRuleBase):
    """The square root of the scale (Krizhevsky, 2014)."""

    def scale_lr(self, scale: float) -> _Factors:
        return _by_scale(0.5, scale)


class LEGWScale(ScalingRuleBase):
    """The square root, and a linear warm-up of epochs that grow with the batch (You, SC 2019)."""

    def __init__(self, base_warmup_epochs: float, data_size: int) -> None:
        """``base_warmup_epochs``: at the initial batch. ``data_size``: samples of an epoch."""
        if base_warmup_epochs < 0 or data_size < 1:
            raise ValueError(f"LEGWScale: {base_warmup_epochs} epochs of {data_size} samples")
        self._samples = base_warmup_epochs * data_size

    def scale_lr(self, scale: float) -> _Factors:
        adp = self._initialized()
        warmup = self._samples / self._initial_batch(adp)
        return _by_scale(0.5, scale, warmup, adp.gns.get_progress())

    def _initial_batch(self, adp: Any) -> int:
        """The initial batch, in samples."""
        if _is_elastic(adp):
            return int(adp.initial_batch)
        loader = _data.current_dataloader()
        if loader is None:
            raise ValueError("LEGWScale used by hand works only within a loop over a loader")
        return loader.batch_size


# Optimizers that divide by a root of squares, or by the sign: their rate grows half
# as steeply as SGD's.
_ADAPTIVE = {
    "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam", "RMSprop", "Adagrad", "Adadelta",
    "Adafactor", "Lion", "LAMB", "Lamb", "FusedAdam", "FusedLAMB", "AdaBelief",
}  # fmt: skip


def default_for(optimizer: torch.optim.Optimizer) -> ScalingRuleBase:
    """AdaScale; AdamScale for optimizers that are adaptive themselves."""
    names = {kind.__name__ for kind in type(optimizer).__mro__}
    return AdamScale() if names & _ADAPTIVE else AdaScale()


def second_moment(optimizer: torch.optim.Optimizer, group: dict[str, Any], p: Any) -> Any:
    """(tensor, factor, eps): a step divides a gradient by sqrt(tensor * factor) + eps.

    struct pawl_white has the use of it in norms. None: it is not divided, or it is too early, as in
    AdaptDL: with Adam, before the fifth step.
    """
    state = optimizer.state.get(p)
    if not state:
        return None
    beta = 0.0  # no correction
    if "exp_avg_sq" in state and "betas" in group:
        moment, beta = state["exp_avg_sq"], group["betas"][1]
    elif "square_avg" in state:  # RMSprop, Adadelta
        moment = state["square_avg"]
    else:
        return None
    steps, eps = state.get("step", 5), group.get("eps", 1e-8)
    if isinstance(steps, torch.Tensor) and not steps.is_cpu:
        return moment, *_correction_on_device(steps, beta, eps)
    steps = float(steps)
    return (moment, 1 / (1 - beta**steps), eps) if steps >= 5 else None


def _correction_on_device(steps: torch.Tensor, beta: float, eps: float) -> tuple[Any, Any]:
    """Factor and eps where a device counts the steps, without waiting for it: gradients are divided
    by 1 before the fifth step.
    """
    early = steps < 5
    return torch.where(early, 0.0, 1 / (1 - beta**steps)), torch.where(early, 1.0, eps)
