"""``checkpoint`` and ``checkpoint_sequential`` of modules, for use in a forward function."""

from __future__ import annotations

from typing import Any

from torch import nn

from pawl.compat.smdistributed.modelparallel.torch import _recompute


def checkpoint(
    module: nn.Module, *args: Any, preserve_rng_state: bool = True, **kwargs: Any
) -> Any:
    """Calls a module, and computes its activations again in the backward pass."""
    return _recompute.run(module, type(module).__name__, *args, **kwargs)


def checkpoint_sequential(
    sequential_module: nn.Sequential,
    input: Any,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """Calls the modules of a Sequential in turn, each as ``checkpoint`` does."""
    _recompute.check_strategy(strategy)
    for layer in sequential_module:
        several = isinstance(input, tuple) and not pack_args_as_tuple
        input = checkpoint(layer, *input) if several else checkpoint(layer, input)
    return input
