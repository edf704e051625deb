"""The device that a rank computes on: the CPU, or an accelerator.

Values travel between ranks in the host's memory. A value that was made on an accelerator stays
there, and comes to the host when another rank wants it, or the driver's program its numbers.
Copies wait for the accelerator: when this module returns, they are done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from pawl import _core
from pawl.errors import error
from pawl.pipeline import _codec

CPU: Final = torch.device("cpu")


def find(wanted: str | torch.device | None) -> torch.device:
    """The device that pp.init was given, with a number: that of this rank on its host, unless there
    is one. It becomes torch's current one.

    Raises PawlError (PAWL_EINVAL): torch has no such device here.
    """
    device = torch.device("cpu" if wanted is None else wanted)
    if device.type == "cpu":
        return CPU
    module = getattr(torch, device.type, None)
    found = module.device_count() if module is not None and module.is_available() else 0
    index = device.index
    if index is None and found > 0:
        index = int(os.environ.get("LOCAL_RANK", "0")) % found
    if index is None or index >= found:
        raise error(
            "PAWL_EINVAL",
            f"pipeline: device={str(wanted)!r}: torch {torch.__version__} finds {found} of that "
            "type here",
        )
    device = torch.device(device.type, index)
    torch.get_device_module(device).set_device(device)
    return device


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in the host's memory, with the strides that it has."""
    if tensor.device.type == "cpu":
        return tensor
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.copy_(tensor.detach())


def exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Exchanges what two tensors are; the objects stay. As torch.nn.Module.to does, by data where
    tensors of both devices have the same form.
    """
    if torch._has_compatible_shallow_copy_type(one, other):
        one.data, other.data = other.data, one.data
    else:
        torch.utils.swap_tensors(one, other)


class Loan:
    """Parameters and buffers that are on a device for a while: in a with statement."""

    def __init__(self, tensors: Iterable[torch.Tensor], device: torch.device) -> None:
        self.pairs = [(t, _twin(t, device)) for t in tensors if t.device != device]

    def __enter__(self) -> None:
        for tensor, twin in self.pairs:
            exchange(tensor, twin)

    def __exit__(self, *_: Any) -> None:
        """Puts all back to where they were, with what they were."""
        for tensor, twin in self.pairs:
            exchange(tensor, twin)
        self.pairs.clear()


def _twin(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    made = tensor.detach().to(device)
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def move(model: nn.Module, device: torch.device) -> None:
    """Moves a model's parameters, with their gradients, and its buffers. The objects stay."""
    if device.type == "cpu":
        return
    for tensor in dict.fromkeys([*model.parameters(), *model.buffers()]):
        grad = tensor.grad
        tensor.grad = None
        exchange(tensor, _twin(tensor, device))
        if grad is not None:
            tensor.grad = grad.to(device)


class _Copied(NamedTuple):
    """What a stage holds for a value that is on the device, and in the host's memory."""

    tensor: torch.Tensor
    host: Any  # a tensor, or a StageBuffer


class Device:
    """Of one rank: brings values to the device, and back for others. ``offload``: what a forward
    pass keeps for the backward pass waits in the host's memory.
    """

    def __init__(self, device: torch.device, channel: _core.Stage, offload: bool) -> None:
        self.device = device
        self.on_host = device.type == "cpu"
        self._channel = channel
        self._offload = offload and not self.on_host

    def take(self, values: Sequence[tuple[int, bytes, Any]]) -> list[torch.Tensor]:
        """The tensors that a call takes: number, meta and object of each, of the last event."""
        if self.on_host:
            return [_as_tensor(meta, held) for _, meta, held in values]
        return [self._take(*value) for value in values]

    def _take(self, number: int, meta: bytes, held: Any) -> torch.Tensor:
        if isinstance(held, _Copied):
            return held.tensor
        tensor = _as_tensor(meta, held)
        if tensor.device == self.device:
            return tensor
        made = tensor.to(self.device)
        self._channel.keep(number, _Copied(made, held))
        return made

    def made(self, tensor: torch.Tensor) -> tuple[bytes, int, int, torch.Tensor]:
        """A settled tensor as a value for the stage: one that is elsewhere has no address."""
        address = tensor.data_ptr() if tensor.device.type == "cpu" else 0
        return _codec.pack_meta(*_codec.meta_of(tensor)), address, tensor.nbytes, tensor

    def supply(self, number: int, held: torch.Tensor) -> None:
        """Gives the stage the bytes of a value of the last event."""
        host = to_host(held)
        self._channel.keep(number, _Copied(held, host))
        self._channel.supply(number, host.data_ptr())

    def unflatten(self, key: Any, tensors: list[Any]) -> Any:
        """As _codec.unflatten, with this rank's device in the place of the program's."""
        value = _codec.unflatten(key, tensors)
        if self.on_host:
            return value
        return pytree.tree_map_only(torch.device, lambda _: self.device, value)

    def keeping(self) -> AbstractContextManager[Any]:
        """Around a forward pass."""
        if not self._offload:
            return nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self.device.type == "cuda")


def host_tensor(meta: bytes, held: Any) -> torch.Tensor:
    """A value of an event in the host's memory."""
    return to_host(_as_tensor(meta, held.host if isinstance(held, _Copied) else held))


def _as_tensor(meta: bytes, held: Any) -> torch.Tensor:
    return held if isinstance(held, torch.Tensor) else _codec.rebuild(meta, held)
