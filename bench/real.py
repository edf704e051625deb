#!/usr/bin/env python3
"""A real run of all parts together: jobs that train arrive at a `pawl sched` of 4 local nodes.

8 jobs of pawl.elastic train small real models (_real_job.py) whose steps an accelerator paces. The
same jobs arrive at the same times under three ways to share the slots: by the policy pawl; each
with an equal part of the slots, as it comes; and first come, first served, each with the replicas
that its user requests. All let the batch follow the goodput, so that only replicas differ. Short
jobs are many and long ones few; their order and times are drawn by the seed.

Then the scheduler itself: the time from `pawl submit` to the script's first line, compared with the
script's own start; and `pawl ls` where many jobs wait.

--quick: shows that it works; its numbers mean nothing.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from programs._real_job import KINDS, STEP_S, make
from shared._cluster import OVER, Cluster, cluster, wait_for
from shared._report import Report, describe_machine, make_parser, read_load
from sklearn.datasets import load_digits

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SCRIPT = PROGRAMS / "_real_job.py"
TEXT = HERE.parent / "LICENSE"
NODES, SLOTS = 4, 4
SEEDS = (1, 2)
GAP_S = 15.0  # between two jobs, on average
# Seconds of a job on one slot, from and to; number of such jobs; replicas that their users request.
SIZES = (((30.0, 60.0), 4, 2), ((90.0, 180.0), 3, 4), ((300.0, 600.0), 1, 8))
LOG_CHARS = 8000  # end of the log that is shown of a job that failed
LOOK_S = 0.2  # seconds between two checks of the replicas
LIMIT_S = 900.0  # longest run
GOAL = 0.75
WAYS = ("pawl", "static", "fifo")
STARTS = 7
START_GOAL_S = 0.3
QUEUED = (1000, 10000)
LS_GOAL_S = 0.05
LS_RUNS = 9
SUBMITTERS = 4  # submissions at a time
PARTS = ("start", "list", "jobs")


@dataclass(frozen=True)
class Work:
    """A job as it is submitted."""

    name: str
    kind: str
    at_s: float
    epochs: int
    asked: int  # replicas that its user requests


@dataclass
class Run:
    """A job as it ran."""

    work: Work
    job: int
    folder: Path
    took_s: float = 0.0
    slots: list[tuple[float, int]] = field(default_factory=list)  # seconds, replicas from then on
    losses: tuple[float, float] = (0.0, 0.0)
    # Seconds that each change of ranks delayed the steps.
    pauses_s: list[float] = field(default_factory=list)
    samples: int = 0
    stops: list[str] = field(default_factory=list)  # reasons why it was stopped, to start again


def draw(seed: int, samples: dict[str, int], quick: bool) -> list[Work]:
    """Draws the jobs. ``samples``: number of samples that each kind has."""
    chance = random.Random(seed)
    sizes = [(span, asked) for span, n, asked in SIZES for _ in range(n)]
    kinds = [*KINDS, *KINDS]
    chance.shuffle(sizes)
    chance.shuffle(kinds)
    works, at_s = [], 0.0
    for number, ((span, asked), kind) in enumerate(zip(sizes, kinds, strict=True)):
        known = KINDS[kind]
        epoch_s = STEP_S * samples[kind] / known.batch  # on one slot
        epochs = 1 if quick else max(2, round(chance.uniform(*span) / epoch_s))
        works.append(Work(f"{kind}-{number}", kind, at_s, epochs, asked))
        at_s += chance.expovariate(1 / (1.0 if quick else GAP_S))
    return works


# ---- a run ----


def options_of(way: str, work: Work) -> list[str]:
    slots = NODES * SLOTS
    fixed = {"static": slots // 8, "fifo": work.asked}
    least, most = (fixed[way], fixed[way]) if way in fixed else (1, slots)
    return ["--replicas", f"{least}:{most}", "--name", work.name]


def run_all(way: str, works: Sequence[Work], data: Path, folder: Path) -> list[Run]:
    """Runs the jobs at their times until all have ended."""
    policy = "pawl" if way == "pawl" else "fifo"
    nodes = ("--nodes", str(NODES), "--slots", str(SLOTS), "--policy", policy)
    runs: list[Run] = []
    with cluster(*nodes) as ours:
        begun = time.monotonic()
        due = list(works)
        while due or any(run.took_s == 0 for run in runs):
            now = time.monotonic() - begun
            if now > LIMIT_S:
                sys.exit(f"{way}: not done after {LIMIT_S:.0f} s")
            while due and due[0].at_s <= now:
                runs.append(submit(ours, way, due.pop(0), data, folder))
            look(ours, runs, time.monotonic() - begun)
            time.sleep(LOOK_S)
        for run in runs:
            judge(ours, run)
    return runs


def submit(ours: Cluster, way: str, work: Work, data: Path, folder: Path) -> Run:
    place = folder / work.name
    place.mkdir(parents=True)
    words = (sys.executable, SCRIPT, work.kind, str(work.epochs), data, place)
    env = ["--env", "OMP_NUM_THREADS=1", "--env", f"PAWL_ELASTIC_HISTORY={place}/history.csv"]
    return Run(work, ours.submit(*words, options=[*options_of(way, work), *env]), place)


def look(ours: Cluster, runs: list[Run], now_s: float) -> None:
    there = {job["id"]: job for job in ours.ask("ls")}
    for run in runs:
        if run.took_s > 0:
            continue
        shown = there.get(run.job) or ours.ask("show", str(run.job))
        replicas = shown["replicas"] if shown["state"] in ("running", "rescaling") else 0
        if shown["state"] in OVER:
            run.took_s = shown["since"] - shown["submitted"]
        if shown["state"] == "stopping" and (not run.slots or run.slots[-1][1] != 0):
            run.stops.append(shown["reason"])
        if not run.slots or run.slots[-1][1] != replicas:
            run.slots.append((now_s, replicas))


def judge(ours: Cluster, run: Run) -> None:
    """Checks that a job trained: its loss is lower, and each pass had each sample once."""
    log = ours.run("logs", str(run.job)).stdout
    (run.folder / "log").write_text(log)
    shown = ours.ask("show", str(run.job))
    said = [json.loads(line[line.index("{") :]) for line in log.splitlines() if '{"first"' in line]
    if shown["state"] != "done" or len(said) != 1:
        sys.exit(f"{run.work.name} is {shown['state']}: {log[-LOG_CHARS:]}")
    run.losses = (said[0]["first"], said[0]["last"])
    steps: dict[int, tuple[float, int]] = {}  # step -> time when it was done, ranks
    # Epoch and turn of a pass -> times each sample was seen.
    seen: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for path in run.folder.glob("[0-9]*"):
        for line in path.read_text().splitlines():
            at_s, number, ranks, epoch, turn, *indices = json.loads(line)
            steps[number] = min(steps.get(number, (at_s, ranks)), (at_s, ranks))
            seen[epoch, turn].update(indices)
    ends = {max((key for key in seen if key[0] == epoch), default=None) for epoch, _ in seen}
    everything = max(len(samples) for samples in seen.values())
    for key, samples in seen.items():
        again = [index for index, times in samples.items() if times > 1]
        if again or (key not in ends and len(samples) < everything):
            what = f"{len(samples)} samples, {len(again)} of them again, {run.stops}"
            sys.exit(f"{run.work.name}: pass {key} had {what}: {log[-LOG_CHARS:]}")
        run.samples += len(samples)
    order = [steps[number] for number in sorted(steps)]
    usual: dict[int, list[float]] = defaultdict(list)
    changes = []
    for (before_s, before), (at_s, ranks) in itertools.pairwise(order):
        if before == ranks:
            usual[ranks].append(at_s - before_s)
        else:
            changes.append((at_s - before_s, ranks))
    (run.folder / "changes").write_text(json.dumps(changes))
    for took_s, ranks in changes:
        if usual[ranks]:
            run.pauses_s.append(max(0.0, took_s - statistics.median(usual[ranks])))


# ---- the scheduler of this machine ----

FIRST_LINE = "import time; print(time.time(), flush=True)\n"


def first_line(script: Path) -> float:
    """Seconds from the script's own start to its first line."""
    begun = time.time()
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    return float(said.stdout) - begun


def submitted_line(ours: Cluster, script: Path, *options: str) -> float:
    """Seconds from the start of `pawl submit` to the script's first line."""
    begun = time.time()
    job = ours.submit(sys.executable, script, options=options)
    wait_for(lambda: ours.ask("show", str(job))["state"] in OVER, "end of a job", LIMIT_S, LOOK_S)
    lines = ours.run("logs", str(job)).stdout.splitlines()
    said = [line for line in lines if not line.startswith("pawl: ")]
    return float(said[0].split()[-1]) - begun


def say_starts(report: Report, starts: int) -> None:
    report.title("From `pawl submit` to a script's first line, above the script's own start")
    took: dict[str, list[float]] = {"alone": [], "nodes": [], "replicas": []}
    with cluster("--nodes", "2", "--slots", "2") as ours:
        script = ours.root.with_name("first.py")
        script.write_text(FIRST_LINE)
        for _ in range(starts):
            took["alone"].append(first_line(script))
            took["nodes"].append(submitted_line(ours, script))
            took["replicas"].append(submitted_line(ours, script, "--replicas", "1:2"))
    report.note("start_alone_s", "the script's own", statistics.median(took["alone"]), "s")
    for key, what in (("nodes", "a job of one node"), ("replicas", "a job of 1 to 2 replicas")):
        above = [a - b for a, b in zip(took[key], took["alone"], strict=True)]
        beside = f"at most {max(above):.3f} s, of {starts}"
        name = f"start_{key}_s"
        report.at_most(
            name, f"{what}: above that", statistics.median(above), START_GOAL_S, "s", beside
        )


def say_list(report: Report, sizes: Sequence[int]) -> None:
    report.title("`pawl ls` where jobs wait")
    with cluster("--nodes", "1", "--slots", "1") as ours:
        ours.submit("sleep", "100000")
        for size in sizes:
            begun, n = time.monotonic(), size + 1 - len(ours.ask("ls"))
            with ThreadPoolExecutor(SUBMITTERS) as pool:
                list(pool.map(lambda _: ours.submit("sleep", "1"), range(n)))
            each = (time.monotonic() - begun) / n
            took = []
            for _ in range(LS_RUNS):
                asked = time.perf_counter()
                lines = ours.run("ls").stdout.count("\n")
                took.append(time.perf_counter() - asked)
                assert lines > size
            key, what = f"ls_{size}_ms", f"{size:,} jobs"
            value = statistics.median(took) * 1e3
            beside = f"at most {max(took) * 1e3:.0f} ms; a submission {each * 1e3:.1f} ms"
            if size == sizes[0]:
                report.at_most(key, what, value, LS_GOAL_S * 1e3, "ms", beside)
            else:
                report.note(key, what, value, "ms", beside)


# ---- the report ----


def describe(run: Run) -> str:
    work, (first, last) = run.work, run.losses
    slots = ", ".join(f"{n} at {at_s:.0f}" for at_s, n in run.slots if n > 0)
    stops = f"; stopped: {', '.join(run.stops)}" if run.stops else ""
    came = f"{work.name:<9} came {work.at_s:4.0f} s, took {run.took_s:4.0f} s"
    trained = f"loss {first:.3f} to {last:.3f}, {run.samples:5} samples"
    return f"{came}, {trained}; replicas {slots}{stops}"


def say_run(report: Report, seed: int, way: str, runs: Sequence[Run]) -> float:
    average = statistics.fmean(run.took_s for run in runs)
    pauses = [pause for run in runs for pause in run.pauses_s]
    beside = f"load {read_load()}; {len(pauses)} changes of ranks"
    if pauses:
        beside += f", which cost steps {statistics.median(pauses):.2f} s (most {max(pauses):.2f})"
    report.note(f"{way}_{seed}_s", f"{way}: average completion", average, "s", beside)
    for run in runs:
        print(f"    {describe(run)}", flush=True)
        if run.losses[1] >= run.losses[0] and run.work.epochs > 1:
            sys.exit(f"{run.work.name} has learned nothing")
    return average


def say_jobs(
    report: Report, seeds: Sequence[int], ways: Sequence[str], quick: bool, folder: Path
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    samples = save_data(folder / "data")
    ratios = []
    for seed in seeds:
        works = draw(seed, samples, quick)
        report.title(f"8 jobs on {NODES} nodes of {SLOTS} slots, seed {seed}")
        averages = {}
        for way in ways:
            runs = run_all(way, works, folder / "data", folder / f"{way}{seed}")
            averages[way] = say_run(report, seed, way, runs)
        if len(averages) == len(WAYS):
            ratios.append(averages["pawl"] / min(averages["static"], averages["fifo"]))
            report.note(f"better_{seed}", "pawl to the better one", ratios[-1], "x")
    if ratios:
        report.title("All seeds")
        beside = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        what = "average completion: pawl to the better one"
        report.at_most("better", what, statistics.fmean(ratios), GOAL, "x", beside)


def save_data(path: Path) -> dict[str, int]:
    """Writes the training data; returns the number of samples of each kind."""
    digits = load_digits()
    text = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8)
    told: dict[str, Any] = {
        "digits": torch.tensor(digits.images.reshape(-1, 64) / 16, dtype=torch.float32),
        "classes": torch.tensor(digits.target),
        "text": text,
    }
    torch.save(told, path)
    return {kind: len(make(kind, path)[0]) for kind in KINDS}  # type: ignore[arg-type]


def main() -> None:
    parser = make_parser(
        __doc__,
        "one seed, jobs of an epoch",
        "for what jobs say, which stays there (a temporary one)",
    )
    parser.add_argument("--seed", type=int, action="append", help="only these")
    parser.add_argument("--way", choices=WAYS, action="append", help="only these")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--keep", help="a directory for what the jobs have said, which stays")
    options = parser.parse_args()
    parts = options.only or PARTS
    seeds = options.seed or (SEEDS[:1] if options.quick else SEEDS)
    report = Report("real", len(seeds), describe_machine())
    if "start" in parts:
        say_starts(report, 1 if options.quick else STARTS)
    if "list" in parts:
        say_list(report, QUEUED[:1] if options.quick else QUEUED)
    if "jobs" in parts:
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            place = Path(options.keep or folder)
            say_jobs(report, seeds, options.way or WAYS, options.quick, place)
    report.finish(options.json)


if __name__ == "__main__":
    main()
