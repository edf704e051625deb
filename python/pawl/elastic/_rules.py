"""How the learning rate follows the batch: AdaptDL's rules, and a square root that any may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from pawl import _core

if TYPE_CHECKING:
    from pawl.elastic._model import AdaptiveDataParallel


class ScalingRuleBase:
    """A factor on each group's learning rate while ``optimizer.step()`` runs; schedulers never see
    it. Override ``scale_lr`` for one of your own."""

    adp: AdaptiveDataParallel | None = None

    def initialize(
        self,
        adp: AdaptiveDataParallel,
        optimizer: torch.optim.Optimizer,
        patch_optimizer: bool = False,
    ) -> None:
        """Called once, by AdaptiveDataParallel, which patches the optimizer itself."""
        self.adp = adp

    def scale_lr(self, scale: float) -> float | Sequence[float]:
        """The factor, or one for each group of parameters, of ``scale`` initial batches a step."""
        raise NotImplementedError

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's. Raises ValueError before AdaptiveDataParallel has the rule."""
        return self._optimizer().step(*args, **kwargs)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """The optimizer's. Raises ValueError before AdaptiveDataParallel has the rule."""
        self._optimizer().zero_grad(*args, **kwargs)

    def _optimizer(self) -> torch.optim.Optimizer:
        if self.adp is None:
            raise ValueError("a scaling rule is given to AdaptiveDataParallel first")
        return self.adp.optimizer

    def _of_groups(self, by_gain: bool, power: float, warmup: float, scale: float) -> list[float]:
        assert self.adp is not None, "a scaling rule is given to AdaptiveDataParallel"
        progress = self.adp.progress
        rule = (by_gain, power, warmup)
        return [
            _core.lr_factor(rule, moments, scale, progress)
            for moments in self.adp.noise.of_groups()
        ]


class AdaScale(ScalingRuleBase):
    """The gain, for SGD (Johnson and others, ICML 2020): as many initial batches as a step is
    worth."""

    def scale_lr(self, scale: float) -> list[float]:
        return self._of_groups(True, 1.0, 0.0, scale)


class AdamScale(AdaScale):
    """The gain to the power of 0.5, of Adam and all else that divides by a root of squares."""

    def scale_lr(self, scale: float, power: float = 0.5) -> list[float]:
        return self._of_groups(True, power, 0.0, scale)


class LinearScale(ScalingRuleBase):
    """The scale itself (Goyal and others, 2017)."""

    def scale_lr(self, scale: float) -> list[float]:
        return self._of_groups(False, 1.0, 0.0, scale)


class SqrtScale(ScalingRuleBase):
    """Its square root (Krizhevsky, 2014)."""

    def scale_lr(self, scale: float) -> list[float]:
        return self._of_groups(False, 0.5, 0.0, scale)


class LEGWScale(ScalingRuleBase):
    """The square root, and a linear warm-up of epochs that grow with the batch (You, SC 2019)."""

    def __init__(self, base_warmup_epochs: float, data_size: int) -> None:
        """``base_warmup_epochs``: at the initial batch. ``data_size``: samples of an epoch."""
        if base_warmup_epochs < 0 or data_size < 1:
            raise ValueError(f"LEGWScale: {base_warmup_epochs} epochs of {data_size} samples")
        self._samples = base_warmup_epochs * data_size

    def scale_lr(self, scale: float) -> list[float]:
        assert self.adp is not None
        return self._of_groups(False, 0.5, self._samples / self.adp.initial_batch, scale)


# Those that divide by a root of squares, or by the sign: half as steep as SGD.
_ADAPTIVE = {
    "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam", "RMSprop", "Adagrad", "Adadelta",
    "Adafactor", "Lion", "LAMB", "Lamb", "FusedAdam", "FusedLAMB", "AdaBelief",
}  # fmt: skip


def default_for(optimizer: torch.optim.Optimizer) -> ScalingRuleBase:
    """AdaScale; AdamScale for optimizers that are adaptive themselves."""
    names = {kind.__name__ for kind in type(optimizer).__mro__}
    return AdamScale() if names & _ADAPTIVE else AdaScale()


def second_moment(optimizer: torch.optim.Optimizer, group: dict[str, Any], p: Any) -> Any:
    """(tensor, factor, eps) of what a step divides a gradient by: sqrt(tensor * factor) + eps. See
    struct pawl_white for what norms make of it.

    None: by nothing, or it is too early, as AdaptDL has it: with Adam, before the fifth step.
    """
    state = optimizer.state.get(p)
    if not state:
        return None
    beta = 0.0  # nothing is to be corrected
    if "exp_avg_sq" in state and "betas" in group:
        moment, beta = state["exp_avg_sq"], group["betas"][1]
    elif "square_avg" in state:  # RMSprop, Adadelta
        moment = state["square_avg"]
    else:
        return None
    steps, eps = state.get("step", 5), group.get("eps", 1e-8)
    if isinstance(steps, torch.Tensor) and not steps.is_cpu:
        return moment, *_told_there(steps, beta, eps)
    steps = float(steps)
    return (moment, 1 / (1 - beta**steps), eps) if steps >= 5 else None


def _told_there(steps: torch.Tensor, beta: float, eps: float) -> tuple[Any, Any]:
    """Factor and eps where a device counts the steps, for which nobody is to wait: such that
    gradients are divided by 1 before the fifth one."""
    early = steps < 5
    return torch.where(early, 0.0, 1 / (1 - beta**steps)), torch.where(early, 1.0, eps)
