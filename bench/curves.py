#!/usr/bin/env python3
"""The loss curve of DDP against one process that has the whole batch: 200 steps, 4 ranks.

In doubles the curves differ by the order of addition alone. In 32 bits the order makes them
diverge, so the measure there is how far curves of one process differ from each other if it has the
rows of each batch in other orders. --quick has 8 rows a rank for 32: its numbers mean nothing.
"""

from __future__ import annotations

import math
from pathlib import Path

from shared._process import run_script
from shared._report import Report, describe_machine, make_parser

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RANKS = 4
# Relative spacing of doubles; stands for a difference of 0 where a logarithm is taken.
EPSILON = 2.0**-52
LIMIT_S = 600
Losses = list[float]


def distance(found: Losses, wanted: Losses) -> float:
    """The largest relative difference of all steps."""
    return max(abs(a / b - 1) for a, b in zip(found, wanted, strict=True))


def main() -> None:
    options = make_parser(__doc__, "small batches").parse_args()
    report = Report("curves", 1, describe_machine())
    rows = 8 if options.quick else 32
    said = run_script(PROGRAMS / "_curves.py", rows, ranks=RANKS, limit_s=LIMIT_S)
    report.title(f"{RANKS} ranks, {rows} rows each, 200 steps; the step that differs most")
    for case, orders in said["whole"].items():
        key = case.replace(" ", "_")
        ours, gloo = (min(distance(said[who][case], o) for o in orders) for who in ("pawl", "gloo"))
        spread = max(distance(a, b) for a in orders for b in orders)
        beside = f"Gloo {gloo:.1e}; orders of the rows {spread:.1e}"
        if case.endswith("fp64"):
            apart = distance(said["pawl"][case], orders[0])
            digits = -math.log10(max(apart, EPSILON))
            what = f"{case}: digits that are those of one process"
            report.at_least(key, what, digits, 10, "", f"apart {apart:.1e}; {beside}")
        else:
            what = f"{case}: from the nearest order, to their spread"
            report.at_most(key, what, ours / spread, 1, "x", f"{ours:.1e}; {beside}")
    report.finish(options.json)


if __name__ == "__main__":
    main()
