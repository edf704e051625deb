"""What a process starts from, said once at each start: a checkpoint, or nothing.

The lines are of the logger "pawl.start": _lines.py says where they go. They are said by rank 0
alone: who calls sees to that.

Of each root it is remembered whether this process has looked there for a checkpoint, so that one
that saves without having looked can be told what lies there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from pawl import _core
from pawl._drawing import size_text
from pawl._lines import say

log = logging.getLogger("pawl.start")

_looked: set[str] = set()  # real paths of roots


def is_first() -> bool:
    """Whether this process is the one that speaks for all ranks."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return _core.env()["rank"] == 0


def looked(root: str) -> None:
    """This process has looked for a checkpoint in a root."""
    _looked.add(os.path.realpath(root))


def restored(root: str, what: str, size: int, source: str) -> None:
    """From a checkpoint: ``what`` names it; ``size`` in bytes; ``source``: memory or store."""
    looked(root)
    place = "memory" if source == "memory" else f"the {source}"
    say(log, logging.INFO, "restored %s (%s, from %s) from %s", what, size_text(size), place, root)


def resumed(path: str, why: str = "") -> None:
    """From a checkpoint that a framework reads itself."""
    looked(os.path.dirname(path))
    say(log, logging.INFO, "resuming from %s%s", path, f", {why}" if why else "")


def joined(rank: int, ranks: int, step: int) -> None:
    """From what the others tell: a rank that came to a job that runs."""
    say(log, logging.INFO, "joined as rank %d of %d, behind step %d", rank, ranks, step)


def nothing(root: str) -> None:
    """There is no checkpoint."""
    looked(root)
    say(log, logging.INFO, "nothing saved yet in %s: from the beginning", root)


def nowhere(remedy: str) -> None:
    """There is no root, so there never will be one."""
    attempt = _core.env()["attempt"]
    if attempt > 0:
        say(
            log, logging.WARNING,
            "this process was started again (attempt %d) and begins anew, as nothing is saved: %s",
            attempt, remedy,
        )  # fmt: skip
    else:
        say(log, logging.INFO, "from the beginning; nothing will be saved: %s", remedy)


def anew(root: str, newest: str, why: str) -> None:
    """A process begins anew, though a checkpoint lies there. ``why``: the reason, or the remedy."""
    looked(root)
    attempt = _core.env()["attempt"]
    who = f"this process was started again (attempt {attempt}) and" if attempt > 0 else "this run"
    say(log, logging.WARNING, "%s begins anew, though %s lies in %s: %s", who, newest, root, why)


def before_save(root: str, newest: Callable[[], str | None], remedy: str) -> None:
    """The first save in a root: of a process that has not looked there it is told what it begins
    from. ``newest``: names the newest checkpoint there."""
    if os.path.realpath(root) in _looked:
        return
    found = newest()
    if found is None:
        nothing(root)
    else:
        anew(root, found, remedy)
