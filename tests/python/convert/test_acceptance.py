"""Black-box acceptance by tag: processes, storage, memory, neighbours and ranks fail.

A checkpoint that is found is whole and right, and never older than one that was reported durable.
Everything here goes through Engine or Nebula's module; test_killed.py and test_faults.py cover
Checkpointer in the same situations.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import nursery
import packages
import program
import waits
from conftest import SEED, real_core
from pawl import NotDurable, PawlError
from pawl._times import seconds
from pawl.engine import Engine, beside
from program import LIMIT_S
from test_engine import kill_agent
from test_faults import MIB, root_only, run
from test_faults import disk as disk  # a fixture
from test_killed import agent_pid, await_gone, kill
from waits import eventually

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

JOBS = dict.fromkeys(("kills", "drift"), "acceptance_job.py") | dict.fromkeys(
    ("dead", "deepspeed", "memory"), "acceptance_ranks.py"
)
LONG = bool(os.environ.get("PAWL_LONG"))
SAID_MAX = 4000  # characters shown of a failing job's output: its end


def job(
    what: str,
    *args: object,
    limit_s: float = program.LIMIT_S,
    before: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> list[str]:
    """Runs a job. Returns the lines that it prints after "> "; fails with all of its output if the
    job fails."""
    done = nursery.run(
        [*before, sys.executable, Path(__file__).with_name(JOBS[what]), what, *map(str, args)],
        env=env or program.clean_env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
        check=False,
    )
    print(done.stdout)
    *_, last = done.stdout.splitlines() or [""]
    if last.startswith("program.Late: "):
        raise program.Late(last)
    if done.returncode != 0:
        pytest.fail(f"it ends with {done.returncode}, having said:\n{done.stdout[-SAID_MAX:]}")
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


# ---- 1: SIGKILL ----


def test_nothing_durable_is_lost_by_kills(tmp_path: Path) -> None:
    """Worker, agent or both are killed at random moments, or crash at fault points."""
    count = 200 if LONG else 12
    (said,) = job("kills", tmp_path / "root", count, SEED, limit_s=60 + 10 * count)
    assert int(said.split()[0]) > count


# ---- 4: storage that is full, gone, or not to be written ----


def values(root: Path, tag: str) -> list[float]:
    """Returns the ends of a durable tag's tensor, as torch alone reads them."""
    return [torch.load(root / tag / "state.pt")["w"][at].item() for at in (0, -1)]


def parts(value: float, mib: int = 4) -> dict[str, dict[str, torch.Tensor]]:
    return {"state.pt": {"w": torch.full((mib * MIB // 4,), float(value))}}


class Held(NamedTuple):
    """Counts of what a process has open."""

    fds: int
    threads: int
    memfds: int

    @classmethod
    def by(cls, pid: int | str) -> Held:
        fds = []
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # descriptor of the listing itself
                fds.append(os.readlink(fd))
        threads = []
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
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
    """Removes a root completely, also while rows of the history are being written to it."""
    while root.exists():
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def small(disk: Path) -> Iterator[Path]:
    """A root on a file system of 48 MB."""
    yield disk / "root"
    with contextlib.suppress(FileNotFoundError):
        kill_agent(disk / "root")  # an agent would keep the file system busy


@root_only
@pytest.mark.parametrize("memory", [None, MIB], ids=["staged", "streamed"])
def test_full_disk_by_tag(small: Path, memory: int | None) -> None:
    """Saving never raises, flush reports the reason, and with room again all is well
    without help."""
    with Engine(small, memory=memory) as engine:
        for tag in ("t1", "t2", "t3"):
            assert engine.save(tag, parts(int(tag[1]))).wait("durable", LIMIT_S)
        before = [Held.by("self"), Held.by(agent_pid(small))]
        shm = program.shared_memory()
        filler = fill(small.parent)
        for number in (4,) if memory is None else range(4, 9):
            save = engine.save(f"t{number}", parts(number))
            assert memory is not None or save.wait("committed", LIMIT_S)
            assert not engine.flush(0.3)
            assert eventually(lambda: "No space left" in (save.error or "")), number  # noqa: B023
        assert [values(small, tag) for tag in ("t1", "t2", "t3")] == [[1, 1], [2, 2], [3, 3]]
        filler.unlink()
        if memory is None:
            assert eventually(lambda: save.level == "durable")  # by itself
            assert values(small, "t4") == [4, 4]
        save = engine.save("t9", parts(9))
        assert save.wait("durable", LIMIT_S), save.error
        assert values(small, "t9") == [9, 9]
        assert [e["tag"] for e in engine.list() if e["level"] != "durable"] == []
        for pid, then in zip(("self", agent_pid(small)), before, strict=True):
            program.wait_until(lambda: Held.by(pid).within(then), f"{pid} holds {then}")  # noqa: B023
        assert program.shared_memory() == shm


@pytest.mark.parametrize("hide", [False, True], ids=["inside", "beside"])
@pytest.mark.parametrize("memory", [None, MIB], ids=["staged", "streamed"])
def test_removed_root_by_tag(tmp_path: Path, hide: bool, memory: int | None) -> None:
    """The root is removed, moved away or replaced: later saves lie where its path leads, at once,
    for the same process and for the next one of the job, which finds the same agent."""
    root = tmp_path / "root"
    hidden = beside(root) if hide else None
    agents: list[int] = []

    def move() -> None:
        root.rename(tmp_path / f"moved{len(agents)}")
        (root / "other").mkdir(parents=True)

    def train(step: int) -> None:
        with Engine(root, hidden=hidden, memory=memory, job=f"removed-{tmp_path.name}") as engine:
            agents.append(agent_pid(Path(hidden or root)))
            for change in (lambda: None, lambda: remove(root), move):
                change()
                step += 1
                save = engine.save(f"t{step}", parts(step, 2))
                assert save.wait("durable", LIMIT_S), (step, save.error)
                assert values(root, f"t{step}") == [step, step]
                assert (root / f"t{step}/complete.txt").read_text() == "OK"
                assert [e["step"] for e in engine.list()][-1] == step

    train(0)
    remove(root)
    train(10)
    assert values(tmp_path / "moved1", "t2") == [2, 2]
    assert hidden is None or agents[0] == agents[1]  # otherwise the lock is gone, too
    kill(agents[-1])


# ---- 5: an agent and storage that hang ----


def later(seconds: float, what: Callable[[], object]) -> tuple[threading.Timer, list[float]]:
    """Starts a timer. Returns it, and a list that gets the time of the call."""
    done: list[float] = []

    def act() -> None:
        done.append(time.monotonic())
        what()

    timer = threading.Timer(seconds, act)
    timer.start()
    return timer, done


@pytest.mark.real_interpreters
def test_a_stopped_agent(tmp_path: Path) -> None:
    """A save waits for the agent that hangs, and is good; no call takes longer than it may."""
    root = tmp_path / "root"
    engine = Engine(root, persist_every=3600, job=f"stopped-{tmp_path.name}")
    assert engine.save("t1", parts(1)).wait("committed", LIMIT_S)
    agent = agent_pid(root)
    stopped = time.monotonic()
    os.kill(agent, signal.SIGSTOP)
    timer, woken = later(1, lambda: os.kill(agent, signal.SIGCONT))
    save = engine.save("t2", parts(2))
    over = time.monotonic()
    timer.join()
    if woken[0] - stopped > seconds("link_stuck"):
        raise program.Late("the agent goes on before a save gives it up")
    assert over > woken[0] and save.wait("committed", LIMIT_S), save.error
    waits.check_sooner(save.stall_s, waits.SAVE_S, "a save for which the agent is there again")
    os.kill(agent, signal.SIGSTOP)
    try:
        with waits.sooner_than(waits.SAVE_S, "what was asked for half a second and for one"):
            assert not engine.flush(0.5)
            assert not save.wait("durable", 0.5)
            with pytest.raises(NotDurable, match=r"the agent \(pid \d+\)"):
                engine.close(3)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert eventually(lambda: (root / "t2/complete.txt").exists())  # the agent finishes the save
    assert values(root, "t2") == [2, 2]
    kill(agent)


@root_only
def test_storage_that_hangs_by_tag(small: Path) -> None:
    """Every tag is to be durable: the third save waits for the first, and none is lost."""
    disk = small.parent
    with Engine(small) as engine:
        assert engine.save("t1", parts(1)).wait("durable", LIMIT_S)
        assert run("fsfreeze", "-f", disk).returncode == 0
        try:
            saves = [engine.save(f"t{n}", parts(n)) for n in (2, 3)]
            with waits.sooner_than(waits.SAVE_S, "what was asked for 0.3 s"):
                assert not engine.flush(0.3)
        finally:
            timer, thawed = later(2, lambda: run("fsfreeze", "-u", disk))
        saves.append(engine.save("t4", parts(4)))
        over = time.monotonic()
        timer.join()
        assert over > thawed[0]
        waits.check_sooner(
            saves[-1].stall_s, waits.SAVE_S, "a save for which the disk is there again"
        )
        assert all(save.wait("durable", LIMIT_S) for save in saves)
        assert [values(small, f"t{n}") for n in (1, 2, 3, 4)] == [[n, n] for n in (1, 2, 3, 4)]


# ---- 7: memory ----


@pytest.mark.slow
@root_only
def test_four_ranks_keep_to_their_memory(tmp_path: Path) -> None:
    """Each rank saves 100 MB with a share of 25 MB, a small /dev/shm, few locked pages, and a
    memory limit at which the kernel kills."""
    if run("unshare", "-m", "true").returncode != 0:
        pytest.skip("no mounts of its own here (a chroot whose root is no mount point)")
    shell = "mount -t tmpfs -o size=64m tmpfs /dev/shm && ulimit -l 8192 || exit 3\n"
    group = Path(f"/sys/fs/cgroup/memory/pawl-{tmp_path.name}")
    limit = group / "memory.limit_in_bytes"
    if not group.parent.is_dir():
        group = Path(f"/sys/fs/cgroup/pawl-{tmp_path.name}")
        limit = group / "memory.max"
    try:
        group.mkdir()
        limit.write_text(str(1100 * MIB))
        shell += f"echo $$ > {group}/cgroup.procs\n"
    except OSError as error:
        print(f"without a limit of the kernel's: {error}")
    try:
        job(
            "memory",
            tmp_path / "root",
            before=["unshare", "-m", "sh", "-c", shell + 'exec "$@"', "-"],
        )
    finally:
        if (group / "cgroup.procs").exists():
            with contextlib.suppress(program.Late):
                eventually(lambda: not (group / "cgroup.procs").read_text().split(), 5)
        with contextlib.suppress(OSError):
            group.rmdir()


def test_many_saves_leave_nothing_behind(tmp_path: Path) -> None:
    """Memory, descriptors and threads of worker and agent do not grow."""
    job("drift", tmp_path / "root", 2000 if LONG else 300, limit_s=400)


# ---- 8: two jobs on one path, and what dead ones left ----

HOLD = """
import sys, time
from pawl.engine import Engine
engine = Engine(sys.argv[1], job="one")
for n in range(1, 1000000):
    assert engine.save(f"t{n}", {"x": n}).wait("durable", 120)
    print(n, flush=True)
    time.sleep(0.02)  # pace
"""
SECOND = """
import sys
import nebulaml as nm
nm.init(sys.argv[1])
nm.Checkpoint("global_step1", 1).save("x", 1)
"""


def test_the_second_job_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    root = tmp_path / "root"
    command = [sys.executable, "-c", HOLD, str(root)]
    first = nursery.Popen(command, env=program.clean_env(), stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "1\n"
        with pytest.raises(PawlError, match=r"job one .*job two"):
            Engine(root, job="two")
        second = run(sys.executable, "-c", SECOND, root, env=program.clean_env(PAWL_JOB_ID="two"))
        assert second.returncode == 1 and "in use by job one" in second.stderr
        for _ in range(3):
            newest = int(first.stdout.readline())  # saves go on, undisturbed
    finally:
        first.kill()
    first.communicate()
    agent = agent_pid(root)
    with pytest.raises(PawlError, match=r"job one .*job two"):  # job one's agent still has the root
        Engine(root, job="two")
    kill(agent)
    await_gone(agent)
    with Engine(root, job="two") as engine:
        found = engine.find()
        assert found is not None and found.load("x") >= newest
        entries = engine.list()
        assert {entry["level"] for entry in entries} == {"durable"}
        assert [entry["tag"] for entry in entries] == [f"t{n + 1}" for n in range(len(entries))]
        for entry in entries:
            assert torch.load(root / entry["tag"] / "x") == entry["step"]


def test_what_the_dead_left_is_no_obstacle(tmp_path: Path) -> None:
    """A lock names a process number that is in use again, and half a tag is there."""
    (tmp_path / ".pawl-lock").write_text(
        f"job other (pid {os.getpid()} on {socket.gethostname()})\n"
    )
    (tmp_path / ".pawl.t1.new").mkdir()
    (tmp_path / ".pawl.t1.new/state.pt").write_bytes(b"half")
    with Engine(tmp_path) as engine:
        assert engine.find() is None and engine.list() == []
        assert engine.save("t1", parts(1)).wait("durable", LIMIT_S)
    assert values(tmp_path, "t1") == [1, 1]
    assert not list(tmp_path.glob(".pawl.*"))


# ---- 9: ranks ----


@pytest.mark.parametrize("die", ["before", "in 0", "in 1"])
def test_a_rank_is_killed_before_it_commits(tmp_path: Path, die: str) -> None:
    """No rank sees the tag, in any file; all ranks go on from the tag before, in any number."""
    job("dead", tmp_path / "root", die)


# ---- as DeepSpeed 0.7.3 to 0.16 called Nebula ----


@pytest.mark.parametrize("form", ["object", "cloned", "file"])
def test_the_calls_of_old_deepspeed(tmp_path: Path, form: str) -> None:
    job("deepspeed", tmp_path / "root", form)


def test_the_engine_of_old_deepspeed(tmp_path: Path) -> None:
    env = packages.with_package("deepspeed", "0.7.3")
    job("deepspeed", tmp_path / "root", "release", env=env)
