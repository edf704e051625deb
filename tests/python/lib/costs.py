"""The cost of a test: CPU seconds of all processes that it started, and processes that have
torch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import leftovers
import nursery
from suite.cpu import CpuMeter


class Meter:
    """Counts for this process and all its descendants."""

    def __init__(self) -> None:
        self._cpu = CpuMeter()
        handle, path = tempfile.mkstemp(prefix="pawl-starts-")
        os.close(handle)
        self._starts = Path(path)
        os.environ[nursery.STARTS] = path

    def read(self) -> tuple[float, int, int]:
        """Returns CPU seconds so far, processes that imported torch, and processes forked with
        torch in them."""
        said = self._starts.read_bytes()
        return self._cpu.seconds(), said.count(b"x"), said.count(b"f")

    def close(self) -> None:
        self._starts.unlink(missing_ok=True)
        self._cpu.close()


class Orphans:
    """Processes that become children of this one, a subreaper, when their parents end."""

    def __init__(self) -> None:
        leftovers.become_subreaper()
        self._ours: set[int] = set()  # children started here, which their starters wait for
        start = subprocess.Popen.__init__

        def note(process: subprocess.Popen[bytes], *args: Any, **kwargs: Any) -> None:
            start(process, *args, **kwargs)
            self._ours.add(process.pid)

        subprocess.Popen.__init__ = note  # type: ignore[method-assign]

    def collect(self) -> None:
        """Waits for adopted children that have ended, so that their CPU time is counted."""
        for pid in leftovers.list_children(os.getpid()):
            if pid not in self._ours:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
