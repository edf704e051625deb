"""Network namespaces as hosts (tools/namespaces.py); a test is skipped where there can be none."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import namespaces
from namespaces import address, hear, ip, shape, silence  # noqa: F401  for tests


@contextlib.contextmanager
def hosts(count: int, rate: str = "") -> Iterator[list[str]]:
    """Yields the names of network namespaces. rate: as in namespaces.hosts."""
    with contextlib.ExitStack() as stack:
        try:
            names = stack.enter_context(namespaces.hosts(count, rate))
        except namespaces.NoHosts as reason:
            pytest.skip(str(reason))
        yield names
