"""The scheduler is killed at any moment, and processes that keep jobs running as well: no job is
lost, and none runs twice."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

import program
import waits
from cluster import OVER, Cluster, cluster, wait
from conftest import SEED, SUMMARY

LONG = os.environ.get("PAWL_LONG") is not None
KILLS = 200 if LONG else 20
JOBS = 20 if LONG else 8
OPTIONS = ("--nodes", "2", "--slots", "4", "--grace", "5", "--round", "1")

# The file has "twice" if another run of the job is there at the same time.
WORK = """
exec 9> $PAWL_TEST_DIR/$1.lock
flock -n 9 || echo twice >> $PAWL_TEST_DIR/$1
echo start >> $PAWL_TEST_DIR/$1
sleep $2
echo end >> $PAWL_TEST_DIR/$1
"""
# Runs until a file "go" exists.
UNTIL = WORK.replace("sleep $2", "until [ -e $PAWL_TEST_DIR/go ]; do sleep 0.05; done")


def submit(ours: Cluster, folder: Path, name: str, seconds: float) -> bool:
    """Submits a job. Returns whether it was accepted; a scheduler that is killed meanwhile may have
    stored it or not."""
    options = ["--env", f"PAWL_TEST_DIR={folder}", "-n", name]
    done = ours.run("submit", *options, "--", "bash", "-c", WORK, "bash", name, str(seconds))
    return done.returncode == 0


def restart(ours: Cluster) -> None:
    assert ours.daemon is not None
    ours.daemon.wait(program.LIMIT_S)
    ours.start()


def test_a_killed_scheduler_loses_nothing_and_starts_nothing_twice(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    sent: list[str] = []
    with cluster(*OPTIONS) as ours:
        for kill in range(KILLS):
            ours.start() if kill > 0 else None
            if len(sent) < JOBS * (kill + 1) / KILLS + 2 and len(sent) < JOBS:
                sent.append(f"job{len(sent)}")
                assert submit(ours, tmp_path, sent[-1], rng.uniform(0.1, 3))
            waits.any_moment(rng, 0, 0.2)
            ours.kill()
        ours.start()
        wait(lambda: not ours.ask("ls"), "all jobs are over")
        rows = {row["name"]: row for row in ours.ask("ls", "-a")}
        assert sorted(rows) == sorted(sent)
        for name in sent:
            assert rows[name]["state"] == "done", (name, rows[name], ours.log(rows[name]["id"]))
            assert (tmp_path / name).read_text().split() == ["start", "end"], name
        assert ours.processes() == []
        wait(lambda: not list((ours.root / "runs").iterdir()), "nothing is kept of runs")
    SUMMARY.append(f"scheduler: killed {KILLS} times with {len(sent)} jobs, none lost or doubled")


def test_what_is_killed_while_it_submits_is_there_or_is_not(tmp_path: Path) -> None:
    """A client that got a job's number finds the job; a client that got none finds it once or not
    at all."""
    rng = random.Random(SEED + 1)
    told: set[str] = set()
    with cluster(*OPTIONS) as ours:
        assert ours.daemon is not None
        for n in range(6):
            pid, name = ours.daemon.pid, f"job{n}"
            if os.fork() == 0:
                waits.any_moment(rng, 0, 0.03)
                os.kill(pid, signal.SIGKILL)
                os._exit(0)
            if submit(ours, tmp_path, name, 0.1):
                told.add(name)
            os.wait()
            restart(ours)
        wait(lambda: not ours.ask("ls"), "all jobs are over")
        names = [row["name"] for row in ours.ask("ls", "-a")]
        assert len(names) == len(set(names)) and told <= set(names)
        for name in names:
            assert (tmp_path / name).read_text().split() == ["start", "end"], name


def command_of(pid: int) -> bytes:
    """Returns the command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_killed_shepherd_takes_its_job_with_it_and_the_job_starts_again(tmp_path: Path) -> None:
    with cluster(*OPTIONS) as ours:
        options = ["--env", f"PAWL_TEST_DIR={tmp_path}"]
        job = ours.submit("bash", "-c", UNTIL, "bash", "x", options=options)
        mark = tmp_path / "x"
        wait(mark.exists, "its start")
        (keeper,) = (pid for pid in ours.processes() if b"shepherd" in command_of(pid))
        os.kill(keeper, signal.SIGKILL)
        wait(lambda: mark.read_text().count("start") == 2, "its second start")
        (tmp_path / "go").touch()
        ours.await_state(job, "done")
        assert mark.read_text().split() == ["start", "start", "end"]
        assert ours.job(job)["restarts"] == 1


@pytest.mark.parametrize("told", ["shepherd", "both"])
def test_killed_while_the_scheduler_is_away(tmp_path: Path, told: str) -> None:
    """A job ends, or its shepherd is killed, while there is no scheduler; the next scheduler finds
    out."""
    with cluster(*OPTIONS) as ours:
        options = ["--env", f"PAWL_TEST_DIR={tmp_path}"]
        one = ours.submit("bash", "-c", UNTIL, "bash", "one", options=options)
        two = ours.submit("bash", "-c", UNTIL, "bash", "two", options=options)
        wait(lambda: (tmp_path / "one").exists() and (tmp_path / "two").exists(), "both run")
        ours.kill()
        for pid in ours.processes():
            command = command_of(pid)
            if b"two" in command or (told == "both" and b"shepherd" in command):
                os.kill(pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        wait(lambda: not ours.processes(), "what ran has ended")
        ours.start()
        wait(lambda: ours.state(one) in OVER and ours.state(two) in OVER, "both are over")
        assert (tmp_path / "one").read_text().split()[-2:] == ["start", "end"]
        if told == "shepherd":
            assert ours.state(one) == "done" and (tmp_path / "one").read_text().count("start") == 1
            assert ours.state(two) == "failed" and ours.job(two)["exit_code"] == 137
        else:
            assert ours.state(one) == ours.state(two) == "done"
        assert "twice" not in (tmp_path / "one").read_text() + (tmp_path / "two").read_text()


@pytest.mark.slow
def test_a_shepherd_that_stands_still_is_killed_with_its_job() -> None:
    with cluster(*OPTIONS) as ours:
        job = ours.sh("while :; do sleep 0.05; done")
        ours.await_state(job, "running")
        for pid in ours.processes():
            if b"shepherd" in command_of(pid):
                os.kill(pid, signal.SIGSTOP)
        ours.run("cancel", str(job))
        ours.await_state(job, "cancelled")
        assert ours.processes() == []


def test_another_scheduler_version_finds_jobs_that_run(tmp_path: Path) -> None:
    """A scheduler that gets SIGTERM (an upgrade) leaves its jobs running; nodes that are gone by
    then lose theirs."""
    with cluster(*OPTIONS) as ours:
        options = ["--env", f"PAWL_TEST_DIR={tmp_path}"]
        job = ours.submit("bash", "-c", WORK, "bash", "x", "1.5", options=options)
        ours.await_state(job, "running")
        assert ours.kill(signal.SIGTERM) == 0
        assert program.run("ls", "--root", ours.root).returncode == 3
        ours.start()
        ours.await_state(job, "done")
        assert (tmp_path / "x").read_text().split() == ["start", "end"]
        ours.kill(signal.SIGTERM)
        ours.options = ("--node", "other=2", "--round", "1")
        ours.start()
        job = ours.sh("true")
        ours.await_state(job, "done")
        assert "starts on other (1)" in ours.log(job)
        assert [node["name"] for node in ours.ask("top")["nodes"]] == ["other"]
