"""Arguments and results of a module as a hashable key and a list of tensors, and back.

Ranks exchange keys as JSON, never as pickles. A key says everything but the tensors: containers,
numbers, texts, dtypes, and the places of the tensors, which are numbered in order. Containers of a
class of their own (named tuples, dataclasses, transformers' ModelOutput) are made anew by their
class, which the other rank must be able to import.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from pawl.errors import error

Key = Any  # nested tuples of str, int, float, bool, bytes, complex and None; hashable

_TENSOR: Final = ("t",)
_PLAIN: Final = (bool, int, float, str)


def flatten(value: Any, what: str) -> tuple[list[torch.Tensor], Key]:
    """The tensors of a value in order, and its key.

    ``what``: names the value in the error for an object that cannot cross to another rank
    (PawlError, PAWL_ENOTSUP).
    """
    tensors: list[torch.Tensor] = []
    return tensors, _key(value, tensors, what)


def unflatten(key: Key, tensors: list[Any]) -> Any:
    """The value with this key and these tensors, or what stands for them."""
    return _value(key, iter(tensors))


def _key(value: Any, tensors: list[torch.Tensor], what: str) -> Key:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TENSOR
    if value is None:
        return None
    kind = type(value)
    if kind in _PLAIN:
        return (kind.__name__, value)  # 1, 1.0 and True are equal as keys
    if kind is tuple or kind is list:
        tag = "(" if kind is tuple else "["
        return (tag, *[_key(v, tensors, what) for v in value])
    if kind is dict:
        return (
            "{",
            *[(_name(k, what), _key(v, tensors, f"{what}[{k!r}]")) for k, v in value.items()],
        )
    return _rare(value, tensors, what)


def _name(name: Any, what: str) -> Key:
    if not isinstance(name, str | int | float | bool | None):
        raise error("PAWL_ENOTSUP", f"{what} has a key of type {type(name).__name__}")
    return name


def _rare(value: Any, tensors: list[torch.Tensor], what: str) -> Key:
    """The key of a value that is none of the usual ones."""
    if isinstance(value, torch.Size):
        return ("Size", *value)
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return (type(value).__name__, str(value).removeprefix("torch."))
    if isinstance(value, slice):
        return ("slice", *[_key(v, tensors, what) for v in (value.start, value.stop, value.step)])
    if value is Ellipsis:
        return ("...",)
    if isinstance(value, bytes):
        return ("bytes", base64.b64encode(value).decode())
    if isinstance(value, complex):
        return ("complex", value.real, value.imag)
    kind = type(value)
    name = (kind.__module__, kind.__qualname__)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ("named", name, *[_key(v, tensors, what) for v in value])
    if isinstance(value, Mapping) and isinstance(value, dict):  # ModelOutput, OrderedDict
        items = ((k, _key(v, tensors, f"{what}.{k}")) for k, v in value.items())
        return ("mapping", name, *[(_name(k, what), v) for k, v in items])
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return (
            "dataclass",
            name,
            *[(f, _key(getattr(value, f), tensors, f"{what}.{f}")) for f in fields],
        )
    raise error(
        "PAWL_ENOTSUP",
        f"pipeline: {what} is a {kind.__module__}.{kind.__qualname__}, which cannot be passed to "
        "another rank; tensors, numbers, texts and containers of them can"
        + (" (set use_cache=False)" if "Cache" in kind.__qualname__ else ""),
    )


def _value(key: Key, tensors: Any) -> Any:
    if key is None:
        return None
    tag = key[0]
    if tag == "t":
        return next(tensors)
    if tag in ("bool", "int", "float", "str"):
        return key[1]
    if tag == "(":
        return tuple([_value(k, tensors) for k in key[1:]])
    if tag == "[":
        return [_value(k, tensors) for k in key[1:]]
    if tag == "{":
        return {name: _value(k, tensors) for name, k in key[1:]}
    return _rare_value(tag, key, tensors)


def _rare_value(tag: str, key: Key, tensors: Any) -> Any:
    match tag:
        case "Size":
            return torch.Size(key[1:])
        case "dtype" | "layout" | "memory_format":
            return getattr(torch, key[1])
        case "device":
            return torch.device(key[1])
        case "slice":
            return slice(*[_value(k, tensors) for k in key[1:]])
        case "...":
            return Ellipsis
        case "bytes":
            return base64.b64decode(key[1])
        case "complex":
            return complex(key[1], key[2])
        case "named":
            return _class(*key[1])(*[_value(k, tensors) for k in key[2:]])
        case "mapping" | "dataclass":
            items = {name: _value(k, tensors) for name, k in key[2:]}
            kind = _class(*key[1])
            # A ModelOutput and a dataclass take names, an OrderedDict takes a mapping.
            return kind(**items) if dataclasses.is_dataclass(kind) else kind(items)
    raise error("PAWL_EMISMATCH", f"pipeline: a key of kind {tag!r}, which this version has not")


@functools.cache
def _class(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or not (
        issubclass(found, tuple | dict) or dataclasses.is_dataclass(found)
    ):
        raise error("PAWL_EMISMATCH", f"pipeline: {module}.{qualname} is no container")
    return found


def encode(key: Key) -> bytes:
    """A key as bytes."""
    return json.dumps(key, separators=(",", ":")).encode()


def decode(data: bytes) -> Key:
    """The key that encode made these bytes of."""
    return _tuples(json.loads(data))


def _tuples(value: Any) -> Any:
    return tuple([_tuples(v) for v in value]) if isinstance(value, list) else value


# ---- metas: the description that travels with a tensor ----

_DTYPES: Final = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.complex64,
    torch.complex128,
    *[d for n in ("uint16", "uint32", "uint64") if (d := getattr(torch, n, None)) is not None],
]
_CODES: Final = {dtype: i for i, dtype in enumerate(_DTYPES)}
_DIMS_MAX: Final = 10
_WIDTH: Final = 4  # bytes of a size or stride


Meta = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]  # type, sizes, strides in elements


def meta_of(tensor: torch.Tensor) -> Meta:
    """What a tensor is."""
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def kept_meta(tensor: torch.Tensor) -> Meta:
    """What a tensor is once settled. Not for placeholders."""
    return meta_of(tensor if dense(tensor) else tensor.contiguous())


def describe(metas: Iterable[Meta]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Types and shapes, as a part of a key."""
    return tuple([(str(dtype).removeprefix("torch."), shape) for dtype, shape, _ in metas])


@functools.lru_cache(maxsize=65536)
def pack_meta(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """What a tensor of dense memory is: type, number of dimensions, sizes, strides (elements)."""
    if len(shape) > _DIMS_MAX or dtype not in _CODES or max((*shape, *strides), default=0) >= 2**32:
        raise error(
            "PAWL_ENOTSUP",
            f"pipeline: a tensor of type {dtype} and shape {tuple(shape)} cannot be passed to "
            f"another rank: at most {_DIMS_MAX} dimensions of less than 2^32 elements",
        )
    numbers = b"".join(n.to_bytes(_WIDTH, "little") for n in (*shape, *strides))
    return bytes((_CODES[dtype], len(shape))) + numbers


@functools.lru_cache(maxsize=65536)
def unpack_meta(meta: bytes) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
    """dtype, shape and strides that pack_meta was given."""
    dims = meta[1]
    numbers = [int.from_bytes(meta[i : i + _WIDTH], "little") for i in range(2, len(meta), _WIDTH)]
    return _DTYPES[meta[0]], tuple(numbers[:dims]), tuple(numbers[dims:])


def settle(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph, in dense memory, so that it can be sent as it is."""
    plain = tensor.detach()
    if plain.is_sparse or plain.is_quantized or plain.layout is not torch.strided:
        raise error("PAWL_ENOTSUP", f"pipeline: a tensor of layout {plain.layout}")
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    return plain if dense(plain) else plain.contiguous()


def dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements fill one range of memory."""
    return tensor.is_contiguous() or bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def rebuild(meta: bytes, memory: Any) -> torch.Tensor:
    """The tensor that meta describes, in this memory (an object with the buffer protocol)."""
    dtype, shape, strides = unpack_meta(meta)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)
