"""``due()`` and ``persist_every="auto"``: their behaviour for a user, with the real agent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

import pawl
import program
import waits
from conftest import real_core

real = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
STATE = {"w": torch.zeros(1000)}


def fail_often(root: Path, event: str = "failed") -> None:
    """Writes a history of so many failures that saving as often as allowed is best."""
    root.mkdir()
    run = f"2026-11-20T10:00:00.000Z,j,0,started,1,,\n2026-11-20T10:00:00.001Z,j,0,{event},1,,\n"
    header = "time,job,attempt,event,ranks,step,why\n"
    (root / "checkpointEvents.csv").write_text(header + run * 5000)


@real
def test_a_job_that_saves_when_it_is_due(tmp_path: Path) -> None:
    """The history calls for one save a second, the shortest interval."""
    fail_often(tmp_path / "root")
    gaps: list[float] = []  # seconds from a save until the next was due
    costs: list[float] = []
    late: list[float] = []  # delay in asking, and in the answer, before each save
    saved = asked = time.monotonic()
    with pawl.Checkpointer(tmp_path / "root", job="due") as ckpt:
        for step in range(100_000):
            waits.pretend_to_work(0.005)
            before, asked = asked, time.monotonic()
            if ckpt.due():
                told = time.monotonic()
                gaps.append(told - saved)
                late.append(told - before)
                saved = told
                ckpt.save(step, STATE)
                costs.append(time.monotonic() - saved)
                assert not ckpt.due() or time.monotonic() - saved > 0.9
                if len(gaps) == 4:
                    break
    # The first interval rests on the assumed cost, before one was measured: 20 times 0.1 s.
    assert gaps[0] > 1.9
    waits.check_sooner(gaps[0] - late[0], 60, "the first is due after seconds, not some minutes")
    assert min(gaps[1:]) > 0.99, gaps
    spare = [max(1.5, 20 * max(costs[:n])) + late[n] - gap for n, gap in enumerate(gaps[1:], 1)]
    # One save may be late, if the agent stood still.
    waits.check_sooner(-sorted(spare)[1], 0, f"saves are due again: {gaps} {costs} {late}")


@real
def test_due_stays_true_until_the_next_save(tmp_path: Path) -> None:
    fail_often(tmp_path / "root")
    with pawl.Checkpointer(tmp_path / "root", job="stays") as ckpt:
        program.wait_until(ckpt.due, "it is due")
        assert ckpt.due() and ckpt.due()
        before = time.monotonic()
        ckpt.save(1, STATE)
        assert not ckpt.due() or time.monotonic() - before > 0.9


@real
def test_after_a_notice_every_question_is_yes(tmp_path: Path) -> None:
    with pawl.Checkpointer(tmp_path, job="notice") as ckpt:
        assert not ckpt.due()
        os.kill(os.getpid(), signal.SIGTERM)
        program.wait_until(ckpt.due, "it is due")
        ckpt.save(1, STATE)
        assert ckpt.due() and ckpt.stopping and ckpt.due()


@real
def test_auto_makes_durable_by_itself(tmp_path: Path) -> None:
    """A history of failures makes saves durable every ten seconds, the shortest interval; a calm
    one does not within the test's time."""

    def durable(name: str) -> bool:
        """Whether a save is durable. Reads text: rows are being added, and the last one may not be
        whole."""
        file = tmp_path / name / "checkpointHistories.csv"
        return file.exists() and ",durable," in file.read_text()

    fail_often(tmp_path / "lost", "lost")
    began = time.monotonic()  # the agents count from the first request
    with (
        pawl.Checkpointer(tmp_path / "lost", persist_every="auto", job="lost") as lost,
        pawl.Checkpointer(tmp_path / "calm", persist_every="auto", job="calm") as calm,
    ):

        def saved() -> bool:
            for ckpt in (lost, calm):
                ckpt.save(int(1000 * (time.monotonic() - began)), STATE)
            waits.pretend_to_work(0.1)
            return durable("lost")

        program.wait_until(saved, "often-lost agents make it durable")
        assert time.monotonic() - began > 9.9 and not durable("calm")


def test_of_whom_due_asks(fake: ModuleType, tmp_path: Path) -> None:
    ckpt = pawl.Checkpointer(tmp_path, persist_every="auto", job="fake")
    session = ckpt._session
    assert session is not None and session.options["persist_every_ms"] == (1 << 64) - 1
    assert not ckpt.due()
    session.is_due = True
    assert ckpt.due()
    session.is_due, session.is_stopping = False, True
    assert ckpt.due()
    ckpt.close()
    assert not ckpt.due()


def test_options(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="or 'auto', not 'often'"):
        pawl.Checkpointer(tmp_path, persist_every="often")  # type: ignore[arg-type]


def test_an_error_is_told_when_it_ends_a_with_block(fake: ModuleType, tmp_path: Path) -> None:
    def log_of(error: BaseException | None) -> list[str]:
        ckpt = pawl.Checkpointer(tmp_path / str(error), job="with")
        session = ckpt._session
        try:
            with ckpt:
                if error is not None:
                    raise error
        except (ValueError, SystemExit) as raised:
            assert raised is error
        return session.log

    assert log_of(None) == ["close"]
    assert log_of(SystemExit(0)) == ["close"]
    assert log_of(SystemExit(3)) == ["close"]
    assert log_of(ValueError("x")) == ["abandon ValueError: x", "close"]
