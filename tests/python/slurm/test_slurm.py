"""A real Slurm, without a scheduler of Pawl's: `srun pawl run` goes on when requeued."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import program
import slurm
from conftest import real_core

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

PROGRAM = program.find()
STEPS = 60
GRACE_S = 12  # Slurm kills after KillWait: 15 s in slurm.sh


@pytest.mark.slow
def test_srun_pawl_run_goes_on_when_it_is_requeued(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    log, printed = tmp_path / "log", tmp_path / "printed"

    def lines(word: str) -> list[list[str]]:
        all_lines = log.read_text().splitlines() if log.exists() else []
        return [line.split() for line in all_lines if line.split()[1:2] == [word]]

    script = tmp_path / "job.sh"
    words = [PROGRAM, "run", "-n", 2, "--grace", GRACE_S, "--python", sys.executable]
    words += [program.script("job.py"), tmp_path / "root", STEPS, 0.1, log]
    script.write_text(f"#!/bin/sh\nexec srun {' '.join(map(str, words))}\n")
    with slurm.cluster(tmp_path / "slurm", 1) as ours:
        options = ["--parsable", "--requeue", "--open-mode=append", f"--output={printed}"]
        job = ours.call("sbatch", *options, "--cpus-per-task=2", script).strip()
        program.wait_until(lambda: lines("committed"), "a step is committed", 120)
        ours.call("scontrol", "requeue", job)
        program.wait_until(lambda: len(lines("start")) == 4, "it starts again", 120)
        first, again = lines("start")[:2], lines("start")[2:]
        assert all(line[2:5] == ["0", "0", job] for line in first)
        stopped = max(int(line[2]) for line in lines("stopping"))  # signalled in time, and saved
        assert all(line[2:5] == [str(stopped), "1", job] for line in again)
        program.wait_until(lambda: not ours.call("squeue", "--noheader", "--states=R,CG,PD"),
                           "it ends", 120)  # fmt: skip
        shown = ours.call("scontrol", "show", "job", job)
    assert "JobState=COMPLETED" in shown and "Restarts=1" in shown, printed.read_text()


@pytest.mark.slow
def test_srun_trains_a_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with slurm.cluster(tmp_path / "slurm", 1) as ours:
        rank = program.script("pipeline_script_rank.py")
        printed = ours.call("srun", "-n", "2", sys.executable, rank)
    losses = re.findall(r"> (0x[0-9a-f.]+p[-+]\d+)", printed)
    assert len(losses) == 2 and len(set(losses)) == 1, printed
