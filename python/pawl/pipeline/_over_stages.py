"""The norm of all gradients of a pipelined model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from pawl.errors import error

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
    if world.pipeline is not None:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.SUM
        with pipeline.telling("clip_grad_norm_"):
            world.pipeline.allreduce([norms], options).wait()
    total = norms.max() if math.isinf(norm_type) else torch.linalg.vector_norm(norms, norm_type)
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for held in pipeline.held.values():
        if held.parameter.grad is not None:
            held.parameter.grad.mul_(scale.to(held.parameter.grad.dtype))
    return total


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type to add squares in."""
    return torch.float64 if dtype is torch.float64 else torch.float32
