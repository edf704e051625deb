"""Hugging Face's Trainer under pawl mirror, on nodes that are lost at random moments: it ends with
the weights of an undisturbed run, and its own rotation of checkpoints holds in the bucket."""

from __future__ import annotations

import contextlib
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
import packages
import program
import waits
from buckets import Server
from conftest import SEED
from pawl import _core

packages.require("transformers")

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("mirrored_trainer.py")
LOSSES = 4
ROUNDS_MAX = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with buckets.server(tmp_path_factory.mktemp("server")) as running:
        yield running


def weights_in(text: str) -> str | None:
    found = [line.split()[1] for line in text.splitlines() if line.startswith("weights ")]
    return found[0] if found else None


def lose_node(process: subprocess.Popen[str]) -> None:
    """Kills a mirror and its program at once."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in [process.pid, *map(int, children)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def test_a_trainer_survives_the_loss_of_its_nodes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED)
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    env = {**os.environ, **program.times(mirror_settle=0.3, mirror_quiet=0.5)}
    plain = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "plain", "0"],
        capture_output=True, text=True, check=True, env=env, timeout=program.LIMIT_S,
    )  # fmt: skip
    root, output, out = server.root("trainer"), tmp_path / "node" / "out", tmp_path / "log"
    words = [program.find(), "mirror", output, root, "--", sys.executable, SCRIPT, output, "0.2"]
    begun, losses, text = [], 0, ""
    for _ in range(ROUNDS_MAX):
        with out.open("w") as log:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdout=log, stderr=subprocess.STDOUT, text=True, env=env,
            )  # fmt: skip
            try:
                program.wait_until(lambda: "begin " in out.read_text(), "it begins")
                if losses < LOSSES:
                    if losses % 2 == 0:
                        waits.eventually(lambda: "mirror: committed" in out.read_text())
                    waits.any_moment(rng, 0, 3)
                    lose_node(process)
                    losses += 1
                else:
                    process.wait(program.LIMIT_S)
            finally:
                process.kill()
                process.wait()
        text = out.read_text()
        assert "Traceback" not in text, text
        begun.append(text.split("begin ")[1].split()[0])
        if weights_in(text) is not None and process.returncode == 0:
            break
        if rng.random() < 0.7:
            shutil.rmtree(output.parent)  # the next node is empty, with the same paths
    assert weights_in(text) == weights_in(plain.stdout), text
    assert any(one != "None" for one in begun), begun
    left = [one["tag"] for one in _core.list_root(root)]
    assert sorted(left) == sorted(path.name for path in output.glob("checkpoint-*"))
