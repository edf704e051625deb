"""Ranks that are forked from a nursery, watched from outside: for test_injections.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import program
from injection_rank import Order

HERE = Path(__file__).parent
LIMIT_S = program.LIMIT_S  # limit of one injection; a rank that is not over by then hangs
GONE_S = 50.0  # by then nothing is left: an agent with nothing to do leaves after 60 s
Said = dict[str, Any]


class Forker:
    """The nursery that forks ranks; see injection_rank.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "injection_rank.py")],
            env=program.clean_env(OMP_NUM_THREADS="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def fork(self, order: Order) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=program.LIMIT_S)


def hear(folder: Path, rank: int) -> list[Said]:
    """Returns all that a rank has reported so far."""
    path = folder / f"rank{rank}"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def find(folder: Path, rank: int, *what: str) -> Said | None:
    """Returns the first report of a rank whose kind is one of these; None: there is none."""
    return next((said for said in hear(folder, rank) if said["said"] in what), None)


def stack_of(pid: int) -> str:
    """Returns the stacks of a process, by gdb; "" if gdb is not installed."""
    if shutil.which("gdb") is None:
        return ""
    command = ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout


def dump_stacks(folder: Path, pids: Sequence[int]) -> str:
    """Returns the stacks of all threads of the ranks that are alive, and all that ranks have
    reported."""
    texts = []
    for pid in filter(program.is_alive, pids):
        os.kill(pid, signal.SIGUSR1)
        for task in Path(f"/proc/{pid}/task").iterdir():
            waits = (task / "wchan").read_text()
            texts.append(f"process {pid}, thread {task.name} waits in {waits}")
        texts.append(stack_of(pid))
    time.sleep(1)  # pace: they write their stacks
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return "\n".join([*texts, *(f"== {path.name}\n{path.read_text()}" for path in files)])


def wait(folder: Path, pids: Sequence[int], true: Callable[[], object], what: str) -> None:
    """Waits until true() holds; fails with the stacks of all ranks if it does not in time."""
    try:
        program.wait_until(true, what, LIMIT_S)
    except program.Late as late:
        raise program.Late(f"{late}\n{dump_stacks(folder, pids)}") from None


def processes_of(job: str) -> list[int]:
    """Returns the processes of a job, whoever started them: ranks, and the agents that they
    started."""
    found = []
    mark = f"PAWL_JOB_ID={job}\0".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return [pid for pid in found if program.is_alive(pid)]


def listening(network: str = "") -> set[str]:
    """Returns the ports that somebody listens to."""
    enter = ["ip", "netns", "exec", network] if network else []
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        text = subprocess.run([*enter, "cat", table], capture_output=True, text=True).stdout
        found |= set(re.findall(r"^ *\d+: (\S+) \S+ 0A", text, re.MULTILINE))
    return found


def check_nothing_left(job: str, pids: Sequence[int], ports: Callable[[], set[str]]) -> None:
    """Checks that no process, port or file in /dev/shm is left; memory without a name goes with the
    processes."""
    what: dict[str, Any] = {}

    def gone() -> bool:
        alive = [pid for pid in pids if program.is_alive(pid)]
        files = [name for name in program.shared_memory() if job in name]
        what.update(ranks=alive, job=processes_of(job), ports=ports(), shm=files)
        return not any(what.values())

    try:
        program.wait_until(gone, "nothing is left", GONE_S)
    except program.Late as late:
        raise program.Late(f"{late}: {what}") from None
