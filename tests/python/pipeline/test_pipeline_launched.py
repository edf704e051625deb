"""A pipeline's script under the launchers, and in one process without any."""

from __future__ import annotations

import os
import re
import shutil
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


def launched(*command: str) -> list[str]:
    """What the script's ranks say under another launcher."""
    return lines(
        nursery.run(
            [*command, str(SCRIPT)],
            env=program.clean_env(),
            capture_output=True,
            text=True,
            timeout=program.LIMIT_S,
        )
    )


@pytest.mark.slow
def test_launchers_train_alike() -> None:
    by_pawl = lines(program.run_script(SCRIPT, "-n", "2"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    assert len(by_pawl) == 2 and len(set(by_pawl)) == 1
    assert launched(*torchrun, "--nproc-per-node", "2") == by_pawl


@pytest.mark.slow
def test_mpirun_trains_as_pawl_run_does() -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun (apt-get install openmpi-bin)")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # In a world, loopback has two addresses, and Open MPI then takes it only if it is named.
    where = ["--mca", "oob_tcp_if_include", "lo"]
    command = ["mpirun", *root, "--oversubscribe", "-np", "2", *where, sys.executable]
    assert launched(*command) == lines(program.run_script(SCRIPT, "-n", "2"))


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


def test_explain_names_the_slow_stage(tmp_path: Path) -> None:
    env = program.clean_env(PAWL_TRACE=str(tmp_path / "trace"))
    ranks.run_ranks(HERE / "pipeline_slow_rank.py", 2, env=env)
    done = program.run("explain", tmp_path / "trace", "--trace", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    first = r"group \w+: a pipeline of 2 stages on 1 host; 5 steps, median .* ms"
    assert re.fullmatch(first, done.stdout.splitlines()[0])
    rows = re.findall(r"^ +(\d) .* ([\d.]+) ms +([\d.]+) % +([\d.]+) ms$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["0", "1"] and float(rows[1][1]) > 200  # the naps of a step
    assert re.search(r"^stage 1 \(.*\) is the slow one: beside its plan", done.stdout, re.M)
    assert '"step of a pipeline"' in (tmp_path / "out.json").read_text()
