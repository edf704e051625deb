"""Replicas in other hosts' memory, attacked: hosts and ranks that end at any moment, networks that
fall silent, memory that changes. The ranks are replicas_paced.py's."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

import buckets
import netns
import nodes
import program
import replicas_paced
import waits

pytestmark = pytest.mark.slow

TRAIN = Path(__file__).parent / "replicas_paced.py"
STEPS = 100_000  # more than any test waits for


class Saving(NamedTuple):
    """A job, and the server of its bucket, if it has one."""

    job: nodes.Nodes
    server: buckets.Server | None

    @property
    def env(self) -> dict[str, str]:
        return self.server.env if self.server else {}

    def mute(self) -> AbstractContextManager[None]:
        """The bucket answers nobody meanwhile."""
        return self.server.stopped() if self.server else contextlib.nullcontext()


@pytest.fixture
def limit(tmp_path: Path) -> Path:
    """The file that says how far ranks may go."""
    return tmp_path / "limit"


def let(limit: Path, step: int) -> None:
    part = limit.with_suffix(".part")
    part.write_text(str(step))
    part.rename(limit)


def said(job: nodes.Nodes, word: str) -> list[int]:
    """The steps that ranks named after a word."""
    lines = [line.split() for node in job.nodes for line in node.said()]
    return [int(words[2]) for words in lines if words[1] == word]


def begun(node: nodes.Node) -> list[int]:
    """The steps from which the ranks of a node began, in order."""
    return [int(line.split()[2]) for line in node.said() if " from " in line]


def where(hosts: int) -> tuple[str, ...]:
    return ("--rendezvous", ",".join(f"{netns.address(i)}:{nodes.PORT}" for i in range(hosts)))


@contextlib.contextmanager
def saving(
    limit: Path, hosts: int, steps: int, root: str = "", script: Path = TRAIN
) -> Iterator[Saving]:
    """A job that saves to a directory or, with "", to SeaweedFS on its last host."""
    args = (root or "s3://pawltest/run", str(steps), "0.1", str(limit))
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(nodes.job(limit.parent, hosts, script, *args))
        if root:
            yield Saving(job, None)
            return
        (limit.parent / "weed").mkdir()
        at = ("ip", "netns", "exec", job.hosts[-1])
        weed = buckets.seaweedfs(limit.parent / "weed", 40, netns.address(hosts - 1), at)
        yield Saving(job, stack.enter_context(weed))


def family(pid: int) -> list[int]:
    """The processes below one, all of them."""
    text = ""
    for task in Path(f"/proc/{pid}/task").iterdir():
        text += (task / "children").read_text()
    return [each for child in map(int, text.split()) for each in (child, *family(child))]


def ranks(node: nodes.Node) -> list[int]:
    """The processes that have a rank in the newest start. What they say is their number in the
    namespace of their host."""
    last = {line.split()[0]: line.split()[2] for line in node.said() if " is " in line}
    return [
        pid
        for pid in family(node.process.pid)
        if Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1]
        in last.values()
    ]


def await_start(
    live: list[nodes.Node], before: dict[nodes.Node, int], job: nodes.Nodes, each: int = 2
) -> int:
    """Waits until all ranks, so many on each node, have begun (anew). Returns the step from
    which."""

    def all_begin() -> bool:
        ends = any(node.process.poll() is not None for node in live)
        return ends or all(len(begun(node)) >= before.get(node, 0) + each for node in live)

    try:
        program.wait_until(all_begin, "all ranks begin", 50)
    except program.Late as late:
        raise program.Late(f"{late}\n{job.texts()}") from None
    steps = {step for node in live for step in begun(node)[before.get(node, 0) :]}
    assert len(steps) == 1 and "Error" not in job.texts(), job.texts()
    return steps.pop()


@pytest.mark.parametrize("root", ["directory", "bucket"])
def test_random_ends_lose_nothing_that_was_replicated(
    tmp_path: Path, limit: Path, root: str
) -> None:
    """At random moments a rank is killed, or a host is lost and an empty one takes its place. All
    begin from what was replicated by then, or from a newer step, and with its numbers."""
    seed = int(os.environ.get("PAWL_TEST_SEED", "0")) or random.randrange(1, 1 << 31)
    chance = random.Random(seed)
    print(f"PAWL_TEST_SEED={seed}")
    path = "" if root == "bucket" else str(tmp_path / "root")
    with saving(limit, 7, STEPS, path) as saver:
        job, env = saver.job, saver.env
        options = ("-n", "2", *where(6))
        live = [job.start(i, *options, "--node-rank", str(i), nnodes=3, **env) for i in range(3)]
        assert await_start(live, {}, job) == 0
        for ends in range(3):
            victim = chance.choice(live)
            # The next host of rank 0 asks the bucket who owns it.
            leads = any(line.startswith("0 ") for line in victim.said())
            with saver.mute() if ends and not leads else contextlib.nullcontext():
                waits.any_moment(chance, 0.3, 4)
                safe = max(said(job, "safe"), default=0)
                before = {node: len(begun(node)) for node in live}
                if ends == 0 or chance.random() < 0.6:
                    live.remove(victim)
                    victim.lose()
                    live.append(job.start(3 + ends, *options, nnodes=3, **env))
                else:
                    os.kill(chance.choice(ranks(victim)), signal.SIGKILL)
                step = await_start(live, before, job)
                assert step >= safe, f"{step} < {safe}\n{job.texts()}"


def test_the_history_does_not_delay_a_restore(tmp_path: Path, limit: Path) -> None:
    """The bucket does not answer; one save behind the replicated one is in the memory of its own
    hosts alone. A host is lost: all go on from the replicated one, soon, though the rows of the
    history cannot be written."""
    let(limit, 2)
    with saving(limit, 4, 6) as saver:
        job = saver.job
        options = ("-n", "1", *where(2))
        env = {"OWN": "1000000", **saver.env}
        for i in (0, 1):
            job.start(i, *options, "--node-rank", str(i), **env)
        for node in job.nodes:
            node.hear(r"stored 2\b")
        with saver.mute():
            let(limit, 3)
            for node in job.nodes:
                node.hear(r"safe 3\b")
            for i in (0, 1):
                netns.shape(job.hosts, i, "1mbit")
            let(limit, 4)
            for node in job.nodes:
                node.hear(r"at 4\b")
            waits.moment(1)
            job.nodes[1].lose()
            job.nodes[0].hear("is lost: ")
            for i in (0, 1):
                netns.shape(job.hosts, i, "1gbit")
            late = job.start(2, *options, **env)
            late.hear(r"from 3\b", 20)
        limit.unlink()
        assert late.end() == 0, job.texts()
        assert job.nodes[0].end() == 0, job.texts()
        assert begun(job.nodes[0]) == [0, 3], job.texts()


def flip(pid: int, needle: bytes) -> int:
    """Flips a bit of a process wherever its own memory has these bytes. Returns how often."""
    flips = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split()
        if len(words) > 5 or not words[1].startswith("rw"):
            continue
        start, end = (int(part, 16) for part in words[0].split("-"))
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            at = (memory.read(end - start) or b"").find(needle)
            if at >= 0:
                memory.seek(start + at)
                memory.write(bytes([needle[0] ^ 4]))
                flips += 1
    return flips


def flip_replica(node: nodes.Node, step: int, rank: int) -> int:
    """Flips a bit of what a node's agent holds of a rank of another node."""
    mine = replicas_paced.numbers(1000 * step + rank, replicas_paced.OWN)
    needle = mine.numpy().tobytes()[4000:4064]
    flips = 0
    for pid in family(node.process.pid):
        if os.readlink(f"/proc/{pid}/exe").endswith("/pawl"):
            flips += flip(pid, needle)
    return flips


def test_a_flipped_bit_in_a_replica_is_found(tmp_path: Path, limit: Path) -> None:
    """A replica of the newest step was damaged in memory: all restore what was saved, at an older
    step, and the log names the damage."""
    let(limit, 3)
    with saving(limit, 4, 6) as saver:
        job = saver.job
        options = ("-n", "1", *where(2))
        for i in (0, 1):
            job.start(i, *options, "--node-rank", str(i), **saver.env)
        for node in job.nodes:
            node.hear(r"stored 3\b")
        with saver.mute():
            let(limit, 4)
            for node in job.nodes:
                node.hear(r"safe 4\b")
            assert flip_replica(job.nodes[0], 4, 1) > 0
            job.nodes[1].lose()
            job.nodes[0].hear("is lost: ")
        limit.unlink()
        late = job.start(2, *options, **saver.env)
        assert late.end() == 0, job.texts()
        assert job.nodes[0].end() == 0, job.texts()
        assert begun(late) == [3], job.texts()
        assert re.search(r"step 4, .*not what was staged", job.texts()), job.texts()


@pytest.mark.parametrize("back", [True, False])
def test_a_network_that_falls_silent_hangs_nobody(tmp_path: Path, limit: Path, back: bool) -> None:
    """In the middle of replication, nothing comes through between two hosts. If it comes back soon,
    training goes on, and replicates; else the host is lost, and all begin from what was safe."""
    let(limit, 2)
    with saving(limit, 4, STEPS, str(tmp_path / "root")) as saver:
        job = saver.job
        options = ("-n", "1", *where(2))
        env = {"OWN": "4000000"}
        for i in (0, 1):
            job.start(i, *options, "--node-rank", str(i), **env)
        for node in job.nodes:
            node.hear(r"safe 2\b")
        netns.shape(job.hosts, 1, "40mbit")
        let(limit, 3)
        for node in job.nodes:
            node.hear(r"at 3\b")
        waits.moment(0.3)
        netns.silence(job.hosts[1])
        if back:
            waits.moment(2)
            netns.hear(job.hosts[1])
            let(limit, 5)
            for node in job.nodes:
                node.hear(r"safe 5\b", 40)
            assert begun(job.nodes[0]) == [0], job.texts()
            return
        job.nodes[0].hear("is lost: ", 30)
        netns.shape(job.hosts, 0, "1gbit")
        late = job.start(2, *options, **env)
        late.hear(r"from [23]\b", 30)


def test_without_replicas_own_memory_serves_dead_ranks_alone(tmp_path: Path, limit: Path) -> None:
    """replicas=0. A rank dies: all restore from their hosts' memory. A host is lost: all restore
    from the store."""
    let(limit, 2)
    with saving(limit, 4, 6) as saver:
        job = saver.job
        options = ("-n", "1", *where(2))
        env = {"REPLICAS": "0", **saver.env}
        for i in (0, 1):
            job.start(i, *options, "--node-rank", str(i), **env)
        for node in job.nodes:
            node.hear(r"stored 2\b")
        with saver.mute():
            let(limit, 3)
            for node in job.nodes:
                node.hear(r"at 3\b")
            waits.moment(1)
            os.kill(ranks(job.nodes[1])[0], signal.SIGKILL)
            for node in job.nodes:
                node.hear(r"from 3\b", 30)
            job.nodes[1].lose()
            job.nodes[0].hear("is lost: ")
        late = job.start(2, *options, **env)
        late.hear(r"from [23]\b")
        limit.unlink()
        assert late.end() == 0, job.texts()
        assert begun(late) == [2], job.texts()


def test_too_little_memory_is_told_once(tmp_path: Path, limit: Path) -> None:
    """Replicas do not fit: training does not notice, and users are told once."""
    let(limit, 4)
    with saving(limit, 2, 6, str(tmp_path / "root")) as saver:
        job = saver.job
        options = ("-n", "1", *where(2))
        env = {"PAWL_FAULT": "held.create:1:28:1"}
        for i in (0, 1):
            job.start(i, *options, "--node-rank", str(i), **env)
        for node in job.nodes:
            node.hear(r"stored 4\b")
        limit.unlink()
        assert job.end() == [0, 0], job.texts()
        assert job.texts().count("not replicated to other hosts") in (1, 2), job.texts()
