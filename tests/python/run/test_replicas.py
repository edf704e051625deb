"""Replicas in other hosts' memory: what survives the loss of a host, and what does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import buckets
import netns
import nodes
import program

TRAIN = Path(__file__).parent / "replicas_rank.py"
STEPS, HOLD = 12, 3


def begun(node: nodes.Node) -> set[int]:
    """The steps from which the ranks of a node began, in all starts."""
    return {int(line.split()[-1]) for line in node.said() if " from " in line}


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 0])
def test_a_lost_host_is_replaced_while_the_bucket_does_not_answer(
    tmp_path: Path, lost: int
) -> None:
    """All go on from the newest replicated step, which the bucket never had. Of rank 0's host the
    next one asks the bucket who owns it."""
    go = tmp_path / "go"
    args = ("s3://pawltest/run", str(STEPS), str(HOLD), str(go))
    where = ",".join(f"{netns.address(i)}:{nodes.PORT}" for i in (0, 1))
    options = ("-n", "2", "--rendezvous", where)
    (tmp_path / "weed").mkdir()
    with nodes.job(tmp_path, 4, TRAIN, *args) as job:
        at = ("ip", "netns", "exec", job.hosts[3])
        with buckets.seaweedfs(tmp_path / "weed", 40, netns.address(3), at) as server:
            for i in (0, 1):
                job.start(i, *options, "--node-rank", str(i), **server.env)
            for node in job.nodes:
                node.hear(rf"at {HOLD} durable True None")
            with server.stopped():
                go.touch()
                for node in job.nodes:
                    node.hear(rf"at {HOLD + 2} replicated True None")
                job.nodes[lost].lose()
                job.nodes[1 - lost].hear("is lost: ")
                late = job.start(2, *options, **server.env)
                if lost == 1:
                    late.hear(rf"from {HOLD + 2}\b")
            assert late.end() == 0, job.texts()
            assert job.nodes[1 - lost].end() == 0, job.texts()
            assert begun(late) == {HOLD + 2}, job.texts()
            assert begun(job.nodes[1 - lost]) == {0, HOLD + 2}, job.texts()
            verify = [*at, program.find(), "ckpt", "verify", args[0], "--all"]
            subprocess.run(verify, env=program.clean_env(**server.env), check=True)


@pytest.mark.slow
def test_sums_replace_a_lost_host(tmp_path: Path) -> None:
    """Four hosts keep one sum for each group: a lost host's part is rebuilt from the others."""
    go = tmp_path / "go"
    args = ("s3://pawltest/run", str(STEPS), str(HOLD), str(go))
    where = f"{netns.address(0)}:{nodes.PORT}"
    # Rank 0's host would vote only when its history is written, to a bucket that does not answer.
    env = {"PARITY": "1", **program.times(persist_rows=600)}
    options = ("-n", "1", "--rendezvous", where)
    (tmp_path / "weed").mkdir()
    with nodes.job(tmp_path, 6, TRAIN, *args) as job:
        at = ("ip", "netns", "exec", job.hosts[5])
        with buckets.seaweedfs(tmp_path / "weed", 40, netns.address(5), at) as server:
            for i in range(4):
                job.start(i, *options, "--node-rank", str(i), nnodes=4, **env, **server.env)
            for node in job.nodes:
                node.hear(rf"at {HOLD} durable True None")
            with server.stopped():
                go.touch()
                for node in job.nodes:
                    node.hear(rf"at {HOLD + 2} replicated True None")
                job.nodes[1].lose()
                job.nodes[0].hear("is lost: ")
                late = job.start(4, *options, nnodes=4, **env, **server.env)
                late.hear(rf"from {HOLD + 2}\b")
            for node in (late, job.nodes[0], job.nodes[2], job.nodes[3]):
                assert node.end() == 0, job.texts()
            assert begun(late) == {HOLD + 2}, job.texts()
            assert "has no effect" not in job.texts(), job.texts()
