"""What tests leave behind: processes that run, and what their own process holds for a whole module.

An agent does not count: it stays a minute after its ranks are gone (docs/limits.md), so that others
can go on. It gets SIGTERM, and must end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import program

LIMIT_S = 10.0
AGENT = re.compile(r"\S*\bpawl agent ")
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Process:
    pid: int
    began: float  # seconds, by CLOCK_BOOTTIME
    command: str


def read_process(pid: int) -> Process | None:
    """Reads a process from /proc. Returns None if it is a zombie, or gone."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    command = words.replace(b"\0", b" ").decode(errors="replace")
    return None if state == "Z" else Process(pid, int(fields[18]) / TICKS, command)


def become_subreaper() -> None:
    """Makes processes children of this one from now on when their parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_children(pid: int) -> list[int]:
    """Returns the children of all threads of a process; none if it is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def list_descendants(pid: int, besides: Container[int]) -> list[Process]:
    """Returns the descendants of a process, except those in `besides` and their descendants. The
    process should be a subreaper: children of processes that have ended become its own."""
    found = []
    for child in list_children(pid):
        if child not in besides:
            process = read_process(child)
            found += [process] if process is not None else []
            found += list_descendants(child, besides)
    return found


def held() -> list[str]:
    """Returns what a test has opened in this process and the next module would meet: torch's
    process group, an elastic job, Checkpointers. Closes all of these."""
    found = []
    for module, take in ((DISTRIBUTED, _take_group), (CONTEXT, _take_job), (SAVER, _take_savers)):
        if module in sys.modules:
            found += take(sys.modules[module])
    return found


DISTRIBUTED, CONTEXT, SAVER = "torch.distributed", "pawl.elastic._context", "pawl._ckpt._saver"


def _take_group(dist: ModuleType) -> list[str]:
    if not dist.is_available() or not dist.is_initialized():
        return []
    backend = dist.get_backend()
    dist.destroy_process_group()
    return [f"torch's process group, backend {backend}: destroy_process_group()"]


def _take_job(context: ModuleType) -> list[str]:
    """Closes the elastic job; metrics make a job where there is none."""
    job, context._job = context._job, None
    metrics = sys.modules["pawl.elastic._metrics"]
    made = [name for name, there in (("job", job), ("metrics", metrics._current)) if there]
    metrics._current = None
    if job is not None:
        job.let_go()
    return [f"an elastic job of this process: {' and '.join(made)}"] if made else []


def _take_savers(saver: ModuleType) -> list[str]:
    found = [f"an open Checkpointer of {one.root}: close()" for one in saver._open]
    for one in list(saver._open):
        with contextlib.suppress(Exception):  # the test fails anyway
            one.close(timeout=0)
    return found


def send(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def tell_agents(besides: Container[int] = ()) -> list[Process]:
    """Sends SIGTERM to all agents that descend from this process. Returns them."""
    found = [p for p in list_descendants(os.getpid(), besides) if AGENT.match(p.command)]
    for agent in found:
        send(agent, signal.SIGTERM)
    return found


def end_agents() -> None:
    """Ends all agents that descend from this process."""
    found = tell_agents()
    program.wait_until(
        lambda: not any(read_process(agent.pid) == agent for agent in found), "agents have ended"
    )


class Leftovers:
    """Records when each test of a module began, so that a process can be traced to its test."""

    def __init__(self) -> None:
        self._began: list[tuple[float, str]] = []

    def begin(self, test: str) -> None:
        self._began.append((time.clock_gettime(time.CLOCK_BOOTTIME), test))

    def _tests_of(self, process: Process) -> str:
        """Returns the test in which a process began; several if they began within a tick."""
        tests = [test for began, test in self._began if began < process.began + 1 / TICKS]
        later = sum(began > process.began for began, _ in self._began[: len(tests)])
        return " or ".join(tests[-1 - later :]) or "an earlier test"

    def end_module(self, besides: Container[int]) -> str:
        """Waits for all processes that the tests have started since the last call, and kills those
        that do not end. Returns a line for each of these.

        besides: processes that stay.
        """

        def left() -> list[Process]:
            return list_descendants(os.getpid(), besides)

        tell_agents(besides)
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
