"""``adaptdl.checkpoint``: states that outlive a restart."""

from __future__ import annotations

import os

from pawl.elastic import _context
from pawl.elastic._states import State, load_state

__all__ = ["State", "load_state", "save_all_states", "save_state"]


def save_all_states() -> None:
    """Saves all of them, in a checkpoint; all replicas call it."""
    _context.checkpoint()


def save_state(state: State, checkpoint_dir: str, sync: bool = True) -> None:
    """Saves one, to a file of its name in a folder that is there; all replicas call it."""
    if sync:
        state.sync()
    if _context.job().rank == 0:
        with open(os.path.join(checkpoint_dir, state.name), "wb") as file:
            state.save(file)
