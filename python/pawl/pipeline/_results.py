"""The results of a step: one for each microbatch, at every rank of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch

from pawl.errors import error
from pawl.pipeline import _codec, _device
from pawl.pipeline._placeholder import Placeholder


class StepOutput:
    """One result of the step function, for each microbatch: ``outputs``, in order."""

    def __init__(self, outputs: Iterable[Any]) -> None:
        self.outputs = list(outputs)

    def __repr__(self) -> str:
        return f"StepOutput({self.outputs!r})"

    def _tensors(self, what: str) -> list[torch.Tensor]:
        for output in self.outputs:
            if isinstance(output, Absent):
                output.refuse()
            if not isinstance(output, torch.Tensor):
                raise error(
                    "PAWL_EINVAL",
                    f"pipeline: {what} of a result that is a {type(output).__name__}, no tensor",
                )
        return self.outputs

    def reduce_mean(self) -> torch.Tensor:
        """The mean over microbatches."""
        return torch.stack(self._tensors("reduce_mean")).mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """The sum over microbatches."""
        return torch.stack(self._tensors("reduce_sum")).sum(0)

    def concat(self) -> torch.Tensor:
        """The batch's results: those of the microbatches behind each other."""
        return torch.cat(self._tensors("concat"))

    def stack(self) -> torch.Tensor:
        """One more dimension in front, that of the microbatches."""
        return torch.stack(self._tensors("stack"))

    def detach(self) -> StepOutput:
        """Itself: results have no graph."""
        return self


class Absent:
    """Stands for a large tensor at a rank that is not the first stage."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def refuse(self) -> None:
        """Raises."""
        raise error(
            "PAWL_ENOTSUP",
            f"pipeline: a result of shape {self.shape} is larger than pp.init(results_max=...) or "
            "60 MiB, and is at the first stage only (pp.rank() == 0); reduce it in the step "
            "function, or use it there",
        )


def settle(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """Key and tensors of what the function returned for a microbatch; waits for its numbers."""
    tensors, key = _codec.flatten(value, "the step function's result")
    return key, [
        (t.fetch() if isinstance(t, Placeholder) else _device.to_host(t.detach())).contiguous()
        for t in tensors
    ]


_ALL_MAX: Final = 60 << 20  # bytes of all tensors together: they are a note


def encode(results: list[tuple[Any, list[torch.Tensor]]], largest: int) -> bytes:
    """Results of all microbatches as bytes: a length, keys and metas, then the tensors of at most
    ``largest`` bytes, while there is room.
    """
    heads, data, room = [], [], _ALL_MAX
    for key, tensors in results:
        metas = []
        for tensor in tensors:
            meta = _codec.pack_meta(*_codec.meta_of(tensor))
            shared = tensor.nbytes <= min(largest, room)
            room -= tensor.nbytes if shared else 0
            metas.append((meta.hex(), tensor.nbytes if shared else -1))
            if shared:
                data.append(_bytes(tensor))
        heads.append((key, tuple(metas)))
    head = _codec.encode(tuple(heads))
    return len(head).to_bytes(4, "little") + head + b"".join(data)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.nbytes else b""


def decode(data: bytes) -> list[tuple[Any, list[Any]]]:
    """What encode was given, with Absent for tensors that are too large."""
    length = int.from_bytes(data[:4], "little")
    place = 4 + length
    results = []
    for key, metas in _codec.decode(data[4:place]):
        tensors: list[Any] = []
        for text, nbytes in metas:
            meta = bytes.fromhex(text)
            if nbytes < 0:
                tensors.append(Absent(_codec.unpack_meta(meta)[1]))
                continue
            tensors.append(_codec.rebuild(meta, bytearray(data[place : place + nbytes])))
            place += nbytes
        results.append((key, tensors))
    return results


def merge(results: list[tuple[Any, list[Any]]]) -> Any:
    """What the step returns: the function's containers, with a StepOutput for each leaf."""
    return _merge([_codec.unflatten(key, tensors) for key, tensors in results])


def _merge(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping) and all(_alike(v, first) for v in values):
        return _rebuilt(first, {k: _merge([v[k] for v in values]) for k in first})
    if type(first) in (tuple, list) and all(_alike(v, first) for v in values):
        return type(first)(_merge(list(column)) for column in zip(*values, strict=True))
    return StepOutput(values)


def _alike(value: Any, first: Any) -> bool:
    if type(value) is not type(first):
        return False
    return value.keys() == first.keys() if isinstance(first, Mapping) else len(value) == len(first)


def _rebuilt(first: Any, items: dict[str, Any]) -> Any:
    kind = type(first)
    return kind(**items) if hasattr(kind, "__dataclass_fields__") else kind(items)


def split(value: Any, parts: int, what: str, axis: int = 0) -> list[Any]:
    """The parts of an argument: tensors are divided along a dimension, containers by what is in
    them; all else goes whole into each part.
    """
    if isinstance(value, torch.Tensor):
        return _split_tensor(value, parts, what, axis)
    if isinstance(value, Mapping):
        return _zip(
            lambda vs: _rebuilt(value, dict(zip(value, vs, strict=True))),
            [split(v, parts, f"{what}[{k!r}]", axis) for k, v in value.items()],
            parts,
        )
    if type(value) in (tuple, list):
        return _zip(type(value), [split(v, parts, what, axis) for v in value], parts)
    return [value] * parts


def _zip(make: Callable[[Any], Any], columns: list[list[Any]], parts: int) -> list[Any]:
    return [make([column[i] for column in columns]) for i in range(parts)]


def _split_tensor(tensor: torch.Tensor, parts: int, what: str, axis: int) -> list[Any]:
    if tensor.dim() == 0 or parts == 1:
        return [tensor] * parts
    if not -tensor.dim() <= axis < tensor.dim():
        raise error(
            "PAWL_EINVAL", f"pipeline: {what} has {tensor.dim()} dimensions, and none is {axis}"
        )
    size = tensor.shape[axis]
    if size % parts != 0 or size == 0:
        raise error(
            "PAWL_EINVAL",
            f"pipeline: {what} has {size} rows, which do not divide into {parts} "
            "microbatches; use drop_last=True in the DataLoader, or pp.init(microbatches=...)",
        )
    return list(tensor.split(size // parts, axis))
