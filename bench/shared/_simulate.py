"""Runs of `pawl sim`, of the tree that the benchmark is in: rows of its JSON, and means of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shared._process import BUILD, ROOT

PROGRAM = "src/cli/pawl"
RUNS = 4  # runs at a time: each has one thread

Row = dict[str, Any]


def find_profiles() -> Path | None:
    """The directory of the published profiles; None: there is none here."""
    places = [os.environ.get("PAWL_PROFILES")]
    places += [str(up / "shared/data/pollux-osdi21") for up in (ROOT.parent, ROOT.parent.parent)]
    for place in places:
        if place is not None and (Path(place) / "traces").is_dir():
            return Path(place)
    return None


def simulate(*options: str | Path) -> list[Row]:
    done = subprocess.run(
        [BUILD / PROGRAM, "sim", "--json", *options],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    rows: list[Row] = json.loads(done.stdout)
    return rows


def mean(rows: Sequence[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


class Workloads:
    """The published workloads, and runs of them, RUNS at a time."""

    def __init__(self, profiles: Path, numbers: Sequence[int]) -> None:
        self._profiles = profiles
        self._numbers = numbers
        self._pool = ThreadPoolExecutor(RUNS)

    def paths(self, folder: str = "workloads") -> list[Path]:
        return [self._profiles / folder / f"workload-{number}.csv" for number in self._numbers]

    def begin(self, policy: str, folder: str = "workloads", *options: str) -> Future[list[Row]]:
        """Starts a run of each workload; the future's rows are in the workloads' order."""
        return self._pool.submit(self.run, policy, folder, *options)

    def run(self, policy: str, folder: str = "workloads", *options: str) -> list[Row]:
        known = ("--profiles", self._profiles, "--policy", policy)
        return simulate(*known, *options, *self.paths(folder))

    def run_one(self, policy: str, number: int) -> list[Row]:
        """Runs one workload. number: from 0."""
        known = ("--profiles", self._profiles, "--policy", policy)
        return simulate(*known, self.paths()[number])
