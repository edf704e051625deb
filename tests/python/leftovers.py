"""Processes that tests have started and left running.

An agent is none: it stays a minute when its ranks are gone (docs/limits.md), so that others can go
on. It is told to end, and has to.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import program

LIMIT_S = 10.0
AGENT = re.compile(r"\S*\bpawl agent ")
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    pid: int
    began: float  # by CLOCK_BOOTTIME, seconds
    command: str


def read_process(pid: int) -> Process | None:
    """None: it is a zombie, or gone."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    command = words.replace(b"\0", b" ").decode(errors="replace")
    return None if state == "Z" else Process(pid, int(fields[18]) / TICKS, command)


def become_subreaper() -> None:
    """From now on processes become this one's children when their parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_children(pid: int) -> list[int]:
    """Of all threads of a process; none if it is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def list_descendants(pid: int, besides: Container[int]) -> list[Process]:
    """All processes that come from this one, without those of `besides` and what comes from them.
    Needs a subreaper as the ancestor: children of processes that have ended become its own."""
    found = []
    for child in list_children(pid):
        if child not in besides:
            process = read_process(child)
            found += [process] if process is not None else []
            found += list_descendants(child, besides)
    return found


def send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


class Leftovers:
    """Knows when each test of a module began, so that a process can be laid at a test's door."""

    def __init__(self) -> None:
        self._began: list[tuple[float, str]] = []

    def begin(self, test: str) -> None:
        self._began.append((time.clock_gettime(time.CLOCK_BOOTTIME), test))

    def _tests_of(self, process: Process) -> str:
        """The test that it began in; more than one if they lie within a tick."""
        tests = [test for began, test in self._began if began < process.began + 1 / TICKS]
        later = sum(began > process.began for began, _ in self._began[: len(tests)])
        return " or ".join(tests[-1 - later :]) or "an earlier test"

    def end_module(self, besides: Container[int]) -> str:
        """Waits for all that the tests since the last call have started, and kills what does not
        end. Returns what that was, a line each.

        besides: processes that stay.
        """

        def left() -> list[Process]:
            return list_descendants(os.getpid(), besides)

        for process in left():
            if AGENT.match(process.command):
                send(process, signal.SIGTERM)
        with contextlib.suppress(program.Late):
            program.wait_until(lambda: not left(), "processes of tests have ended", LIMIT_S)
        said = []
        while found := left():
            for process in found:
                test = self._tests_of(process)
                said.append(f"{test} left process {process.pid}: {process.command}")
                send(process, signal.SIGKILL)
            with contextlib.suppress(program.Late):
                program.wait_until(lambda: not set(left()) & set(found), "they are gone", LIMIT_S)
        self._began.clear()
        return "\n".join(dict.fromkeys(said))
