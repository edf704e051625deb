"""A real Slurm of the tests' own, without systemd or cgroups: tests/lib/slurm.sh.

Its nodes are daemons on this host, or each in a namespace of netns.py; then the controller and the
commands run on the first.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import netns
import program

_SCRIPT = Path(__file__).parents[2] / "lib/slurm.sh"
_SKIPPED = 77
_CALL_S = 60
# Commands that may be repeated: they change nothing, or nothing the second time.
_AGAIN = (("squeue",), ("sinfo",), ("scancel",), ("scontrol", "show"), ("scontrol", "update"))


class Slurm:
    """A Slurm with nodes n1, n2, ..."""

    def __init__(
        self, folder: Path, process: subprocess.Popen[str], hosts: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._process = process
        self._hosts = hosts

    def inside(self, node: int, *command: str | Path) -> list[str]:
        """Returns a command line that runs another one on a node that is a namespace."""
        enter = ["nsenter", f"--net=/run/netns/{self._hosts[node]}", "unshare", "-u", "sh", "-c"]
        return [*enter, f'hostname n{node + 1} && exec "$@"', "sh", *map(str, command)]

    def call(self, *command: str | Path) -> str:
        """Runs a command of Slurm's, and returns its output."""
        words = self.inside(0, *command) if self._hosts else [str(word) for word in command]
        for _ in range(3):
            done = subprocess.run(
                words,
                env=program.clean_env(**self.env),
                capture_output=True,
                text=True,
                timeout=_CALL_S,
            )
            # slurmctld may be slow to answer
            if done.returncode == 0 or not {command[:1], command[:2]} & {*_AGAIN}:
                break
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def alive(self) -> bool:
        """Returns whether slurmctld answers, and knows all nodes."""
        done = subprocess.run(
            ["timeout", "5", "sinfo", "--noheader", "--Node", "--format=%T"],
            env=program.clean_env(**self.env),
            capture_output=True,
            text=True,
        )
        return done.returncode == 0 and "unknown" not in done.stdout

    def await_state(self, job: str) -> None:
        """Waits until slurmctld has stored the present state of jobs and nodes: it does so some
        time after a change, and in a file for each."""
        mark = secrets.token_hex(8)
        self.call("scontrol", "update", f"JobId={job}", f"Comment={mark}")
        self.call("scontrol", "update", "NodeName=n1", f"Comment={mark}")
        for file in ("job_state", "node_state"):
            program.wait_until(
                lambda file=file: self._is_stored(file, mark), f"slurmctld stores its {file}"
            )

    def _is_stored(self, file: str, mark: str) -> bool:
        with contextlib.suppress(FileNotFoundError):  # a new file takes its place
            return mark.encode() in (self._folder / "state" / file).read_bytes()
        return False

    def resume(self) -> None:
        """Resumes drained nodes once slurmctld answers: it drains the node of a pilot that it
        starts a second time."""
        program.wait_until(self.alive, "slurmctld answers", 120)
        drained = self.call("sinfo", "--noheader", "--states=drain", "-N", "-o%N")
        for node in set(drained.split()):  # sinfo prints a line for each partition of a node
            self.call("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def kill(self, daemon: str) -> None:
        """Sends SIGKILL to the slurmd of a node, or to slurmctld ("ctld")."""
        self._order(f"kill {daemon}")

    def start(self, daemon: str) -> None:
        """Starts a daemon that was killed."""
        self._order(f"start {daemon}")

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n"


@contextlib.contextmanager
def cluster(folder: Path, nodes: int, hosts: Sequence[str] = (), late: str = "") -> Iterator[Slurm]:
    """Starts a Slurm, and ends it; skips the test where it cannot run.

    hosts: namespaces, one a node. late: a node whose clocks are a day ahead of the others'.
    """
    command = ["bash", str(_SCRIPT), str(folder), str(nodes)]
    command += [f"{host}={netns.address(i)}" for i, host in enumerate(hosts)]
    with subprocess.Popen(
        command,
        env={**os.environ, "LATE": late},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:  # the script ends when its standard input does
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline().strip()
        if said != "ready":
            said += process.stdout.read()
            (pytest.skip if process.wait() == _SKIPPED else pytest.fail)(said)
        yield Slurm(folder, process, hosts)


@contextlib.contextmanager
def own_cluster(nodes: int, late: str = "") -> Iterator[Slurm]:
    """Yields such a Slurm in a folder of its own, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pawl-slurm-", dir="/tmp"))
    try:
        with cluster(folder, nodes, late=late) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def on_hosts(folder: Path, nodes: int) -> Iterator[Slurm]:
    """Yields such a Slurm, with namespaces of its own as nodes."""
    with netns.hosts(nodes) as hosts, cluster(folder, nodes, hosts) as made:
        yield made
