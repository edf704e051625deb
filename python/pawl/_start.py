"""Messages about the state that a process starts from: a checkpoint, or nothing.

The lines are of the logger "pawl.start" (see _lines.py) and are printed once at each start, by rank
0 alone: callers see to that.

The module remembers for each root whether this process has looked there for a checkpoint. A process
that saves without having looked gets a message about the newest one there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from pawl import _core
from pawl._lines import emit
from pawl._report._drawing import size_text

log = logging.getLogger("pawl.start")

_looked: set[str] = set()  # real paths of roots that this process has looked in


def is_first() -> bool:
    """Whether this process is the one that prints for all ranks."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return _core.env()["rank"] == 0


def looked(root: str) -> None:
    """Records that this process has looked for a checkpoint in a root."""
    _looked.add(os.path.realpath(root))


def restored(root: str, what: str, size: int, source: str) -> None:
    """Reports that the process starts from a checkpoint ``what``, of ``size`` bytes;
    ``source``: memory or store.
    """
    looked(root)
    place = "memory" if source == "memory" else f"the {source}"
    emit(log, logging.INFO, "restored %s (%s, from %s) from %s", what, size_text(size), place, root)


def resumed(path: str, why: str = "") -> None:
    """Reports that the process starts from a checkpoint that a framework reads itself."""
    looked(os.path.dirname(path))
    emit(log, logging.INFO, "resuming from %s%s", path, f", {why}" if why else "")


def joined(rank: int, ranks: int, step: int) -> None:
    """Reports that a rank has joined a running job and got the state from other ranks."""
    emit(log, logging.INFO, "joined as rank %d of %d, after step %d", rank, ranks, step)


def nothing(root: str) -> None:
    """Reports that there is no checkpoint."""
    looked(root)
    emit(log, logging.INFO, "nothing saved yet in %s: from the beginning", root)


def nowhere(remedy: str) -> None:
    """Reports that there is no root, so that there will never be a checkpoint."""
    attempt = _core.env()["attempt"]
    if attempt > 0:
        emit(
            log, logging.WARNING,
            "this process was started again (attempt %d) and begins anew, as nothing is saved: %s",
            attempt, remedy,
        )  # fmt: skip
    else:
        emit(log, logging.INFO, "from the beginning; nothing will be saved: %s", remedy)


def anew(root: str, newest: str, why: str) -> None:
    """Reports that a process begins anew, though a checkpoint is there. ``why``: the
    reason, or the remedy.
    """
    looked(root)
    attempt = _core.env()["attempt"]
    who = f"this process was started again (attempt {attempt}) and" if attempt > 0 else "this run"
    emit(log, logging.WARNING, "%s begins anew, though %s lies in %s: %s", who, newest, root, why)


def before_save(root: str, newest: Callable[[], str | None], remedy: str) -> None:
    """Called before the first save in a root: if this process has not looked there,
    reports from which state it begins.

    ``newest`` returns the name of the newest checkpoint there, or None.
    """
    if os.path.realpath(root) in _looked:
        return
    found = newest()
    if found is None:
        nothing(root)
    else:
        anew(root, found, remedy)
