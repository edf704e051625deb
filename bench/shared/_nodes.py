"""Jobs of `pawl run` on hosts that are namespaces, as the tests start them, and a bucket beside."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shared._bucket_server import VOLUMES, StandIn, no_seaweedfs, stand_in
from shared._process import ROOT, load

RANK = ROOT / "bench/programs/_replicate.py"
RAW = ROOT / "bench/programs/_raw_tcp.py"
LIMIT_S = 300.0
BEAT = {"PAWL_HEARTBEAT": "0.5"}  # the default; the tests allow more
Said = dict[str, Any]


def why_not(bucket: bool) -> str:
    """Why there can be no hosts, or no SeaweedFS, if bucket; "": there can."""
    netns = load("netns")
    try:
        with netns.hosts(1):
            pass
    except netns.pytest.skip.Exception as why:
        return str(why)
    return no_seaweedfs() if bucket else ""


def following(hosts: int) -> list[int]:
    """The host that each host sends its part to with one replica: place.h has the rule."""
    last = hosts // 2 * 2 - 2  # the first host of the last group
    return [
        i + 1 - 2 * (i % 2) if i < last else last + (i - last + 1) % (hosts - last)
        for i in range(hosts)
    ]


class Ranks:
    """A job of one rank a host, on which turns are taken, and its bucket."""

    def __init__(self, folder: Path, job: Any, server: StandIn, hosts: int) -> None:
        self._folder, self._job, self._server = folder, job, server
        self.hosts = hosts
        self._turns = 0

    @property
    def names(self) -> list[str]:
        return self._job.hosts[: self.hosts]

    def take(self, text: str = "", answers: bool = False) -> list[Said]:
        """Has all ranks take the next turn, in which the bucket does not answer, except in the
        first one, where it tells who owns it; then it does until the save is durable. Returns what
        each rank noted."""
        self._turns += 1
        begin = self._folder / f"{self._turns}.part"
        begin.write_text(text)
        with contextlib.nullcontext() if answers else self._server.stopped():
            begin.rename(self._folder / f"{self._turns}.go")
            found = self._await("")
        self._await("-durable")
        return found

    def _await(self, what: str) -> list[Said]:
        notes = [self._folder / f"{self._turns}.{rank}{what}" for rank in range(self.hosts)]
        end = time.monotonic() + LIMIT_S
        while not all(note.exists() for note in notes):
            ended = any(node.process.poll() is not None for node in self._job.nodes)
            if ended or time.monotonic() > end:
                sys.exit(f"turn {self._turns}{what} does not end:\n{self._job.texts()}")
            time.sleep(0.01)
        return [json.loads(note.read_text()) for note in notes]


@contextlib.contextmanager
def ranks(
    folder: Path, program: Path, hosts: int, mode: str, mib: int, steps: int = 0
) -> Iterator[Ranks]:
    """Starts the ranks. program: the stand-in for a bucket."""
    nodes, netns = load("nodes"), load("netns")
    folder.mkdir()
    args = (mode, f"s3://bucket/{mode}", str(folder), str(mib), str(steps))
    with nodes.job(folder, hosts + 1, RANK, *args) as job:
        at = ("ip", "netns", "exec", job.hosts[hosts])
        with stand_in(program, netns.address(hosts), at) as server:
            for i in range(hosts):
                options = ("-n", "1", "--node-rank", str(i))
                job.start(i, *options, nnodes=hosts, **server.place.env(), **BEAT)
            yield Ranks(folder, job, server, hosts)


class Raw:
    """Connections between the hosts that do nothing but move bytes. command: starts one end;
    without it they are plain TCP."""

    def __init__(
        self,
        names: list[str],
        stack: contextlib.ExitStack,
        command: Sequence[str] = (sys.executable, str(RAW)),
    ) -> None:
        address = load("netns").address
        self._processes = []
        for i, after in enumerate(following(len(names))):
            process = subprocess.Popen(
                ["ip", "netns", "exec", names[i], *command, address(i), address(after)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            self._processes.append(process)
        for process in self._processes:
            if self._read(process) != "ready":
                sys.exit(f"{command} does not begin")

    @staticmethod
    def _read(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def move(self, mib: int) -> list[Said]:
        """Moves so much from each host to its peer, all at once."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{mib << 20}\n")
            process.stdin.flush()
        return [json.loads(self._read(process)) for process in self._processes]


def lose_host(folder: Path, mib: int, level: str) -> tuple[float, float]:
    """Loses a host of two whose newest save has reached a level; with "replicated", the bucket does
    not answer from before that. Returns seconds from the loss until the job knows of it, and until
    the host in its place has made its first step."""
    nodes, buckets, netns = load("nodes"), load("buckets"), load("netns")
    folder.mkdir()
    (folder / "weed").mkdir()
    args = ("lost", f"s3://{buckets.BUCKET}/lost", str(folder), str(mib), level)
    with nodes.job(folder, 4, RANK, *args) as job, contextlib.ExitStack() as stack:
        at = ("ip", "netns", "exec", job.hosts[3])
        server = stack.enter_context(
            buckets.seaweedfs(folder / "weed", VOLUMES, netns.address(3), at)
        )
        env = {**server.env, **BEAT}
        for i in (0, 1):
            job.start(i, "-n", "1", "--node-rank", str(i), **env)
        hear_all(job, job.nodes, "saved 1")
        if level == "replicated":
            stack.enter_context(server.stopped())
        (folder / "go").touch()
        hear_all(job, job.nodes, "saved 2")
        lost_s = time.monotonic()
        netns.silence(job.hosts[1])
        job.nodes[1].lose()
        hear_all(job, job.nodes[:1], "is lost: ")
        known_s = time.monotonic()
        late = job.start(2, "-n", "1", **env)
        hear_all(job, [late], "right (True|False)")
        found = re.search(r"first (\d+) (\S+)", late.text())
        if found is None or found[1] != "2" or "right True" not in late.text():
            sys.exit(f"the state after the loss is wrong:\n{job.texts()}")
        return known_s - lost_s, float(found[2]) - lost_s


def hear_all(job: Any, heard: list[Any], pattern: str) -> None:
    """Waits until each of these nodes has printed it; ends the benchmark if that does not come."""
    for node in heard:
        try:
            node.hear(pattern, LIMIT_S)
        except AssertionError:
            sys.exit(f"no {pattern!r} of {node.log.name}:\n{job.texts()}")
