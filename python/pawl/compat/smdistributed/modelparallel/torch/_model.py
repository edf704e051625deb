"""SMP's DistributedModel: pawl.pipeline's, with SMP's methods."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import pawl.pipeline as pp
from pawl.compat.smdistributed.modelparallel.torch import _session
from pawl.errors import error
from pawl.pipeline import _saved


class DistributedModel(pp.DistributedModel):
    """A module as a pipeline; see pawl.pipeline.DistributedModel.

    ``backward_passes_per_step``: steps whose gradients are added before the optimizer's; each
    counts a share. Of the other arguments, ``average_grads_across_microbatches=False`` is refused;
    the others have no effect.
    """

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "gpu",
        trace_execution_times: bool = False,
        overlapping_allreduce: bool = True,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: int = 25,
        trace_memory_usage: bool = False,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
    ) -> None:
        if not average_grads_across_microbatches:
            raise error(
                "PAWL_ENOTSUP",
                "smp: average_grads_across_microbatches=False: gradients are averaged; multiply "
                "the loss by the number of microbatches",
            )
        if backward_passes_per_step < 1:
            raise error(
                "PAWL_EINVAL",
                f"smp: backward_passes_per_step={backward_passes_per_step}: must be at least 1",
            )
        _session.prepare(module)
        super().__init__(module)
        self._passes = backward_passes_per_step
        self._hooks: dict[int, Callable[..., Any]] = {}
        _session.current().model = self

    def backward(self, loss: torch.Tensor, grad_tensors: torch.Tensor | None = None) -> None:
        """The backward pass of this microbatch."""
        loss = loss / self._passes if self._passes > 1 else loss
        optimizer = _session.current().optimizer
        super().backward(loss if optimizer is None else optimizer.scaled(loss), grad_tensors)

    @property
    def partitioned(self) -> bool:
        """Whether the model has been divided, as the first step does."""
        return self._pipeline is not None

    def get_module(self) -> nn.Module:
        """The module itself."""
        return self.module

    def register_post_partition_hook(self, hook: Callable[..., Any]) -> Any:
        """Calls hook(model, optimizer) once the model is divided. Returns a handle with
        ``remove()``.
        """
        number = len(self._hooks)
        self._hooks[number] = hook
        return _Handle(self._hooks, number)

    def divided(self) -> None:
        """See pawl.pipeline.DistributedModel.divided."""
        for hook in list(self._hooks.values()):
            hook(self, _session.current().optimizer)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The whole module's, at all ranks of the pipeline, which all call it."""
        if self._pipeline is None:
            return super().state_dict(*args, **kwargs)
        return _saved.gather(self)

    def local_state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What this rank has, as ``load_state_dict`` of any number of stages takes it."""
        found: dict[str, Any] = super().local_state_dict()
        found["_smp_is_partial"] = self.partitioned and pp.stages() > 1
        return found

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, assign: bool = False, **_: Any
    ) -> Any:
        """Loads a whole state_dict, or a local one of the same division."""
        given = {k: v for k, v in state_dict.items() if k != "_smp_is_partial"}
        return super().load_state_dict(given, strict=strict, assign=assign)

    def local_buffers(self) -> Iterator[torch.Tensor]:
        """Buffers that this rank has."""
        for _, buffer in self.local_named_buffers():
            yield buffer

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and buffer of those that this rank has."""
        named = dict(self.module.named_buffers())
        for name, tensor in super().local_state_dict().items():
            if name in named:
                yield name, tensor

    def local_modules(self) -> Iterator[nn.Module]:
        """Modules that this rank runs."""
        for _, module in self.local_named_modules():
            yield module

    def local_named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Name and module of those that this rank runs."""
        for name, module in self.module.named_modules():
            if self.plan is None or self.plan.stage_of(name) == pp.rank():
                yield name, module

    def distributed_modules(self) -> Iterator[nn.Module]:
        """Modules under tensor parallelism: none."""
        return iter(())

    def is_distributed_parameter(self, _: nn.Parameter) -> bool:
        """Whether a parameter is divided by tensor parallelism: none is."""
        return False

    is_distributed_buffer = is_scaled_batch_parameter = is_scaled_batch_buffer = (
        is_distributed_parameter
    )

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters whose gradients are averaged over data parallel ranks: all of this rank."""
        return self.local_named_parameters()

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """None: there is no tensor parallelism."""
        return iter(())

    def cpu(self) -> DistributedModel:
        """Itself: it is there."""
        return self

    def to(self, *_: Any, **__: Any) -> DistributedModel:
        """Itself: pipelines choose where they compute."""
        return self

    cuda = to

    def join(self, *_: Any, **__: Any) -> Any:
        """Nothing: all ranks make the same steps."""
        return contextlib.nullcontext()

    def register_comm_hook(self, *_: Any) -> None:
        """Refused."""
        raise error("PAWL_ENOTSUP", "smp: register_comm_hook: gradients are averaged as they are")


class _Handle:
    def __init__(self, hooks: dict[int, Any], number: int) -> None:
        self._hooks = hooks
        self._number = number

    def remove(self) -> None:
        self._hooks.pop(self._number, None)
