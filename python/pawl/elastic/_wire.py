"""Objects that ranks send each other, as tensors.

Plain Python, NumPy's and torch's values are sent in the form of _ckpt/_structure.py: JSON, which
can run nothing, and tensors. An object of another kind is pickled, with the objects around it:
ranks of a job run the same program, and no other process is among them.

Layout of the one tensor of bytes: a number of 8 bytes, little-endian, the length of the JSON; the
JSON; each tensor, from a multiple of 64 on. The JSON: {"value": structure, or null: a pickle,
"tensors": {name: [dtype, shape]}}.
"""

from __future__ import annotations

import json
import math
import operator
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from pawl._ckpt import _structure
from pawl.errors import PawlError, error

_LENGTH_BYTES: Final = 8  # bytes of the first number
_ALIGNED: Final = 64
_WHERE: Final = "an object that a rank sent"


def aligned(size: int) -> int:
    """The least multiple of the tensors' alignment that holds size."""
    return -(-size // _ALIGNED) * _ALIGNED


def raw(data: bytes) -> torch.Tensor:
    """Bytes as a tensor, which is sent as it is."""
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, device="cpu").byte()
    )


def take_apart(value: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(JSON as bytes, tensors). Tensors are the value's own where possible: on
    the host, contiguous.
    """
    try:
        flat = _structure.flatten(value, _WHERE)
        structure, tensors = flat.structure, flat.tensors
    except PawlError:
        structure, tensors = None, {"": raw(pickle.dumps(value))}
    named = {name: [str(t.dtype)[len("torch.") :], list(t.shape)] for name, t in tensors.items()}
    header = raw(json.dumps({"value": structure, "tensors": named}).encode())
    return header, [tensor.cpu().contiguous() for tensor in tensors.values()]


def rooms(header: torch.Tensor) -> list[tuple[torch.dtype, list[int]]]:
    """(dtype, shape) of each tensor after a header. Raises PawlError if it is not a header."""
    return [(_dtype(dtype), shape) for dtype, shape in _read(header)[1].values()]


def put_together(header: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Any:
    """The value, made of these tensors. Raises PawlError if they are not take_apart's."""
    structure, named = _read(header)
    if structure is None and list(named) == [""]:
        return pickle.loads(tensors[0].numpy().tobytes())
    return _structure.rebuild(structure, dict(zip(named, tensors, strict=True)), _WHERE)


def dump(value: Any) -> torch.Tensor:
    """Copies a value into bytes, on the host."""
    header, tensors = take_apart(value)
    places = list(_places([t.nbytes for t in tensors], header.numel()))
    data = torch.empty(
        places[-1][1] if places else _LENGTH_BYTES + header.numel(), dtype=torch.uint8, device="cpu"
    )
    data[:_LENGTH_BYTES] = raw(header.numel().to_bytes(_LENGTH_BYTES, "little"))
    data[_LENGTH_BYTES : _LENGTH_BYTES + header.numel()] = header
    for tensor, (begin, end) in zip(tensors, places, strict=True):
        data[begin:end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return data


def load(data: torch.Tensor) -> Any:
    """The value; its tensors are views of ``data``. Raises PawlError if data is not dump's."""
    size = int.from_bytes(data[:_LENGTH_BYTES].numpy().tobytes(), "little")
    header = data[_LENGTH_BYTES : _LENGTH_BYTES + min(size, data.numel())]
    found = rooms(header)
    places = _places([math.prod(shape) * dtype.itemsize for dtype, shape in found], size)
    try:
        tensors = [
            data[begin:end].view(dtype).view(shape)
            for (dtype, shape), (begin, end) in zip(found, places, strict=True)
        ]
    except (ValueError, RuntimeError) as reason:
        raise _damaged(reason) from reason
    return put_together(header, tensors)


def gather(
    mine: torch.Tensor, all_of: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor]:
    """All ranks' bytes, which may be of any length. ``all_of``: gathers all ranks'
    tensors, of one shape, as rows of one.
    """
    sizes = all_of(torch.tensor([mine.numel()], device="cpu")).flatten().tolist()
    padded = torch.zeros(aligned(max(sizes)), dtype=torch.uint8, device="cpu")
    padded[: mine.numel()] = mine
    return [row[:size] for row, size in zip(all_of(padded), sizes, strict=True)]


def _read(header: torch.Tensor) -> tuple[Any, dict[str, Any]]:
    """(structure, dtype and shape of each tensor)."""
    try:
        described = json.loads(header.numpy().tobytes())
        named = {
            name: (dtype, list(shape)) for name, (dtype, shape) in described["tensors"].items()
        }
        for dtype, shape in named.values():
            _dtype(dtype), math.prod(map(operator.index, shape))
        return described["value"], named
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as reason:
        raise _damaged(reason) from reason


def _damaged(reason: Exception) -> Exception:
    return error("PAWL_ECORRUPT", f"{_WHERE} is damaged: {reason}")


def _places(sizes: Sequence[int], header: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each tensor."""
    end = _LENGTH_BYTES + header
    for size in sizes:
        begin = aligned(end)
        end = begin + size
        yield begin, end


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype is called {name}")
    return dtype
