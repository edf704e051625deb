#!/usr/bin/env python3
"""How good the estimates behind adaptive training are: step times, and the gradient's noise.

Step times are those that Pollux's authors published (branch osdi21-artifact of petuum/adaptdl,
folder simulator/traces): PAWL_TRACES or --traces names a copy; without one that part is left out.
The model is fitted to half of the placements and predicts the other half, and the other way round.
Noise is estimated for problems whose answer is known. --quick: fewer seeds and rounds.
"""

from __future__ import annotations

import csv
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from shared._report import Report, describe_machine, make_parser, percentile

from pawl import _core

APPS = {
    "bert": 0.20,
    "cifar10": 0.20,
    "deepspeech2": 0.20,
    "imagenet": 0.20,
    "ncf": 0.25,
    "yolov3": 0.20,
}
BOUNDS = (128, 4096, 16, 256, True)
Profile = tuple[tuple[int, int, int], int, float, float]


# ---- step times ----


def read_profiles(path: Path) -> dict[str, list[Profile]]:
    """Profiles by placement: one digit for each node, its replicas."""
    found: dict[str, list[Profile]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            digits = [int(digit) for digit in row["placement"]]
            step, sync = float(row["step_time"]), float(row["sync_time"])
            place = (len(digits), sum(digits), max(digits))
            one = (place, int(row["local_bsz"]), step - sync, step)
            found.setdefault(row["placement"], []).append(one)
    return found


def foretell(known: list[Profile], others: list[Profile]) -> list[float]:
    """Relative errors of the step times predicted for others from known."""
    perf = _core.perf_fit(None, known)
    return [
        abs(_core.step_s(perf, place, (atomic, 0)) / step - 1) for place, atomic, _, step in others
    ]


def say_steps(report: Report, traces: Path) -> None:
    report.title("Step times, of placements that the fit has not seen (error of each)")
    for app, worst in APPS.items():
        by_placement = read_profiles(traces / app / "placements.csv")
        halves: list[list[Profile]] = [[], []]
        for i, placement in enumerate(sorted(by_placement, key=lambda p: (len(p), p))):
            halves[i % 2] += by_placement[placement]
        off = foretell(*halves) + foretell(*reversed(halves))
        report.at_most(f"{app}_median", f"{app}: median", statistics.median(off) * 100, 7, "%")
        report.at_most(f"{app}_p90", "  90 %", percentile(off, 90) * 100, worst * 100, "%")


# ---- times ----


def median_s(act: Callable[[], object], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        act()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def make_profiles(seed: int) -> list[Profile]:
    """A job's first hour: a few placements and batches, times by the model with 5 % of noise."""
    rng = np.random.default_rng(seed)
    perf = (0.02, 0.001, 0.03, 0.002, 0.1, 0.005, 0.003, 2.0)
    made = []
    for place in [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 4, 2), (2, 8, 4)]:
        for atomic in (32, 48, 64, 96, 128):
            blur = np.exp(rng.normal(0, 0.05, 2))
            grad = (perf[0] + perf[1] * atomic) * blur[0]
            made.append((place, atomic, grad, _core.step_s(perf, place, (atomic, 0)) * blur[1]))
    return made


def say_times(report: Report, rounds: int) -> None:
    report.title("What it takes: 25 profiles, as of a job's first hour")
    cold, warm = [], []
    for seed in range(rounds):
        profiles = make_profiles(seed)
        cold.append(median_s(lambda p=profiles: _core.perf_fit(None, p), 3))
        before = _core.perf_fit(None, profiles)
        place, atomic, grad, step = profiles[seed % len(profiles)]
        profiles[seed % len(profiles)] = (place, atomic, grad * 1.02, step * 0.99)
        warm.append(median_s(lambda p=profiles, b=before: _core.perf_fit(b, p), 3))
    report.note("fit_cold", "a fit, the first one", statistics.median(cold) * 1e3, "ms")
    report.at_most(
        "fit_warm", "a fit, from the last one", statistics.median(warm) * 1e3, 0.5, "ms",
        f"90 %: {percentile(warm, 90) * 1e3:.2f} ms; AdaptDL 200 ms (published)",
    )  # fmt: skip
    perf = _core.perf_fit(None, make_profiles(0))
    choose = lambda: _core.batch_choose(perf, (1.0, 5.0), BOUNDS, (2, 8, 4))  # noqa: E731
    report.at_most(
        "choose", "the choice of a batch", median_s(choose, 1000) * 1e6, 20, "us",
        "AdaptDL 400 us (published)",
    )  # fmt: skip


# ---- noise ----


def tell_noise(gradients: np.ndarray, sqr: float, var: float) -> tuple[list[float], list[bool]]:
    """Estimates the noise of problems x steps x ranks x numbers, each with one initial batch.

    Returns sqr, var and their ratio, each divided by its true value; and whether
    the interval holds the true ratio.
    """
    local = (gradients**2).sum(-1).mean(-1)
    total = (gradients.mean(-2) ** 2).sum(-1)
    ranks = gradients.shape[-2]
    sums, holds = [], []
    for one, all_ in zip(local, total, strict=True):
        noise = _core.Noise()
        for a, b in zip(one, all_, strict=True):
            noise.age(float(ranks))
            noise.add(float(a), float(b), ranks, float(ranks))
        _, weight, _, told_sqr, told_var, *_ = noise.state()
        sums.append([told_sqr / weight, told_var / weight])
        interval = noise.interval()
        holds.append(interval is not None and interval[0] <= var / sqr <= interval[1])
    told_sqr, told_var = np.mean(sums, axis=0)
    return [told_sqr / sqr, told_var / var, (told_var / told_sqr) / (var / sqr)], holds


def quadratic(rng: np.random.Generator, seeds: int) -> tuple[np.ndarray, float, float]:
    """|x - z|^2 / 2, z normal about 0 with a spread for each number; an initial batch of 8."""
    spread = np.linspace(0.2, 2.0, 20)
    x = np.linspace(-0.5, 0.5, 20)
    z = rng.normal(0, 1, (seeds, 60, 4, 20)) * spread / np.sqrt(8)
    return x - z, float((x**2).sum()), float((spread**2).sum() / 8)


def logistic(rng: np.random.Generator, seeds: int) -> tuple[np.ndarray, float, float]:
    """Logistic regression of 500 samples, drawn with replacement; the gradient of each is exact."""
    features = rng.normal(0, 1, (500, 10))
    weights = rng.normal(0, 0.3, 10)
    labels = rng.random(500) < 1 / (1 + np.exp(-features.sum(1)))
    each = (1 / (1 + np.exp(-features @ weights)) - labels)[:, None] * features
    mean = each.mean(0)
    drawn = each[rng.integers(0, 500, (seeds, 60, 4, 8))].mean(-2)
    return drawn, float((mean**2).sum()), float(((each - mean) ** 2).sum(-1).mean() / 8)


def say_noise(report: Report, seeds: int) -> None:
    report.title(f"Noise, told by 4 ranks in 60 steps; {seeds} seeds")
    for name, make in (("quadratic", quadratic), ("logistic", logistic)):
        gradients, sqr, var = make(np.random.default_rng(7), seeds)
        (of_sqr, of_var, of_ratio), holds = tell_noise(gradients, sqr, var)
        beside = f"squared norm {of_sqr:.4f}, variance {of_var:.4f} of what they are"
        what = f"{name}: the ratio is off by"
        report.at_most(f"{name}_bias", what, abs(of_ratio - 1) * 100, 2, "%", beside)
        covered = statistics.fmean(holds) * 100
        what = "  how far from 95 % the limits hold the truth"
        report.at_most(f"{name}_cover", what, abs(covered - 95), 2, "%", f"in {covered:.1f} %")


def main() -> None:
    parser = make_parser(
        __doc__, "fewer seeds and rounds", "as other benchmarks have it; no file is needed"
    )
    parser.add_argument(
        "--traces", type=Path, default=os.environ.get("PAWL_TRACES"), help="published step times"
    )
    options = parser.parse_args()
    rounds, seeds = (5, 200) if options.quick else (50, 2000)
    report = Report("adapt", rounds, describe_machine())
    if options.traces is not None:
        say_steps(report, Path(options.traces))
    else:
        report.title("Step times: PAWL_TRACES names no published ones: left out")
    say_times(report, rounds)
    say_noise(report, seeds)
    report.finish(options.json)


if __name__ == "__main__":
    main()
