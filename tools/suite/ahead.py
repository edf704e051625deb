"""Work that is done ahead of its stage, in the background: compiling and clang-tidy take the cores
that waiting tests leave idle. Their processes have the lowest priority."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from suite.outcome import Outcome


class Ahead:
    """Jobs that run one after another, in the order of their names here."""

    def __init__(self, jobs: dict[str, Callable[[], Outcome]]) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._results = {name: self._thread.submit(job) for name, job in jobs.items()}
        self._thread.shutdown(wait=False)

    def take(self, name: str) -> Outcome:
        """Waits for a job's outcome. Raises what it has raised."""
        return self._results[name].result()
