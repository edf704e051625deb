#!/usr/bin/env python3
"""Dividing slots among jobs: the CPU time that it takes, and how far the result may be from the
least cost. Jobs are made up (bench/solve_bench.c). First the solver alone, which is given the cost
of each choice; then whole rounds of the policy pawl, with goodput and placing, with most of the
jobs' reports remembered and with none.

--quick leaves out clusters of over 10,000 slots.
"""

from __future__ import annotations

import subprocess

from shared._process import build
from shared._report import Report, make_parser

PROGRAM = "bench/solve_bench"
GAP = 0.1  # percent, at most
QUICK = 10000

# (jobs, types, slots) -> largest median, in milliseconds.
GOALS = {(160, 1, 64): 2.0, (1000, 1, 2048): 20.0, (10000, 1, 10000): 100.0}
COLD_MS = 5000.0  # longest first round
Size = tuple[int, int, int]


def run_sizes(slots_max: int) -> dict[str, dict[Size, list[float]]]:
    """Results by program part, then by jobs, types and slots: median and longest milliseconds,
    relative gap; for rounds also the milliseconds of the first one.
    """
    done = subprocess.run(
        [build(PROGRAM), str(slots_max)], check=True, capture_output=True, text=True
    )
    found: dict[str, dict[Size, list[float]]] = {"solve": {}, "round": {}}
    for line in done.stdout.splitlines():
        name, jobs, types, slots, *numbers = line.split()
        found[name][int(jobs), int(types), int(slots)] = [float(number) for number in numbers]
    return found


def run_optima(clusters: int) -> tuple[int, int]:
    """Of so many small random clusters: the number whose optimum was found, and the number whose
    result is the optimum or within the proven gap of it. The optimum is found by trying all
    choices.
    """
    done = subprocess.run(
        [build(PROGRAM), "optima", str(clusters)], check=True, capture_output=True, text=True
    )
    equal, inside = done.stdout.split()
    return int(equal), int(inside)


def main() -> None:
    options = make_parser(__doc__, "clusters of 10,000 slots at most").parse_args()
    report = Report("solve", 21, {"choices": "a job's 19 on each type, and to wait"})
    found = run_sizes(QUICK if options.quick else 1 << 30)
    for name, sizes in found.items():
        report.title(f"{name}: the median of 21; beside it the longest, and the proven gap")
        for (jobs, types, slots), (median, longest, gap, *first) in sizes.items():
            what = f"{jobs:,} jobs, {slots:,} slots of {types} type{'s' * (types > 1)}"
            key = f"{name}_{jobs}_{types}_{slots}_ms"
            beside = f"longest {longest:.2f} ms, gap {100 * gap:.2g} %"
            if name == "solve" and (jobs, types, slots) in GOALS:
                report.at_most(key, what, median, GOALS[jobs, types, slots], "ms", beside)
            else:
                report.note(key, what, median, "ms", beside)
            for first_ms in first:
                report.at_most(f"first_{key}", "  the first", first_ms, COLD_MS, "ms")
    report.title("over all of them")
    worst = max(numbers[2] for numbers in found["solve"].values())
    report.at_most("gap_percent", "cost over the bound that is proven", 100 * worst, GAP, "%")
    report.finish(options.json)


if __name__ == "__main__":
    main()
