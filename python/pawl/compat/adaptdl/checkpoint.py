"""``adaptdl.checkpoint``: states that outlive a restart."""

from __future__ import annotations

import os

from pawl.elastic import _context
from pawl.elastic._states import State, load_state
from pawl.errors import error

__all__ = ["State", "load_state", "save_all_states", "save_state"]


def save_all_states() -> str | None:
    """Saves all of them, in a checkpoint, which is durable when rank 0 returns, with where it is
    (others, and without a root: None); all replicas call it. Raises PawlError if it could not be
    made durable."""
    _context.checkpoint()
    if _context.job().rank > 0:
        return None
    if (why := _context.checkpoints().flush()) is not None:
        raise error("PAWL_EIO", f"save_all_states: what was saved is not durable: {why}")
    return _context.checkpoints().root or None


def save_state(state: State, checkpoint_dir: str | None, sync: bool = True) -> None:
    """Saves one, to a file of its name in a folder that is there; None: nowhere. All replicas call
    it."""
    if sync:
        state.sync()
    if checkpoint_dir is not None and _context.job().rank == 0:
        with open(os.path.join(checkpoint_dir, state.name), "wb") as file:
            state.save(file)
