"""Measures the machine's effect on the tests: how long a thread that only sleeps overslept."""

from __future__ import annotations

import threading
import time
from pathlib import Path

SLEEP_S = 0.05
STALL_S = 0.5  # seconds; a shorter stall disturbs no test


class StallMeter:
    """A meter that runs beside the tests, in a process that does nothing else."""

    def __init__(self) -> None:
        self.stalls: list[tuple[float, float]] = []  # begin (seconds since 1970), length in seconds
        self._stolen_from = stolen_s()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self._thread.start()

    def _measure(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._over.wait(SLEEP_S)
            overslept = time.monotonic() - began - SLEEP_S
            if overslept >= STALL_S:
                self.stalls.append((time.time() - overslept, overslept))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def during(self, begin: float, end: float) -> str:
        """Returns a sentence about the stalls between two times (seconds since 1970); "": none."""
        found = [length for at, length in self.stalls if at < end and at + length > begin]
        if not found:
            return ""
        times = "" if len(found) == 1 else f", {len(found)} times, the longest"
        return f"this machine stood still{times} for {max(found):.1f} s while it ran"

    def summary(self) -> str:
        """Returns a line about the stalls of the whole run."""
        longest = max((length for _, length in self.stalls), default=0.0)
        text = f"{len(self.stalls)} stalls of {STALL_S} s or more, the longest {longest:.1f} s"
        return f"{text}; {stolen_s() - self._stolen_from:.1f} s taken by the hypervisor"


def stolen_s() -> float:
    """Returns the CPU seconds that the hypervisor has given to others, as the kernel counts
    them."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(words[8]) / 100
    except (OSError, IndexError, ValueError):
        return 0.0
