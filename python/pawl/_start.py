"""What a run starts from, said once at each start: a checkpoint, or nothing."""

from __future__ import annotations

import logging
import os
from typing import Final

from pawl._drawing import size_text

log = logging.getLogger("pawl.start")

_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING}


def be_heard(logger: logging.Logger) -> None:
    """Where a script has set up no logging, lines go to stderr, as libpawl's do."""
    if not logger.hasHandlers() and logger.level == logging.NOTSET:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pawl: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(_LEVELS.get(os.environ.get("PAWL_LOG", ""), logging.INFO))
        logger.propagate = False


def restored(root: str, what: str, size: int, source: str) -> None:
    """From a checkpoint: ``what`` names it; ``size`` in bytes; ``source``: memory or store."""
    be_heard(log)
    log.info("restored %s (%s, from the %s) from %s", what, size_text(size), source, root)


def resumed(folder: str, why: str) -> None:
    """From a checkpoint that a framework reads itself."""
    be_heard(log)
    log.info("resuming from %s, %s", folder, why)


def nothing(root: str) -> None:
    """There is no checkpoint."""
    be_heard(log)
    log.info("nothing saved yet in %s: from the beginning", root)


def anew(root: str, attempt: int, newest: str, remedy: str) -> None:
    """A process that was started again begins anew, though a checkpoint lies there."""
    be_heard(log)
    log.warning(
        "this process was started again (attempt %d) and begins anew, though %s lies in %s: %s",
        attempt, newest, root, remedy,
    )  # fmt: skip
