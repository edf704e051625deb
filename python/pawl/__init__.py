"""Pawl: crash-proof millisecond checkpoints for PyTorch.

``import pawl`` costs a millisecond: torch and the C library are loaded when a name below is first
used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import _pawl_compat

if TYPE_CHECKING:
    from pawl import distributed, recipes
    from pawl._core import PawlError
    from pawl._core import version as __version__
    from pawl.checkpoint import Checkpointer, Save
    from pawl.errors import NotDurable
    from pawl.loading import load

__all__ = [
    "Checkpointer",
    "NotDurable",
    "PawlError",
    "Save",
    "__version__",
    "distributed",
    "load",
    "recipes",
]

_SOURCES = {  # public name -> module that defines it, name there ("": the module itself)
    "Checkpointer": ("pawl.checkpoint", "Checkpointer"),
    "NotDurable": ("pawl.errors", "NotDurable"),
    "PawlError": ("pawl._core", "PawlError"),
    "Save": ("pawl.checkpoint", "Save"),
    "__version__": ("pawl._core", "version"),
    "distributed": ("pawl.distributed", ""),
    "load": ("pawl.loading", "load"),
    "recipes": ("pawl.recipes", ""),
}

_pawl_compat.install()  # for installations whose .pth file Python does not read


def __getattr__(name: str) -> Any:
    if name not in _SOURCES:
        raise AttributeError(f"module 'pawl' has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    source = importlib.import_module(module)
    value = getattr(source, attribute) if attribute else source
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
