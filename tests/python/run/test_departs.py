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


def steps_of(node: nodes.Node, word: str) -> dict[str, list[int]]:
    """The steps that each rank of a node named after a word."""
    steps: dict[str, list[int]] = {}
    for line in node.said():
        rank, *words = line.split()
        if words[0] == word:
            steps.setdefault(rank, []).append(int(words[1]))
    return steps


def fail_often(root: Path) -> None:
    """Writes a history of so many failures that saving once a second is best."""
    root.mkdir()
    run = "2026-11-20T10:00:00.000Z,j,0,started,1,,\n2026-11-20T10:00:00.001Z,j,0,failed,1,,\n"
    header = "time,job,attempt,event,ranks,step,why\n"
    (root / "checkpointEvents.csv").write_text(header + run * 5000)


@pytest.mark.parametrize("asks", ["stopping", "due"])
def test_the_ranks_of_all_nodes_save_and_stop_at_the_same_steps(asks: str, tmp_path: Path) -> None:
    """A signal at one node: all ranks stop after the same step, and it is saved. They are told that
    a save is due at the same steps, too. They would hang in a collective otherwise."""
    root = tmp_path / "root"
    fail_often(root)
    with saving(tmp_path / "limit", 3, STEPS, str(root), RANK) as saver:
        job = saver.job
        for i in range(3):
            job.start(i, "-n", "2", *where(3), "--node-rank", str(i), nnodes=3, ASKS=asks)
        for node in job.nodes:
            node.hear(r"(> \d at \d+\b[\s\S]*){6}")
        job.nodes[1].signal(signal.SIGTERM)
        assert job.end() == [143] * 3, job.texts()
        saved = {rank: at for node in job.nodes for rank, at in steps_of(node, "at").items()}
        assert len(saved) == 6 and "Error" not in job.texts(), job.texts()
        (last,) = {at[-1] for at in saved.values()}
        assert all(at == saved["0"] for at in saved.values()), saved
        for node in job.nodes:
            assert f"stopped with status 143: {root}: step {last} is durable" in node.text()


@pytest.mark.parametrize(
    ("at", "answers", "by_signal"),
    [(1, True, False), (0, True, False), (1, False, False), (1, True, True)],
)
def test_a_node_leaves_and_another_takes_its_place(
    at: int, answers: bool, by_signal: bool, tmp_path: Path
) -> None:
    """It leaves after a notice, or after SIGTERM with --on-term leave."""
    leaves = ("--on-term", "leave", "--grace", "16") if by_signal else ()
    with saving(tmp_path / "limit", 5, STEPS, script=RANK) as saver:
        job = saver.job
        options = ("-n", "1", "--preempted-code", "34", *where(2))
        for i in range(3):
            own = leaves if i == at else ()
            job.start(i, *options, *own, "--node-rank", str(i), nnodes=3, **saver.env)
        goes = job.nodes[at]
        live = [node for node in job.nodes if node is not goes]
        for node in job.nodes:
            hear_step(node, 4)
        with contextlib.nullcontext() if answers else saver.mute():
            if by_signal:
                goes.signal(signal.SIGTERM)
            else:
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
            said_why = "SIGTERM: this node leaves" if by_signal else "this machine goes away"
            assert said_why in node.text()
        # The job goes on, and stops when it is told to.
        for node in (*live, late):
            hear_step(node, last + 1)
        live[0].signal(signal.SIGTERM)
        assert {node.end() for node in (*live, late)} == {143}, job.texts()


def test_a_job_that_is_told_to_stop_does(tmp_path: Path) -> None:
    """With --on-notice stop, all nodes end with the code of the notice. Ranks may still agree by a
    flag of their own."""
    with saving(tmp_path / "limit", 2, STEPS, str(tmp_path / "root"), RANK) as saver:
        job = saver.job
        options = ("-n", "1", "--on-notice", "stop", "--preempted-code", "34", *where(2))
        for i in range(2):
            job.start(i, *options, "--node-rank", str(i), ASKS="flag")
        for node in job.nodes:
            hear_step(node, 3)
        notice(job.nodes[1], 60)
        assert job.end() == [34, 34], job.texts()
