"""What a process starts from, said once at each start: a checkpoint, or nothing.

The lines go to the logger "pawl.start" where the script has set up logging to show them, else to
stderr, as libpawl's do: a root logger of level WARNING, which is the default, would hide them. They
are said by rank 0 alone: who calls sees to that. PAWL_LOG=warning silences those that tell of
nothing wrong, as does a level that a script has given the logger "pawl" or "pawl.start".

Of each root it is remembered whether this process has looked there for a checkpoint, so that one
that saves without having looked can be told what lies there.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from pawl import _core
from pawl._drawing import size_text

log = logging.getLogger("pawl.start")

_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING}
_OURS: Final = ("pawl.start", "pawl")  # loggers whose level is about these lines

_looked: set[str] = set()  # real paths of roots


def _wanted() -> int:
    """The level that PAWL_LOG names."""
    return _LEVELS.get(os.environ.get("PAWL_LOG", ""), logging.INFO)


def be_heard(logger: logging.Logger) -> None:
    """Where a script has set up no logging, lines go to stderr, as libpawl's do."""
    if not logger.hasHandlers() and logger.level == logging.NOTSET:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pawl: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(_wanted())
        logger.propagate = False


def _say(level: int, text: str, *args: object) -> None:
    if log.isEnabledFor(level) and any(_takes(handler, level) for handler in _handlers()):
        log.log(level, text, *args)
    elif level >= _wanted() and not _is_silenced(level) and sys.stderr is not None:
        print(f"pawl: {text % args}", file=sys.stderr, flush=True)


def _handlers() -> Iterator[logging.Handler]:
    """Those that a line may come to."""
    at: logging.Logger | None = log
    while at is not None:
        yield from at.handlers
        at = at.parent if at.propagate else None


def _takes(handler: logging.Handler, level: int) -> bool:
    return handler.level <= level and not isinstance(handler, logging.NullHandler)


def _is_silenced(level: int) -> bool:
    """Whether the script has said that it does not want such lines. The level of the root logger
    says nothing of them: it has one if nobody gave it any."""
    if logging.root.manager.disable >= level:
        return True
    loggers = [logging.getLogger(name) for name in _OURS]
    return any(one.level > level or not one.propagate for one in loggers)


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
    _say(logging.INFO, "restored %s (%s, from %s) from %s", what, size_text(size), place, root)


def resumed(path: str, why: str = "") -> None:
    """From a checkpoint that a framework reads itself."""
    looked(os.path.dirname(path))
    _say(logging.INFO, "resuming from %s%s", path, f", {why}" if why else "")


def joined(rank: int, ranks: int, step: int) -> None:
    """From what the others tell: a rank that came to a job that runs."""
    _say(logging.INFO, "joined as rank %d of %d, behind step %d", rank, ranks, step)


def nothing(root: str) -> None:
    """There is no checkpoint."""
    looked(root)
    _say(logging.INFO, "nothing saved yet in %s: from the beginning", root)


def nowhere(remedy: str) -> None:
    """There is no root, so there never will be one."""
    attempt = _core.env()["attempt"]
    if attempt > 0:
        _say(
            logging.WARNING,
            "this process was started again (attempt %d) and begins anew, as nothing is saved: %s",
            attempt, remedy,
        )  # fmt: skip
    else:
        _say(logging.INFO, "from the beginning; nothing will be saved: %s", remedy)


def anew(root: str, newest: str, why: str) -> None:
    """A process begins anew, though a checkpoint lies there. ``why``: the reason, or the remedy."""
    looked(root)
    attempt = _core.env()["attempt"]
    who = f"this process was started again (attempt {attempt}) and" if attempt > 0 else "this run"
    _say(logging.WARNING, "%s begins anew, though %s lies in %s: %s", who, newest, root, why)


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
