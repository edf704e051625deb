"""What depends on the gradients of all stages: their norm, and whether they are finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import OptState

from pawl.errors import error
from pawl.pipeline import _state
from pawl.pipeline._device import CPU

if TYPE_CHECKING:
    from pawl.pipeline._model import Pipeline
    from pawl.pipeline._world import World


def clip(
    world: World, pipeline: Pipeline | None, max_norm: float, norm_type: float
) -> torch.Tensor:
    """See pawl.pipeline.clip_grad_norm_. Norms of parameters are added in the model's order, so
    that the bits do not depend on the stages.
    """
    if pipeline is None:
        raise error("PAWL_EINVAL", "pipeline: clip_grad_norm_ before the first step")
    norms = torch.zeros(len(pipeline.places.held), dtype=torch.float64)
    for i, held in enumerate(pipeline.places.held.values()):
        grad = held.parameter.grad
        if grad is not None and held.ranks[0] == world.stage:
            norms[i] = torch.linalg.vector_norm(grad, norm_type, dtype=_wide(grad.dtype))
    _reduce(world, pipeline, norms, dist.ReduceOp.SUM, "clip_grad_norm_")
    total = norms.max() if math.isinf(norm_type) else torch.linalg.vector_norm(norms, norm_type)
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for held in pipeline.held.values():
        if held.parameter.grad is not None:
            held.parameter.grad.mul_(scale.to(held.parameter.grad.dtype))
    return total


def _reduce(world: World, pipeline: Pipeline, values: torch.Tensor, how: Any, what: str) -> None:
    """All-reduces values over the stages."""
    if world.pipeline is not None:
        options = dist.AllreduceOptions()
        options.reduceOp = how
        with pipeline.telling(what):
            world.pipeline.allreduce([values], options).wait()


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type to add squares in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


class GradScaler(torch.amp.GradScaler):
    """As torch.amp.GradScaler, of a pipelined model whose modules compute in float16: where a
    gradient of any stage is infinite or NaN, no stage makes the optimizer's step, and the scale
    becomes smaller at all. In the step function: ``model.backward(scaler.scale(loss))``; outside of
    it, at all ranks, ``scaler.step(optimizer)`` and ``scaler.update()``.

    ``arguments``: torch's, without the device.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__("cpu", **arguments)
        if self._enabled:  # the step function, which scales, runs at the first stage only
            self._lazy_init_scale_growth_tracker(CPU)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients of this rank by the scale, before they are clipped. All ranks."""
        super().unscale_(optimizer)
        if not self._enabled:
            return
        pipeline = _state.model()._pipeline
        if pipeline is None:
            raise error("PAWL_EINVAL", "pipeline: GradScaler.unscale_ before the first step")
        state = self._per_optimizer_states[id(optimizer)]
        here = [float(t) for t in state["found_inf_per_device"].values()]
        found = torch.tensor([max(here, default=0.0)])
        _reduce(_state.world(), pipeline, found, dist.ReduceOp.MAX, "GradScaler.unscale_")
        state["found_inf_per_device"] = {CPU: found[0]}

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless gradients are infinite or NaN. All ranks."""
        if self._enabled and self._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY:
            self.unscale_(optimizer)
        return super().step(optimizer, *args, **kwargs)

    def skipped(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the step is, or will be, left out. After unscale_, and before update()."""
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        return any(bool(t) for t in found.values())
