"""Tensors inside of nested arguments and results: names them, and replaces them.

Known are tensors in tuples, named tuples, lists, dicts, dataclasses, and subclasses of these, such
as the outputs of transformers. All else is kept as it is, with the tensors in it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

DEPTH_MAX: Final = 32  # levels of nesting; what is deeper is kept as it is


def _items(obj: Any) -> list[tuple[str, Any]] | None:
    """Names and values of what a container holds; None: obj is no container of a known kind."""
    if isinstance(obj, dict):
        return [(repr(key), value) for key, value in obj.items()]
    if isinstance(obj, (tuple, list)):
        return [(str(i), value) for i, value in enumerate(obj)]
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return [(field.name, getattr(obj, field.name, None)) for field in dataclasses.fields(obj)]
    return None


def swap(obj: Any, by: Callable[[str, Tensor], Tensor], name: str = "", depth: int = 0) -> Any:
    """Returns obj with each tensor replaced by ``by(its name in obj, tensor)``.

    What holds no tensor is returned itself. Where a tensor is replaced, its container is a new one
    of the same type.
    """
    if isinstance(obj, Tensor):
        return by(name, obj)
    items = _items(obj) if depth < DEPTH_MAX and not isinstance(obj, torch.Size) else None
    if not items:
        return obj
    old = [value for _, value in items]
    new = [swap(value, by, f"{name}[{key}]", depth + 1) for key, value in items]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return obj
    return _rebuild(obj, new)


def _rebuild(obj: Any, values: list[Any]) -> Any:
    """A container like obj, with other values in the same places."""
    if isinstance(obj, dict):
        other = copy.copy(obj)
        for key, value in zip(obj, values, strict=True):
            other[key] = value
        return other
    if isinstance(obj, tuple):
        return type(obj)(*values) if hasattr(obj, "_fields") else type(obj)(values)
    if isinstance(obj, list):
        other = copy.copy(obj)
        other[:] = values
        return other
    other = copy.copy(obj)
    for field, value in zip(dataclasses.fields(obj), values, strict=True):
        object.__setattr__(other, field.name, value)
    return other
