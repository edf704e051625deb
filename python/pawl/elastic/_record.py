"""A job's log of itself: a line and a row at each search for a better batch."""

from __future__ import annotations

import atexit
import csv
import dataclasses
import io
import logging
import os
import queue
import threading
import time
from pathlib import Path
from typing import Final

from pawl import _core
from pawl._lines import emit
from pawl._report._training import FIELDS, FILE, Row
from pawl._times import seconds
from pawl.elastic._saving import root

_FILE: Final = "PAWL_ELASTIC_HISTORY"  # path of the history, in place of the file in the root

log = logging.getLogger("pawl.elastic")


class Record:
    """The history that one process writes while it is rank 0. Storage that hangs
    delays no training.
    """

    def __init__(self) -> None:
        path = os.environ.get(_FILE) or (os.path.join(root(), FILE) if root() else "")
        self._path = Path(path) if path else None
        self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Row | None = None
        self._initial = 1  # samples of an initial batch
        self._since = (0.0, 0.0, 0)  # seconds, progress and samples at the last row
        env = _core.env()
        self._job, self._attempt = env["job"], env["attempt"]

    @property
    def begun(self) -> bool:
        """Whether this process has written a row."""
        return self._last is not None

    def add(self, row: Row, samples: int, initial: int) -> None:
        """Adds a row; event, time, job and speeds are filled in here.

        ``samples``: trained with so far, by all ranks; ``initial``: samples in an initial batch.
        """
        now = time.monotonic()
        then, progress, seen = self._since
        if self._last is None:
            row.event = "started"
        else:
            row.event = row.event or ("refit" if row.ranks == self._last.ranks else "ranks")
            row.samples_per_s = (samples - seen) / max(now - then, 1e-9)
            row.goodput = (row.progress - progress) * initial / max(now - then, 1e-9)
        self._last, self._initial, self._since = row, initial, (now, row.progress, samples)
        row.time, row.job, row.attempt = time.time(), self._job, self._attempt
        if row.event != "started":
            emit(log, logging.INFO, "%s", row.text())
        if self._path is not None:
            self._write(row)

    def end(self, step: int, progress: float, samples: int) -> None:
        """Writes the last row: no epochs are left."""
        if self._last is not None and self._last.event != "ended":
            last = dataclasses.replace(
                self._last, event="ended", step=step, progress=progress, why="no epochs are left"
            )
            self.add(last, samples, self._initial)

    def _write(self, row: Row) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pawl-record", daemon=True)
            self._thread.start()
            atexit.register(self._close)
        self._rows.put(row)

    def _close(self) -> None:
        self._rows.put(None)
        if self._thread is not None:
            self._thread.join(seconds("elastic_record"))

    def _run(self) -> None:
        assert self._path is not None
        try:
            while (row := self._rows.get()) is not None:
                _append(self._path, row)
        except OSError as failed:
            emit(log, logging.WARNING, "elastic: no more rows in %s: %s", self._path, failed)


def _append(path: Path, row: Row) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row.fields())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        before = ""
        if end == 0:
            before = ",".join(FIELDS) + "\n"
        elif file.seek(end - 1) >= 0 and file.read(1) != b"\n":
            before = "\n"  # a crash has torn the last row
        file.write((before + text.getvalue()).encode())


_current: Record | None = None


def current() -> Record:
    """The record of this process."""
    global _current
    if _current is None:
        _current = Record()
    return _current
