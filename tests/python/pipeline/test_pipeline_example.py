"""The example: GPT-2 over stages, which goes on with fewer of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import program

program.find()
SCRIPT = Path(__file__).parents[3] / "examples/pipeline/gpt2.py"
SMALL = [
    "--batch",
    "8",
    "--context",
    "16",
    "--layers",
    "4",
    "--width",
    "32",
    "--microbatches",
    "4",
    "--every",
    "3",
]


def train(folder: Path, name: str, stages: int, steps: int) -> list[str]:
    """Runs the example. Returns what it prints of its steps."""
    args = [str(folder / "text"), "--root", str(folder / name), *SMALL,
            "--stages", str(stages), "--steps", str(steps)]  # fmt: skip
    done = program.run_script(
        SCRIPT, "-n", str(stages), "--max-restarts", "0", args=args,
        env=program.clean_env(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"step \d+: loss [\d.]+", done.stdout)


@pytest.mark.slow
def test_gpt2_goes_on_with_fewer_stages(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "text").write_bytes(SCRIPT.read_bytes())
    whole = train(tmp_path, "one", 1, 6)
    four = train(tmp_path, "several", 4, 3)
    three = train(tmp_path, "several", 3, 6)
    assert len(whole) == 6 and whole == four + three
    losses = [float(line.split()[-1]) for line in whole]
    assert losses[-1] < losses[0]
