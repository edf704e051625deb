"""The agent behind a root, seen from outside: its process, its memory, its history of saves."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pawl

NEVER = 1e9  # persist_every: only the memory tier works
LIMIT_S = 120.0  # longest wait for anything; a longer one is a hang


def agent_pid(root: Path) -> int:
    """The agent's pid, as the agent wrote it into the root's lock file."""
    match = re.search(r"\(pid (\d+) on ", (root / ".pawl-lock").read_text())
    assert match, f"{root}: nobody in the lock file"
    return int(match[1])


def bytes_written(root: Path) -> float:
    """Bytes that the agent has written to disks so far."""
    text = Path(f"/proc/{agent_pid(root)}/io").read_text()
    return float(re.search(r"^write_bytes: (\d+)$", text, re.MULTILINE)[1])  # type: ignore[index]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(what: str, true: Any, every_s: float = 0.01) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {LIMIT_S:g} s")
        time.sleep(every_s)


def end_agent(root: Path) -> None:
    """Kills the root's agent, so that nothing of the root stays in memory; fine
    if there is none.
    """
    if not (root / ".pawl-lock").exists():
        return
    pid = agent_pid(root)
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text().strip() != "pawl":
            return
        os.kill(pid, signal.SIGKILL)
    wait_until(f"agent {pid} ends", lambda: not is_running(pid))
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


@contextlib.contextmanager
def scratch(parent: str) -> Iterator[Path]:
    """A folder on the disk of parent; at the end it is deleted, and the agents of
    its roots are ended.
    """
    with tempfile.TemporaryDirectory(prefix="pawl-bench-", dir=parent) as name:
        os.environ["XDG_RUNTIME_DIR"] = name  # for the agents' sockets
        try:
            yield Path(name)
        finally:
            for lock in Path(name).rglob(".pawl-lock"):
                end_agent(lock.parent)


@contextlib.contextmanager
def opened(root: Path, **options: Any) -> Iterator[pawl.Checkpointer]:
    """A Checkpointer with an agent and a root of its own; both are gone at the end."""
    checkpointer = pawl.Checkpointer(root, job=f"bench:{root}", **options)
    try:
        yield checkpointer
    finally:
        checkpointer.close()
        end_agent(root)
        shutil.rmtree(root)


def agent_of(job: str) -> int:
    """The pid of the agent that works for a job; of a root in a bucket there is no lock file."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = line.read_bytes().split(b"\0")
            if b"agent" in words and job.encode() in words and is_running(int(line.parent.name)):
                return int(line.parent.name)
    raise RuntimeError(f"job {job} has no agent")


@contextlib.contextmanager
def opened_in_bucket(root: str, **options: Any) -> Iterator[tuple[pawl.Checkpointer, int]]:
    """A Checkpointer for a bucket, and the pid of its agent, which is gone at the end."""
    checkpointer = pawl.Checkpointer(root, job=f"bench:{root}", **options)
    pid = agent_of(f"bench:{root}")
    try:
        yield checkpointer, pid
    finally:
        try:
            checkpointer.close()
        finally:
            os.kill(pid, signal.SIGKILL)
        wait_until(f"agent {pid} ends", lambda: not is_running(pid))


def settle(save: pawl.Save | None, level: str) -> None:
    """Waits until a save has reached level. Fails if the save does: it would count
    as a very fast one.
    """
    assert save is not None
    if not save.wait(level, timeout=LIMIT_S):
        raise RuntimeError(f"save {save.step} is not {level}: {save.error or 'time ran out'}")


def persist_s(root: Path, step: int) -> float:
    """Seconds that making a step durable took, from the history."""
    with (root / "checkpointHistories.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if int(row["step"]) == step]
    return float(found[-1]["persist_ms"]) / 1000


def memory_of(pid: int | str, field: str) -> int:
    """A field of /proc/PID/status in bytes: VmRSS, RssAnon."""
    match = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert match, field
    return int(match[1]) << 10


def huge_bytes() -> int:
    """Bytes of this process's memory that are in huge pages."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kib) << 10 for kib in re.findall(r"^AnonHugePages:\s+(\d+) kB", text, re.M))


def count_fds(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def arena_bytes(pid: int) -> int:
    """Memory in the memfds that a process holds."""
    held = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(fd).startswith("/memfd:"):
                status = fd.stat()
                held[status.st_ino] = status.st_blocks * 512
    return sum(held.values())
