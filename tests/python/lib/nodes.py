"""Nodes of one job: `pawl run --nnodes` on hosts that are namespaces of network, processes, mounts.

A host here can be lost as a machine is: all its processes end at once, without notice.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import netns
import nursery
import program

TOKEN = "a token of more than sixteen bytes"
PORT = 29555


class Node:
    """A `pawl run`, and its output."""

    def __init__(self, job: Nodes, host: int, options: Sequence[str], env: dict[str, str]) -> None:
        self.log = job.folder / f"node{len(job.nodes)}.log"
        self.sockets = tempfile.mkdtemp(prefix="pawl-node-", dir="/tmp")
        command = [program.find(), "run", "--python", sys.executable, *options]
        with self.log.open("w") as log:
            self.process = nursery.Popen(
                [*command, str(job.script), *job.args],
                env=program.clean_env(
                    XDG_RUNTIME_DIR=self.sockets, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1",
                    **{"PAWL_TOKEN": TOKEN, **env},
                ),
                cwd=job.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, world=nursery.World(job.hosts[host], True, job.prepare),
            )  # fmt: skip

    def text(self) -> str:
        return self.log.read_text()

    def hear(self, pattern: str, limit_s: float = program.LIMIT_S) -> None:
        """Waits until the output matches pattern."""
        program.wait_until(
            lambda: re.search(pattern, self.text()) or self.process.poll() is not None,
            pattern,
            limit_s,
        )
        assert re.search(pattern, self.text()), f"{pattern}: not in\n{self.text()}"

    def said(self) -> list[str]:
        """Returns the lines that the ranks printed after "> "."""
        return re.findall(r"^\[rank\d+\] > (.*)$", self.text(), re.M)

    def supervisor(self) -> int:
        """Returns the process id of `pawl run`, the child of unshare, as seen outside of the
        namespace."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def signal(self, number: int) -> None:
        os.kill(self.supervisor(), number)

    def lose(self) -> None:
        """Ends all processes of the host at once."""
        self.process.kill()
        self.process.wait(timeout=program.LIMIT_S)

    def end(self) -> int:
        try:
            return self.process.wait(timeout=program.LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end\n{self.text()}") from None


class Nodes:
    """A job whose nodes are started one by one."""

    def __init__(self, folder: Path, hosts: list[str], script: Path, *args: str) -> None:
        self.folder, self.hosts, self.script, self.args = folder, hosts, script, args
        self.prepare = ""
        self.nodes: list[Node] = []

    def start(self, host: int, *options: str, nnodes: int = 2, **env: str) -> Node:
        if "--rendezvous" not in options and nnodes:
            options = ("--rendezvous", f"{netns.address(0)}:{PORT}", *options)
        if nnodes:
            options = ("--nnodes", str(nnodes), *options)
        self.nodes.append(Node(self, host, options, env))
        return self.nodes[-1]

    def end(self) -> list[int]:
        return [node.end() for node in self.nodes]

    def texts(self) -> str:
        return "\n".join(f"{node.log.name}:\n{node.text()}" for node in self.nodes)

    def close(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.process.pid, signal.SIGKILL)
            node.process.wait()
            shutil.rmtree(node.sockets, ignore_errors=True)


@contextlib.contextmanager
def job(folder: Path, hosts: int, script: Path, *args: str) -> Iterator[Nodes]:
    with netns.hosts(hosts) as names:
        made = Nodes(folder, names, script, *args)
        try:
            yield made
        finally:
            made.close()
