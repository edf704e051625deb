"""Storage and machine are made to fail: training goes on, the last good checkpoint stays, and all
is well once the cause is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
import torch

import killed
import nursery
import pawl
import program
import waits
from program import LIMIT_S
from test_killed import agent_pid, await_gone, kill
from waits import eventually

SCRIPT = Path(killed.__file__)
MIB = 1 << 20
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def run(*command: object, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return nursery.run([str(c) for c in command], text=True, capture_output=True, **kwargs)  # type: ignore[call-overload]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB for one test."""
    image, mount = tmp_path / "image", tmp_path / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(48 * MIB)
    if (
        run("mkfs.ext4", "-q", image).returncode
        or (why := run("mount", "-o", "loop", image, mount)).returncode
    ):
        pytest.skip(f"no loop mount here: {why.stderr.strip()}")
    yield mount
    run("fsfreeze", "-u", mount)
    try:
        program.wait_until(lambda: run("umount", mount).returncode == 0, "it is free", 10)
    except program.Late:
        run("umount", "-l", mount)


def state_of(step: int, elements: int = 2 * MIB) -> dict[str, torch.Tensor]:
    """Returns a state of 8 MiB whose values are its step."""
    return {"w": torch.full((elements,), float(step))}


def step_of(root: Path) -> float:
    """Returns the step in the newest durable checkpoint's values."""
    return pawl.load(root, partition="state")["w"][0].item()


def holds(root: Path, step: int) -> bool:
    """Whether the newest durable checkpoint is that of step; an older one may be deleted
    meanwhile."""
    with contextlib.suppress(pawl.PawlError, OSError):
        return step_of(root) == step
    return False


def durable_steps(ckpt: pawl.Checkpointer) -> list[int]:
    return [row["step"] for row in ckpt.list() if row["level"] == "durable"]


@root_only
def test_full_disk(disk: Path) -> None:
    root = disk / "root"
    with pawl.Checkpointer(root, keep=1, persist_every=0.2, job="full") as ckpt:
        assert ckpt.save(1, {"state": state_of(1)}).wait("durable", timeout=LIMIT_S)
        filler = disk / "filler"
        with filler.open("wb") as file, pytest.raises(OSError):
            while True:
                file.write(bytes(MIB))
                file.flush()
        save = ckpt.save(2, {"state": state_of(2)})
        assert not save.wait("durable", timeout=2)
        assert eventually(lambda: "No space left" in (save.error or ""))
        with waits.sooner_than(waits.SAVE_S, "a save beside a full disk"):
            save = ckpt.save(3, {"state": state_of(3)})
            assert save.wait("committed", timeout=LIMIT_S)
        assert step_of(root) == 1
        filler.unlink()
        assert eventually(lambda: 3 in durable_steps(ckpt))  # without help
        assert step_of(root) == 3


@root_only
def test_hung_disk(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PAWL_TEST_TIMES", "root_slow=0.3")
    root = disk / "root"
    ckpt = pawl.Checkpointer(root, keep=1, persist_every=0.05, job="hung")
    assert ckpt.save(1, {"state": state_of(1)}).wait("durable", timeout=LIMIT_S)
    assert run("fsfreeze", "-f", disk).returncode == 0
    for step in range(2, 12):
        with waits.sooner_than(waits.SAVE_S, "training, which goes on"):
            save = ckpt.save(step, {"state": state_of(step)})
            assert save.wait("committed", timeout=LIMIT_S)
        waits.pretend_to_work(0.05)
    assert not save.wait("durable", timeout=0.5)
    assert not ckpt.flush(timeout=0.5)
    assert eventually(lambda: "storage hangs, or is slow" in caplog.text)  # while it hangs
    assert "storage hangs, or is slow" in (save.error or "")
    assert run("fsfreeze", "-u", disk).returncode == 0
    assert eventually(lambda: 11 in durable_steps(ckpt))
    assert run("fsfreeze", "-f", disk).returncode == 0
    ckpt.save(12, {"state": state_of(12)})
    with (
        waits.sooner_than(waits.SAVE_S, "what was to take a second"),
        pytest.raises(pawl.NotDurable),
    ):
        ckpt.close(timeout=1)
    assert run("fsfreeze", "-u", disk).returncode == 0
    assert eventually(lambda: holds(root, 12))  # the agent finishes the save


@pytest.fixture
def throttle(disk: Path) -> Iterator[Callable[[int], None]]:
    """Limits the bytes a second that the disk takes from any writer; 0: no limit."""
    device = disk.stat().st_dev
    file = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")

    def limit(bytes_per_s: int) -> None:
        file.write_text(f"{os.major(device)}:{os.minor(device)} {bytes_per_s}")

    try:
        limit(0)
    except OSError as error:
        pytest.skip(f"no disk can be made slow here: {error}")
    yield limit
    limit(0)


@root_only
def test_slow_disk(disk: Path, throttle: Callable[[int], None]) -> None:
    """The disk gets as many saves as it has time for; training does not wait for the rest."""
    root = disk / "root"
    stalls: dict[str, list[float]] = {}
    saves = []

    def train(disk_is: str, first: int, seconds: float) -> int:
        """Trains for some seconds, and until at least 20 saves are done and one of them is
        durable."""
        step, begun = first, time.monotonic()

        def enough() -> bool:
            nonlocal step
            save = ckpt.save(step, {"state": state_of(step)})
            stalls.setdefault(disk_is, []).append(save.stall_s)
            assert save.wait("committed", timeout=LIMIT_S), save.error
            saves.append(save)
            step += 1
            durable = any(save.level == "durable" for save in saves if save.step >= first)
            return durable and step >= first + 20 and time.monotonic() - begun > seconds

        program.wait_until(enough, f"one of 20 saves is durable where the disk is {disk_is}")
        return step

    ckpt = pawl.Checkpointer(root, keep=1, persist_every=0.05, job="slow")
    step = train("quick", 1, 1)
    throttle(20_000_000)  # at 20 MB/s, a save takes 0.4 s
    begun = time.monotonic()
    slow = train("slow", step, 1.5)
    last = train("still slow", slow, 1.5)
    for later in ("slow", "still slow"):  # each save that waits for the disk takes 0.4 s
        most = 3 * median(stalls["quick"]) + 0.1
        waits.check_sooner(median(stalls[later]), most, f"saves while it is {later}, {stalls}")
    durable = [save.step for save in saves if save.level == "durable"]
    took = time.monotonic() - begun
    written = sum(made >= step for made in durable)
    # The disk takes 20 MB/s for 3 s, or longer.
    assert 2 <= written <= 5 + 2.5 * took and written < last - step
    passed_over = next(s for s in saves if step < s.step < durable[-1] and s.step not in durable)
    assert not passed_over.wait("durable", timeout=5)
    assert eventually(lambda: saves[-1].level == "durable")  # no other is deleted then
    assert durable[-1] <= step_of(root) < last  # readable, and from the last second
    assert step_of(root) >= slow
    begun = time.monotonic()
    ckpt.save(last, {"state": state_of(last)})
    closed = False
    with (
        waits.sooner_than(waits.SAVE_S, "what was to take 0.1 s"),
        contextlib.suppress(pawl.NotDurable),
    ):
        closed = ckpt.close(timeout=0.1)
    took = time.monotonic() - begun
    assert not closed or took > 0.3  # closed if only this process stood still
    throttle(0)
    assert eventually(lambda: holds(root, last))  # the agent finishes the save


@root_only
def test_read_only(disk: Path) -> None:
    root = disk / "root"
    with pawl.Checkpointer(root, keep=2, persist_every=0.2, job="ro") as ckpt:
        assert ckpt.save(1, {"state": state_of(1)}).wait("durable", timeout=LIMIT_S)
        # Open files forbid a remount of the file system, but not of a bind mount over it.
        assert run("mount", "--bind", disk, disk).returncode == 0
        try:
            assert run("mount", "-o", "remount,bind,ro", disk).returncode == 0
            with pytest.raises(pawl.PawlError, match="Read-only"):
                pawl.Checkpointer(disk / "other", job="ro2")
        finally:
            run("umount", disk)
        assert step_of(root) == 1


def test_removed_root(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "root"
    with pawl.Checkpointer(root, persist_every=0.1, job="removed") as ckpt:
        assert ckpt.save(1, {"state": state_of(1)}).wait("durable", timeout=LIMIT_S)
        shutil.rmtree(root)
        assert ckpt.save(2, {"state": state_of(2)}).wait("durable", timeout=LIMIT_S)
        assert step_of(root) == 2
        assert eventually(lambda: "the directory was removed" in caplog.text)


@pytest.mark.parametrize(
    "point", ["store.write", "store.sync", "store.rename", "store.open", "store.mkdir"]
)
def test_every_kind_of_write_failing_once(tmp_path: Path, point: str) -> None:
    """The agent's n-th call of that kind fails: training ends well, and its last state is there."""
    for nth in (1, 2, 5, 9) if os.environ.get("PAWL_LONG") else (1, 4):
        root = tmp_path / f"{point}{nth}"
        env = os.environ | {"PAWL_FAULT": f"{point}:{nth}:5"}
        done = run(sys.executable, SCRIPT, "train", root, "30", env=env, timeout=program.LIMIT_S)
        if (
            done.returncode != 0
        ):  # the root itself could not be made: reported, and no further effect
            assert "Input/output error" in done.stderr
            continue
        found = run(sys.executable, SCRIPT, "check", root).stdout.split()
        assert found == ["step", "30", killed.sha256(killed.make(30))], (point, nth, done.stderr)


@pytest.mark.slow
@pytest.mark.real_interpreters
@pytest.mark.parametrize("without", ["PAWL_NO_URING", "PAWL_NO_UFFD"])
def test_without_what_a_container_refuses(tmp_path: Path, without: str) -> None:
    env = os.environ | {without: "1"}
    done = run(
        sys.executable, SCRIPT, "train", tmp_path / "root", "20", env=env, timeout=program.LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    found = run(sys.executable, SCRIPT, "check", tmp_path / "root", env=env).stdout.split()
    assert found == ["step", "20", killed.sha256(killed.make(20))]


@root_only
def test_small_shm_and_memlock(tmp_path: Path) -> None:
    if run("unshare", "-m", "true").returncode != 0:
        pytest.skip("no mounts of its own here (a chroot whose root is no mount point)")
    shell = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && ulimit -l 8192 && exec "$@"'
    code = (
        "import torch, pawl\n"
        f"with pawl.Checkpointer({str(tmp_path / 'root')!r}, persist_every=0, job='shm') as ckpt:\n"
        "    save = ckpt.save(1, {'state': {'w': torch.ones(50 << 20)}})\n"  # 200 MiB
        "    assert save.wait('durable', timeout=60), save.error\n"
    )
    done = run("unshare", "-m", "sh", "-c", shell, "sh", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert step_of(tmp_path / "root") == 1


@root_only
def test_memory_limit_of_a_cgroup(tmp_path: Path) -> None:
    """The state fits into memory, but two generations of it do not: saves stream, and no process is
    killed."""
    group = Path("/sys/fs/cgroup/memory/pawl-test")
    limit = group / "memory.limit_in_bytes"
    if not group.parent.is_dir():
        group = Path("/sys/fs/cgroup/pawl-test")
        limit = group / "memory.max"
    try:
        group.mkdir()
        limit.write_text(str(900 * MIB))
    except OSError as error:
        pytest.skip(f"no memory cgroup of our own here: {error}")
    code = (
        "import os, torch, pawl\n"
        f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        f"root = {str(tmp_path / 'root')!r}\n"
        "with pawl.Checkpointer(root, persist_every=3600, job='cgroup') as ckpt:\n"
        "    state = {'state': {'w': torch.ones(50 << 20)}}\n"
        "    for step in (1, 2):\n"
        "        save = ckpt.save(step, state)\n"
        "        assert save.wait('durable', timeout=60), save.error\n"
    )
    try:
        done = run(sys.executable, "-c", code)
        assert done.returncode == 0, done.stderr
        assert "exceeds the limit of the memory tier" in done.stderr
        assert step_of(tmp_path / "root") == 1
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                Path(group.parent / "cgroup.procs").write_text(pid)
        eventually(lambda: not (group / "cgroup.procs").read_text().split())
        group.rmdir()


@pytest.mark.parametrize("name", ["with space", "new\nline", "日本語 🐾"])
def test_any_path(tmp_path: Path, name: str) -> None:
    root = tmp_path / name / "root"
    with pawl.Checkpointer(root, persist_every=0, job="path") as ckpt:
        assert ckpt.save(1, {"state": state_of(1)}).wait("durable", timeout=LIMIT_S)
    assert step_of(root) == 1


def test_a_step_saved_again_replaces_the_first(tmp_path: Path) -> None:
    with pawl.Checkpointer(tmp_path, persist_every=0, job="again") as ckpt:
        for value in (1, 2, 3):
            assert ckpt.save(7, {"state": state_of(value)}).wait("durable", timeout=LIMIT_S)
            assert step_of(tmp_path) == value
        assert durable_steps(ckpt) == [7]


def test_a_crash_before_the_row_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent crashes when a checkpoint is published: the next agent writes the row, once. After
    a torn row, it writes the row again on a line of its own."""
    history = tmp_path / "checkpointHistories.csv"

    def steps() -> list[int]:
        rows = [line.split(",") for line in history.read_text().splitlines()]
        return [int(row[3]) for row in rows[1:] if len(row) == len(rows[0])]

    def next_agent(step: int, durable: bool = True) -> None:
        how = "raise" if durable else "warn"
        with pawl.Checkpointer(tmp_path, persist_every=0, job="history", on_exit=how) as ckpt:
            save = ckpt.save(step, {"state": state_of(step)})
            assert save.wait("durable", timeout=LIMIT_S if durable else 20) == durable
            agent = agent_pid(tmp_path)
        kill(agent)
        await_gone(agent)

    next_agent(1)
    monkeypatch.setenv("PAWL_FAULT", "agent.crash.published:1:-1")
    next_agent(2, durable=False)
    monkeypatch.delenv("PAWL_FAULT")
    assert steps() == [1]
    next_agent(3)
    assert steps() == [1, 2, 3]
    history.write_bytes(history.read_bytes()[:-50])  # amid the last row
    next_agent(4)
    assert steps() == [1, 2, 3, 4]
    assert history.read_text().count("\n") == 6  # header, five rows and the torn row


def test_two_jobs_on_one_root(tmp_path: Path) -> None:
    with (
        pawl.Checkpointer(tmp_path, job="one"),
        pytest.raises(pawl.PawlError, match=r"job one .*job two"),
    ):
        pawl.Checkpointer(tmp_path, job="two")
