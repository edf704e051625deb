"""Uploads to Azure's Blob service that are killed: each process sends what is missing, and no more.
The service is a stand-in, which counts; test_bucket.py and test_mirror.py have a real server of
S3's."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import buckets
import pawl
import program
import waits
from buckets import Azure
from conftest import SEED

KILLS = 10
PARTS = 12  # parts that the large file is uploaded in
MIB_A_SECOND = 150  # speed of the whole link: an upload takes more than a second
SHORT = program.times(mirror_settle=0.2, mirror_quiet=0.3, mirror_retry=0.1, mirror_retry_max=0.5)


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    """The server, which this process and those that it starts know by their environment."""
    with buckets.azure() as running:
        for name, value in (running.env | SHORT).items():
            monkeypatch.setenv(name, value)
        running.command(f"set 0 {MIB_A_SECOND} 0")
        yield running


def kill_again_and_again(azure: Azure, command: list[str]) -> None:
    """Runs a command that uploads the large file, and kills it at random moments."""
    rng = random.Random(SEED)
    for run in range(KILLS):
        before = azure.blocks()
        azure.command("reset")
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            if run == 0:  # at least one has something to go on with
                program.wait_until(azure.blocks, "a block is there")
            waits.any_moment(rng, 0, 1)
            process.kill()
            process.wait()
        azure.command("idle")  # else what was under way would be counted with the next run
        assert azure.sent() <= PARTS - before, (run, before)
    azure.command("set 0 0 0")
    azure.command("reset")


def run(*args: str | Path) -> str:
    done = program.run(*args, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_copy_that_is_killed_is_gone_on_with(azure: Azure, tmp_path: Path) -> None:
    root = azure.root("copy")
    state = {"large": {"x": torch.arange((PARTS - 1) << 22, dtype=torch.int32)}}
    with pawl.Checkpointer(str(tmp_path / "src"), job="large") as ckpt:
        ckpt.save(1, state).wait("durable", timeout=60)
    command = [program.find(), "ckpt", "copy", "--take", str(tmp_path / "src"), root]
    kill_again_and_again(azure, command)
    before = azure.blocks()
    run(*command[1:])
    assert azure.sent() <= PARTS - before
    assert azure.blocks() == 0
    assert "ok" in run("ckpt", "verify", "--all", root)
    assert pawl.load(root, partition="large")["x"].equal(state["large"]["x"])
    azure.command("reset")
    assert "copied before" in run(*command[1:])
    assert azure.sent() == 0


@pytest.mark.slow
def test_a_mirror_that_is_killed_is_gone_on_with(azure: Azure, tmp_path: Path) -> None:
    root, folder = azure.root("mirror"), tmp_path / "run"
    unit = folder / "checkpoint-7"
    unit.mkdir(parents=True)
    with (unit / "model.safetensors").open("wb") as file:
        for _ in range(16 * (PARTS - 1) + 1):
            file.write(os.urandom(1 << 20))
    (unit / "trainer_state.json").write_text("{}")
    command = [program.find(), "mirror", str(folder), root]
    kill_again_and_again(azure, command)
    before = azure.blocks()
    run(*command[1:], "--", "true")  # ships what is left, and ends
    assert azure.sent() <= PARTS - before
    assert azure.blocks() == 0
    run("ckpt", "export", root, "checkpoint-7", tmp_path / "out")
    for path in unit.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
