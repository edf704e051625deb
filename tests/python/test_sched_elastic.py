"""Jobs of pawl.elastic under the scheduler: what they tell of themselves, and what comes of it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import program
from cluster import Cluster, cluster, wait
from pawl import _core

JOB = Path(__file__).with_name("sched_elastic_job.py")
REFIT = ("--env", "PAWL_ELASTIC_REFIT=1")
OPTIONS = ("--nodes", "1", "--slots", "3", "--grace", "10", "--round", "2")


def hints_of(ours: Cluster, job: int) -> Any:
    return json.loads((Path(ours.job(job)["log_dir"]) / "hints.json").read_text())


def goodput_of(hints: Any, replicas: int) -> float:
    """Of the best batch there, on one node, as the hints have it."""
    names = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "delta_n", "gamma")
    perf = tuple(hints["stepParams"][name] for name in names)
    noise = (hints["gradParams"]["norm"], hints["gradParams"]["var"])
    bounds = (hints["initBatchSize"], hints["maxBatchSize"], *hints["localBszBounds"],
              hints["gradientAccumulation"])  # fmt: skip
    best = _core.batch_choose(perf, noise, bounds, (1, replicas, replicas))
    assert best is not None
    return float(best[2])


@pytest.mark.skipif(not hasattr(_core, "perf_fit"), reason="pawl._core is not built here")
def test_a_job_grows_in_place_by_what_it_measured() -> None:
    with cluster(*OPTIONS) as ours:
        job = ours.submit(sys.executable, str(JOB), "400", options=[*REFIT, "--replicas", "1:3"])
        wait(lambda: ours.job(job)["goodput"] is not None, "hints", program.LIMIT_S)
        first = ours.job(job)["replicas"]
        wait(lambda: ours.job(job)["replicas"] > first, "more replicas", program.LIMIT_S)
        wait(lambda: ours.job(job)["state"] == "running", "they run", program.LIMIT_S)
        agreed = False
        for _ in range(20):  # hints may change between the two looks
            hints, shown = hints_of(ours, job), ours.job(job)
            now = shown["replicas"]
            mine = [goodput_of(hints, n) for n in (now, now + 1, now - 1) if n > 0]
            said = [shown["goodput"], shown["goodput_more"], shown["goodput_fewer"]]
            none = said[len(mine) :]  # one fewer than one
            pairs = zip(mine, said, strict=False)
            agreed = agreed or (
                none in ([], [None])
                and all(b is not None and abs(a - b) <= 1e-9 * a for a, b in pairs)
            )
            if agreed:
                break
            time.sleep(1.2)
        assert agreed, (mine, said)
        text = ours.run("show", str(job)).stdout
        assert re.search(r"goodput: [\d.e+]+ with one more\n", text) and "ends: in " in text
        assert "binds: " in text and shown["left_s"] > 0
        assert ours.log(job).count(" starts on ") == 1  # all in one run of it
        assert "rank" in ours.log(job) and re.search(r"pawl: [23] replicas", ours.log(job))
        other = ours.sh("sleep 1", "--priority", "9", "--num-nodes", "2")
        ours.await_state(other, "done", limit_s=60)  # it gave way
        assert ours.state(job) in ("running", "rescaling") and ours.job(job)["failures"] == 0
        ours.run("cancel", str(job))
        ours.await_state(job, "cancelled", limit_s=60)


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
        job = ours.sh("while :; do sleep 0.05; done")
        ours.await_state(job, "running")
        file = Path(ours.job(job)["log_dir"]) / "hints.json"
        for hints in bad:
            file.write_text(hints if isinstance(hints, str) else json.dumps(hints))
            time.sleep(1.2)
            assert ours.job(job)["goodput"] is None
        file.unlink()
        os.mkfifo(file)
        time.sleep(1.2)
        assert ours.job(job)["goodput"] is None
        file.unlink()
        file.write_text(json.dumps(good))
        wait(lambda: ours.job(job)["goodput"] is not None, "hints that are right")
        shown = ours.job(job)
        assert abs(shown["left_s"] - 90 * 32 / shown["goodput"]) < 1e-6
        assert "hints" in ours.said.read_text()  # it was said, once
        ours.kill()
        ours.start()
        assert ours.job(job)["goodput"] == shown["goodput"]  # they are stored
