"""Messages for people, printed where they see them.

A line goes to its logger if the script has set up logging to show it, else to stderr, as libpawl's
lines do: a root logger of level WARNING, which is the default, would hide it. PAWL_LOG=warning
silences lines that report nothing wrong, as does a level that a script has set on the logger or one
above it, except the root logger.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import Final

_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING}


def emit(logger: logging.Logger, level: int, text: str, *args: object) -> None:
    """Prints ``text % args`` at a level of logging."""
    handlers = (handler for one in _line_of(logger) for handler in one.handlers)
    if logger.isEnabledFor(level) and any(_takes(handler, level) for handler in handlers):
        logger.log(level, text, *args)
    elif level >= _wanted() and not _is_silenced(logger, level) and sys.stderr is not None:
        print(f"pawl: {text % args}", file=sys.stderr, flush=True)


def _wanted() -> int:
    """The level that PAWL_LOG names."""
    return _LEVELS.get(os.environ.get("PAWL_LOG", ""), logging.INFO)


def _line_of(logger: logging.Logger) -> Iterator[logging.Logger]:
    """The loggers whose handlers receive a line."""
    at: logging.Logger | None = logger
    while at is not None:
        yield at
        at = at.parent if at.propagate else None


def _takes(handler: logging.Handler, level: int) -> bool:
    return handler.level <= level and not isinstance(handler, logging.NullHandler)


def _is_silenced(logger: logging.Logger, level: int) -> bool:
    """Whether the script has turned such lines off. The level of the root logger does not count: it
    has one even if the script has set none.
    """
    if logging.root.manager.disable >= level:
        return True
    ours = (one for one in _line_of(logger) if one is not logging.root)
    return any(one.level > level or not one.propagate for one in ours)
