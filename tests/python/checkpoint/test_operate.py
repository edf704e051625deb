"""Failures of the agent's work are reported to the script: at once, with the reason, and in the
exit code."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import nursery
import pawl
import program
import waits
from program import LIMIT_S
from test_killed import agent_pid, await_gone
from waits import eventually

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

STATE = {"w": torch.ones(60_000)}  # 240 KB
TRAIN = """
    import sys, torch, pawl
    ckpt = pawl.Checkpointer(sys.argv[1], persist_every=3600, on_exit=sys.argv[2])
    state = {"w": torch.ones(60_000)}
    first = ckpt.restore(state) or 0
    for step in range(first + 1, first + 4):
        ckpt.save(step, state).wait("committed")
    print("trained", first, flush=True)
    if sys.argv[3] == "close":
        ckpt.close()
    if sys.argv[3] == "leave":
        with ckpt:
            sys.exit(0)
    if sys.argv[3] == "fail":
        with ckpt:
            sys.exit(5)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 KiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", mount], check=False)
    if done.returncode != 0:
        pytest.skip("no mount here")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def is_free(root: Path) -> bool:
    """Whether no agent holds the root."""
    with open(root / ".pawl-lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def lines_of(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def watch(root: Path) -> dict[str, object]:
    done = program.run("ckpt", "watch", root, "--once", "--json")
    event = json.loads(done.stdout.splitlines()[0])
    assert event["event"] == "job"
    return event


@root_only
def test_a_full_disk_is_told_at_once(
    small_disk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAWL_TEST_TIMES", "root_give_up=0.5")
    root = small_disk / "root"
    ckpt = pawl.Checkpointer(root, persist_every=3600, job="full")
    ckpt.save(1, STATE)
    # The failure is reported before any write is tried, and while the script makes no call of ours.
    assert eventually(lambda: lines_of(caplog, "global_step1 is not durable: it needs 2"))
    (told,) = lines_of(caplog, "global_step1 is not durable")
    assert " KiB are free" in told and "Nothing saved since the start is durable" in told
    seen = watch(root)
    assert seen["running"] and "not durable" in str(seen["trouble"])
    ckpt.save(2, STATE)
    with pytest.raises(pawl.NotDurable, match="No space left on device; it needs 2") as why:
        ckpt.close(timeout=2.5)
    assert why.value.name == "PAWL_ENOSPC" and "global_step2" in str(why.value)
    assert len(lines_of(caplog, "is not durable")) == 1  # the known cause is reported once
    seen = watch(root)
    assert is_free(root) or (not seen["running"] and seen["undurable"] in ("global_step2", None))
    assert eventually(lambda: is_free(root))
    assert not watch(root)["running"]
    with pawl.Checkpointer(root, job="other") as ckpt:  # no agent holds the root any more
        assert ckpt.restore(dict(STATE)) is None


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE]
)
@pytest.mark.parametrize("point", ["store.create", "store.rename"])
def test_every_reason_is_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    number: int,
) -> None:
    """Storage fails for good, in each step of a save: reported once, and by close()."""
    monkeypatch.setenv("PAWL_FAULT", f"{point}:1:{number}:1")
    ckpt = pawl.Checkpointer(tmp_path / "root", persist_every=0, job=f"{point}-{number}")
    ckpt.save(2, STATE)
    assert eventually(lambda: lines_of(caplog, os.strerror(number)))
    with pytest.raises(pawl.NotDurable, match=os.strerror(number)):
        ckpt.close(timeout=1.2)
    assert len(lines_of(caplog, "global_step2 is not durable")) == 1


def test_storage_that_works_again_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAWL_FAULT", f"store.create:1:{errno.EDQUOT}")
    monkeypatch.setenv("PAWL_TEST_TIMES", "ledger_retry=0.05")
    with pawl.Checkpointer(tmp_path / "root", persist_every=0, job="again") as ckpt:
        save = ckpt.save(1, STATE)
        assert save.wait("durable", timeout=LIMIT_S) and save.error is None
        assert eventually(lambda: lines_of(caplog, "global_step1 is durable: storage works again"))
    assert len(lines_of(caplog, "Disk quota exceeded")) == 1


def test_what_fails_beside_a_save_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history cannot be written, and old checkpoints cannot be deleted."""
    root = tmp_path / "root"
    history = root / "checkpointHistories.csv"
    with pawl.Checkpointer(root, persist_every=0, job="history") as ckpt:
        assert ckpt.save(1, STATE).wait("durable", timeout=LIMIT_S)
        history.rename(tmp_path / "elsewhere")
        history.symlink_to(tmp_path / "elsewhere")  # Pawl does not write through a link
        for step in (2, 3):
            assert ckpt.save(step, STATE).wait("durable", timeout=LIMIT_S)
        assert eventually(lambda: lines_of(caplog, "its history cannot be written"))
        pid = agent_pid(root)
    assert len(lines_of(caplog, "its history cannot be written")) == 1
    os.kill(pid, signal.SIGTERM)
    await_gone(pid)
    history.unlink()
    monkeypatch.setenv("PAWL_FAULT", f"store.remove:1:{errno.EROFS}:1")
    with pawl.Checkpointer(root, keep=1, persist_every=0, job="retention") as ckpt:
        for step in (4, 5, 6):
            assert ckpt.save(step, STATE).wait("durable", timeout=LIMIT_S)
        assert eventually(lambda: lines_of(caplog, "old checkpoints cannot be deleted"))
    assert len(lines_of(caplog, "Read-only file system")) == 1


def run_job(
    tmp_path: Path, how: tuple[str, str], *launcher: str
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    env = program.clean_env(
        PAWL_FAULT=f"store.create:1:{errno.ENOSPC}:1",
        PAWL_TEST_TIMES="close_trouble=0.2,root_give_up=0.2",
    )
    words = [*launcher, str(script), str(tmp_path / "root"), *how]
    return nursery.run(words, env=env, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (("raise", "exit"), 74),
        (("raise", "close"), 74),
        (("raise", "leave"), 74),
        (("raise", "fail"), 5),
        (("warn", "exit"), 0),
        (("warn", "close"), 0),
    ],
)
def test_the_exit_code_tells(tmp_path: Path, how: tuple[str, str], code: int) -> None:
    done = run_job(tmp_path, how, sys.executable)
    assert done.returncode == code, done.stderr
    assert "global_step3 is not durable" in done.stderr
    assert "No space left on device; it needs 2" in done.stderr


@pytest.mark.slow  # a real interpreter, for its exit
@pytest.mark.real_interpreters
def test_the_exit_code_of_an_interpreter(tmp_path: Path) -> None:
    assert run_job(tmp_path, ("raise", "exit"), sys.executable).returncode == 74


@pytest.mark.parametrize("how", [("raise", "close"), ("warn", "exit")])
def test_a_run_that_is_not_durable_has_a_code(tmp_path: Path, how: tuple[str, str]) -> None:
    """`pawl run` itself reports it, once, and does not start training again."""
    done = run_job(tmp_path, how, program.find(), "run", "-n", "2")
    assert done.returncode == 74, done.stderr
    assert done.stdout.count("trained 0") == 2 and "restart" not in done.stderr
    assert "No space left on device; it needs " in done.stderr
    assert "ended with status 74, not all that was committed is durable" in done.stderr
    assert done.stderr.count("Nothing saved since the start is durable") == 1


# ---- an agent that is stopped, or killed ----


def in_a_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_a_stopped_agent_is_named_soon(tmp_path: Path) -> None:
    """No call waits for a stopped agent as long as for a slow one."""
    root = tmp_path / "root"
    with pawl.Checkpointer(root, persist_every=3600, job="stopped") as ckpt:
        assert ckpt.save(1, STATE).wait("committed", timeout=LIMIT_S)
        os.kill(pid := agent_pid(root), signal.SIGSTOP)
        try:
            with waits.sooner_than(waits.SAVE_S, "a save"):
                save = ckpt.save(2, STATE)
            assert f"the agent (pid {pid}) is stopped, by SIGSTOP" in (save.error or "")
            with (
                waits.sooner_than(waits.SAVE_S, "a restore, which waits for ranks"),
                pytest.raises(pawl.PawlError, match=f"kill -CONT {pid} resumes it"),
            ):
                ckpt.restore(dict(STATE))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert eventually(lambda: ckpt.save(3, STATE).wait("committed", timeout=5))


def test_an_agent_killed_in_a_restore_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    ckpt = pawl.Checkpointer(root, persist_every=0, job="killed2", rank=0, world_size=2)
    thread, raised = in_a_thread(lambda: ckpt.restore(dict(STATE)))  # waits for rank 1
    waits.moment(0.2)
    pid = agent_pid(root)
    session = ckpt._live()
    os.kill(pid, signal.SIGKILL)
    second = pawl.Checkpointer(root, persist_every=0, job="killed2", rank=1, world_size=2)
    assert second.restore(dict(STATE)) is None  # both ranks use another agent now
    thread.join(LIMIT_S)
    assert not raised and agent_pid(root) != pid
    os.kill(pid := agent_pid(root), signal.SIGKILL)
    await_gone(pid)
    with pytest.raises(pawl.PawlError, match=r"the agent \(pid \d+\) is gone"):
        session.pending()
    for one in (ckpt, second):
        one.close(timeout=0)
