"""A benchmark's report: a table for people as it is measured, and one JSON object at the end."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

STUDENT_95 = 1.66  # one-sided 95 % point of Student's t at 99 degrees of freedom
_WHAT_COLUMNS = 54
_MEASURED_COLUMNS = 11
_GOAL_COLUMNS = 12


def make_parser(doc: str | None, quick: str, folder: str = "", default: str | None = None) -> Any:
    """The parser of the options that all benchmarks take.

    ``quick``: help of --quick; ``folder``: help of --dir, "" for none; ``default``: the directory
    that --dir defaults to, None for a temporary one.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help=quick)
    if folder:
        parser.add_argument("--dir", default=default, help=folder)
    return parser


class Report:
    """Rows: name, measured value, goal, met or missed, and a comparison beside it.

    A value in the unit "x" is a ratio and goes there in the JSON object; others are metrics.
    """

    def __init__(self, name: str, runs: int, setting: dict[str, Any]) -> None:
        self._name = name
        self._runs = runs
        self._setting = setting
        self._parts: dict[str, dict[str, float]] = {"metrics": {}, "ratios": {}, "bound": {}}
        self._met: list[bool] = []
        self._begun_s = time.monotonic()
        print(", ".join(f"{key} {value}" for key, value in setting.items()))

    def title(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def at_most(
        self, key: str, what: str, value: float, goal: float, unit: str, beside: str = ""
    ) -> None:
        self._goal(key, what, value, f"≤ {format_value(goal, unit)}", value <= goal, unit, beside)

    def at_least(
        self, key: str, what: str, value: float, goal: float, unit: str, beside: str = ""
    ) -> None:
        self._goal(key, what, value, f"≥ {format_value(goal, unit)}", value >= goal, unit, beside)

    def note(self, key: str, what: str, value: float, unit: str, beside: str = "") -> None:
        """A row without a goal."""
        self._parts["ratios" if unit == "x" else "metrics"][key] = value
        self._print(what, format_value(value, unit), "", "", beside)

    def bound(self, key: str, what: str, value: float, unit: str) -> None:
        """A row for a limit of the machine, measured in the same run."""
        self._parts["bound"][key] = value
        self._print(what, format_value(value, unit), "", "bound", "")

    def finish(self, as_json: bool) -> None:
        self._setting["loadavg after"] = read_load()
        self._setting["seconds"] = round(time.monotonic() - self._begun_s)
        took = f"{self._setting['seconds']} s, load {self._setting['loadavg after']}"
        print(f"\n{sum(self._met)} of {len(self._met)} goals met; {took}", flush=True)
        if as_json:
            line = {"name": self._name, "runs": self._runs, **self._parts, "setting": self._setting}
            print(json.dumps(line), flush=True)

    def _goal(
        self, key: str, what: str, value: float, goal: str, met: bool, unit: str, beside: str
    ) -> None:
        self._parts["ratios" if unit == "x" else "metrics"][key] = value
        self._met.append(met)
        self._print(what, format_value(value, unit), goal, "met" if met else "MISSED", beside)

    def _print(self, what: str, measured: str, goal: str, verdict: str, beside: str) -> None:
        row = f"  {what:<{_WHAT_COLUMNS}} {measured:>{_MEASURED_COLUMNS}}  {goal:<{_GOAL_COLUMNS}}"
        print(f"{row} {verdict:<7} {beside}".rstrip(), flush=True)


def format_value(value: float, unit: str) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{min(digits, 3)}f} {unit}".rstrip()


def upper_bound(differences: Sequence[float]) -> float:
    """Upper 95 % bound of the mean (one-sided)."""
    if len(differences) < 2:
        return math.nan
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return statistics.fmean(differences) + STUDENT_95 * error


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered), math.ceil(len(ordered) * percent / 100)) - 1]


def read_load() -> str:
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def ratio_of(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the ratios, run by run."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def describe_machine() -> dict[str, Any]:
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "torch": torch.__version__,
        "loadavg before": read_load(),
    }
