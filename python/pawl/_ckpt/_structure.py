"""A nested value as JSON and named tensors, and back: for formats that hold tensors alone.

In the JSON, None, bool, int, str, finite floats and lists are themselves. All else is an object
whose first key says what it is: {"dict": {...}}, {"items": [[key, value], ...]} (a dict with other
keys than str), {"ordered": items}, {"tuple": [...]}, {"set": [...]},
{"tensor": name}, {"float": "nan"}, {"complex": [re, im]}, {"bytes": base64}, {"bytearray": base64},
{"size": [...]}, {"dtype": name}, {"device": name}, {"layout": name}, {"array": base64, "dtype":
..., "shape": ...}. Reading it calls nothing that is not in this file.

A tensor's name is its path, joined by dots. Tensors that are the same memory, seen the same way
(tied weights), share a name, and come back as one tensor.
"""

from __future__ import annotations

import base64
import collections
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch

from pawl._ckpt import _safe
from pawl.errors import error

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_NUMPY_KINDS: Final = "biufcSUmM"  # numbers, strings and times: no objects, no records


class Flat(NamedTuple):
    """A value, taken apart."""

    structure: Any  # for json.dumps
    tensors: dict[str, torch.Tensor]  # detached, strided; not necessarily contiguous
    overlaps: list[str]  # names of tensors that share some memory with another tensor here


def flatten(value: Any, where: str) -> Flat:
    """Takes value apart. Raises PawlError (PAWL_ENOTSUP) naming the object that
    has no such form.
    """
    flattener = _Flattener(where)
    try:
        structure = flattener.encode(value, "")
    except RecursionError:
        raise error("PAWL_ENOTSUP", f"{where} is nested too deeply, or contains itself") from None
    return Flat(structure, flattener.tensors, flattener.overlaps)


class _Flattener:
    def __init__(self, where: str) -> None:
        self._where = where
        self.tensors: dict[str, torch.Tensor] = {}
        self.overlaps: list[str] = []
        self._known: dict[Any, str] = {}  # view of memory -> name
        self._storages: dict[int, str] = {}  # identity -> name of the first tensor on it

    def encode(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if kind is list:
            return self._list(value, path)
        if kind is dict or kind is collections.OrderedDict:
            return self._dict(value, path)
        if kind in _SEQUENCES:
            return {_SEQUENCES[kind]: self._list(value, path)}
        for known, encode in _ENCODERS.items():
            if kind is known:
                return encode(value)
        numpy = sys.modules.get("numpy")
        if numpy is not None and (kind is numpy.ndarray or isinstance(value, numpy.generic)):
            return self._array(numpy, value, path)
        raise self._refuse(path, f"is a {_safe.full_name(kind)}")

    def _refuse(self, path: str, why: str) -> Exception:
        where = f"{self._where}: {path}" if path else self._where
        return error("PAWL_ENOTSUP", f"{where} {why}, which can be stored only as a Python object")

    def _list(self, values: Any, path: str) -> list[Any]:
        prefix = f"{path}." if path else ""
        return [self.encode(value, f"{prefix}{index}") for index, value in enumerate(values)]

    def _dict(self, value: Mapping[Any, Any], path: str) -> dict[str, Any]:
        prefix = f"{path}." if path else ""
        if type(value) is dict and all(type(key) is str for key in value):
            return {"dict": {k: self.encode(v, f"{prefix}{k}") for k, v in value.items()}}
        items = [
            [self.encode(k, f"{path} (a key)"), self.encode(v, f"{prefix}{k}")]
            for k, v in value.items()
        ]
        if type(value) is dict:
            return {"items": items}
        node: dict[str, Any] = {"ordered": items}
        if value.__dict__:  # a state_dict has the versions of its modules in _metadata
            node["attributes"] = self.encode(dict(value.__dict__), f"{path} (an attribute)")
        return node

    def _tensor(self, tensor: torch.Tensor, path: str) -> dict[str, Any]:
        kind = type(tensor)
        if kind not in _PLAIN:
            raise self._refuse(path, f"is a {_safe.full_name(kind)}")
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise self._refuse(path, f"is a tensor of {_describe(tensor)}")
        if tensor.__dict__:
            raise self._refuse(path, "is a tensor with attributes")
        node: dict[str, Any] = {"tensor": self._name(tensor, path)}
        if kind is torch.nn.Parameter:
            node["parameter"] = tensor.requires_grad
        elif tensor.requires_grad:
            node["requires_grad"] = True
        return node

    def _name(self, tensor: torch.Tensor, path: str) -> str:
        plain = tensor.detach()
        view: Any = (plain.data_ptr(), plain.dtype, plain.shape, plain.stride())
        view += (plain.is_conj(), plain.is_neg())
        if plain.numel() == 0:
            view = id(tensor)  # there is no memory to share
        known = self._known.get(view)
        if known is not None:
            return known
        name = path or "tensor"
        number = 2
        while name in self.tensors or name == "__metadata__":
            # A dict of "a.b" may stand beside one of "a" with a "b" in it.
            name = f"{path}~{number}"
            number += 1
        if plain.numel() > 0:
            first = self._storages.setdefault(plain.untyped_storage().data_ptr(), name)
            if first != name:
                self.overlaps += [first, name] if first not in self.overlaps else [name]
        self._known[view] = name
        self.tensors[name] = plain.resolve_conj().resolve_neg()
        return name

    def _array(self, numpy: Any, value: Any, path: str) -> dict[str, Any]:
        array = numpy.asarray(value)
        if array.dtype.kind not in _NUMPY_KINDS:
            raise self._refuse(path, f"is an array of {array.dtype}")
        return {
            "array" if type(value) is numpy.ndarray else "scalar": _base64(array.tobytes()),
            "dtype": array.dtype.str,
            "shape": list(array.shape),
        }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _describe(tensor: torch.Tensor) -> str:
    if tensor.is_quantized:
        return "quantized numbers"
    return "no device" if tensor.is_meta else f"layout {tensor.layout}"


def _parts(value: complex) -> dict[str, Any]:
    return {"complex": [repr(value.real), repr(value.imag)]}


_SEQUENCES: Final[dict[type, str]] = {tuple: "tuple", set: "set"}
_ENCODERS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    bytes: lambda value: {"bytes": _base64(value)},
    bytearray: lambda value: {"bytearray": _base64(bytes(value))},
    complex: _parts,
    torch.Size: lambda value: {"size": list(value)},
    torch.dtype: lambda value: {"dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value: {"device": str(value)},
    torch.layout: lambda value: {"layout": str(value).removeprefix("torch.")},
}


# ---- rebuilding ----


def rebuild(structure: Any, tensors: Mapping[str, torch.Tensor], where: str) -> Any:
    """The value that flatten took apart. Raises PawlError (PAWL_ECORRUPT) if
    structure is not flatten's.
    """
    try:
        return _Builder(tensors).decode(structure)
    except Exception as reason:  # any exception: the damaged file decides which
        raise error("PAWL_ECORRUPT", f"{where}: its structure is damaged: {reason!r}") from reason


class _Builder:
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._made: dict[Any, torch.Tensor] = {}  # name and kind -> tensor made of it

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        kind, value = next(iter(node.items()))
        return getattr(self, f"_{kind}")(value, node)

    def _dict(self, value: Any, node: Any) -> dict[str, Any]:
        return {key: self.decode(item) for key, item in value.items()}

    def _items(self, value: Any, node: Any) -> dict[Any, Any]:
        return {self.decode(key): self.decode(item) for key, item in value}

    def _ordered(self, value: Any, node: Any) -> collections.OrderedDict[Any, Any]:
        made = collections.OrderedDict(self._items(value, node))
        for name, attribute in self.decode(node.get("attributes", {"dict": {}})).items():
            setattr(made, name, attribute)
        return made

    def _tuple(self, value: Any, node: Any) -> tuple[Any, ...]:
        return tuple(self.decode(value))

    def _set(self, value: Any, node: Any) -> set[Any]:
        return set(self.decode(value))

    def _tensor(self, value: Any, node: Any) -> torch.Tensor:
        key = (value, node.get("parameter"), bool(node.get("requires_grad")))
        if key not in self._made:
            tensor = self._tensors[value].detach()
            if node.get("parameter") is not None:
                tensor = torch.nn.Parameter(tensor, requires_grad=node["parameter"])
            elif node.get("requires_grad"):
                tensor.requires_grad_()
            self._made[key] = tensor
        return self._made[key]

    def _float(self, value: Any, node: Any) -> float:
        return float(value)

    def _complex(self, value: Any, node: Any) -> complex:
        return complex(float(value[0]), float(value[1]))

    def _bytes(self, value: Any, node: Any) -> bytes:
        return base64.b64decode(value)

    def _bytearray(self, value: Any, node: Any) -> bytearray:
        return bytearray(base64.b64decode(value))

    def _size(self, value: Any, node: Any) -> torch.Size:
        return torch.Size(value)

    def _dtype(self, value: Any, node: Any) -> torch.dtype:
        return _named(value, torch.dtype)

    def _layout(self, value: Any, node: Any) -> torch.layout:
        return _named(value, torch.layout)

    def _device(self, value: Any, node: Any) -> torch.device:
        return torch.device(value)

    def _array(self, value: Any, node: Any) -> Any:
        import numpy

        dtype = numpy.dtype(node["dtype"])
        if dtype.kind not in _NUMPY_KINDS:
            raise ValueError(f"array of {dtype}")
        return numpy.frombuffer(base64.b64decode(value), dtype).reshape(node["shape"]).copy()

    def _scalar(self, value: Any, node: Any) -> Any:
        return self._array(value, node)[()]


def _named(name: str, kind: type) -> Any:
    """torch.<name>, if it is of that kind."""
    value = getattr(torch, name)
    if not isinstance(value, kind):
        raise ValueError(f"torch.{name} is no {kind.__name__}")
    return value
