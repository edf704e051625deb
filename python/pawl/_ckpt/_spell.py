"""Tensors and storages in the pickle opcodes (protocol 2) that torch.save writes.

A plain tensor becomes a call of torch._utils._rebuild_tensor_v2 on a typed storage. The v3 form, on
an untyped storage with the dtype beside it, is torch's form for the newer dtypes; here it also
serves memory that several tensors see as different dtypes, which torch.save refuses.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch.storage import _dtype_to_storage_type_map, _new_dtypes

TENSOR_LIKE: Final = (torch.Tensor, torch.storage.TypedStorage, torch.UntypedStorage)
_QUANTIZED: Final = frozenset(
    {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}
)
# dtype -> "FloatStorage" and so on, for the dtypes that have a storage type of their own.
STORAGE_NAMES: Final[dict[torch.dtype, str]] = {
    dtype: name for dtype, name in _dtype_to_storage_type_map().items() if dtype not in _QUANTIZED
}
UNTYPED_DTYPES: Final[frozenset[torch.dtype]] = frozenset(_new_dtypes()) - frozenset(STORAGE_NAMES)

_HOOKS: Final = b"ccollections\nOrderedDict\n)R"  # backward hooks, which are never saved


class Columns(NamedTuple):
    """The properties of plain tensors that a pickle holds: one entry a tensor,
    except in sizes and places.
    """

    kinds: list[type]  # torch.Tensor or torch.nn.Parameter
    dtypes: list[torch.dtype]
    shapes: list[torch.Size]
    strides: list[tuple[int, ...]]  # elements
    offsets: list[Any]  # elements
    requires_grad: list[bool]
    objects: list[int] | None  # number of each tensor object; None: no tensor object comes twice
    keys: list[int] | None  # key of each storage; None: tensor i lies alone on storage i
    sizes: list[int]  # bytes of each storage
    places: list[str] | None  # device tag of each storage; None: all "cpu"


def spell(columns: Columns, memo_base: int) -> list[bytes]:
    """Opcodes that leave tensor i on the stack, for each i.

    An object that comes again is fetched from the unpickler's memo, whose slots
    from memo_base on are ours.
    """
    typed = _typed_storages(columns)
    places = columns.places
    spelled = []
    seen: set[int] = set()
    for index in range(len(columns.kinds)):
        if columns.objects is not None:
            slot = struct.pack("<I", memo_base + columns.objects[index])
            if columns.objects[index] in seen:
                spelled.append(b"j" + slot)
                continue
            seen.add(columns.objects[index])
        key = index if columns.keys is None else columns.keys[index]
        one = _tensor(
            columns.kinds[index],
            columns.dtypes[index],
            columns.shapes[index],
            columns.strides[index],
            columns.offsets[index],
            columns.requires_grad[index],
            key,
            columns.sizes[key],
            "cpu" if places is None else places[key],
            typed[key],
        )
        spelled.append(one if columns.objects is None else one + b"r" + slot)
    return spelled


def _typed_storages(columns: Columns) -> list[bool]:
    """Whether a typed storage can hold each storage: one dtype, of the older
    ones, and whole items.
    """
    typed = [True] * len(columns.sizes)
    first: dict[int, torch.dtype] = {}
    for index, dtype in enumerate(columns.dtypes):
        key = index if columns.keys is None else columns.keys[index]
        if (
            dtype not in STORAGE_NAMES
            or first.setdefault(key, dtype) != dtype
            or columns.sizes[key] % dtype.itemsize != 0
        ):
            typed[key] = False
    return typed


@lru_cache(maxsize=8192)
def _tensor(
    kind: type,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    requires_grad: bool,
    key: int,
    size_bytes: int,
    place: str,
    typed: bool,
) -> bytes:
    inner = requires_grad and kind is torch.Tensor  # a parameter's data requires no gradient
    head = b"_rebuild_tensor_v2" if typed else b"_rebuild_tensor_v3"
    storage = STORAGE_NAMES[dtype] if typed else "UntypedStorage"
    numel = size_bytes // dtype.itemsize if typed else size_bytes
    parts = [
        b"ctorch._utils\n" + head + b"\n((",
        _text("storage"),
        b"c" + (b"torch" if typed else b"torch.storage") + f"\n{storage}\n".encode(),
        _text(str(key)),
        _text(place),
        _int(numel),
        b"tQ",
        _int(offset),
        _ints(shape),
        _ints(stride),
        _bool(inner),
        _HOOKS,
        b"" if typed else f"ctorch\n{_dtype_name(dtype)}\n".encode(),
        b"tR",
    ]
    if kind is torch.Tensor:
        return b"".join(parts)
    return b"".join(
        [b"ctorch._utils\n_rebuild_parameter\n(", *parts, _bool(requires_grad), _HOOKS, b"tR"]
    )


def _int(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _ints(values: tuple[int, ...]) -> bytes:
    spelled = b"".join(map(_int, values))
    if len(values) <= 3:
        return spelled + (b")", b"\x85", b"\x86", b"\x87")[len(values)]
    return b"(" + spelled + b"t"


def _text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _bool(value: bool) -> bytes:
    return b"\x88" if value else b"\x89"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def row(name: str, tensor: torch.Tensor, key: int) -> tuple[str, str, tuple[int, ...], int, int]:
    """A row of the tensor table: name, dtype, shape, storage, offset in bytes."""
    offset_bytes = int(tensor.storage_offset()) * tensor.element_size()
    name = name.replace("\0", "?").encode(errors="replace").decode()  # a key may be any text
    return (name, _dtype_name(tensor.dtype), tuple(tensor.shape), key, offset_bytes)


def storage_identity(tensor: torch.Tensor) -> int:
    """The identity of a strided tensor's storage; -1 for a tensor that is no view
    of one storage.
    """
    if tensor.layout != torch.strided or tensor.is_nested or tensor.device.type == "meta":
        return -1
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # wrapper subclasses have no storage
        return -1


def describe_storage(obj: Any) -> tuple[torch.UntypedStorage, torch.dtype, Any, int]:
    """Bytes, dtype, the class that names it in a pickle, and number of elements."""
    if isinstance(obj, torch.storage.TypedStorage):
        kind = getattr(torch, obj._pickle_storage_type())
        return obj._untyped_storage, obj.dtype, kind, obj._size()
    return obj, torch.uint8, torch.UntypedStorage, obj.nbytes()


def unsaveable(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be saved even by torch, or by us for now; None if it can."""
    kind = type(tensor)
    for module, name, why in (
        ("torch.distributed.tensor", "DTensor", "whose shards this version cannot lay out"),
        ("torch._subclasses.fake_tensor", "FakeTensor", "which has no bytes"),
        ("torch._subclasses.functional_tensor", "FunctionalTensor", "which has no bytes"),
    ):
        if module in sys.modules and isinstance(tensor, getattr(sys.modules[module], name)):
            return f"is a {name}, {why}"
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return f"is an {kind.__qualname__}: its lazy module has seen no batch yet"
    if kind in (torch.Tensor, torch.nn.Parameter) and tensor.is_mkldnn:
        return "is a tensor in an opaque MKL-DNN layout (use .to_dense())"
    dtype = tensor.dtype
    if dtype not in STORAGE_NAMES and dtype not in UNTYPED_DTYPES and dtype not in _QUANTIZED:
        return f"is a tensor of {dtype}, which torch cannot store"
    return None
