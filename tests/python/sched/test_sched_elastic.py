"""Jobs of pawl.elastic under the scheduler: their hints, and the decisions that follow."""

from __future__ import annotations

import json
import math
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import program
import waits
from cluster import Cluster, cluster, wait
from conftest import SEED
from pawl import _core

JOB = Path(__file__).with_name("sched_elastic_job.py")
REFIT = ("--env", "PAWL_ELASTIC_REFIT=1")
LOOP = "while :; do sleep 0.05; done"
OPTIONS = ("--nodes", "1", "--slots", "3", "--grace", "10", "--round", "2")


def hints_of(ours: Cluster, job: int) -> Any:
    return json.loads((Path(ours.job(job)["log_dir"]) / "hints.json").read_text())


def step_s(perf: Any, nodes: int, replicas: int, most: int, atomic: int, accum: int) -> float:
    """Step time by Pollux (OSDI'21) 3.2; delta_n, for each replica more on the fullest node, is
    Pawl's own."""
    gradient = perf["alpha_c"] + perf["beta_c"] * atomic
    if replicas == 1:
        network = 0.0
    elif nodes == 1:
        network = perf["alpha_r"] + perf["beta_r"] * (replicas - 2)
    else:
        network = perf["alpha_n"] + perf["beta_n"] * (replicas - 2) + perf["delta_n"] * (most - 1)
    gamma = perf["gamma"]
    return float(accum * gradient + (gradient**gamma + network**gamma) ** (1 / gamma))


def efficiency(hints: Any, total: int) -> float:
    """Efficiency of a sample relative to one of an initial batch: Pollux equation 6, as in
    AdaptDL."""
    scale = total / hints["initBatchSize"]
    norm, var = hints["gradParams"]["norm"], hints["gradParams"]["var"]
    return float((var + norm) / (var / scale + norm) / scale)


def goodput_of(hints: Any, replicas: int, nodes: int = 1, most: int = 0) -> float:
    """Returns the best goodput of 50 totals between the bounds, in equal ratios, each in as few
    parts as the bounds allow (docs: pawl/adapt.h). Uses none of Pawl's own code. 0: none."""
    least, largest = hints["localBszBounds"]
    low = max(replicas * least, hints["initBatchSize"])
    most = most or -(-replicas // nodes)
    best = 0.0
    for i in range(50):
        total = low * (hints["maxBatchSize"] / low) ** (i / 49)
        if total > hints["maxBatchSize"] * (1 + 1e-8):
            break
        accumulate = hints["gradientAccumulation"]
        parts = max(math.ceil(total / replicas / largest - 1e-8), 1) if accumulate else 1
        if replicas == 1 and total > hints["initBatchSize"]:
            if not accumulate:
                continue
            parts = max(parts, 2)
        room = hints["maxBatchSize"] // (replicas * parts)
        atomic = max(min(max(math.ceil(total / replicas / parts - 1e-8), 1), room), least)
        if atomic > min(largest, room):
            continue
        samples = replicas * parts * atomic
        took = step_s(hints["stepParams"], nodes, replicas, most, atomic, parts - 1)
        best = max(best, samples / took * efficiency(hints, samples))
    return best


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(_core, "perf_fit"), reason="pawl._core is not built here")
def test_a_job_grows_in_place_by_what_it_measured() -> None:
    """With HTTP, too: AdaptDL's variables, which then exist, change nothing."""
    with cluster(*OPTIONS, "--http", "127.0.0.1:0") as ours:
        job = ours.submit(sys.executable, str(JOB), "400", options=[*REFIT, "--replicas", "1:3"])
        wait(lambda: ours.job(job)["goodput"] is not None, "hints", program.LIMIT_S)
        wait(lambda: ours.job(job)["replicas"] > 1, "more replicas", program.LIMIT_S)
        wait(lambda: ours.job(job)["state"] == "running", "they run", program.LIMIT_S)
        shown: dict[str, Any] = {}

        def agree() -> bool:
            """Hints may change between the two looks."""
            hints = hints_of(ours, job)
            shown.update(ours.job(job))
            now = shown["replicas"]
            mine = [goodput_of(hints, n) for n in (now, now + 1, now - 1) if n > 0]
            said = [shown["goodput"], shown["goodput_more"], shown["goodput_fewer"]]
            print(mine, said)
            none = said[len(mine) :]  # goodput of 0 replicas
            pairs = zip(mine, said, strict=False)
            return none in ([], [None]) and all(
                b is not None and abs(a - b) <= 1e-9 * a for a, b in pairs
            )

        wait(agree, "what is shown is what its hints say")
        text = ours.run("show", str(job)).stdout
        assert re.search(r"goodput: [\d.e+]+ with one more\n", text) and "ends: in " in text
        assert "binds: " in text and shown["left_s"] > 0
        assert ours.log(job).count(" starts on ") == 1  # a single run all the time
        assert "rank" in ours.log(job) and re.search(r"pawl: [23] replicas", ours.log(job))
        other = ours.sh("sleep 1", "--priority", "9", "--num-nodes", "2")
        ours.await_state(other, "done", limit_s=program.LIMIT_S)  # the elastic job gave way
        assert ours.state(job) in ("running", "rescaling") and ours.job(job)["failures"] == 0
        ours.run("cancel", str(job))
        ours.await_state(job, "cancelled", limit_s=program.LIMIT_S)


def random_hints(rng: random.Random) -> Any:
    init = rng.randint(16, 128)
    least = rng.randint(1, 8)
    names = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "delta_n")
    return {
        "stepParams": {
            **{name: 10 ** rng.uniform(-4, -0.5) for name in names},
            "gamma": rng.uniform(1, 10),
        },
        "initBatchSize": init, "maxBatchSize": init * rng.randint(2, 40),
        "localBszBounds": [least, least + rng.randint(8, 256)],
        "gradientAccumulation": rng.random() < 0.5,
        "gradParams": {"norm": 10 ** rng.uniform(-3, 1), "var": 10 ** rng.uniform(-3, 3)},
        "progress": rng.uniform(0, 100), "remaining": rng.uniform(1, 1e4),
    }  # fmt: skip


def test_what_show_says_of_goodput_is_recomputed_from_the_hints() -> None:
    """Recomputes goodput by the published formulas, in Python; on one node and over several, with
    one replica more and one fewer, before the scheduler is killed and after."""
    rng = random.Random(SEED)
    options = ("--nodes", "3", "--slots", "4", "--policy", "fifo", "--round", "1", "--grace", "2")
    with cluster(*options) as ours:
        jobs = [ours.sh(LOOP, "--num-nodes", str(n)) for n in (1, 2, 3, 5)]
        wait(lambda: all(ours.state(job) == "running" for job in jobs), "all run")
        told: dict[int, Any] = {}
        for turn in range(3):
            for job in jobs:
                told[job] = random_hints(rng)
                folder = Path(ours.job(job)["log_dir"])
                (folder / "new").write_text(json.dumps(told[job]))
                (folder / "new").rename(folder / "hints.json")
            if turn == 2:
                ours.kill()
                ours.start()
            for job in jobs:
                check_goodput(ours, job, told[job])


def check_goodput(ours: Cluster, job: int, hints: Any) -> None:
    spots = [int(spot.split(":")[1]) for spot in ours.job(job)["nodes"].split()]
    now, nodes, most = sum(spots), len(spots), max(spots)
    wanted = [
        goodput_of(hints, now, nodes, most),
        goodput_of(hints, now + 1, nodes),
        goodput_of(hints, now - 1, min(nodes, now - 1)) if now > 1 else 0.0,
    ]

    def agrees() -> bool:
        shown = ours.job(job)
        said = [shown["goodput"], shown["goodput_more"], shown["goodput_fewer"]]
        return [value or 0.0 for value in said] == pytest.approx(wanted, rel=1e-9)

    wait(agrees, f"goodput of job {job} on {spots}: {wanted}", program.LIMIT_S)


@pytest.mark.slow
def test_hints_that_are_wrong_harm_nobody() -> None:
    good = {
        "stepParams": {"alpha_c": 0.1, "beta_c": 0.001, "gamma": 1.5},
        "initBatchSize": 32, "maxBatchSize": 256, "localBszBounds": [8, 64],
        "gradParams": {"norm": 1, "var": 2}, "progress": 10, "remaining": 90,
    }  # fmt: skip
    bad: list[Any] = [
        "no json", [], {**good, "progress": 1e300}, {**good, "initBatchSize": -1},
        {**good, "stepParams": {"alpha_c": "x"}}, {**good, "gradParams": {"norm": -1, "var": 0}},
        {**good, "localBszBounds": [64, 8]}, {}, "{" * 100000, '{"progress": NaN}',
    ]  # fmt: skip
    with cluster(*OPTIONS) as ours:
        job = ours.sh(LOOP)
        ours.await_state(job, "running")
        file = Path(ours.job(job)["log_dir"]) / "hints.json"
        has_none = lambda: ours.job(job)["goodput"] is None  # noqa: E731
        for hints in bad:
            file.write_text(hints if isinstance(hints, str) else json.dumps(hints))
            waits.stays(has_none, f"{hints} say nothing", 1.2)
        file.unlink()
        os.mkfifo(file)
        waits.stays(has_none, "a pipe says nothing", 1.2)
        file.unlink()
        file.write_text(json.dumps(good))
        wait(lambda: ours.job(job)["goodput"] is not None, "hints that are right")
        shown = ours.job(job)
        assert abs(shown["left_s"] - 90 * 32 / shown["goodput"]) < 1e-6
        assert "hints" in ours.said.read_text()  # the refused hints were reported once
        ours.kill()
        ours.start()
        assert ours.job(job)["goodput"] == shown["goodput"]  # hints are stored
