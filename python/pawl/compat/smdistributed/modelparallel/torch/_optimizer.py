"""SMP's DistributedOptimizer: a wrapper, since each rank's optimizer steps what the rank has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

import pawl.pipeline as pp
from pawl._ckpt import _parts
from pawl.compat.smdistributed.modelparallel.torch import _session
from pawl.errors import error


class DistributedOptimizer(Optimizer):
    """An optimizer of a DistributedModel.

    ``optimizer``: the optimizer itself. With ``fp16`` in the configuration, ``model.backward``
    scales the loss: by ``static_loss_scale``, or with ``dynamic_loss_scale`` by as much as goes.
    ``dynamic_loss_args``: ``init_scale`` (65536), ``scale_factor`` (2), ``scale_window`` (1000
    steps until the scale grows), ``min_scale`` (1); others have no effect.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        static_loss_scale: float | None = 1.0,
        dynamic_loss_scale: bool = False,
        **dynamic_loss_args: Any,
    ) -> None:
        self.optimizer = optimizer
        self.overflow = False  # the last step was left out
        self.scaler: pp.GradScaler | None = None
        given = dynamic_loss_args.get("dynamic_loss_args") or dynamic_loss_args
        self._static = None if dynamic_loss_scale else static_loss_scale or 1.0
        self._least = float(given.get("min_scale", 1.0))
        if _session.current().config.half:
            factor = float(given.get("scale_factor", 2.0))
            self.scaler = pp.GradScaler(
                init_scale=self._static or float(given.get("init_scale", 2.0**16)),
                growth_factor=factor,
                backoff_factor=1 / factor,
                growth_interval=int(given.get("scale_window", 1000)),
            )
        _session.current().optimizer = self

    @property
    def loss_scale(self) -> float:
        """By how much the loss is scaled."""
        return 1.0 if self.scaler is None else float(self.scaler.get_scale())

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss as its backward pass begins with it."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    @property
    def pawl_inner(self) -> Optimizer:
        """The optimizer, for pawl.Checkpointer."""
        return self.optimizer

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The optimizer's."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimizer's."""
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The optimizer's."""
        return self.optimizer.defaults

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Steps what this rank has; with fp16, unless a gradient of any rank overflowed."""
        if self.scaler is None:
            return self.optimizer.step(closure) if closure else self.optimizer.step()
        found = self.scaler.step(self.optimizer)
        self.overflow = self.scaler.skipped(self.optimizer)
        self.scaler.update(self._static)
        if self.loss_scale < self._least:
            self.scaler.update(self._least)
        return found

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients, or makes them zero."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group."""
        self.optimizer.add_param_group(param_group)

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Clips all gradients of the model; returns the norm before."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
            if self.scaler.skipped(self.optimizer):
                return torch.tensor(math.inf)
        return pp.clip_grad_norm_(max_norm, norm_type)

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """What this rank has, by names; ``load_state_dict`` takes it."""
        divided = _parts.find(self.optimizer)
        if divided is None:
            raise error("PAWL_EINVAL", "smp: this optimizer has no parameters of the model")
        found: dict[str, Any] = _parts.local_optimizer(self.optimizer, divided)
        if self.scaler is not None:
            found["loss_scaler"] = self.scaler.state_dict()
        return found

    def state_dict(self) -> dict[str, Any]:
        """As local_state_dict: no rank has all of it."""
        return self.local_state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what local_state_dict gave, or a plain optimizer's of the whole model; of it, what
        this rank has.
        """
        divided = _parts.find(self.optimizer)
        scale = state_dict.get("loss_scaler")
        state_dict = {key: value for key, value in state_dict.items() if key != "loss_scaler"}
        try:
            fitting = _parts.fit(state_dict, self.optimizer, divided)
        except _parts.Unfit as why:
            raise ValueError(f"smp: the optimizer's state does not fit: {why}") from why
        self.optimizer.load_state_dict(fitting)
        if scale is not None and self.scaler is not None:
            self.scaler.load_state_dict(scale)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"
