"""What a test costs: CPU seconds of all that it started, and processes that have torch."""

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
    """Counts for this process and whatever comes from it."""

    def __init__(self) -> None:
        self._cpu = CpuMeter()
        handle, path = tempfile.mkstemp(prefix="pawl-starts-")
        os.close(handle)
        self._starts = Path(path)
        os.environ[nursery.STARTS] = path

    def read(self) -> tuple[float, int, int]:
        """CPU seconds so far; processes that imported torch; those that were forked with it."""
        said = self._starts.read_bytes()
        return self._cpu.seconds(), said.count(b"x"), said.count(b"f")

    def close(self) -> None:
        self._starts.unlink(missing_ok=True)
        self._cpu.close()


class Orphans:
    """Processes that become this one's children when their parents end, since it is a subreaper."""

    def __init__(self) -> None:
        leftovers.become_subreaper()
        self._ours: set[int] = set()  # started here: whoever started them waits for them
        start = subprocess.Popen.__init__

        def note(process: subprocess.Popen[bytes], *args: Any, **kwargs: Any) -> None:
            start(process, *args, **kwargs)
            self._ours.add(process.pid)

        subprocess.Popen.__init__ = note  # type: ignore[method-assign]

    def collect(self) -> None:
        """Waits for those that have ended: so what they took is counted, and they are gone."""
        for pid in leftovers.list_children(os.getpid()):
            if pid not in self._ours:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
