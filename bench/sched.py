#!/usr/bin/env python3
"""The scheduler: Pawl's policy compared with published ones, in `pawl sim`.

Workloads and profiles are those that were published with Pollux (docs/sim.md gives their source):
PAWL_PROFILES names a copy. Without one, rows that need them are left out. Deciding for large
clusters is measured by bench/solve.py in full; here are the rows that it shares.

The cost of rented nodes is measured by bench/rented.py.

--quick: two workloads, and Pollux with one seed at two loads.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from shared._process import build
from shared._report import Report, describe_machine, make_parser
from shared._simulate import PROGRAM, Row, Workloads, find_profiles, mean
from solve import run_optima, run_sizes

# Average time to completion, makespan and 99 % of workloads 1 to 6 (A. Qiao and others, Pollux,
# OSDI 2021: its simulator, branch osdi21-artifact of petuum/adaptdl; the tuned averages are the
# published ones).
Golden = tuple[float, float, float]
GOLDEN: dict[tuple[str, str], list[Golden]] = {
    ("tiresias", "workloads"): [
        (2473.65, 83751, 48124),
        (5144.9625, 85625, 68331),
        (3876.25625, 55541, 26605),
        (3280.2625, 98885, 70434),
        (3501.0125, 93281, 67770),
        (3469.69375, 78609, 52573),
    ],
    ("optimus", "workloads"): [
        (4087.0625, 72422, 47705),
        (6913.875, 64224, 61149),
        (3944.00625, 45299, 20126),
        (5967.75, 68486, 61036),
        (5656.25, 70339, 59941),
        (5301.875, 66299, 48185),
    ],
    ("tiresias", "workloads-realistic"): [
        (6565.31875, 106956, 80170),
        (8054.99375, 104546, 87252),
        (7297.225, 61705, 34059),
        (7364.90625, 107432, 85132),
        (7028.38125, 103425, 88266),
        (7731.0875, 102101, 82501),
    ],
    ("optimus", "workloads-realistic"): [
        (5635.325, 74925, 51854),
        (8131.85, 84640, 68942),
        (8100.3375, 104999, 79060),
        (7026.43125, 106199, 61933),
        (6423.31875, 70552, 60799),
        (6685.275, 72274, 52011),
    ],
}
# Pollux's averages on the same workloads: published raw results.
POLLUX = (2088.77, 3322.94, 2188.49, 2720.98, 2673.70, 2446.13)
COLUMNS = ("avg_jct_s", "makespan_s", "p99_jct_s")
SEEDS = 3
FRONT = ("0.125", "0.25", "0.5", "1", "2", "4", "8", "16")
CLUSTERS = 1000  # number of small clusters, of several types
LARGE = (10000, 1, 10000)  # jobs, types, slots
GAP = 0.1  # percent


def find_off(rows: Sequence[Row], golden: Sequence[Golden]) -> float:
    """The largest relative difference."""
    return max(
        abs(row[key] / should - 1)
        for row, cells in zip(rows, golden, strict=False)
        for key, should in zip(COLUMNS, cells, strict=True)
    )


def say_golden(report: Report, workloads: Workloads) -> None:
    report.title("Published numbers of the baselines (24 runs: average, makespan, 99 %)")
    for (policy, folder), golden in GOLDEN.items():
        off = find_off(workloads.run(policy, folder), golden)
        key = f"{policy}_{'realistic' if 'realistic' in folder else 'tuned'}_off"
        report.at_most(key, f"{policy}, {folder}: off by", off * 1e6, 1, "ppm")


def say_pollux(report: Report, seeds: Sequence[Sequence[Row]]) -> None:
    report.title(f"Pollux as published, and here, {len(seeds)} seeds (workload by workload)")
    for seed, rows in enumerate(seeds, 1):
        published = statistics.fmean(POLLUX[: len(rows)])
        off = abs(mean(rows, "avg_jct_s") / published - 1)
        cells = " ".join(f"{row['avg_jct_s']:.0f}" for row in rows)
        report.at_most(f"pollux_{seed}_off", f"seed {seed}: off by", off * 100, 3, "%", cells)


def say_race(report: Report, load: str, ours: Sequence[Row], others: dict[str, list[Row]]) -> None:
    """Rows: comparison with Pollux, whose rows are of all seeds."""
    goals = {"0.5": (1.0, 1.05), "1.0": (0.93, 1.03)}.get(load, (0.93, 1.05))
    report.title(f"Load {load}: average completion of pawl, and of others beside it")
    about = f"99 % {mean(ours, 'p99_jct_s'):.0f} s, makespan {mean(ours, 'makespan_s'):.0f} s"
    report.note(f"average_{load}_s", "pawl", mean(ours, "avg_jct_s"), "s", about)
    for name, rows in others.items():
        ratio = mean(ours, "avg_jct_s") / mean(rows, "avg_jct_s")
        beside = f"{mean(rows, 'avg_jct_s'):.0f} s; makespan {mean(rows, 'makespan_s'):.0f} s"
        goal = {"pollux": goals[0]}
        goal |= {"tiresias": 0.66, "optimus": 0.45} if load == "1.0" else {}
        if name in goal:
            report.at_most(
                f"{name}_{load}", f"  pawl's to {name}'s", ratio, goal[name], "x", beside
            )
        else:
            report.note(f"{name}_{load}", f"  pawl's to {name}'s", ratio, "x", beside)
    ratio = mean(ours, "p99_jct_s") / mean(others["pollux"], "p99_jct_s")
    report.at_most(f"pollux_p99_{load}", "  99 %: to pollux's", ratio, goals[1], "x")
    if load == "1.0":
        average = mean(ours, "avg_jct_s") / mean(others["pollux"], "avg_jct_s")
        report.at_most("pollux_then", "  then: to pollux's", average, 0.90, "x")
        report.at_most("pollux_then_p99", "    99 %: to pollux's", ratio, 1.0, "x")
    ratio = mean(ours, "makespan_s") / mean(others["pollux"], "makespan_s")
    report.note(f"pollux_makespan_{load}", "  makespan: to pollux's", ratio, "x")


def say_realistic(report: Report, workloads: Workloads) -> None:
    report.title("Jobs as their users submit them (workloads-realistic)")
    ours = mean(workloads.run("pawl", "workloads-realistic"), "avg_jct_s")
    for policy, goal in {"tiresias": 0.33, "optimus": 0.35}.items():
        theirs = mean(workloads.run(policy, "workloads-realistic"), "avg_jct_s")
        beside = f"{ours:.0f} s, {theirs:.0f} s"
        report.at_most(
            f"realistic_{policy}", f"pawl's to {policy}'s", ours / theirs, goal, "x", beside
        )


def count_unfair(rows: Sequence[Row]) -> float:
    return sum(row["rho_over_2"] * row["jobs"] for row in rows)


def say_fairness(report: Report, ours: Sequence[Row], pollux: Sequence[Sequence[Row]]) -> None:
    report.title("Finish-time fairness, and changes of a job's replicas, at load 1.0")
    worst = max(row["rho_max"] for row in ours)
    theirs = [max(row["rho_max"] for row in rows) for rows in pollux]
    beside = f"pollux {', '.join(f'{rho:.2f}' for rho in theirs)}"
    report.at_most(
        "rho", "worst rho (pollux: the mean of seeds)", worst, statistics.fmean(theirs), "", beside
    )
    unfair = [count_unfair(rows) for rows in pollux]
    beside = f"of {sum(row['jobs'] for row in ours)}"
    report.at_most(
        "rho_over_2",
        "jobs with rho over 2",
        count_unfair(ours),
        statistics.fmean(unfair),
        "",
        beside,
    )
    moves = [mean(rows, "restarts_per_job") for rows in pollux]
    report.at_most(
        "restarts", "restarts of a job", mean(ours, "restarts_per_job"), statistics.fmean(moves), ""
    )
    share = mean(ours, "restart_share") * 100
    report.note("restart_share", "  slots' time that they took", share, "%")


def say_in_place(report: Report, workloads: Workloads, ours: Sequence[Row]) -> None:
    report.title("What changes in place add (beside restarts of 30 s)")
    for seconds in (3, 0):
        rows = workloads.run("pawl", "workloads", "--restart", str(seconds))
        ratio = mean(rows, "avg_jct_s") / mean(ours, "avg_jct_s")
        beside = f"{mean(rows, 'avg_jct_s'):.0f} s, {mean(rows, 'restarts_per_job'):.1f} changes"
        report.note(
            f"restart_{seconds}", f"average, a change takes {seconds} s", ratio, "x", beside
        )


def say_wrong(report: Report, workloads: Workloads, ours: Sequence[Row]) -> None:
    report.title(f"Wrong hints: throughput by 30 %, noise by a factor of 3; {SEEDS} seeds")
    options = ("--hint-error", "0.3,3", "--seed")
    runs = [workloads.run("pawl", "workloads", *options, str(n)) for n in range(1, SEEDS + 1)]
    worse = [(mean(rows, "avg_jct_s") / mean(ours, "avg_jct_s") - 1) * 100 for rows in runs]
    beside = ", ".join(f"{percent:.1f}" for percent in worse)
    report.at_most("wrong_percent", "average completion, worse by", max(worse), 10, "%", beside)


def say_front(report: Report, workloads: Workloads) -> None:
    report.title("The front against rho: pawl's fairness (1 as usual), average completion")
    for fairness in FRONT:
        rows = workloads.run("pawl", "workloads", "--fairness", fairness)
        worst = max(row["rho_max"] for row in rows)
        beside = f"rho: mean {mean(rows, 'rho_avg'):.3f}, worst {worst:.2f}, over 2: "
        beside += f"{count_unfair(rows):.0f} jobs; 99 % {mean(rows, 'p99_jct_s'):.0f} s"
        key = f"fairness_{fairness}_s"
        report.note(key, f"fairness {fairness}", mean(rows, "avg_jct_s"), "s", beside)


def say_walls(report: Report, workloads: Workloads) -> None:
    """Rows: the wall time of each policy alone, workload by workload; the program
    has one thread.
    """
    report.title("`pawl sim`, one workload: CPU seconds of the longest (profiles are read in it)")
    goals = {"fifo": 0.1, "tiresias": 0.1, "optimus": 0.1, "pawl": 2.0, "pollux": 60.0}
    for policy, goal in goals.items():
        count = 1 if policy == "pollux" else len(workloads.paths())
        cpu, wall = max(time_one(workloads, policy, number) for number in range(count))
        beside = f"{wall:.2f} s by the clock{', workload 1' * (policy == 'pollux')}"
        report.at_most(f"wall_{policy}_s", policy, cpu, goal, "s", beside)


def time_one(workloads: Workloads, policy: str, number: int) -> tuple[float, float]:
    """CPU and wall seconds of one run."""
    before, begun = os.times(), time.perf_counter()
    workloads.run_one(policy, number)
    after, wall = os.times(), time.perf_counter() - begun
    cpu = after.children_user + after.children_system
    return cpu - before.children_user - before.children_system, wall


def say_deciding(report: Report, quick: bool) -> None:
    report.title("Deciding: time of one core (bench/solve.py has more sizes)")
    found = run_sizes(1 << 30)
    median, longest, gap = found["solve"][LARGE]
    beside = f"longest {longest:.1f} ms"
    what = f"{LARGE[0]:,} jobs, {LARGE[2]:,} slots"
    report.at_most("solve_ms", what, median, 100, "ms", beside)
    report.at_most("solve_gap", "  proven gap", gap * 100, GAP, "%")
    median, longest, gap, first = found["round"][LARGE]
    beside = f"longest {longest:.1f} ms, gap {gap * 100:.2g} %, the first one {first:.0f} ms"
    report.note("round_ms", "  a whole round, goodput and placing", median, "ms", beside)
    sizes = [(n, 1, n) for n in (5000, 10000, 20000, 40000)]
    each = [found["solve"][size][0] / (size[0] * math.log(size[0])) for size in sizes]
    beside = ", ".join(f"{found['solve'][size][0]:.2f}" for size in sizes) + " ms"
    report.at_most(
        "growth", "  growth from 5,000 to 40,000, to n log n's", each[-1] / each[0], 1, "x", beside
    )
    clusters = CLUSTERS // 10 if quick else CLUSTERS
    equal, inside = run_optima(clusters)
    beside = f"{equal} equal, {inside - equal} inside the gap, {clusters - inside} neither"
    report.at_least(
        "optima", "small clusters of 1 to 3 types: the optimum", inside / clusters, 1, "x", beside
    )


def say_published(report: Report, profiles: Path, quick: bool) -> None:
    """Rows of everything that needs the published workloads."""
    workloads = Workloads(profiles, (1, 2) if quick else (1, 2, 3, 4, 5, 6))
    say_walls(report, workloads)
    loads = ("0.5", "1.0") if quick else ("0.5", "1.0", "1.5", "2.0")
    seeds = range(1, 2 if quick else SEEDS + 1)
    folders = {load: "workloads" if load == "1.0" else f"workloads-{load}" for load in loads}
    pollux = {
        load: [
            workloads.begin("pollux", folder, "--seed", str(seed))
            for seed in (seeds if load == "1.0" else (1,))
        ]
        for load, folder in folders.items()
    }
    say_golden(report, workloads)
    ours = {load: workloads.run("pawl", folder) for load, folder in folders.items()}
    say_realistic(report, workloads)
    say_in_place(report, workloads, ours["1.0"])
    say_wrong(report, workloads, ours["1.0"])
    say_front(report, workloads)
    rows = {load: [run.result() for run in runs] for load, runs in pollux.items()}
    say_pollux(report, rows["1.0"])
    for load, folder in folders.items():
        others = {"pollux": [row for seed in rows[load] for row in seed]}
        for policy in ("tiresias", "optimus", "fifo"):
            others[policy] = workloads.run(policy, folder)
        say_race(report, load, ours[load], others)
    say_fairness(report, ours["1.0"], rows["1.0"])


def main() -> None:
    options = make_parser(__doc__, "two workloads, one seed, two loads").parse_args()
    build(PROGRAM)
    profiles = find_profiles()
    report = Report("sched", SEEDS, describe_machine())
    say_deciding(report, options.quick)
    if profiles is None:
        report.title("skipped: all that needs published workloads: PAWL_PROFILES names none")
    else:
        say_published(report, profiles, options.quick)
    report.finish(options.json)


if __name__ == "__main__":
    main()
