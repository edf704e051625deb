"""Names for what lies inside a state: "transformer.h.0.ln_1.weight", "['state'][3]['exp_avg']"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def tensor_names(value: Any, default: str) -> dict[int, str]:
    """id -> dotted path of each tensor in nested dicts, lists, tuples; default:
    name of value itself.
    """
    names: dict[int, str] = {}
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, torch.Tensor):
            names.setdefault(id(item), path or default)
        elif isinstance(item, (dict, list, tuple)) and id(item) not in seen:
            seen.add(id(item))
            prefix = f"{path}." if path else ""
            inner = [(f"{prefix}{key}", child) for key, child in _children(item)]
            stack.extend(reversed(inner))
    return names


def locate(value: Any, target: Any) -> str | None:
    """The place of target in value, as an expression ("['model']['x']"); None if it is not found.

    A class is also found by its first instance.
    """
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if item is target or type(item) is target:
            return path
        if id(item) in seen:
            continue
        seen.add(id(item))
        inner = [(f"{path}[{key!r}]", child) for key, child in _children(item)]
        if not isinstance(item, torch.Tensor):
            attributes = getattr(item, "__dict__", None)
            if isinstance(attributes, dict):
                inner += [(f"{path}.{key}", child) for key, child in attributes.items()]
        stack.extend(reversed(inner))
    return None


def _children(item: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(item, dict):
        yield from item.items()
    elif isinstance(item, (list, tuple)):
        yield from enumerate(item)
    elif isinstance(item, (set, frozenset)):
        yield from ((repr(child), child) for child in item)
