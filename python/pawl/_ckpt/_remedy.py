"""Advice for the user about a value that cannot be saved."""

from __future__ import annotations

import sys
from typing import Any


def for_unsafe(obj: Any, is_nested: bool, trusted: str | None) -> str:
    """Advice about an object that only code could load again; follows "is a Thing" in an error.

    ``is_nested``: the object is only a part of its partition. ``trusted``: why trust=True would not
    save it either; None: it would.
    """
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(obj, data.DataLoader):
        return (
            ", which does not save its position: use torchdata.stateful_dataloader."
            "StatefulDataLoader in its place, or leave it out of the state"
        )
    if is_nested and _has_state(obj):
        return ": its state_dict() is called only if it has a name of its own in the state"
    why = ": a loader that runs no code from the file could not load it"
    better = "give its class state_dict() and load_state_dict(), or save the numbers in it"
    if trusted is not None:
        return f"{why}, and trust=True would not save it ({trusted}): leave it out, {better}"
    return (
        f"{why}: {better}. Checkpointer(..., trust=True) saves it as it is, and lets loading run "
        "code"
    )


def _has_state(obj: Any) -> bool:
    names = ("state_dict", "load_state_dict")
    return not isinstance(obj, type) and all(callable(getattr(obj, name, None)) for name in names)
