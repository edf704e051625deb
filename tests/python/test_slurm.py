"""A real Slurm: `srun pawl run`, which goes on when requeued; and `pawl sched` on its nodes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
import ranks
from conftest import real_core
from pawl import _cluster

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

PROGRAM = program.find()
HERE = Path(__file__).parent
SLURM = HERE.parent / "lib/slurm.sh"
SKIPPED = 77
STEPS = 60
GRACE_S = 3  # Slurm kills after KillWait: 4 s in slurm.sh


@contextlib.contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """What its commands need in their environment. It ends with its standard input."""
    port = 20000 + ranks.free_port() % 200 * 50
    command = ["bash", str(SLURM), str(folder), str(nodes), str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline().strip()
        if said != "ready":
            said += process.stdout.read()
            (pytest.skip if process.wait() == SKIPPED else pytest.fail)(said)
        yield program.clean_env(SLURM_CONF=str(folder / "slurm.conf"))


def call(env: dict[str, str], *command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], env=env, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def test_srun_pawl_run_goes_on_when_it_is_requeued(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    log, printed = tmp_path / "log", tmp_path / "printed"

    def lines(word: str) -> list[list[str]]:
        all_lines = log.read_text().splitlines() if log.exists() else []
        return [line.split() for line in all_lines if line.split()[1:2] == [word]]

    script = tmp_path / "job.sh"
    words = [PROGRAM, "run", "-n", 2, "--grace", GRACE_S, "--python", sys.executable]
    words += [HERE / "job.py", tmp_path / "root", STEPS, 0.1, log]
    script.write_text(f"#!/bin/sh\nexec srun {' '.join(map(str, words))}\n")
    with cluster(tmp_path / "slurm", 1) as env:
        options = ["--parsable", "--requeue", "--open-mode=append", f"--output={printed}"]
        job = call(env, "sbatch", *options, "--cpus-per-task=2", script).strip()
        program.wait_until(lambda: lines("committed"), "a step is committed", 60)
        call(env, "scontrol", "requeue", job)
        program.wait_until(lambda: len(lines("start")) == 4, "it starts again", 60)
        first, again = lines("start")[:2], lines("start")[2:]
        assert all(line[2:5] == ["0", "0", job] for line in first)
        stopped = max(int(line[2]) for line in lines("stopping"))  # told in time, and saved
        assert all(line[2:5] == [str(stopped), "1", job] for line in again)
        program.wait_until(lambda: not call(env, "squeue", "--noheader", "--states=R,CG,PD"),
                           "it ends", 60)  # fmt: skip
        shown = call(env, "scontrol", "show", "job", job)
    assert "JobState=COMPLETED" in shown and "Restarts=1" in shown, printed.read_text()


# ---- pawl sched --engine slurm ----


def pawl(env: dict[str, str], *words: str) -> str:
    return call(env, PROGRAM, *words)


def jobs(env: dict[str, str]) -> dict[str, str]:
    shown = json.loads(pawl(env, "ls", "--all", "--json"))
    return {job["name"]: job["state"] for job in shown}


def states(env: dict[str, str]) -> list[str]:
    return call(env, "squeue", "--noheader", "--format=%T").split()


@pytest.fixture
def root() -> Iterator[Path]:
    """A scheduler's directory: a socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="pawl-", dir="/tmp") as folder:
        yield Path(folder) / "root"


def test_the_scheduler_runs_jobs_in_pilots(tmp_path: Path, root: Path) -> None:
    """Asked for when there is work: one job on one node, one whose ranks are on two."""
    options = ["--engine", "slurm", "--root", str(root), "--pool", "cpu=2:0..2", "--grace", "3"]
    with cluster(tmp_path / "slurm", 2) as env:
        env |= {"PAWL_SCHED_ROOT": str(root)}
        command = [PROGRAM, "sched", *options, "--round", "1", "--poll", "0.5"]
        log = (tmp_path / "sched.log").open("w")
        with log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as sched:
            try:
                program.wait_until((root / "sched.sock").exists, "the scheduler listens")
                assert states(env) == []
                pawl(env, "submit", "-n", "one", "--", "sh", "-c", "echo on $SLURM_CONF one")
                program.wait_until(lambda: jobs(env)["one"] == "done", "one is done", 60)
                words = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
                pawl(env, "submit", "-n", "four", "--replicas", "4:4", "--", *words)
                program.wait_until(lambda: jobs(env)["four"] == "done", "four is done", 60)
                assert states(env) == ["RUNNING"] * 2
                pawl(env, "submit", "-n", "bad", "--", "sh", "-c", "exit 3")
                program.wait_until(lambda: jobs(env)["bad"] == "failed", "bad has failed", 60)
            finally:
                sched.terminate()
            assert sched.wait(20) == 0, (tmp_path / "sched.log").read_text()
        python = ("--python", sys.executable)
        (known,) = json.loads(pawl(env, "report", "--cluster", "--json", *python))
    history = _cluster.read(root / "history")
    assert (known["jobs"], known["done"], known["failed"]) == (3, 2, 1) and known["cost"] > 0
    assert known["avg_jct_s"] > 0 and 0 < known["utilisation"] < 1
    assert {span.pool for span in history.nodes} == {"cpu"} and history.lanes == 2
    lanes = {stay.lane: stay.slots for stay in history.stays if stay.job == 2}
    assert lanes == {0: 2, 1: 2}
    assert "on /" in (root / "jobs/1/log").read_text()
    printed = (root / "jobs/2/log").read_text() + (root / "jobs/2/log.node1").read_text()
    for rank in range(4):
        assert f"rank {rank} of 4" in printed
