"""Jobs whose file_mounts are buckets, on a real S3 server: a program that knows nothing of Pawl."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import buckets
import foreign
import program
from buckets import Server
from cluster import Cluster, cluster
from pawl import _core

FOREIGN = Path(foreign.__file__)
SHORT = program.times(mirror_settle=0.2, mirror_quiet=0.3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with buckets.server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Cluster]:
    with cluster("--slots", "2", "--grace", "20", "--round", "1") as made:
        yield made


def submit(scheduler: Cluster, server: Server, folder: Path, text: str) -> int:
    (folder / "job.yaml").write_text(text)
    variables = [f"--env={name}={value}" for name, value in (server.env | SHORT).items()]
    done = scheduler.run("submit", "--json", *variables, "job.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["id"]


def end(scheduler: Cluster, job: int) -> list[str]:
    scheduler.await_state(job, "done", "failed")
    assert scheduler.state(job) == "done", scheduler.log(job)
    return scheduler.lines(job)


@pytest.mark.slow
def test_a_job_goes_on_on_an_empty_node(
    scheduler: Cluster, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job has saved is in the bucket, and there before the next one starts. A bucket that is
    copied is there for setup, too."""
    for name, value in (server.env | SHORT).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "list.txt").write_text("one two\n")
    done = program.run("mirror", tmp_path / "words", server.root("words"), "--", "true")
    assert done.returncode == 0, done.stderr
    out, data = tmp_path / "out", tmp_path / "data"
    text = f"""
        workdir: {tmp_path}
        file_mounts:
          {out}: {{source: "{server.root("job")}", mode: MOUNT_CACHED}}
          {data}: {server.root("words")}
        setup: cat {data}/list.txt
        run: {sys.executable} {FOREIGN} {out} 3 0 0 1
    """
    lines = end(scheduler, submit(scheduler, server, tmp_path, text))
    assert "one two" in lines and "start 0 []" in lines and "saved 3" in lines
    assert [one["tag"] for one in _core.list_root(server.root("job"))] == [
        "checkpoint-1",
        "checkpoint-2",
        "checkpoint-3",
    ]
    for folder in (out, data):
        shutil.rmtree(folder)
    lines = end(scheduler, submit(scheduler, server, tmp_path, text))
    assert any(line.startswith("start 3 [") for line in lines) and "saved 6" in lines
    assert (data / "list.txt").read_text() == "one two\n"


@pytest.mark.slow
def test_a_job_that_is_stopped_has_its_checkpoints_in_the_bucket(
    scheduler: Cluster, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    out, root = tmp_path / "out", server.root("stopped")
    text = f"""
        file_mounts:
          {out}: {{source: "{root}", mode: MOUNT_CACHED}}
        run: exec {sys.executable} {FOREIGN} {out} 1000 0 0.1 1
    """
    job = submit(scheduler, server, tmp_path, text)
    program.wait_until(lambda: (out / "checkpoint-3" / "trainer_state.json").exists(), "a save")
    assert scheduler.run("cancel", str(job)).returncode == 0
    scheduler.await_state(job, "cancelled")
    (tmp_path / "again").mkdir()
    newest = max(one["step"] for one in _core.list_root(root))
    assert newest >= 1
    done = program.run("mirror", "--fetch-only", tmp_path / "again", root)
    assert done.returncode == 0, done.stderr
    assert foreign.check(tmp_path / "again") == newest
