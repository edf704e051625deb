"""Devices by slot: the devices of a node that a job's ranks see. Only a variable is tested: no
device is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

import program
from cluster import Cluster, cluster, wait

SAY = "echo $RANK$SKYPILOT_NODE_RANK sees ${CUDA_VISIBLE_DEVICES-none}; "
LOOP = "while :; do sleep 0.05; done"
OPTIONS = ("--grace", "2", "--round", "1", "--policy", "fifo")


def seen(ours: Cluster, job: int) -> list[str]:
    """Returns the devices that each process of a job saw, in the order of their lines."""
    return [line.rpartition(" ")[2] for line in ours.lines(job) if " sees " in line]


def test_each_rank_of_a_job_of_nodes_sees_its_own(tmp_path: Path) -> None:
    nodes = ("--node", "a=2", "--devices", "a=0,1", "--node", "b=2", "--devices", "b=GPU-8f,3")
    with cluster(*nodes, *OPTIONS) as ours:
        first = ours.sh(SAY + LOOP, "--num-nodes", "3")
        wait(lambda: len(seen(ours, first)) == 3, "three say what they see")
        ours.kill()  # the next scheduler knows which job has which devices
        ours.start()
        second = ours.sh(SAY + LOOP)
        wait(lambda: len(seen(ours, second)) == 1, "the fourth, too")
        assert sorted(seen(ours, first) + seen(ours, second)) == ["0", "1", "3", "GPU-8f"]
        ours.run("cancel", str(first))
        ours.await_state(first, "cancelled")
        third = ours.sh(SAY, "--num-nodes", "3")
        ours.await_state(third, "done")
        assert sorted(seen(ours, third)) == sorted(seen(ours, first))


def test_without_devices_nothing_is_set() -> None:
    with cluster("--node", "a=2", "--node", "b=1", "--devices", "b=7", *OPTIONS) as ours:
        job = ours.sh(SAY, "--num-nodes", "2")
        ours.await_state(job, "done")
        assert sorted(seen(ours, job)) in (["none", "none"], ["7", "none"])
    with cluster("--node", "a=2", *OPTIONS) as ours:
        job = ours.sh(SAY, "--replicas", "2:2")
        ours.await_state(job, "done")
        assert seen(ours, job) == ["none", "none"]


@pytest.mark.slow
def test_a_job_that_is_resized_gives_devices_away() -> None:
    """A job that shrinks gives devices away; a test of the engine covers growing again."""
    with cluster("--node", "a=4", "--devices", "a=4,5,6,7", *OPTIONS) as ours:
        first = ours.sh(SAY + LOOP, "--replicas", "1:4", "-n", "first")
        wait(lambda: seen(ours, first) == ["4,5,6,7"] * 4, "all four are its own")
        second = ours.sh(SAY + LOOP, "--num-nodes", "2", "--priority", "5")
        wait(lambda: len(seen(ours, second)) == 2, "two are given up")
        assert sorted(seen(ours, second)) == ["6", "7"]
        wait(lambda: seen(ours, first)[4:] == ["4,5"] * 2, "and the others seen")
        assert ours.log(first).count(" starts on ") == 1  # one run, all the time


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    for options, word in (
        ("--node a=2 --devices a=0", "node a has 2 slots, and 1 devices"),
        ("--node a=1 --devices b=0", "a node has another name"),
        ("--node a=2 --devices a=0,0", "each id once"),
        ("--node a=2 --devices a=0,", "such as node0=0,1"),
        ("--node a=1 --devices a=$x", "such as node0=0,1"),
        ("--node a=1 --devices 0", "such as node0=0,1"),
        ("--engine slurm --pool p=1:0..1 --devices a=0", "--devices describes this machine"),
        ("--engine slurm --pool p=1:0..1 --scratch /tmp", "describes this machine"),
        ("--engine slurm --scratch p=/tmp --pool p=1:0..1", "of a --pool before it"),
        ("--engine slurm --pool p=1:0..1 --scratch p=tmp", "an absolute directory"),
    ):
        done = program.run("sched", "--root", tmp_path / "none", *options.split())
        assert done.returncode == 2 and word in done.stderr, (options, done.stderr)
