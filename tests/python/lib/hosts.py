"""Jobs whose ranks span hosts, for test_hosts.py and test_nfs.py.

A host here is a process group of its own with an agent of its own. Real hosts share nothing but a
directory; neither do these, whose agents have their sockets in different places.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nursery
import program

SCRIPT = Path(__file__).with_name("hosts_rank.py")


class Host:
    """The ranks of one host, and its agent."""

    def __init__(self, job: Job, node: int, first: int, ranks: int, **env: str) -> None:
        self.job, self.node, self.env = job, node, env
        self.sockets = job.sockets / f"{node}"
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        self.ranks = [self._start(first + local, local, ranks) for local in range(ranks)]

    def _start(self, rank: int, local: int, ranks: int) -> subprocess.Popen[str]:
        env = program.clean_env(
            RANK=str(rank), WORLD_SIZE=str(self.job.world), LOCAL_RANK=str(local),
            LOCAL_WORLD_SIZE=str(ranks), GROUP_RANK=str(self.node),
            GROUP_WORLD_SIZE=str(self.job.nodes), PAWL_JOB_ID=self.job.name,
            XDG_RUNTIME_DIR=str(self.sockets), PAWL_HOSTS_TIMEOUT=str(self.job.timeout_s),
            OMP_NUM_THREADS="1", **self.env,
        )  # fmt: skip
        with (self.job.folder / f"rank{rank}.log").open("a") as log:
            return nursery.Popen(
                [sys.executable, str(SCRIPT)],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def agent(self) -> int:
        """Returns the agent's process id."""
        (lock,) = (self.sockets / "pawl").glob("*.lock")
        return int(lock.read_text())

    def kill_agent(self) -> None:
        pid = self.agent()
        os.kill(pid, signal.SIGKILL)
        program.wait_until(lambda: not program.is_alive(pid), "the agent's end")

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        for lock in (self.sockets / "pawl").glob("*.lock"):
            pid = int(lock.read_text() or 0)
            if pid and program.is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def ask(ranks: Sequence[subprocess.Popen[str]], command: str) -> None:
    for rank in ranks:
        assert rank.stdin
        rank.stdin.write(command + "\n")
        rank.stdin.flush()


def hear(ranks: Sequence[subprocess.Popen[str]]) -> list[str]:
    answers = []
    for rank in ranks:
        assert rank.stdout
        answers.append(rank.stdout.readline().strip())
    return answers


def tell(ranks: Sequence[subprocess.Popen[str]], command: str) -> list[str]:
    """Sends a command to all ranks before it reads the first answer. Returns the answers."""
    ask(ranks, command)
    return hear(ranks)


class Job:
    """A job on some hosts, and the directory that they share."""

    def __init__(self, folder: Path, name: str = "spans", timeout_s: int = 30) -> None:
        self.folder, self.name, self.timeout_s = folder, name, timeout_s
        self.sockets = Path(
            tempfile.mkdtemp(prefix="pawl-hosts-", dir="/tmp")
        )  # short, as sockets require
        self.root = folder / "shared"
        self.world = self.nodes = 0
        self.hosts: list[Host] = []

    def start(self, *sizes: int, late: int = 0) -> Job:
        """Starts hosts with that many ranks each; the last `late` hosts do not start yet."""
        self.end()
        self.world, self.nodes = sum(sizes), len(sizes)
        self.sizes, self.firsts = sizes, [sum(sizes[:i]) for i in range(len(sizes))]
        for node in range(len(sizes) - late):
            self.come(node)
        return self

    def come(self, node: int, **env: str) -> Host:
        """Starts a host, for the first time or again."""
        host = Host(self, node, self.firsts[node], self.sizes[node], **env)
        self.hosts = [h for h in self.hosts if h.node != node] + [host]
        assert hear(host.ranks) == ["ready"] * len(host.ranks)
        return host

    @property
    def ranks(self) -> list[subprocess.Popen[str]]:
        return [rank for host in sorted(self.hosts, key=lambda h: h.node) for rank in host.ranks]

    def tell(self, command: str) -> list[str]:
        return tell(self.ranks, command)

    def all(self, command: str, answer: str) -> None:
        said = self.tell(command)
        assert said == [answer] * len(self.ranks), f"{said}\n{self.logs()}"

    def open(self) -> None:
        self.all(f"open {self.root}", "open")

    def open_at(self, roots: Sequence[Path]) -> None:
        """Opens the root with another path on each host."""
        for host in self.hosts:
            ask(host.ranks, f"open {roots[host.node]}")
        assert hear(self.ranks) == ["open"] * len(self.ranks), self.logs()

    def save(self, step: int) -> None:
        self.all(f"save {step}", "saving")
        self.all("wait", "durable")

    def logs(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self.folder.glob("*.log")))

    def end(self) -> None:
        for host in self.hosts:
            host.end()
        self.hosts = []


def await_finished(root: Path) -> None:
    """Waits until nothing in root is unfinished; tags beyond the limit are deleted in the
    background."""
    program.wait_until(lambda: not list(root.glob(".pawl.*")), f"nothing unfinished in {root}")


def is_whole(root: Path) -> None:
    """Checks that every directory with a tag's name is a tag, with every byte right."""
    listed = program.run("ckpt", "verify", root)
    assert listed.returncode == 0, listed.stdout + listed.stderr
