"""The history in a root's two files (docs/format.md): its saves, its runs, and
the cost of failures.
"""

from __future__ import annotations

import csv
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Literal

HISTORY_FILE: Final = "checkpointHistories.csv"
EVENTS_FILE: Final = "checkpointEvents.csv"
_END_EVENTS: Final = ("failed", "ended", "lost")


@dataclass(frozen=True)
class SaveRow:
    """A save. Seconds, bytes; None: not known."""

    time: float  # since 1970, to the second: when the outcome was known
    begun: float  # since 1970: when it began; if that is not known, ``time``
    job: str
    attempt: int
    step: int
    tag: str
    level: str  # "durable", "committed", "failed"
    size: int | None
    stall: float | None  # duration of save(), in the slowest rank
    stage: float | None
    persist: float | None
    partitions: str
    why: str

    @property
    def usable(self) -> bool:
        """Whether a job could go on from it, at least while its agent lived."""
        return self.level != "failed"


def _begun(row: SaveRow) -> float:
    return row.begun


@dataclass
class Run:
    """The time from an attempt's start to its end."""

    started: float
    attempt: int
    ranks: int
    ended: float  # end; of a run without one, the last time known
    how: Literal["failed", "ended", "lost", "running"] = "running"
    why: str = ""
    saved: int | None = None  # newest step that was saved when the run ended
    restored: int | None = None  # step that it restored


@dataclass(frozen=True)
class Failure:
    """The cost of a run's end."""

    run: Run
    usable: int | None  # step from which work went on, or could have; None: from the beginning
    lost_s: float  # seconds of work to be done again
    lost_steps: int | None  # steps of work to be done again, about; None: the pace is not known
    down_s: float | None  # seconds until the next run started; None: no run did


@dataclass
class History:
    """All known saves and runs of a root."""

    rows: list[SaveRow] = field(default_factory=list)  # in the order in which they began
    runs: list[Run] = field(default_factory=list)  # in the order in which they started

    @property
    def run_s(self) -> float:
        """Seconds that all runs lasted, summed."""
        return sum(run.ended - run.started for run in self.runs)

    def rows_of(self, run: Run) -> list[SaveRow]:
        """Saves that began during the run."""
        low = bisect_left(self.rows, run.started, key=_begun)
        return self.rows[low : bisect_right(self.rows, run.ended, key=_begun)]

    def back_from(self, run: Run) -> Iterator[SaveRow]:
        """Saves that began before the run ended, the newest first."""
        return (
            self.rows[i] for i in range(bisect_right(self.rows, run.ended, key=_begun) - 1, -1, -1)
        )

    def failures(self) -> list[Failure]:
        """Runs that failed or were lost, with the cost of each."""
        followed = zip(self.runs, [*self.runs[1:], None], strict=True)
        return [_cost(self, run, after) for run, after in followed if run.how in ("failed", "lost")]


def read(root: Path) -> History:
    """Reads both files, and their older parts, which were put aside when they grew too long.

    Raises FileNotFoundError if the root has no history: nothing was ever durable there.
    """
    if not (root / HISTORY_FILE).is_file():
        raise FileNotFoundError(f"{root}: there is no {HISTORY_FILE}: nothing was saved there yet")
    history = History()
    for fields in _rows(root, HISTORY_FILE):
        row = _save_row(fields)
        if row is not None:
            history.rows.append(row)
    history.rows.sort(key=lambda row: row.begun)
    history.runs = _runs(_rows(root, EVENTS_FILE))
    last = history.runs[-1] if history.runs else None
    if last is not None and last.how == "running":
        last.ended = max([last.ended, *(row.time for row in history.rows)])
    if not history.runs and history.rows:
        history.runs = [_guess_run(history.rows)]
    return history


def _rows(root: Path, file: str) -> Iterator[dict[str, str]]:
    """Whole rows; skips a row that a crash tore."""
    for path in (root / file.replace(".csv", ".old.csv"), root / file):
        if path.is_file():  # opening a FIFO, for example, would block
            with path.open(newline="", encoding="utf-8", errors="replace") as lines:
                for row in csv.DictReader(lines):
                    if None not in row and None not in row.values():
                        yield row


def _seconds(text: str) -> float:
    """A time in seconds since 1970. Raises ValueError if text is not a time."""
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()


def _ms(text: str) -> float | None:
    return float(text) / 1000 if text else None


def _save_row(fields: dict[str, str]) -> SaveRow | None:
    """The save of a row; None: the row is of another kind of file."""
    try:
        time = _seconds(fields["time"])
        return SaveRow(
            time=time,
            begun=_seconds(fields["begun"]) if fields["begun"] else time,
            job=fields["job"],
            attempt=int(fields["attempt"]),
            step=int(fields["step"]),
            tag=fields["tag"],
            level=fields["level"],
            size=int(fields["bytes"]) if fields["bytes"] else None,
            stall=_ms(fields["stall_ms"]),
            stage=_ms(fields["stage_ms"]),
            persist=_ms(fields["persist_ms"]),
            partitions=fields["partitions"],
            why=fields["why"],
        )
    except (KeyError, ValueError):
        return None


def _runs(events: Iterator[dict[str, str]]) -> list[Run]:
    runs: list[Run] = []
    for fields in events:
        try:
            time, event = _seconds(fields["time"]), fields["event"]
            step = int(fields["step"]) if fields["step"] else None
            attempt, ranks = int(fields["attempt"]), int(fields["ranks"])
        except (KeyError, ValueError):
            continue
        if event == "started":
            runs.append(Run(time, attempt, ranks, time))
        elif runs and runs[-1].how == "running":
            run = runs[-1]
            run.ended = max(run.ended, time)
            if event == "restored":
                run.restored = step
            elif event in _END_EVENTS:
                run.how, run.why, run.saved = event, fields["why"], step  # type: ignore[assignment]
    return runs


def _guess_run(rows: list[SaveRow]) -> Run:
    """Of a root without events, written by an old version: one run, not known to have failed."""
    ended = max(row.time for row in rows)
    return Run(rows[0].begun, rows[0].attempt, 0, ended, "ended", saved=rows[-1].step)


def _pace(history: History, run: Run) -> float | None:
    """Steps a second, from the run's saves."""
    rows = history.rows_of(run)
    if len(rows) < 2 or rows[-1].begun <= rows[0].begun:
        return None
    return (rows[-1].step - rows[0].step) / (rows[-1].begun - rows[0].begun)


def _cost(history: History, run: Run, after: Run | None) -> Failure:
    usable = _went_on_from(history, run, after)
    kept = run.started  # work done before this run is not lost again
    if usable is not None:
        row = next((row for row in history.back_from(run) if row.step == usable), None)
        kept = kept if row is None else max(kept, row.begun)
    lost_s = max(0.0, run.ended - kept)
    pace = _pace(history, run)
    steps = None if pace is None else max(0, round(lost_s * pace))
    if steps is not None and run.saved is not None and usable is not None:
        steps = max(steps, run.saved - usable)
    down_s = None if after is None else max(0.0, after.started - run.ended)
    return Failure(run, usable, lost_s, steps, down_s)


def _went_on_from(history: History, run: Run, after: Run | None) -> int | None:
    """The step that work went on from. A run that restored by other means shows it
    by its first save.
    """
    usable = _newest(history, run)
    if after is None or usable is None:
        return usable
    if after.restored is not None:
        return after.restored
    first = history.rows_of(after)[:1]
    return usable if not first or first[0].step > usable else None


def _newest(history: History, run: Run) -> int | None:
    """The step that a next run would go on from."""
    levels = ("durable",) if run.how == "lost" else ("durable", "committed")
    return next((row.step for row in history.back_from(run) if row.level in levels), None)
