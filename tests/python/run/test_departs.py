"""A notice at one node of several: it leaves, the others wait for another node, and no step is
lost, whether the bucket answers or not. The ranks are departs_rank.py's."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path

import pytest

import nodes
import program
from test_replicas_lost import STEPS, await_start, begun, said, saving, where

pytestmark = pytest.mark.slow

RANK = Path(__file__).parent / "departs_rank.py"


def notice(node: nodes.Node, left_s: int) -> None:
    answer = program.run(
        "notice", "--in", str(left_s), env=program.clean_env(XDG_RUNTIME_DIR=node.sockets)
    )
    assert answer.returncode == 0, answer.stderr


def hear_step(node: nodes.Node, step: int) -> None:
    node.hear(rf"> \d at {step}\b")


@pytest.mark.parametrize(("at", "answers"), [(1, True), (0, True), (1, False)])
def test_a_node_leaves_and_another_takes_its_place(at: int, answers: bool, tmp_path: Path) -> None:
    with saving(tmp_path / "limit", 5, STEPS, script=RANK) as saver:
        job = saver.job
        options = ("-n", "1", "--preempted-code", "34", *where(2))
        for i in range(3):
            job.start(i, *options, "--node-rank", str(i), nnodes=3, **saver.env)
        goes = job.nodes[at]
        live = [node for node in job.nodes if node is not goes]
        for node in job.nodes:
            hear_step(node, 4)
        with contextlib.nullcontext() if answers else saver.mute():
            notice(goes, 16)
            assert goes.end() == 34, job.texts()
            last = max(said(job, "at"))
            how = "is durable" if answers else "is replicated, but could not be made durable"
            ends = rf"stopped with status 34.*: step {last} {how}"
            assert re.search(ends, goes.text()), job.texts()
            before = {node: len(begun(node)) for node in live}
            late = job.start(3, *options, nnodes=3, **saver.env)
            assert await_start([*live, late], before, job, 1) == last
        for node in live:
            assert "this machine goes away" in node.text()
        # The job goes on, and stops when it is told to.
        for node in (*live, late):
            hear_step(node, last + 1)
        live[0].signal(signal.SIGTERM)
        assert {node.end() for node in (*live, late)} == {143}, job.texts()


def test_a_job_that_is_told_to_stop_does(tmp_path: Path) -> None:
    """With --on-notice stop, all nodes end with the code of the notice."""
    with saving(tmp_path / "limit", 2, STEPS, str(tmp_path / "root"), RANK) as saver:
        job = saver.job
        options = ("-n", "1", "--on-notice", "stop", "--preempted-code", "34", *where(2))
        for i in range(2):
            job.start(i, *options, "--node-rank", str(i))
        for node in job.nodes:
            hear_step(node, 3)
        notice(job.nodes[1], 60)
        assert job.end() == [34, 34], job.texts()
