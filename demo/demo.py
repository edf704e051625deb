"""make demo: trains, is killed twice, goes on, and proves that the outcome is the same to the bit.

Prints a table, writes demo/report.png, and exits with 0 only if both runs end with identical
weights.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
BIN = Path(sys.executable).parent
STEPS = 120
KILL_WORKER_AT = 45
KILL_ALL_AT = 85
PATIENCE_S = 240  # longest wait for an event: far more than it takes; then the demo has failed

Event = dict[str, Any]


def events(run: Path, rank: int) -> list[Event]:
    """A rank's events, in the order in which it wrote them."""
    path = run / f"log.rank{rank}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def start(run: Path) -> subprocess.Popen[bytes]:
    run.mkdir(parents=True, exist_ok=True)
    files = ["--root", run / "ckpt", "--log", run / "log", "--out", run / "final.pt"]
    return subprocess.Popen(
        [BIN / "pawl", "run", "-n", "2", "--job", f"demo-{run.name}", HERE / "train.py", *files,
         "--steps", str(STEPS)],
        start_new_session=True,
    )  # fmt: skip


def wait_for_step(job: subprocess.Popen[bytes], run: Path, step: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not any(e["event"] == "step" and e["step"] >= step for e in events(run, 0)):
        if job.poll() is not None:
            sys.exit(f"demo: the run ended with {job.returncode} before step {step}")
        if time.monotonic() > deadline:
            os.killpg(job.pid, signal.SIGKILL)
            sys.exit(f"demo: step {step} was not reached within {PATIENCE_S} s")
        time.sleep(0.02)


def finish(job: subprocess.Popen[bytes]) -> None:
    if (code := job.wait(PATIENCE_S)) != 0:
        sys.exit(f"demo: the run failed with {code}")


def kill_pids(run: Path, pids: list[int]) -> Event:
    """Kills processes of a run by SIGKILL; recovery() adds the cost of the kill later."""
    before = max(e["step"] for e in events(run, 0) if e["event"] == "step")
    at = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return {"time": at, "step": before}


def recovery(run: Path, kill: Event) -> None:
    """Adds to a kill the time of the first step after it, and the number of steps done twice."""
    after = [e for e in events(run, 0) if e["time"] > kill["time"] and e["event"] == "step"]
    alive = [e for e in events(run, 0) if e["event"] == "start" and e["time"] > kill["time"]]
    begun = alive[0]["time"]
    kill["resumed"] = alive[0]["step"]
    first = next(e for e in after if e["time"] > begun)
    done = max(e["step"] for e in events(run, 0) if e["event"] == "step" and e["time"] < begun)
    kill["seconds"] = first["time"] - kill["time"]
    kill["lost"] = done - kill["resumed"]


def killed_run(run: Path) -> list[Event]:
    job = start(run)
    wait_for_step(job, run, KILL_WORKER_AT)
    victim = events(run, 1)[-1]["pid"]
    print(f"demo: SIGKILL to the worker of rank 1 (pid {victim})", flush=True)
    kills = [kill_pids(run, [victim]) | {"what": "worker"}]
    wait_for_step(job, run, KILL_ALL_AT)
    print("demo: SIGKILL to the whole job, agent included", flush=True)
    workers = [events(run, rank)[-1]["pid"] for rank in (0, 1)]
    kills.append(kill_pids(run, [job.pid, *workers]) | {"what": "job"})
    job.wait()
    kills[-1]["restarted"] = time.time()
    finish(start(run))
    for kill in kills:
        recovery(run, kill)
    return kills


def same_weights() -> bool:
    a, b = (torch.load(OUT / run / "final.pt", weights_only=True) for run in ("straight", "killed"))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def table(stalls: Event, kills: list[Event]) -> str:
    """The demonstration's measurements, for people."""
    ms = {name: 1e3 * statistics.median(values) for name, values in stalls["stall"].items()}
    call = {name: 1e3 * statistics.median(values) for name, values in stalls["call"].items()}
    size, count = stalls["bytes"] / 2**20, len(stalls["stall"]["pawl"])
    rows = [f"training stalled per save of {size:.0f} MiB, median of {count}:"]
    rows += [
        f"    {name:<20} call {call[name]:7.1f} ms, with next step {ms[name]:7.1f} ms"
        for name in ms
    ]
    for kill in kills:
        what = (
            "one worker killed" if kill["what"] == "worker" else "whole job killed, started again"
        )
        rows.append(
            f"{what:<32} at step {kill['step']:>3}: next step after {kill['seconds']:5.2f} s, "
            f"{kill['lost']} steps done again"
        )
    return "\n".join(rows)


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    print("demo 1/4: what a save costs, three ways", flush=True)
    measured = subprocess.run(
        [sys.executable, HERE / "stalls.py", OUT / "stalls"], check=True, stdout=subprocess.PIPE
    )
    stalls = json.loads(measured.stdout.splitlines()[-1])
    print("demo 2/4: training undisturbed", flush=True)
    finish(start(OUT / "straight"))
    print("demo 3/4: training, killed twice", flush=True)
    kills = killed_run(OUT / "killed")
    print("demo 4/4: comparing, drawing", flush=True)
    from report import draw

    draw(HERE / "report.png", OUT, stalls, kills)
    same = same_weights()
    print(f"\n{table(stalls, kills)}")
    print(f"final weights of both runs: {'identical to the bit' if same else 'DIFFERENT'}")
    print(f"picture: demo/report.png   ({time.monotonic() - began:.0f} s)")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
