"""The examples: they go on with fewer stages, or when they were killed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import program

program.find()
FOLDER = Path(__file__).parents[3] / "examples/pipeline"
GPT2 = {"batch": 8, "context": 16, "layers": 4, "width": 32, "microbatches": 4, "every": 3}
UNET = {"batch": 2, "size": 16, "channels": 4, "microbatches": 2, "every": 5}
ENV = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def words(**options: Any) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def losses(text: str) -> dict[int, float]:
    """The losses of steps, as they are printed."""
    found = re.findall(r"step (\d+): loss ([\d.]+)", text)
    return {int(step): float(loss) for step, loss in found}


def are_alike(one: dict[int, float], other: dict[int, float]) -> bool:
    """Whether losses are equal; with other units, the last digit may differ."""
    return one == pytest.approx(other, abs=2e-4)


def train(script: str, folder: Path, name: str, ranks: int, *args: str) -> dict[int, float]:
    """Runs an example to its end. Returns the losses of its steps."""
    done = program.run_script(
        FOLDER / script, "-n", str(ranks), "--max-restarts", "0",
        args=[*args, "--root", str(folder / name)], env=program.clean_env(**ENV),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return losses(done.stdout)


@pytest.mark.slow
def test_gpt2_goes_on_with_fewer_stages(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "text").write_bytes((FOLDER / "gpt2.py").read_bytes())

    def steps(name: str, stages: int, last: int) -> dict[int, float]:
        args = [str(tmp_path / "text"), *words(stages=stages, steps=last, **GPT2)]
        return train("gpt2.py", tmp_path, name, stages, *args)

    whole = steps("one", 1, 6)
    four = steps("several", 4, 3)
    three = steps("several", 3, 6)
    assert list(whole) == [1, 2, 3, 4, 5, 6] and are_alike(whole, four | three)
    assert list(three) == [4, 5, 6] and whole[6] < whole[1]


@pytest.mark.slow
def test_a_u_net_of_stages_and_replicas_goes_on_when_it_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("monai")
    args = words(stages=2, steps=30, **UNET)
    whole = train("unet.py", tmp_path, "whole", 4, *args)
    killed = program.start_script(
        FOLDER / "unet.py", "-n", "4", args=[*args, "--root", str(tmp_path / "killed")],
        env=program.clean_env(**ENV),
    )  # fmt: skip
    assert killed.stdout is not None
    before: dict[int, float] = {}
    try:
        while 7 not in before:
            before |= losses(killed.stdout.readline() or "step 7: loss 0")
    finally:
        killed.kill()
        before |= losses(killed.communicate(timeout=program.LIMIT_S)[0])
    program.await_let_go(tmp_path / "killed")
    after = train("unet.py", tmp_path, "killed", 4, *args)
    first = min(after)
    assert first in range(1, 31, 5)  # behind the last step that was saved
    assert are_alike(whole, {n: loss for n, loss in before.items() if n < first} | after)
