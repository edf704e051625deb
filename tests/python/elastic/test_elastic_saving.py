"""The times at which an elastic job saves, and the cost of a crash before anything is durable."""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

import program
from elastic_runs import Run, running
from elastic_said import EPOCHS, N_MANY, N, check_weights, ends
from pawl.elastic import _saving, _states
from pawl.elastic._saving import Checkpoints

program.find()
NEVER_S = 1000.0


class Clock:
    """Stands in for time.monotonic()."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Memory:
    """Stands in for an Engine: a save takes some seconds of the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.takes_s = 0.0
        self.saved_s: list[float] = []  # times of saves, in seconds of the clock

    def save(self, tag: str, parts: object, alone: bool) -> None:
        self._clock.now += self.takes_s
        self.saved_s.append(self._clock.now)


class Job:
    """Rank 0's checkpoints of a job whose steps take a tenth of a second."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, **env: str) -> None:
        patch.setenv("PAWL_ELASTIC_ROOT", str(root))
        for name, value in env.items():
            patch.setenv(name, value)
        self.clock = Clock()
        patch.setattr(_saving, "time", self.clock)
        patch.setattr(_saving._stop, "install", lambda **_: False)
        patch.setattr(_states, "every", list)
        patch.setattr(_saving._metrics, "_current", SimpleNamespace(steps=7))
        self.memory = Memory(self.clock)
        self.checkpoints = Checkpoints()
        self.checkpoints._engine = self.memory  # type: ignore[assignment]
        self.generation = 0

    def train(self, seconds: float) -> list[float]:
        """Trains for some seconds. Returns the times of saves, in seconds from the start."""
        begun, seen = self.clock.now, len(self.memory.saved_s)
        while self.clock.now < begun + seconds - 0.05:
            self.clock.now += 0.1
            if self.checkpoints.is_due(self.generation):
                self.checkpoints.save(self.generation, took_over=False, wait=False)
        return [round(at - begun, 1) for at in self.memory.saved_s[seen:]]


def test_every_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Job(tmp_path, monkeypatch).train(35) == pytest.approx([10, 20, 30], abs=0.5)


def test_as_often_as_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch, PAWL_ELASTIC_COMMIT="3")
    assert job.train(10) == pytest.approx([3, 6, 9], abs=0.5)
    monkeypatch.delenv("PAWL_ELASTIC_COMMIT")
    job = Job(tmp_path, monkeypatch, PAWL_ELASTIC_INTERVAL="2")  # seconds between durable saves
    assert job.train(5) == pytest.approx([2, 4], abs=0.3)


def test_ranks_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch)
    job.generation += 1
    assert job.train(1) == [0.1]  # the first save comes at once
    job.checkpoints.hurry()
    assert job.train(2) == pytest.approx([0.2], abs=0.2)
    job.generation += 1
    job.checkpoints.hurry()
    assert len(job.train(2)) == 1  # two reasons at once lead to one save
    assert len(job.train(7)) == 0


def test_passes_that_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short passes save at most once a second, for at most a twentieth of the time, up to the
    interval."""
    for takes_s, least_s in ((0.0, 1.0), (0.5, 10.0), (30.0, 60.0)):
        job = Job(tmp_path, monkeypatch)
        job.memory.takes_s = takes_s
        at = []
        for _ in range(1000):
            job.checkpoints.hurry()
            job.train(0.3)
        at = job.memory.saved_s
        assert len(at) > 3
        pauses = [b - a - takes_s for a, b in itertools.pairwise(at)]
        assert min(pauses) >= least_s - 0.01 and max(pauses) < least_s + 1


def test_without_a_root(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(Path(), monkeypatch, PAWL_ELASTIC_ROOT="")
    job.generation += 1
    assert job.train(100) == []


def restored(run: Run) -> int:
    """Returns the step that the second start went on from."""
    run.wait_for("restart 1 of 3")
    run.wait_for("pawl: restored step ")
    (found,) = re.findall(r"pawl: restored step (\d+) \([\d.]+ [KM]?i?B, from memory\)", run.out())
    assert "nothing saved yet in " in run.out().split("restart 1 of 3")[0]
    return int(found)


def kill_all(run: Run) -> None:
    for pid in run.pids():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow("a pass")
@pytest.mark.parametrize(
    ("commit_s", "behind", "least"),
    [(0.2, "DID 0:144", 1), (NEVER_S, "DID 1:24", 10)],
    ids=["a while", "a pass"],
)
def test_all_are_killed_in_the_first_minute(
    tmp_path: Path, commit_s: float, behind: str, least: int
) -> None:
    """Nothing is durable by then."""
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), **program.times(elastic_commit=commit_s)}
    with running(tmp_path, "1:2", "pause=0.2", **env) as run:
        run.wait_for(rf"> {behind}\n", 2)
        kill_all(run)
        assert restored(run) >= least
        run.hurry()
        said = run.end()
    check_weights(said)
    assert set(ends(said, "SAMPLES")) == {str(N * EPOCHS)}


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_all_are_killed_behind_a_rescale(tmp_path: Path) -> None:
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), **program.times(elastic_commit=NEVER_S)}
    with running(tmp_path, "1:3 -n 1", f"n={N_MANY}", "pause=0.3", **env) as run:
        run.wait_for_trained(1)
        run.scale(3)
        run.wait_for_trained(3)
        run.wait_for(r"joined as rank \d of \d, after step \d+", 2)
        program.wait_until(
            lambda: all(sum("DID" in line for line in one) >= 2 for one in run.said()),
            "two steps together",
        )
        kill_all(run)
        assert restored(run) >= 1
        run.hurry()
        said = run.end()
    check_weights(said, N_MANY)


def test_what_nobody_takes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint with a model of another name, for example, is refused: the job would begin anew
    without a word."""
    job = Job(tmp_path, monkeypatch)
    late = ["adaptdl-dataloader-epoch2-0", "adaptdl-accumulator-epochNone-1"]
    monkeypatch.setattr(_states, "_pending", dict.fromkeys(["plain-1234abcd", *late]))
    job.checkpoints._has_read = True
    for _ in range(2):
        job.checkpoints.save(0, took_over=False, wait=False)
    (told,) = [one for one in caplog.messages if "begins anew" in one]
    assert "plain-1234abcd" in told and "adaptdl-" not in told
