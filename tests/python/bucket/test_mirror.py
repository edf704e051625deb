"""pawl mirror, with a real S3 server: a program that knows nothing of Pawl loses nothing that was
committed, and never finds half a checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import buckets
import foreign
import program
import waits
from buckets import Server
from conftest import SEED
from pawl import _core

SCRIPT = Path(foreign.__file__)
KILLS = 60 if os.environ.get("PAWL_LONG") else 8
SHORT = program.times(mirror_settle=0.2, mirror_quiet=0.3, mirror_retry=0.1, mirror_retry_max=0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with buckets.server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in (server.env | SHORT).items():
        monkeypatch.setenv(name, value)
    return server


@contextlib.contextmanager
def mirror(folder: Path, root: str, *rest: str, to: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs a mirror; what it and its program print goes to a file."""
    with to.open("w") as out:
        process = subprocess.Popen(
            [program.find(), "mirror", str(folder), root, *rest],
            stdout=out, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def training(folder: Path, steps: int, code: int = 0, pause: float = 0, size: int = 1) -> list[str]:
    words = [sys.executable, SCRIPT, folder, steps, code, pause, size]
    return ["--", *map(str, words)]


def tags(root: str) -> list[str]:
    return [one["tag"] for one in _core.list_root(root)]


def status(folder: Path) -> dict[str, object]:
    done = program.run("mirror", "status", "--json", folder, env=dict(os.environ))
    return json.loads(done.stdout) if done.returncode == 0 else {}


def state_of(folder: Path, unit: str) -> str:
    units = status(folder).get("units", [])
    return next((one["state"] for one in units if one["unit"] == unit), "")


def test_a_program_goes_on_on_an_empty_node(bucket: Server, tmp_path: Path) -> None:
    root, out = bucket.root("empty-node"), tmp_path / "out"
    first, second = tmp_path / "first", tmp_path / "second"
    with mirror(first / "out", root, *training(first / "out", 5, code=7), to=out) as process:
        assert process.wait(program.LIMIT_S) == 7, out.read_text()  # the program's own
    assert tags(root) == ["checkpoint-3", "checkpoint-4", "checkpoint-5"]
    assert "nothing is missing" in out.read_text()
    with mirror(second / "out", root, *training(second / "out", 1), to=out) as process:
        assert process.wait(program.LIMIT_S) == 0, out.read_text()
    assert "start 5 [" in out.read_text()
    assert foreign.check(second / "out") == 6
    log = (second / "out" / "train.log").read_text().split("\n")
    assert log[:-1] == [f"step {i}" for i in range(1, 7)]
    assert "ok" in program.run("ckpt", "verify", "--all", root, env=dict(os.environ)).stdout


@pytest.mark.slow
def test_half_units_are_never_committed(bucket: Server, tmp_path: Path) -> None:
    root, folder, out = bucket.root("half"), tmp_path / "run", tmp_path / "log"
    half = folder / "checkpoint-9"
    with mirror(folder, root, to=out) as process:
        program.wait_until(lambda: status(folder), "the mirror runs")
        foreign.save(folder, 8, 1)
        program.wait_until(lambda: tags(root) == ["checkpoint-8"], "one is committed")
        half.mkdir()
        with (half / "optimizer.pt").open("wb") as file:
            file.write(b"half")
            file.flush()
            program.wait_until(lambda: state_of(folder, "checkpoint-9") == "open", "it is seen")
            (half / "trainer_state.json").write_text(
                "{}"
            )  # the last file, but one is being written
            waits.stays(lambda: state_of(folder, "checkpoint-9") == "open", "it is open", 1)
        program.wait_until(lambda: state_of(folder, "checkpoint-9") == "committed", "it is whole")
        assert tags(root) == ["checkpoint-8", "checkpoint-9"]
        (folder / "checkpoint-10").mkdir()
        (folder / "checkpoint-10" / "optimizer.pt").write_bytes(b"half")
        flushed = program.run("mirror", "flush", folder, "--deadline", "1", env=dict(os.environ))
        assert flushed.returncode == 1
        assert "checkpoint-10: no trainer_state.json yet" in flushed.stdout
        process.terminate()
        assert process.wait(program.LIMIT_S) == 1
    assert "not committed: checkpoint-10" in out.read_text()
    assert tags(root) == ["checkpoint-8", "checkpoint-9"]


@pytest.mark.slow
def test_a_writer_is_not_held_up_and_its_bytes_are_not_torn(bucket: Server, tmp_path: Path) -> None:
    """A program writes again and again to a unit that is being shipped: what is committed is one of
    its versions."""
    root, folder, out = bucket.root("torn"), tmp_path / "run", tmp_path / "log"
    unit = folder / "checkpoint-1"
    size = 6 << 20
    with mirror(folder, root, to=out) as process:
        program.wait_until(lambda: status(folder), "the mirror runs")
        unit.mkdir()
        (unit / "optimizer.pt").write_bytes(bytes(size))
        (unit / "trainer_state.json").write_text("{}")
        rng = random.Random(SEED)
        for version in range(1, 25):
            with (unit / "optimizer.pt").open("r+b") as file:
                file.write(bytes([version]) * size)
            waits.any_moment(rng, 0.1, 0.5)
            for tag in tags(root):
                copy = tmp_path / f"copy{version}"
                done = program.run("ckpt", "export", root, tag, copy, env=dict(os.environ))
                if done.returncode == 0:  # else it was replaced meanwhile
                    assert len(set((copy / "optimizer.pt").read_bytes())) == 1
        program.wait_until(lambda: state_of(folder, "checkpoint-1") == "committed", "committed")
        process.terminate()
        assert process.wait(program.LIMIT_S) == 0, out.read_text()
    done = program.run(
        "ckpt", "export", root, "checkpoint-1", tmp_path / "end", env=dict(os.environ)
    )
    assert done.returncode == 0
    assert (tmp_path / "end" / "optimizer.pt").read_bytes() == bytes([24]) * size


@pytest.mark.slow
def test_kills_lose_nothing_that_was_committed(bucket: Server, tmp_path: Path) -> None:
    """Mirror and program are killed at random moments; then the same node goes on, or a new one."""
    rng = random.Random(SEED)
    root, out = bucket.root("killed"), tmp_path / "log"
    committed, folder = 0, tmp_path / "node0"
    for attempt in range(KILLS):
        words = training(folder, 1000, pause=0.2)
        with mirror(folder, root, *words, to=out) as process:
            program.wait_until(
                lambda: "saved" in out.read_text() or "Error" in out.read_text(), "it trains"
            )
            waits.any_moment(rng, 0, 2)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in [process.pid, *map(int, children)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            text = out.read_text()
        assert "Error" not in text, text
        begun = int(text.split("start ")[1].split()[0])
        assert begun >= committed, (attempt, committed, text)
        done = [int(line.split("checkpoint-")[1].split()[0])
                for line in text.splitlines() if "committed checkpoint-" in line]  # fmt: skip
        committed = max([committed, *done])
        verified = program.run("ckpt", "verify", "--all", root, env=dict(os.environ))
        assert verified.returncode == (0 if tags(root) else 3), verified.stdout
        if rng.random() < 0.6:
            folder = tmp_path / f"node{attempt + 1}"


@pytest.mark.slow
def test_an_outage_delays_and_loses_nothing(bucket: Server, tmp_path: Path) -> None:
    """The server stops in the middle of training; the program does not notice, and the mirror ships
    what is left, the removed ones too, once the server goes on."""
    root, folder, out = bucket.root("outage"), tmp_path / "run", tmp_path / "log"
    with mirror(folder, root, *training(folder, 12, pause=0.5), to=out) as process:
        program.wait_until(lambda: "committed" in out.read_text(), "one is committed")
        with bucket.stopped():
            program.wait_until(lambda: "saved 12" in out.read_text(), "it trains on")
            assert process.poll() is None
        assert process.wait(program.LIMIT_S) == 0, out.read_text()
    assert tags(root) == ["checkpoint-10", "checkpoint-11", "checkpoint-12"]


@pytest.mark.slow
def test_the_newest_mirror_has_the_prefix(bucket: Server, tmp_path: Path) -> None:
    """A node that was only cut off goes on; its mirror ships nothing any more, and says so."""
    root, old, new = bucket.root("fenced"), tmp_path / "old", tmp_path / "new"
    logs = tmp_path / "old.log", tmp_path / "new.log"
    with mirror(old, root, *training(old, 30, code=3, pause=0.3), to=logs[0]) as first:
        program.wait_until(lambda: "committed checkpoint-2" in logs[0].read_text(), "it ships")
        with mirror(new, root, *training(new, 2), to=logs[1]) as second:
            assert second.wait(program.LIMIT_S) == 0, logs[1].read_text()
        shutil.rmtree(new)
        kept = tags(root)
        assert first.wait(program.LIMIT_S) == 3  # the program went on
    assert "another process has taken" in logs[0].read_text()
    assert tags(root) == kept


@pytest.mark.slow
def test_a_mirror_that_is_told_to_end_ends_in_time(bucket: Server, tmp_path: Path) -> None:
    """SIGTERM reaches the program; then what is left is shipped, within the grace."""
    root, folder, out = bucket.root("term"), tmp_path / "run", tmp_path / "log"
    words = ["--grace", "60", *training(folder, 1000, pause=0.3)]
    with mirror(folder, root, *words, to=out) as process:
        program.wait_until(lambda: "saved 3" in out.read_text(), "it trains")
        process.terminate()
        assert process.wait(program.LIMIT_S) == 128 + signal.SIGTERM
    last = foreign.units(folder)
    whole = [step for step, path in last.items() if (path / "trainer_state.json").exists()]
    assert f"checkpoint-{max(whole)}" in tags(root) or "not committed" in out.read_text()


@pytest.mark.slow
def test_wrong_calls_are_named(bucket: Server, tmp_path: Path) -> None:
    env = dict(os.environ)
    folder = tmp_path / "x"
    assert program.run("mirror", folder, "/local", "--", "true", env=env).returncode == 2
    assert program.run("mirror", folder, env=env).returncode == 2
    assert program.run("mirror", folder, bucket.root("w"), "true", env=env).returncode == 2
    done = program.run("mirror", folder, bucket.root("w"), "--", "no-such-program", env=env)
    assert done.returncode == 3 and "no-such-program" in done.stderr
    assert program.run("mirror", "status", folder, env=env).returncode == 3
    (tmp_path / "file").write_text("")
    assert program.run("mirror", tmp_path / "file", bucket.root("w"), env=env).returncode == 1
    done = program.run("mirror", folder, "s3://no-such-bucket/x", "--", "true", env=env)
    assert done.returncode == 1 and "NoSuchBucket" in done.stderr
