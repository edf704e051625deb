#!/usr/bin/env python3
"""The gain by an adaptive batch: time to the same loss, compared with fixed batches.

4 hosts of one rank, network namespaces with links of 1 Gbit/s. Handwritten digits (three layers of
512, SGD) and the GPT of examples/elastic (AdamW), each with the batch that pawl.elastic chooses,
and with fixed ones from 32 on, whose learning rates the same rules set. Passes are as long as a
pass with 32 is worth, and the learning rate falls to 0 over all of them. The target loss is 5 %
above the final loss of the run with 32. A run's time is that of its steps, each counted as the
median of its kind in that run, so that other load on the machine counts little. --quick shows only
that it works: its numbers mean nothing.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared._hosts import Hosts, NoHosts, make_hosts
from shared._report import Report, describe_machine, make_parser, ratio_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RANKS, RATE = 4, "1gbit"
USER, ADAPTIVE = 32, 0
LIMIT_S = 600
NEVER_S = 10**9
NEARLY = 1.05
LAST = 3  # last passes of a run; their quality is the run's


@dataclass(frozen=True)
class Task:
    """A model to train."""

    name: str
    passes: int
    grid: tuple[int, ...]  # fixed batches
    # Seconds between looks for a better batch: a sixtieth of a run; the default,
    # 30, is for one of hours.
    refit_s: float


TASKS = (
    Task("digits", 20, (USER, 64, 128, 256, 512, 1024), 0.1),
    Task("gpt", 8, (USER, 64, 128, 256), 0.5),
)
Run = list[dict[str, Any]]  # one entry a pass
Found = dict[int, list[Run]]  # batch -> a run for each seed


def collect(hosts: Hosts, task: Task, seeds: int) -> Found:
    found: Found = {batch: [] for batch in (*task.grid, ADAPTIVE)}
    for seed in range(seeds):
        for batch in list(found) if seed % 2 == 0 else reversed(list(found)):
            said = hosts.run_torch(
                range(RANKS), PROGRAMS / "_goodput.py", task.name, batch, seed, task.passes,
                limit_s=LIMIT_S, PAWL_LOG="error",
                PAWL_ELASTIC_REFIT=str(NEVER_S if batch else task.refit_s),
            )  # fmt: skip
            found[batch].append(said["passes"])
            took = sum(one["seconds"] for one in said["passes"])
            name = f"batch {batch}" if batch else "adaptive"
            print(f"  {task.name}, seed {seed}, {name}: {took:.1f} s of steps", file=sys.stderr)
    return found


def time_to(run: Run, target: float) -> float:
    """Seconds of steps until a run reaches target, in proportion within the last
    pass; inf: never.
    """
    before, seconds = math.inf, 0.0
    for one in run:
        loss, took = one["loss"], one["seconds"]
        if loss <= target:
            share = (before - target) / (before - loss) if before < math.inf else 1.0
            return seconds + share * took
        before, seconds = loss, seconds + took
    return math.inf


def target_of(run: Run) -> float:
    """The target loss: NEARLY times the final one of a run."""
    return quality([run], "loss") * NEARLY


def quality(runs: list[Run], what: str) -> float:
    """The mean of a quantity over the last passes of all runs."""
    return statistics.fmean(one[what] for run in runs for one in run[-LAST:])


def mean_batch(runs: list[Run]) -> float:
    """Mean number of samples in a step."""
    made = [(batch, n) for run in runs for one in run for batch, _, n in one["made"]]
    return sum(batch * n for batch, n in made) / sum(n for _, n in made)


def say(report: Report, task: str, found: Found) -> None:
    targets = [target_of(run) for run in found[USER]]
    times = {
        batch: [time_to(run, target) for run, target in zip(runs, targets, strict=True)]
        for batch, runs in found.items()
    }
    middle = {batch: statistics.median(values) for batch, values in times.items()}
    best = min((batch for batch in found if batch != ADAPTIVE), key=lambda batch: middle[batch])
    what = "right" if "right" in found[USER][0][0] else "loss"
    user = quality(found[USER], what)
    for batch, runs in found.items():
        name = f"batch {batch}" if batch != ADAPTIVE else "adaptive"
        beside = f"{what} in the end {quality(runs, what):.4f}"
        if batch == ADAPTIVE:
            beside += f", {mean_batch(runs):.0f} samples a step"
        if middle[batch] < math.inf:
            report.note(f"{task}_{batch}_s", f"{name}: to the loss", middle[batch], "s", beside)
        else:
            print(f"  {name}: does not come to the loss, {beside}")
    adaptive = times[ADAPTIVE]
    over_user, over_best = (ratio_of(times[batch], adaptive) for batch in (USER, best))
    fixed = ratio_of(times[USER], times[best])
    beside = f"{fixed:.2f} with the best fixed one, {best}"
    report.at_least(f"{task}_to_user", f"  {USER}'s time to it", over_user, 1.5, "x", beside)
    report.at_least(f"{task}_to_best", "  the best fixed one's time to it", over_best, 0.95, "x")
    off = abs(quality(found[ADAPTIVE], what) / user - 1) * 100
    report.at_most(f"{task}_quality", f"  {what} in the end, from {USER}'s", off, 1.0, "%")


def main() -> None:
    options = make_parser(
        __doc__, "one run of each: shows that it works", "for small files (a temporary one)"
    ).parse_args()
    seeds = 1 if options.quick else 5
    report = Report("goodput", seeds, describe_machine())
    try:
        with (
            tempfile.TemporaryDirectory(dir=options.dir) as folder,
            make_hosts(RANKS, RATE, Path(folder)) as hosts,
        ):
            for task in TASKS:
                if options.quick:
                    task = replace(task, passes=LAST, grid=(USER, 256))
                found = collect(hosts, task, seeds)
                report.title(f"{task.name}: {RANKS} hosts of one rank, links of 1 Gbit/s")
                say(report, task.name, found)
    except NoHosts as reason:
        report.title(f"not measured: {reason}")
    report.finish(options.json)


if __name__ == "__main__":
    main()
