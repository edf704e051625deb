"""Jobs as users run them: DDP under `pawl run`, killed, signalled, read with torch alone."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch

import nursery
import pawl
import program
import ranks
import waits

SCRIPT = Path(__file__).with_name("job.py")
LIMIT_S = program.LIMIT_S


class Job:
    """A `pawl run` of job.py, and its log."""

    def __init__(self, tmp_path: Path, steps: int, pause: float, *options: str) -> None:
        self.root, self.log, self.out = tmp_path / "root", tmp_path / "log", tmp_path / "out"
        with self.out.open("ab") as out:
            self.process = nursery.Popen(
                [program.find(), "run", "-n", "2", *options, SCRIPT, self.root, str(steps),
                 str(pause), self.log],
                env=program.clean_env(), stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def lines(self, word: str) -> list[list[str]]:
        text = self.log.read_text() if self.log.exists() else ""
        return [
            row for row in map(str.split, text.splitlines()) if len(row) == 6 and row[1] == word
        ]

    def wait_for(self, word: str, count: int = 1) -> list[list[str]]:
        def has_said() -> bool:
            if len(self.lines(word)) >= count:
                return True
            assert self.process.poll() is None, self.out.read_text()
            return False

        program.wait_until(has_said, f"{count} times {word}")
        return self.lines(word)

    def end(self) -> int:
        return self.process.wait(LIMIT_S)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def weights(root: Path, step: int) -> dict[str, torch.Tensor]:
    """Returns the weights as a program without Pawl reads them."""
    return torch.load(root / f"global_step{step}" / "model", weights_only=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = Job(tmp_path_factory.mktemp("undisturbed"), 40, 0)
    assert job.end() == 0, job.out.read_text()
    return job.root


def test_what_lies_in_the_root(undisturbed: Path) -> None:
    tag = undisturbed / "global_step40"
    names = {p.name for p in tag.iterdir()}
    by_rank = {f"{name}-rank{rank}" for name in ("note", "rng") for rank in (0, 1)}
    assert names == {"model", "optimizer", "complete.txt", ".pawl"} | by_rank
    assert (tag / "complete.txt").read_bytes() == b"OK"
    assert list(weights(undisturbed, 40)) == ["module.weight", "module.bias"]
    assert torch.load(tag / "note-rank1", weights_only=True) == 1
    assert same(pawl.load(undisturbed, partition="model"), weights(undisturbed, 40))


def test_a_killed_worker_costs_no_bit(tmp_path: Path, undisturbed: Path) -> None:
    job = Job(tmp_path, 40, 0.05, "--job", "killed-worker")
    victim = job.wait_for("committed", 4)[-1]
    os.kill(int(victim[5]), signal.SIGKILL)
    assert job.end() == 0, job.out.read_text()
    starts = job.lines("start")
    assert [row[3] for row in starts] == ["0", "0", "1", "1"]  # attempts, equal on both ranks
    assert {row[4] for row in starts} == {"killed-worker"}
    assert all(int(row[2]) >= 10 for row in starts[2:])  # from memory: nothing was durable yet
    assert starts[2][2] == starts[3][2]
    assert same(weights(job.root, 40), weights(undisturbed, 40))


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_sigterm_saves_and_leaves(tmp_path: Path, undisturbed: Path) -> None:
    job = Job(tmp_path, 40, 0.1, "--job", "terminated")
    job.wait_for("committed", 4)
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 143, job.out.read_text()
    stopped = {int(row[2]) for row in job.lines("stopping")}
    assert len(stopped) == 1  # both ranks stop at the same step
    (step,) = stopped
    assert f"step {step} is durable" in job.out.read_text().splitlines()[-1]
    assert (job.root / f"global_step{step}" / "complete.txt").exists()
    again = Job(tmp_path, 40, 0, "--job", "terminated")
    assert again.end() == 0, again.out.read_text()
    assert int(again.lines("start")[-1][2]) == step
    assert same(weights(job.root, 40), weights(undisturbed, 40))


def test_a_killed_job_goes_on_from_what_is_durable(tmp_path: Path, undisturbed: Path) -> None:
    job = Job(tmp_path, 40, 0.05, "--job", "all-killed")
    pids = [int(row[5]) for row in job.wait_for("committed", 4)]
    job.process.kill()
    job.end()
    gone = "no worker outlives its agent"
    program.wait_until(lambda: not any(program.is_alive(pid) for pid in pids), gone)
    again = Job(tmp_path, 40, 0, "--job", "all-killed")
    assert again.end() == 0, again.out.read_text()
    assert same(weights(job.root, 40), weights(undisturbed, 40))


def test_damage_is_found_by_verify_and_by_the_exit_code(undisturbed: Path) -> None:
    path = undisturbed / "global_step40" / "model"
    assert program.run("ckpt", "verify", undisturbed).returncode == 0
    bytes_ = bytearray(path.read_bytes())
    bytes_[5000] ^= 4
    path.write_bytes(bytes_)
    done = program.run("ckpt", "verify", undisturbed)
    bytes_[5000] ^= 4
    path.write_bytes(bytes_)
    assert done.returncode == 4
    assert "global_step40/model" in done.stdout + done.stderr


ENDS = """
import os, signal, sys, time
import torch
import pawl
rank = int(os.environ["RANK"])
ckpt = pawl.Checkpointer(sys.argv[1], persist_every=3600)
state = {"x": torch.ones(1000)}
ckpt.save(1, state).wait("committed", timeout=60)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
errors = [save.error for save in [ckpt.save(step, state) for step in (2, 3)]]
print(">", time.monotonic() - begin, [str(error) for error in errors if error], flush=True)
os._exit(0)
"""


def test_saves_wait_shortly_for_a_rank_that_is_gone(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    started = ranks.start_ranks(script, 2, str(tmp_path / "root"))
    text = started[0].communicate(timeout=program.LIMIT_S)[0]
    ranks.stop(started)
    seconds, _, errors = ranks.say(text)[0].partition(" ")
    waits.check_sooner(float(seconds), waits.SAVE_S, "saves that fail for a rank that is gone")
    assert "rank 1 has not staged global_step2 yet: it is gone" in errors, text
