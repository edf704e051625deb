"""Puts a model, and the generators of random numbers, back as they were before a trial."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restores what a step changes in a model: buffers, gradients, flags, attributes; and random
    generators.

    Generators are Python's, NumPy's if it is loaded, and torch's on the CPU and on CUDA devices.
    Costs a copy of all buffers, and of those gradients that there are. It restores neither objects
    that are attributes of modules, where these are changed, nor generators that the model owns.
    """
    attributes = [(module, dict(module.__dict__)) for module in model.modules()]
    generators = _generators()
    buffers = [
        (module, dict(module._buffers), [_copy(b) for b in module._buffers.values()])
        for module in model.modules()
    ]
    training = [(module, module.training) for module in model.modules()]
    params = [
        (p, p.requires_grad, p.grad, _copy(p.grad), _version(p.grad)) for p in model.parameters()
    ]
    try:
        yield
    finally:
        for module, before in attributes:
            module.__dict__.clear()
            module.__dict__.update(before)
        for module, flag in training:
            module.training = flag
        for module, named, copies in buffers:
            _put_buffers(module, named, copies)
        for param, requires_grad, *grad in params:
            param.requires_grad_(requires_grad)
            _put_grad(param, *grad)
        _set_generators(generators)


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _version(tensor: Tensor | None) -> int:
    return -1 if tensor is None else tensor._version


def _put_grad(param: Tensor, grad: Tensor | None, was: Tensor | None, version: int) -> None:
    """Gives a parameter back its gradient, with its old content if that was changed in place."""
    if grad is not None and was is not None and grad._version != version:
        grad.data = was
    param.grad = grad


def _put_buffers(
    module: nn.Module, named: dict[str, Tensor | None], copies: list[Tensor | None]
) -> None:
    for buffer, was in zip(named.values(), copies, strict=True):
        if buffer is not None and was is not None and buffer.shape == was.shape:
            with torch.no_grad():
                buffer.copy_(was)
    module._buffers.clear()
    module._buffers.update(named)


def _generators() -> list[Any]:
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return [
        random.getstate(),
        numpy.random.get_state() if numpy is not None else None,
        torch.get_rng_state(),
        torch.cuda.get_rng_state_all() if cuda else None,
    ]


def _set_generators(states: list[Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy"].random.set_state(states[1])
    torch.set_rng_state(states[2])
    if states[3] is not None:
        torch.cuda.set_rng_state_all(states[3])


def random_state() -> tuple[bytes, ...]:
    """States of torch's generators, to be compared."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return tuple(bytes(state.numpy().data) for state in states)
