"""How long the Python half waits. The table, and what it leaves out, are in src/base/times.h."""

from __future__ import annotations

from pawl import _core


def seconds(name: str) -> float:
    """The time with this name in the table, as PAWL_TEST_TIMES may have changed it."""
    return _core.time_s(name)
