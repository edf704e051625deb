"""Files of a checkpoint that are no torch zips: any bytes, and safetensors.

The safetensors format (length of a header, the header in JSON, the tensors' bytes) is written here
and not by its library, because that needs all bytes at once: here they are copied straight from the
tensors, while training goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from pawl import _core
from pawl._ckpt import _spell
from pawl._ckpt._skeleton import Skeleton
from pawl.errors import error

_SAFETENSORS: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_HEADER_ALIGN: Final = 8  # bytes; the format's own writer pads to it, with spaces


class Raw:
    """A file with exactly these bytes: chunks, one after the other.

    ``chunks``: bytes-like objects and tensors (their bytes). The save copies contiguous tensors
    directly; others are copied first.
    """

    def __init__(self, *chunks: bytes | bytearray | memoryview | torch.Tensor) -> None:
        self._chunks = [_as_tensor(chunk) for chunk in chunks]

    def skeleton(self, name: str) -> Skeleton:
        """The skeleton of the file. name: of the partition."""
        return _skeleton(self._chunks, [f"{name}[{i}]" for i in range(len(self._chunks))], b"")


class Safetensors:
    """A file in the safetensors format.

    ``tensors``: name -> tensor, of the dtypes that the format has; those that are not contiguous
    are copied. ``metadata``: the file's ``__metadata__``, strings only.

    Raises PawlError (PAWL_ENOTSUP) naming a tensor that the format cannot hold.
    """

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
    ) -> None:
        for name, tensor in tensors.items():
            if tensor.dtype not in _SAFETENSORS or tensor.layout != torch.strided:
                raise error(
                    "PAWL_ENOTSUP",
                    f"safetensors cannot hold {name!r}: {tensor.layout}, {tensor.dtype}",
                )
        # Larger elements first, so that every tensor is aligned; the format's writer does so, too.
        self._tensors = dict(sorted(tensors.items(), key=lambda t: (-t[1].element_size(), t[0])))
        self._metadata = dict(metadata or {})

    def skeleton(self, name: str) -> Skeleton:
        """The skeleton of the file. name: of the partition."""
        header: dict[str, Any] = {"__metadata__": self._metadata} if self._metadata else {}
        offset = 0
        for key, tensor in self._tensors.items():
            header[key] = {
                "dtype": _SAFETENSORS[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [offset, offset + tensor.nbytes],
            }
            offset += tensor.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _HEADER_ALIGN)
        head = len(text).to_bytes(8, "little") + text
        rows = [
            (*_spell.row(key, tensor, 0)[:4], len(head) + header[key]["data_offsets"][0])
            for key, tensor in self._tensors.items()
        ]
        chunks = [_as_tensor(head), *map(_as_tensor, self._tensors.values())]
        return _skeleton(chunks, ["header", *self._tensors], _core.encode_tensors(rows))


def _as_tensor(chunk: Any) -> torch.Tensor:
    """A contiguous tensor of these bytes, in memory that the library can reach."""
    if not isinstance(chunk, torch.Tensor):
        data = bytearray(chunk)
        return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, device="cpu")
    tensor = chunk.detach().contiguous().resolve_conj().resolve_neg()
    return tensor if tensor.device.type in ("cpu", "cuda") else tensor.cpu()


def _skeleton(chunks: Sequence[torch.Tensor], names: list[str], table: bytes) -> Skeleton:
    return Skeleton(
        b"",
        table,
        [chunk.untyped_storage() for chunk in chunks],
        names,
        chunks,
        [(chunk.data_ptr(), chunk.nbytes) for chunk in chunks],
    )
