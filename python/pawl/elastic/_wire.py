"""Objects that ranks send each other, as tensors.

Plain Python, NumPy's and torch's values are sent in the form of _ckpt/_structure.py: JSON, which
can run nothing, and tensors. An object of another kind is pickled, with the objects around it:
ranks of a job run the same program, and nobody else is among them.

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

_WORD: Final = 8  # bytes of the first number
_ALIGNED: Final = 64
_WHERE: Final = "what a rank tells"


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
    head = raw(json.dumps({"value": structure, "tensors": named}).encode())
    return head, [tensor.cpu().contiguous() for tensor in tensors.values()]


def rooms(head: torch.Tensor) -> list[tuple[torch.dtype, list[int]]]:
    """(dtype, shape) of each tensor behind a head. Raises PawlError if it is not a head."""
    return [(_dtype(dtype), shape) for dtype, shape in _read(head)[1].values()]


def put_together(head: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Any:
    """The value, made of these tensors. Raises PawlError if they are not take_apart's."""
    structure, named = _read(head)
    if structure is None and list(named) == [""]:
        return pickle.loads(tensors[0].numpy().tobytes())
    return _structure.rebuild(structure, dict(zip(named, tensors, strict=True)), _WHERE)


def dump(value: Any) -> torch.Tensor:
    """Copies a value into bytes, on the host."""
    head, tensors = take_apart(value)
    places = list(_places([t.nbytes for t in tensors], head.numel()))
    data = torch.empty(
        places[-1][1] if places else _WORD + head.numel(), dtype=torch.uint8, device="cpu"
    )
    data[:_WORD] = raw(head.numel().to_bytes(_WORD, "little"))
    data[_WORD : _WORD + head.numel()] = head
    for tensor, (begin, end) in zip(tensors, places, strict=True):
        data[begin:end].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return data


def load(data: torch.Tensor) -> Any:
    """The value; its tensors are views of ``data``. Raises PawlError if data is not dump's."""
    size = int.from_bytes(data[:_WORD].numpy().tobytes(), "little")
    head = data[_WORD : _WORD + min(size, data.numel())]
    found = rooms(head)
    places = _places([math.prod(shape) * dtype.itemsize for dtype, shape in found], size)
    try:
        tensors = [
            data[begin:end].view(dtype).view(shape)
            for (dtype, shape), (begin, end) in zip(found, places, strict=True)
        ]
    except (ValueError, RuntimeError) as reason:
        raise _damaged(reason) from reason
    return put_together(head, tensors)


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


def _read(head: torch.Tensor) -> tuple[Any, dict[str, Any]]:
    """(structure, dtype and shape of each tensor)."""
    try:
        words = json.loads(head.numpy().tobytes())
        named = {name: (dtype, list(shape)) for name, (dtype, shape) in words["tensors"].items()}
        for dtype, shape in named.values():
            _dtype(dtype), math.prod(map(operator.index, shape))
        return words["value"], named
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as reason:
        raise _damaged(reason) from reason


def _damaged(reason: Exception) -> Exception:
    return error("PAWL_ECORRUPT", f"{_WHERE} is damaged: {reason}")


def _places(sizes: Sequence[int], head: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each tensor."""
    end = _WORD + head
    for size in sizes:
        begin = aligned(end)
        end = begin + size
        yield begin, end


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype is called {name}")
    return dtype
