"""SMP's DistributedOptimizer: a wrapper, since each rank's optimizer steps what the rank has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import Optimizer

import pawl.pipeline as pp
from pawl._ckpt import _parts
from pawl.compat.smdistributed.modelparallel.torch import _session
from pawl.errors import error


class DistributedOptimizer(Optimizer):
    """An optimizer of a DistributedModel. Arguments of loss scaling have no effect: there is none.

    ``optimizer``: the optimizer itself.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        static_loss_scale: float | None = 1.0,
        dynamic_loss_scale: bool = False,
        **dynamic_loss_args: Any,
    ) -> None:
        self.optimizer = optimizer
        self.overflow = False
        _session.current().optimizer = self

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
        """Steps what this rank has."""
        return self.optimizer.step(closure) if closure else self.optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients, or makes them zero."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group."""
        self.optimizer.add_param_group(param_group)

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Clips all gradients of the model; returns the norm before."""
        return pp.clip_grad_norm_(max_norm, norm_type)

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """What this rank has, by names; ``load_state_dict`` takes it."""
        divided = _parts.find(self.optimizer)
        if divided is None:
            raise error("PAWL_EINVAL", "smp: this optimizer has no parameters of the model")
        return _parts.local_optimizer(self.optimizer, divided)

    def state_dict(self) -> dict[str, Any]:
        """As local_state_dict: no rank has all of it."""
        return self.local_state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what local_state_dict gave, or a plain optimizer's of the whole model; of it, what
        this rank has.
        """
        divided = _parts.find(self.optimizer)
        try:
            fitting = _parts.fit(state_dict, self.optimizer, divided)
        except _parts.Unfit as why:
            raise ValueError(f"smp: the optimizer's state does not fit: {why}") from why
        self.optimizer.load_state_dict(fitting)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"
