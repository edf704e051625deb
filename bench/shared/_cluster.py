"""A real `pawl sched` in a directory of its own, and what its commands say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pawl
from pawl import _agent

PYTHON_DIR = Path(pawl.__file__).parent.parent  # where pawl is importable from
WAIT_S = 60.0
OVER = ("done", "failed", "cancelled")


def find_program() -> str:
    program = _agent.find_program()
    if program is None:
        sys.exit("the pawl program is not there: `make setup` installs it")
    return program


def wait_for(what: Callable[[], object], name: str, limit_s: float, pause_s: float = 0.01) -> None:
    """Waits until what() is true; ends the benchmark if it is not within limit_s."""
    end = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > end:
            sys.exit(f"no {name} within {limit_s:.0f} s")
        time.sleep(pause_s)


class Cluster:
    """A scheduler; its commands run in ``root``'s parent, with this interpreter's pawl."""

    def __init__(self, root: Path, options: Sequence[str]) -> None:
        self.root = root
        self._program = find_program()
        path = os.environ.get("PYTHONPATH")
        self._env = os.environ | {
            "PYTHONPATH": f"{PYTHON_DIR}{os.pathsep}{path}" if path else str(PYTHON_DIR),
            "PAWL_PROGRAM": self._program,
        }
        self.said = root.with_name("said")
        with self.said.open("w") as said:
            self._daemon = subprocess.Popen(
                [self._program, "sched", "--root", str(root), *options],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stderr=said,
            )
        wait_for(self._answers, "scheduler that answers", WAIT_S)

    def _answers(self) -> bool:
        if self._daemon.poll() is not None:
            sys.exit(f"pawl sched ended: {self.said.read_text()}")
        return self.run("ls", check=False).returncode == 0

    def run(self, name: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self._program, name, "--root", str(self.root), *args],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.root.parent,
            timeout=WAIT_S,
        )
        if check and done.returncode != 0:
            sys.exit(f"pawl {name} {' '.join(args)}: {done.stderr}")
        return done

    def ask(self, name: str, *args: str) -> Any:
        """The JSON answer of a command."""
        return json.loads(self.run(name, "--json", *args).stdout)

    def submit(self, *words: str | Path, options: Sequence[str] = ()) -> int:
        return int(self.ask("submit", *options, "--", *map(str, words))["id"])

    def close(self) -> None:
        """Ends the scheduler, and the jobs, which would otherwise go on without it."""
        self._daemon.send_signal(signal.SIGTERM)
        self._daemon.wait(WAIT_S)
        wait_for(self._kill_all, "end of jobs", WAIT_S)

    def _kill_all(self) -> bool:
        """Kills all processes of the scheduler's runs; returns whether none is left."""
        mark = f"PAWL_SCHED_RUN={self.root}/runs/".encode()
        left = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(v.startswith(mark) for v in (entry / "environ").read_bytes().split(b"\0")):
                    os.kill(int(entry.name), signal.SIGKILL)
                    left += 1
        return left == 0


@contextlib.contextmanager
def cluster(*options: str) -> Iterator[Cluster]:
    """A scheduler in a directory whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="pawl-", dir="/tmp"))
    made = Cluster(folder / "s", options)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
