"""`pawl sched --engine slurm` on a real Slurm: jobs whose replicas change while they run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
import slurm
from cluster import wait
from conftest import real_core
from test_slurm_sched import LIMIT_S, NODES, Scheduler, scheduler

pytestmark = [
    pytest.mark.skipif(real_core is None, reason="pawl._core is not built here"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def ours() -> Iterator[slurm.Slurm]:
    with slurm.own_cluster(NODES, late="n2") as made:
        yield made


# A rank records its process id, and becomes the program.
RANK = "echo $$ >> $PAWL_TEST_DIR/ranks; exec {}"
JOB = program.script("sched_elastic_job.py")
ELASTIC = RANK.format(f"env -u PAWL_HINTS {sys.executable} {JOB} 100000")
PLAIN = RANK.format("sleep 1000")
# Hints that the test writes in place of a job: each replica more is worth as much as the first.
HINTS = {
    "stepParams": {"alpha_c": 0.1, "beta_c": 0.01, "gamma": 1},
    "maxProfiledReplicas": 4, "initBatchSize": 32, "maxBatchSize": 2048, "localBszBounds": [8, 32],
    "gradParams": {"norm": 1e-3, "var": 1e3}, "progress": 1, "remaining": 1e6,
}  # fmt: skip


def replicas(made: Scheduler, script: str, size: str, *options: str, hints: bool = True) -> int:
    words = ["--env", f"PAWL_TEST_DIR={made.folder}", "--replicas", size, *options]
    job = made.submit("bash", "-c", script, options=words)
    if hints:
        made.await_state(job, "running", limit_s=LIMIT_S)
        if script == ELASTIC:  # an elastic rank sends hints once it trains
            await_training(made, job, 1)
        (made.root / f"jobs/{job}/hints.json").write_text(json.dumps(HINTS))
    return job


def await_size(made: Scheduler, job: int, size: int) -> None:
    """Waits until the job runs with that many replicas, and as many processes."""

    def is_so() -> bool:
        row = made.job(job)
        return row["state"] == "running" and row["replicas"] == size == len(alive(made))

    wait(is_so, f"job {job} has {size} replicas", LIMIT_S)


def alive(made: Scheduler) -> list[str]:
    """Returns the ranks that are alive, in the order of their starts."""
    return [pid for pid in made.wrote("ranks") if Path(f"/proc/{pid}").exists()]


def await_training(made: Scheduler, job: int, size: int) -> None:
    """Waits until the job's membership file lists that many ranks: a rank that is yet to join may
    fail, and another one come, if others leave just then."""

    def is_so() -> bool:
        for path in (made.root / f"jobs/{job}").glob("door.*"):
            with contextlib.suppress(FileNotFoundError):
                if path.suffix[1:].isdigit() and len(path.read_text().split()) == size + 1:
                    return True
        return False

    wait(is_so, f"{size} ranks train", LIMIT_S)


def killed_in_the_middle(made: Scheduler, job: int, size: int) -> None:
    """Kills the scheduler during a rescale to that size, and starts another one."""
    wait(lambda: made.state(job) == "rescaling" or made.job(job)["replicas"] == size,
         "it changes, or has changed, for who looks late", LIMIT_S)  # fmt: skip
    made.kill()
    made.start()


def test_a_job_changes_in_place(ours: slurm.Slurm) -> None:
    """The job grows, gives way to another, and grows again: the ranks that stay are the same
    processes."""
    with scheduler(ours, "--pool", "cpu=3:0..1") as made:
        job = replicas(made, ELASTIC, "1:3")
        killed_in_the_middle(made, job, 3)
        await_size(made, job, 3)
        first = made.wrote("ranks")[0]
        other = made.until("other", "--priority", "9", "--num-nodes", "2")
        wait(lambda: made.wrote("other") == ["start"], "the other one runs", LIMIT_S)
        await_size(made, job, 1)
        assert alive(made) == [first]
        made.go()
        made.over(other)
        killed_in_the_middle(made, job, 3)
        await_size(made, job, 3)
        assert alive(made)[0] == first and len(made.wrote("ranks")) == 5
        assert made.job(job)["failures"] == 0
        made.run("cancel", str(job))
        made.over(job)
        wait(lambda: alive(made) == [], "all have left")


def test_nodes_join_a_job_and_leave_it(ours: slurm.Slurm) -> None:
    """The job grows onto other nodes, leaves them to another job, and grows again; leaves the
    drained node of its oldest rank; and loses a node. Ranks that need not leave never end."""
    with scheduler(ours, "--pool", "cpu=1:0..3") as made:
        job = replicas(made, ELASTIC, "1:3")
        killed_in_the_middle(made, job, 3)
        await_size(made, job, 3)
        all_three = alive(made)
        assert len(made.job(job)["nodes"].split()) == 3
        other = made.until("other", "--priority", "9", "--num-nodes", "2")
        killed_in_the_middle(made, job, 1)
        wait(lambda: made.wrote("other") == ["start"] * 2, "the other one runs", LIMIT_S)
        await_size(made, job, 1)
        (first,) = alive(made)
        (began,) = (node.partition(".")[0] for node in made.job(job)["nodes"].split())
        assert first in all_three
        made.go()
        made.over(other)
        await_size(made, job, 3)
        stay = alive(made)[1:]
        assert alive(made)[0] == first and len(made.wrote("ranks")) == 5
        try:
            made.slurm.call("scontrol", "update", f"NodeName={began}", "State=DRAIN", "Reason=x")
            wait(lambda: first not in alive(made), "it leaves", LIMIT_S)
            wait(lambda: began not in made.job(job)["nodes"], "it has left", LIMIT_S)
            await_size(made, job, 3)
        finally:
            made.slurm.call("scontrol", "update", f"NodeName={began}", "State=RESUME")
        assert alive(made)[:2] == stay and len(made.wrote("ranks")) == 6
        spots = [spot.partition(":")[0] for spot in made.job(job)["nodes"].split()]
        all_ = made.pilot_processes().items()
        pilot, lost = min((pid, s) for pid, node in all_ for s in spots if s.startswith(f"{node}."))
        os.kill(pilot, signal.SIGKILL)
        wait(lambda: lost not in made.job(job)["nodes"], "it is lost", LIMIT_S)
        await_size(made, job, 3)
        assert len(made.wrote("ranks")) == 7 and made.job(job)["failures"] == 0
        made.run("cancel", str(job))
        made.over(job)
        wait(lambda: alive(made) == [], "all have left")


def test_one_that_was_seen_to_be_elastic_starts_so(ours: slurm.Slurm) -> None:
    """The job starts on two nodes at once, of which one can leave."""
    with scheduler(ours, "--pool", "cpu=1:0..2") as made:
        job = replicas(made, ELASTIC, "1:2")
        await_size(made, job, 2)
        made.run("pause", str(job))
        made.await_state(job, "paused", limit_s=LIMIT_S)
        wait(lambda: alive(made) == [], "all have left")
        made.run("resume", str(job))
        await_size(made, job, 2)
        await_training(made, job, 2)
        two = alive(made)
        count = len(made.wrote("ranks"))
        other = made.until("other", "--priority", "9", "--num-nodes", "1")
        made.await_state(other, "running", limit_s=LIMIT_S)
        await_size(made, job, 1)
        assert set(alive(made)) < set(two) and len(made.wrote("ranks")) == count
        assert made.job(job)["failures"] == 0
        made.run("cancel", str(job))
        made.go()
        made.over(job, other)


def test_one_that_needs_two_nodes_is_seen_to_be_elastic(ours: slurm.Slurm) -> None:
    """All its ranks are there at once at its first start; nodes may leave from the next
    start on."""
    with scheduler(ours, "--pool", "cpu=1:0..3") as made:
        job = replicas(made, ELASTIC, "2:3", hints=False)
        where = made.root / f"jobs/{job}"
        wait(lambda: list(where.glob("door.*")) != [], "it trains", LIMIT_S)
        (where / "hints.json").write_text(json.dumps(HINTS))
        await_size(made, job, 3)
        await_training(made, job, 3)
        stay = alive(made)
        other = made.until("other", "--priority", "9", "--num-nodes", "1")
        made.await_state(other, "running", limit_s=LIMIT_S)
        await_size(made, job, 2)
        assert set(alive(made)) < set(stay)
        made.run("cancel", str(job))
        made.go()
        made.over(job, other)


@pytest.mark.parametrize("saves", [True, False])
def test_a_node_that_is_cancelled_is_no_failure(ours: slurm.Slurm, saves: bool) -> None:
    """The ranks of the node get SIGTERM, and with them all others, if there is a root; none is
    killed."""
    with scheduler(ours, "--pool", "cpu=1:0..2", "--grace", "20") as made:
        root = ("--env", f"PAWL_ELASTIC_ROOT={made.folder}/root") if saves else ()
        job = replicas(made, ELASTIC, "1:2", *root)
        await_size(made, job, 2)
        gone = made.job(job)["nodes"].split()[-1].partition(":")[0]
        made.slurm.call("scancel", gone.split(".")[1])
        wait(lambda: gone not in made.job(job)["nodes"], "it is gone", LIMIT_S)
        await_size(made, job, 2)
        assert made.job(job)["failures"] == 0
        assert "SIGKILL" not in (made.root / f"jobs/{job}/log").read_text()
        made.run("cancel", str(job))
        made.over(job)


def test_a_plain_script_starts_again(ours: slurm.Slurm) -> None:
    """A plain script cannot be joined: all its ranks leave, and start in the new number."""
    with scheduler(ours, "--pool", "cpu=3:0..1") as made:
        job = replicas(made, PLAIN, "1:3")
        await_size(made, job, 3)
        assert len(made.wrote("ranks")) == 4 and made.job(job)["restarts"] == 1
        made.run("cancel", str(job))
        made.over(job)


def test_a_plain_script_on_other_nodes(ours: slurm.Slurm) -> None:
    """All ranks are there from each start on: WORLD_SIZE is right."""
    with scheduler(ours, "--pool", "cpu=1:0..2") as made:
        job = replicas(made, 'echo of-$WORLD_SIZE >> "$PAWL_TEST_DIR/worlds"; ' + PLAIN, "1:2")
        await_size(made, job, 2)
        assert made.wrote("worlds") == ["of-1", "of-2", "of-2"]
        made.run("cancel", str(job))
        made.over(job)
