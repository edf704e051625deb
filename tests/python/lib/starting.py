"""Checks what processes log of their start, in the same way for all that saves through Pawl."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import leftovers
from pawl import _start


class Processes:
    """Stands for processes that run one after the other, as far as their lines about starts go."""

    def __init__(self, log: pytest.LogCaptureFixture, patch: pytest.MonkeyPatch) -> None:
        self._log, self._patch = log, patch
        log.set_level("INFO", "pawl")

    def begin(self, attempt: int = 0) -> None:
        """Begins another process."""
        _start._looked.clear()
        self._patch.setenv("PAWL_ATTEMPT", str(attempt))
        self._log.clear()

    def said(self) -> list[str]:
        """Returns the lines that the present process has logged."""
        return [one.getMessage() for one in self._log.records if one.name == "pawl.start"]


def check_starts(
    processes: Processes,
    root: object,
    save: Callable[[int], object],
    load: Callable[[], object],
    remedy: str,
    loaded: str,
) -> None:
    """Checks the lines of each start. ``save``: saves checkpoint 1, 2, ... in root, in a life of
    its own; ``load``: loads the last one. ``remedy``: the advice for a process that does not load;
    ``loaded``: a pattern of the line after a load."""
    processes.begin()
    save(1)
    assert processes.said() == [f"nothing saved yet in {root}: from the beginning"]
    for attempt, who in ((0, r"this run"), (1, r"this process .* again \(attempt 1\) and")):
        processes.begin(attempt)
        save(2 + 2 * attempt)
        save(3 + 2 * attempt)
        (line,) = processes.said()
        lies = rf"\S*{1 + 2 * attempt}\S* lies in {re.escape(str(root))}: {re.escape(remedy)}"
        assert re.fullmatch(f"{who} begins anew, though {lies}", line), line
    leftovers.end_agents()  # an agent that stays has the last save in its memory
    processes.begin(1)
    load()
    save(6)
    (line,) = processes.said()
    assert re.fullmatch(loaded, line), line
