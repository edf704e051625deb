"""The objects that may stand in a checkpoint that is loaded without running code from it.

Allowed are those that `torch.load(weights_only=True)` takes (and the user's additions by
`torch.serialization.add_safe_globals`), and NumPy's arrays, scalars and dtypes of plain numbers,
strings and times. Save refuses all others, because load would.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import torch
from torch import _weights_only_unpickler as weights_only

# Instances of these classes reduce to nothing but names on torch's list.
_TORCH_INSTANCES: Final = frozenset(
    {
        collections.OrderedDict,
        collections.Counter,
        bytearray,
        complex,
        torch.Size,
        torch.device,
        torch.dtype,
        torch.layout,
        torch.qscheme,
    }
)
_CALLABLES: Final = (type, types.FunctionType, types.BuiltinFunctionType)
_NUMPY_CODES: Final = "?bhilqBHILQefdgFDGSUMm"  # dtype codes, without O (objects) and V (records)

_lock = threading.Lock()  # guards torch's list of safe globals while we extend it


@cache
def _extras() -> dict[str, Any]:
    """Full name -> object, for everything that Pawl allows beyond torch's list."""
    extras: dict[str, Any] = {"builtins.bytes": bytes}  # protocol 2 spells b"" so
    try:
        import numpy
    except ImportError:
        return extras
    multiarray = numpy.empty(0).__reduce__()[0]
    scalar = numpy.float64(0).__reduce__()[0]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # NumPy 1 and 2
        extras[f"{module}._reconstruct"] = multiarray
        extras[f"{module}.scalar"] = scalar
    extras["numpy.ndarray"] = numpy.ndarray
    extras["numpy.dtype"] = numpy.dtype
    for code in _NUMPY_CODES:
        kind = type(numpy.dtype(code))
        extras[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return extras


@contextlib.contextmanager
def extended_globals() -> Iterator[None]:
    """Within it torch's safe unpickler takes our extras too."""
    with _lock:
        present = weights_only._get_user_allowed_globals()
        missing: list[Any] = [(obj, name) for name, obj in _extras().items() if name not in present]
        with torch.serialization.safe_globals(missing):
            yield


def _allowed(name: str) -> Any:
    """The safe loader's object for a full name; None if it refuses the name."""
    for known in (
        weights_only._get_allowed_globals(),
        weights_only._get_user_allowed_globals(),
        _extras(),
    ):
        if name in known:
            return known[name]
    return None


def allows_class(kind: type) -> bool:
    """Whether the user has declared instances of this class safe (add_safe_globals)."""
    return kind in weights_only._get_user_allowed_globals().values()


def is_unsafe(obj: Any) -> bool:
    """Whether the safe loader could not load obj, an object that pickle does not write natively."""
    kind = type(obj)
    if kind in _TORCH_INSTANCES:
        return False
    if isinstance(obj, _CALLABLES):
        return _allowed(full_name(obj)) is None
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if kind is numpy.ndarray or isinstance(obj, numpy.generic):
            return type(obj.dtype) not in _extras().values()
        if isinstance(obj, numpy.dtype):
            return kind not in _extras().values()
    return not allows_class(kind)


def full_name(obj: Any) -> str:
    """The name "module.qualname" of a class or function, as the safe loader looks it up."""
    module = getattr(obj, "__module__", None) or "builtins"
    return f"{module}.{getattr(obj, '__qualname__', type(obj).__qualname__)}"
