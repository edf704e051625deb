"""The history that an elastic job writes (docs/format.md): its rows, written and read."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

FILE: Final = "elasticHistory.csv"
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%f"


@dataclass
class Row:
    """A row of the history. Speeds are of the time since the row before. None: not known."""

    time: float = 0.0  # since 1970
    job: str = ""
    attempt: int = 0
    event: str = ""  # "started", "refit", "ranks", "ended"
    step: int = 0
    epoch: int | None = None
    progress: float = 0.0  # in steps of an initial batch
    ranks: int = 1
    nodes: int = 1
    batch: int = 0  # samples of all ranks in a step, from now on
    atomic: int = 0  # samples of a rank at once
    accum: int = 0  # gradients that are added before a step's last
    noise: float | None = None  # the gradient's noise scale, in samples
    noise_low: float | None = None  # 95 % bounds of noise
    noise_high: float | None = None
    samples_per_s: float | None = None
    goodput: float | None = None  # samples_per_s, weighted by their worth in an initial batch
    predicted: float | None = None  # expected goodput of ``batch``
    why: str = ""

    def fields(self) -> list[str]:
        """The values as they are written, in the order of FIELDS."""
        at = datetime.fromtimestamp(self.time, timezone.utc).strftime(_TIME)[:-3] + "Z"
        return [at, *(_spell(getattr(self, name)) for name in FIELDS[1:])]

    def text(self) -> str:
        """The row for people, in a line."""
        parts = f" of {self.accum + 1} parts" if self.accum else ""
        ranks = f"{self.ranks} ranks" if self.ranks > 1 else "1 rank"
        pieces = [f"elastic: step {self.step}, {ranks}: batch {self.batch}{parts}: {self.why}"]
        if self.samples_per_s is not None and self.goodput is not None:
            pieces.append(f"{_short(self.samples_per_s)} samples/s, worth {_short(self.goodput)}")
        if self.noise is not None:
            pieces.append(f"noise scale {_short(self.noise)}")
            if self.noise_low is not None and self.noise_high is not None:
                pieces[-1] += f" ({_short(self.noise_low)} to {_short(self.noise_high)})"
        return "; ".join(pieces)


FIELDS: Final = tuple(field.name for field in fields(Row))
_INTS: Final = {"attempt", "step", "epoch", "ranks", "nodes", "batch", "atomic", "accum"}
_TEXTS: Final = {"job", "event", "why"}


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _row(columns: list[str]) -> Row | None:
    """The row of these columns; None: it is torn, or another program wrote it."""
    if len(columns) < len(FIELDS):
        return None
    row = Row()
    try:
        row.time = (
            datetime.strptime(columns[0], _TIME + "Z").replace(tzinfo=timezone.utc).timestamp()
        )
        for name, column in zip(FIELDS[1:], columns[1:], strict=False):
            if name in _TEXTS:
                setattr(row, name, column)
            elif column:
                setattr(row, name, int(column) if name in _INTS else float(column))
            else:
                setattr(row, name, None)
    except ValueError:
        return None
    return row


def read(place: Path) -> list[Row]:
    """Rows of a root, or of a file, in their order; empty if there is no such file."""
    path = place / FILE if place.is_dir() else place
    if not (path.is_file() if place.is_dir() else path.exists()):
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        return [row for columns in csv.reader(file) if (row := _row(columns)) is not None]
