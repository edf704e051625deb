"""Black-box acceptance by tag: processes, storage, memory, neighbours and ranks fail.

What is found is whole and right, and never older than what was said to be durable. Everything here
goes through Engine or Nebula's module; what Checkpointer makes of the same trouble is in
test_killed.py and test_faults.py.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import program
from conftest import real_core
from pawl.engine import Engine, beside
from test_engine import kill_agent
from test_faults import MIB, eventually, root_only
from test_faults import disk as disk  # a fixture
from test_killed import agent_pid, kill

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

JOB = Path(__file__).with_name("acceptance_job.py")
LONG = bool(os.environ.get("PAWL_LONG"))
SEED = int(os.environ.get("PAWL_SEED", secrets.randbelow(1 << 30)))


def job(what: str, *args: object, limit_s: float = program.LIMIT_S) -> list[str]:
    """The lines that the job prints behind "> "; fails with all it said if it does."""
    done = subprocess.run(
        [sys.executable, JOB, what, *map(str, args)],
        env=program.clean_env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


# ---- 1: SIGKILL ----


def test_nothing_durable_is_lost_by_kills(tmp_path: Path) -> None:
    """Of the worker, the agent or both at random moments, and at points that may crash."""
    count = 200 if LONG else 12
    (said,) = job("kills", tmp_path / "root", count, SEED, limit_s=60 + 10 * count)
    assert int(said.split()[0]) > count, f"seed {SEED}"


# ---- 4: storage that is full, gone, or not to be written ----


def values(root: Path, tag: str) -> list[float]:
    """What a durable tag holds, read by torch alone."""
    return [torch.load(root / tag / "state.pt")["w"][at].item() for at in (0, -1)]


def parts(value: float, mib: int = 4) -> dict[str, dict[str, torch.Tensor]]:
    return {"state.pt": {"w": torch.full((mib * MIB // 4,), float(value))}}


class Held(NamedTuple):
    """What a process has open."""

    fds: int
    threads: int
    memfds: int

    @classmethod
    def by(cls, pid: int | str) -> Held:
        fds = []
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                fds.append(os.readlink(fd))
        threads = []
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                threads.append((thread / "comm").read_text())
        own = [name for name in threads if not name.startswith("iou-")]  # io_uring's come and go
        return cls(len(fds), len(own), sum(path.startswith("/memfd:") for path in fds))

    def within(self, other: Held) -> bool:
        return all(mine <= its for mine, its in zip(self, other, strict=True))


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(MIB // 4))
            file.flush()
    return filler


def remove(root: Path) -> None:
    """All of it, also while rows of the history are being written to it."""
    while root.exists():
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def small(disk: Path) -> Iterator[Path]:
    """A root on a file system of 48 MB."""
    yield disk / "root"
    with contextlib.suppress(FileNotFoundError):
        kill_agent(disk / "root")  # which would keep the file system busy


@root_only
@pytest.mark.parametrize("memory", [None, MIB], ids=["staged", "streamed"])
def test_full_disk_by_tag(small: Path, memory: int | None) -> None:
    """Saving never raises, flush is told why, and with room again all is well by itself."""
    with Engine(small, memory=memory) as engine:
        for tag in ("t1", "t2", "t3"):
            assert engine.save(tag, parts(int(tag[1]))).wait("durable", 20)
        before = [Held.by("self"), Held.by(agent_pid(small))]
        shm = sorted(os.listdir("/dev/shm"))
        filler = fill(small.parent)
        for number in (4,) if memory is None else range(4, 9):
            save = engine.save(f"t{number}", parts(number))
            assert memory is not None or save.wait("committed", 5)
            assert not engine.flush(0.3)
            assert "No space left" in (save.error or ""), (number, save.error)
        assert [values(small, tag) for tag in ("t1", "t2", "t3")] == [[1, 1], [2, 2], [3, 3]]
        filler.unlink()
        if memory is None:
            assert eventually(lambda: save.level == "durable")  # by itself
            assert values(small, "t4") == [4, 4]
        save = engine.save("t9", parts(9))
        assert save.wait("durable", 20), save.error
        assert values(small, "t9") == [9, 9]
        assert [e["tag"] for e in engine.list() if e["level"] != "durable"] == []
        for pid, then in zip(("self", agent_pid(small)), before, strict=True):
            assert eventually(lambda: Held.by(pid).within(then), 5), (Held.by(pid), then)  # noqa: B023
        assert sorted(os.listdir("/dev/shm")) == shm


@pytest.mark.parametrize("hide", [False, True], ids=["inside", "beside"])
@pytest.mark.parametrize("memory", [None, MIB], ids=["staged", "streamed"])
def test_removed_root_by_tag(tmp_path: Path, hide: bool, memory: int | None) -> None:
    """The root is removed, moved away, replaced: what is saved then lies where its path leads, at
    once, for the same process and for the next one of the job, which finds the same agent."""
    root = tmp_path / "root"
    hidden = beside(root) if hide else None
    agents: list[int] = []

    def move() -> None:
        root.rename(tmp_path / f"moved{len(agents)}")
        (root / "other").mkdir(parents=True)

    def run(step: int) -> None:
        with Engine(root, hidden=hidden, memory=memory, job=f"removed-{tmp_path.name}") as engine:
            agents.append(agent_pid(Path(hidden or root)))
            for change in (lambda: None, lambda: remove(root), move):
                change()
                step += 1
                save = engine.save(f"t{step}", parts(step, 2))
                assert save.wait("durable", 20), (step, save.error)
                assert values(root, f"t{step}") == [step, step]
                assert (root / f"t{step}/complete.txt").read_text() == "OK"
                assert [e["step"] for e in engine.list()][-1] == step

    run(0)
    remove(root)
    run(10)
    assert values(tmp_path / "moved1", "t2") == [2, 2]
    assert hidden is None or agents[0] == agents[1]  # else the lock went with the root
    kill(agents[-1])
