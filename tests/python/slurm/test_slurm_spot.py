"""Nodes that can be taken away, on a real Slurm: the jobs that run on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import slurm
from cluster import wait
from conftest import real_core
from test_slurm_sched import LIMIT_S, Scheduler, scheduler

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

POOLS = ("--pool", "firm=2:0..1:cpu:1", "--pool", "cheap=2:0..1:cpu:0.3:spot")


@pytest.fixture(scope="module")
def ours() -> Iterator[slurm.Slurm]:
    with slurm.own_cluster(2) as made:
        yield made


def submit(made: Scheduler, *lines: str) -> int:
    """Submits a job that waits for the file "go"."""
    until = f"until [ -e {made.folder}/go ]; do sleep 0.1; done"
    return made.submit_file("\n".join([*lines, f"run: {until}\n"]))


def count(made: Scheduler, job: int) -> tuple[int, int]:
    """Returns the job's numbers of replicas on other nodes and on spot nodes."""
    spot = {node["name"]: node["spot"] for node in made.ask("top")["nodes"]}
    found = [0, 0]
    for word in made.job(job)["nodes"].split():
        name, _, replicas = word.rpartition(":")
        found[spot[name]] += int(replicas)
    return found[False], found[True]


def test_as_many_as_it_must_and_may(ours: slurm.Slurm) -> None:
    """The first job could have both spot slots: it leaves one to the second job."""
    with scheduler(ours, *POOLS) as made:
        both = submit(made, "num_nodes: 2", "resources: {use_spot: true}")
        made.await_state(both, "running", limit_s=LIMIT_S)
        assert count(made, both) == (0, 2)
        must = submit(made, "num_nodes: 2", "spot: 1..1")
        wait(lambda: made.state(both) == made.state(must) == "running", "both run", LIMIT_S)
        assert count(made, must) == count(made, both) == (1, 1)
        made.go()
        made.over(both, must)
        assert {made.state(job) for job in (both, must)} == {"done"}


def test_what_no_node_can_be(ours: slurm.Slurm) -> None:
    with scheduler(ours, *POOLS[:2]) as made:
        file = made.folder / "job.yaml"
        file.write_text("num_nodes: 2\nspot: 1..2\nrun: 'true'\n")
        done = made.run("submit", str(file))
        assert done.returncode != 0
        assert "spot: at least 1 on nodes that can be taken away, and no pool has" in done.stderr
