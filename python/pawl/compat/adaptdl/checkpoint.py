"""``adaptdl.checkpoint``: states that outlive a restart."""

from __future__ import annotations

import os

from pawl.elastic import _context
from pawl.elastic._states import State, load_state
from pawl.errors import error

__all__ = ["State", "load_state", "save_all_states", "save_state"]


def save_all_states() -> str | None:
    """Saves all states, in a checkpoint. All replicas call it.

    Returns its place at rank 0, where it is durable then; None at other ranks, and without a root.
    Raises PawlError if it could not be made durable.
    """
    _context.checkpoint()
    if _context.job().rank > 0:
        return None
    if (why := _context.checkpoints().flush()) is not None:
        raise error("PAWL_EIO", f"save_all_states: what was saved is not durable: {why}")
    return _context.checkpoints().root or None


def save_state(state: State, checkpoint_dir: str | None, sync: bool = True) -> None:
    """Saves one state to a file of its name in an existing folder; None: nowhere.
    All replicas call it.
    """
    if sync:
        state.sync()
    if checkpoint_dir is not None and _context.job().rank == 0:
        with open(os.path.join(checkpoint_dir, state.name), "wb") as file:
            state.save(file)
