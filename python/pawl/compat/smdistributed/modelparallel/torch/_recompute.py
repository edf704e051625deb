"""Activation checkpointing, at the ranks that run the modules."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from pawl.errors import error
from pawl.pipeline import _fibers

log = logging.getLogger("pawl.smp")


def set_activation_checkpointing(
    module: nn.Module,
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
    strategy: str = "each",
) -> None:
    """Computes a module's activations again in its backward pass, instead of keeping them; those of
    each layer, if it is a ModuleList or Sequential. ``strategy``: "each"; "contiguous" and
    "group_N" work as "each" does. Random numbers are always those of the forward pass.
    """
    check_strategy(strategy)
    for layer in (
        module.children() if isinstance(module, nn.ModuleList | nn.Sequential) else [module]
    ):
        _wrap(layer)


def check_strategy(strategy: str) -> None:
    """Raises PawlError unless it is SMP's."""
    count = strategy.removeprefix("group_")
    if strategy not in ("each", "contiguous") and not (count != strategy and count.isdigit()):
        raise error(
            "PAWL_EINVAL", f'smp: strategy={strategy!r}: must be "each", "contiguous" or "group_N"'
        )


def _wrap(module: nn.Module) -> None:
    plain = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return run(plain, type(module).__name__, *args, **kwargs)

    module.forward = forward  # type: ignore[method-assign]


def run(function: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a function whose activations are computed again. In the step function it is only
    called: there, modules of several partitions may be in it.
    """
    if _fibers.current() is not None:
        log.warning("smp: %s has modules of several partitions: no activation checkpointing", name)
        return function(*args, **kwargs)
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    return torch_checkpoint(function, *args, use_reentrant=False, **kwargs)
