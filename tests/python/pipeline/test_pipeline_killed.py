"""A stage that is killed, or stands still, at any moment of a step: all others end, and name it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import program
import ranks
import waits
from conftest import SEED

HERE = Path(__file__).parent
MOMENT_S = 0.3  # steps take some 10 ms
KILLS = 200


def lose(seed: int, world: int, how: signal.Signals) -> None:
    """Trains with that many stages, ends or stops one of them at a moment at random, and looks at
    what the others say."""
    rng = random.Random(seed)
    victim = rng.randrange(world)
    started = ranks.start_ranks(
        HERE / "pipeline_kill_rank.py", world, str(seed), env=program.clean_env(**program.SILENT)
    )
    try:
        begun = read_until(started[victim], "> step 2")
        waits.any_moment(rng, 0, MOMENT_S)
        os.kill(started[victim].pid, how)
        lost = time.monotonic()
        for rank, process in enumerate(started):
            if rank != victim:
                said = ranks.say(process.communicate(timeout=program.LIMIT_S)[0])
                check(said, victim, f"seed {seed}: rank {rank} of {world}, {how.name}: {begun}")
        waits.check_sooner(time.monotonic() - lost, waits.NAMED_S, f"rank {victim} is named")
    finally:
        ranks.stop(started)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Reads lines up to this one; returns the lines before it."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        if line.startswith(text):
            return "".join(lines)
        lines.append(line)
    raise AssertionError(f"ended before {text!r}:\n{''.join(lines)}")


def check(said: list[str], victim: int, what: str) -> None:
    assert said and said[-1].startswith("PawlError: "), f"{what}: {said[-3:]}"
    assert f"rank {victim} is lost" in said[-1], f"{what}: {said[-1]}"


def test_a_stage_is_lost() -> None:
    for n, how in enumerate((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)):
        lose(SEED + n, 2, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("world", [3, 4])
def test_a_stage_of_several_is_lost(world: int, how: signal.Signals) -> None:
    lose(SEED, world, how)


@pytest.mark.skipif(not os.environ.get("PAWL_LONG"), reason="200 kills: make test-long")
def test_any_stage_is_lost_at_any_moment() -> None:
    rng = random.Random(SEED)
    for n in range(KILLS):
        how = signal.SIGSTOP if n % 10 == 0 else signal.SIGKILL
        lose(rng.randrange(1 << 32), rng.choice([2, 3, 4]), how)
