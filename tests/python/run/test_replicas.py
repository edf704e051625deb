"""Replicas in other hosts' memory: what survives the loss of a host, and what does not."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
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


@contextlib.contextmanager
def bucket(folder: Path, job: nodes.Nodes) -> Iterator[buckets.Server]:
    """A server at the job's last host."""
    folder.mkdir()
    with buckets.seaweedfs(folder, 40, netns.address(len(job.hosts) - 1), within(job)) as server:
        yield server


def within(job: nodes.Nodes) -> tuple[str, ...]:
    """Runs a command at the job's last host."""
    return ("ip", "netns", "exec", job.hosts[-1])


def options(hosts: int = 2) -> tuple[str, ...]:
    where = ",".join(f"{netns.address(i)}:{nodes.PORT}" for i in range(hosts))
    return ("-n", "2", "--rendezvous", where)


def ckpt(job: nodes.Nodes, server: buckets.Server, *args: str) -> str:
    """Runs `pawl ckpt` at the job's last host."""
    command = [*within(job), program.find(), "ckpt", *args]
    env = program.clean_env(**server.env)
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


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
@pytest.mark.parametrize("lost", [False, True])
def test_saves_go_on_while_the_bucket_does_not_answer(tmp_path: Path, lost: bool) -> None:
    """None is skipped, each is replicated. The newest becomes durable once the bucket answers, or
    is what all go on from if a host is lost meanwhile."""
    more, go, root = 20, tmp_path / "go", "s3://pawltest/run"
    held = HOLD + more
    last = held + 2
    env = {"MORE": str(more), "PERSIST_EVERY": "0"}
    with (
        nodes.job(tmp_path, 4, TRAIN, root, str(last), str(HOLD), str(go)) as job,
        bucket(tmp_path / "weed", job) as server,
    ):
        for i in (0, 1):
            job.start(i, *options(), "--node-rank", str(i), **server.env, **env)
        for node in job.nodes:
            node.hear(rf"at {HOLD} durable True None")
        with server.stopped():
            go.touch()
            for node in job.nodes:
                node.hear(rf"at {held} replicated True None", 120)
            if lost:
                job.nodes[1].lose()
                job.nodes[0].hear("is lost: ")
                job.start(2, *options(), **server.env, **env).hear(rf"from {held}\b")
        if not lost:
            program.wait_until(
                lambda: f" global_step{held}\n" in ckpt(job, server, "ls", root), "durable"
            )
        (tmp_path / "go.2").touch()
        for node in [job.nodes[0], job.nodes[-1]]:
            assert node.end() == 0, job.texts()
        for node in job.nodes[:2]:
            done = [line for line in node.said() if " replicated True None" in line]
            assert len(done) == 2 * more, job.texts()
        assert f" global_step{last}\n" in ckpt(job, server, "ls", root)
        ckpt(job, server, "verify", root, "--all")
        assert "not saved" not in job.texts() and "skipped" not in job.texts(), job.texts()


@contextlib.contextmanager
def without_gates(folder: Path, **env: str) -> Iterator[nodes.Nodes]:
    """A job of two hosts that saves STEPS times to a directory, and makes nothing durable unless
    asked to."""
    (folder / "go").touch()
    (folder / "go.2").touch()
    args = (str(folder / "root"), str(STEPS), "0", str(folder / "go"))
    with nodes.job(folder, 2, TRAIN, *args) as job:
        for i in (0, 1):
            rank = ("--node-rank", str(i))
            job.start(i, *options(), *rank, MORE="0", PERSIST_EVERY="3600", **env)
        yield job


@pytest.mark.slow
def test_any_host_can_wait_until_a_save_is_durable(tmp_path: Path) -> None:
    """Rank 0's host, which chooses what becomes durable, has no rank that waits."""
    with without_gates(tmp_path, WAITS="2") as job:
        assert job.end() == [0, 0], job.texts()
        waited = [line for line in job.nodes[1].said() if " at " in line]
        assert waited == [f"2 at {s} durable True None" for s in range(1, STEPS + 1)], job.texts()
        assert (tmp_path / f"root/global_step{STEPS}").exists()


@pytest.mark.slow
@pytest.mark.parametrize("extra", [0, 1])
def test_hosts_that_end_at_different_saves_keep_the_last_that_is_whole(
    tmp_path: Path, extra: int
) -> None:
    with without_gates(tmp_path, WAITS="9", EXTRA=str(extra)) as job:
        assert job.end() == [0, 0], job.texts()
        assert (tmp_path / f"root/global_step{STEPS}").exists(), job.texts()
        assert not (tmp_path / f"root/global_step{STEPS + 1}").exists()


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [0, 1])
def test_a_restore_in_the_middle_takes_what_is_in_memory(tmp_path: Path, replicas: int) -> None:
    with without_gates(tmp_path, WAITS="9", AGAIN="5", REPLICAS=str(replicas)) as job:
        assert job.end() == [0, 0], job.texts()
        again = [line for node in job.nodes for line in node.said() if " again " in line]
        assert sorted(again) == [f"{rank} again from 5" for rank in range(4)]
        assert (tmp_path / f"root/global_step{STEPS}").exists()


@pytest.mark.slow
def test_saves_that_are_streamed_become_durable_on_all_hosts(tmp_path: Path) -> None:
    with without_gates(tmp_path, WAITS="9", MEMORY="1000000") as job:
        assert job.end() == [0, 0], job.texts()
        assert (tmp_path / f"root/global_step{STEPS}").exists()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_sums_replace_lost_hosts(tmp_path: Path, lost: int) -> None:
    """Each group keeps as many sums as hosts may be lost at once: the parts of those that are lost
    are computed from the others'."""
    go = tmp_path / "go"
    args = ("s3://pawltest/run", str(STEPS), str(HOLD), str(go))
    where = f"{netns.address(0)}:{nodes.PORT}"
    hosts = 3 + lost
    env = {"PARITY": "1", "REPLICAS": str(lost)}
    place = ("-n", "1", "--rendezvous", where)
    with (
        nodes.job(tmp_path, hosts + lost + 1, TRAIN, *args) as job,
        bucket(tmp_path / "weed", job) as server,
    ):
        for i in range(hosts):
            job.start(i, *place, "--node-rank", str(i), nnodes=hosts, **env, **server.env)
        for node in job.nodes:
            node.hear(rf"at {HOLD} durable True None")
        with server.stopped():
            go.touch()
            for node in job.nodes:
                node.hear(rf"at {HOLD + 2} replicated True None")
            for node in job.nodes[1 : 1 + lost]:
                node.lose()
            job.nodes[0].hear("is lost: ")
            more = range(hosts, hosts + lost)
            late = [job.start(i, *place, nnodes=hosts, **env, **server.env) for i in more]
            for node in late:
                node.hear(rf"from {HOLD + 2}\b")
        (tmp_path / "go.2").touch()
        for node in [*late, job.nodes[0], *job.nodes[1 + lost : hosts]]:
            assert node.end() == 0, job.texts()
        for node in late:
            assert begun(node) == {HOLD + 2}, job.texts()
        assert "has no effect" not in job.texts(), job.texts()


@pytest.mark.slow
def test_hosts_that_ask_for_different_replicas_are_named(tmp_path: Path) -> None:
    """Nothing is replicated then; training and what is durable do not notice."""
    (tmp_path / "go").touch()
    (tmp_path / "go.2").touch()
    args = (str(tmp_path / "root"), str(STEPS), "0", str(tmp_path / "go"))
    with nodes.job(tmp_path, 2, TRAIN, *args) as job:
        for i in (0, 1):
            env = {"MORE": "0", "PERSIST_EVERY": "0", "REPLICAS": str(i + 1)}
            job.start(i, *options(), "--node-rank", str(i), **env)
        assert job.end() == [0, 0], job.texts()
        why = "rank 0 has replicas=1, parity=False, and rank 2 has replicas=2, parity=False"
        assert why in job.texts(), job.texts()
        assert (tmp_path / f"root/global_step{STEPS}").exists()
