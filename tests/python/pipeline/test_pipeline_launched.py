"""A pipeline's script under the launchers, and in one process without any."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nursery
import program
import ranks

HERE = Path(__file__).parent
SCRIPT = HERE / "pipeline_script_rank.py"


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"> (0x[0-9a-f.]+p[-+]\d+)", done.stdout)  # lines of ranks may be mixed


@pytest.mark.slow
def test_pawl_run_and_torchrun_train_alike() -> None:
    by_pawl = lines(program.run_script(SCRIPT, "-n", "2"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    by_torchrun = lines(
        nursery.run(
            [*command, "--nproc-per-node", "2", str(SCRIPT)],
            env=program.clean_env(),
            capture_output=True,
            text=True,
            timeout=program.LIMIT_S,
        )
    )
    assert len(by_pawl) == 2 and by_pawl == by_torchrun
    assert len(set(by_pawl)) == 1


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_interpreters_that_are_executed() -> None:
    said = ranks.run_ranks(SCRIPT, 2)
    assert said[0] == said[1] and len(said[0]) == 1


@pytest.mark.slow
def test_models_of_transformers() -> None:
    """GPT-2, Llama, BERT and T5, cut where the plan wants it."""
    pytest.importorskip("transformers")
    done = nursery.run(
        [sys.executable, str(HERE / "pipeline_transformers.py"), "2", "3"],
        env=program.clean_env(),
        capture_output=True,
        text=True,
        timeout=2 * program.LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    models = ["gpt2", "llama", "bert", "t5"]
    assert ranks.say(done.stdout) == [f"{stages} {name}" for stages in (2, 3) for name in models]


@pytest.mark.slow
def test_tensors_of_over_64_mib() -> None:
    assert ranks.run_ranks(HERE / "pipeline_large_rank.py", 2) == [["passed"]] * 2
