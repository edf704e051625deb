#!/usr/bin/env python3
"""Prints the numbers of src/sched/sim/models.c, computed from the published profiles.

DIR is laid out as docs/sim.md says. For each application: the parameters of its step time, fitted
to all measurements; steps of an initial batch in an epoch; the noise scale at even parts of its
life, in initial batches, the median of all batch sizes; and the requests of its users.
"""

import csv
import math
import sys
from collections import Counter
from pathlib import Path
from statistics import median

from pawl import _core

APPS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
POINTS = 12  # points of an application's life
NOISE_MAX = 1e4
HOURS = 8
ASKED_MAX = 4  # pairs of replicas and batch for an application, at most


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def fit(folder: Path) -> tuple[float, ...]:
    profiles = []
    for row in read(folder / "placements.csv"):
        digits = [int(digit) for digit in row["placement"]]
        place = (len(digits), sum(digits), max(digits))
        step, sync = float(row["step_time"]), float(row["sync_time"])
        profiles.append((place, int(row["local_bsz"]), step - sync, step))
    for row in read(folder / "scalability.csv"):
        nodes, replicas = int(row["num_nodes"]), int(row["num_replicas"])
        place = (nodes, replicas, math.ceil(replicas / nodes))
        step, sync = float(row["step_time"]), float(row["sync_time"])
        profiles.append((place, int(row["local_bsz"]), step - sync, step))
    return _core.perf_fit(None, profiles)


def tell_training(folder: Path, epochs: int) -> tuple[float, list[float]]:
    """Returns the progress of an epoch, and the noise scale over a life."""
    files = [read(path)[:epochs] for path in folder.glob("validation-*.csv")]
    each = min(float(rows[-1]["progress"]) for rows in files) / epochs
    noise = []
    for point in range(POINTS):
        epoch = min(int((point + 0.5) / POINTS * epochs), epochs - 1)
        scales = []
        for rows in files:
            sqr, var = float(rows[epoch]["grad_sqr"]), float(rows[epoch]["grad_var"])
            scales.append(min(var / sqr, NOISE_MAX) if sqr > 0 else NOISE_MAX)
        noise.append(median(scales))
    return each, noise


def main() -> None:
    traces = Path(sys.argv[1])
    jobs = [row for path in sorted(traces.glob("workloads/*.csv")) for row in read(path)]
    hours = Counter(min(int(float(job["time"]) / 3600), HOURS - 1) for job in jobs)
    print("jobs by hour, %:", [round(hours[hour] / len(jobs) * 100) for hour in range(HOURS)])
    for app, epochs in APPS.items():
        each, noise = tell_training(traces / "traces" / app, epochs)
        asked = Counter(
            (int(job["num_replicas"]), int(job["batch_size"]))
            for job in jobs
            if job["application"] == app
        ).most_common(ASKED_MAX)
        total = sum(n for _, n in asked)
        print(f"\n{app}:")
        print("{" + ", ".join(f"{p:.3g}" for p in fit(traces / "traces" / app)) + "},")
        print(f"{each:.1f},")
        print("{" + ", ".join(f"{n:.3g}" for n in noise) + "},")
        print(", ".join(f"{{{r}, {b}, {round(n / total * 100)}}}" for (r, b), n in asked))


if __name__ == "__main__":
    main()
