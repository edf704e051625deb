"""The examples of elastic training: they learn, and adapt, on two ranks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import program

program.find()
EXAMPLES = Path(__file__).parents[3] / "examples" / "elastic"


def run(tmp_path: Path, name: str, *args: str) -> tuple[list[float], list[int]]:
    """Runs an example. Returns a number of each epoch, and the batches that it used."""
    from pawl._report import _training

    rows = tmp_path / "rows.csv"
    env = program.clean_env(PAWL_ELASTIC_REFIT="0.2", PAWL_ELASTIC_HISTORY=str(rows))
    script = EXAMPLES / f"{name}.py"
    done = program.run_script(script, "-n", "2", "--max-restarts", "0", args=args, env=env)
    assert done.returncode == 0, done.stderr
    said = [float(found) for found in re.findall(r"epoch \d+: (?:radius )?([\d.]+)", done.stdout)]
    return said, [row.batch for row in _training.read(rows)]


@pytest.mark.slow
def test_digits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("tensorboard")
    logs = tmp_path / "logs"
    said, batches = run(tmp_path, "digits", "--epochs", "8", "--logdir", str(logs))
    assert len(said) == 8 and said[-1] > 90
    assert batches[0] == 32 and max(batches) <= 512
    assert os.listdir(logs)


def test_gpt(tmp_path: Path) -> None:
    said, batches = run(
        tmp_path, "gpt", "--epochs", "3", "--windows", "512", "--width", "64", "--max-batch", "64"
    )
    assert len(said) == 3 and said[-1] < min(3.3, said[0])
    assert batches[0] == 16 and max(batches) <= 64


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_gan(tmp_path: Path) -> None:
    said, _ = run(tmp_path, "gan", "--epochs", "4", "--max-batch", "0")
    assert len(said) == 4 and 0.5 < said[-1] < 4


@pytest.mark.slow
def test_custom_loop(tmp_path: Path) -> None:
    said, batches = run(tmp_path, "custom_loop", "--epochs", "2")
    assert len(said) == 2 and said[-1] < said[0]
    assert batches[0] == 16 and max(batches) <= 128
