#!/usr/bin/env python3
"""Cutting a model into stages, and planning a pipeline: the CPU time that it takes, and how far the
result is from the bound that is proven. Costs are made up (bench/pipe_bench.c).
"""

from __future__ import annotations

import subprocess

from shared._process import build
from shared._report import Report, make_parser

PROGRAM = "bench/pipe_bench"
WORDS = {
    "minmax": "the largest stage's time only",
    "joint": "with transfers and memory",
    "capped": "memory is scarce, speeds differ",
    "choose": "all schedules, cut and simulated",
}
GOALS = {"minmax": 1.0, "joint": 10.0, "capped": 200.0}  # largest median, in milliseconds
GAP = 1e-12  # value of a cut over its proven bound, less 1, at most


def main() -> None:
    options = make_parser(__doc__, "nothing").parse_args()
    report = Report("pipe", 21, {"costs": "made up"})
    report.title("cutting: the median of 21 in time of one core; beside it the longest")
    lines = subprocess.run([build(PROGRAM)], check=True, capture_output=True, text=True).stdout
    gaps = {}
    for line in lines.splitlines():
        name, units, stages, *numbers = line.split()
        median, longest, gaps[name] = (float(number) for number in numbers)
        what = f"{int(units):,} units, {stages} stages: {WORDS[name]}"
        if name in GOALS:
            report.at_most(f"{name}_ms", what, median, GOALS[name], "ms", f"longest {longest:.2f}")
        else:
            report.note(f"{name}_ms", what, median, "ms", f"longest {longest:.2f}")
    report.title("how far from the bound")
    worst = max(gaps[name] for name in GOALS)
    report.at_most("gap", "value of a cut over its proven bound, less 1", worst, GAP, "")
    report.note("step_gap", "step over its bound, less 1", gaps["choose"], "")
    report.finish(options.json)


if __name__ == "__main__":
    main()
