"""The noise scale of jobs whose ranks go and come, compared with steady jobs at the same point of
training.

Quick tests draw gradients whose moments are known. Their squared norm falls as training goes on, as
that of a real one does. The slow test trains.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import program
import ranks
from conftest import SEED, real_core

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

SIZE = 2000  # elements of a gradient
CHANGE, AFTER = 300, 150  # steps before and after the change of ranks
CHANGES = list(itertools.permutations(range(1, 5), 2))


def sqr_at(step: int) -> float:
    return float((1 + step / 30) ** -1.2)


VAR = 1.5  # variance of the gradient of an initial batch; each step takes one


@functools.cache
def samples(step: int) -> Any:
    """Returns the gradients of the 12 samples of a batch."""
    generator = torch.Generator().manual_seed(step)
    normal = torch.randn(12, SIZE, generator=generator) * math.sqrt(12 * VAR / SIZE)
    return normal + math.sqrt(sqr_at(step) / SIZE)


def gradients(step: int, shares: list[float]) -> list[Any]:
    """Returns the gradient of each rank, over its share of the samples."""
    parts = samples(step).split([round(12 * share) for share in shares])
    return [part.mean(0, dtype=torch.float64) for part in parts]


def even(n: int) -> list[float]:
    """Returns each rank's share of 12 samples; the shares of 5 ranks are unequal."""
    return [(12 // n + (rank < 12 % n)) / 12 for rank in range(n)]


class Told:
    """Treats a step as AdaptiveDataParallel does, with gradients drawn for each rank."""

    def __init__(self) -> None:
        from pawl.elastic import _gradients, _model, _noise

        weight = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
        norms = _gradients.Norms(torch.optim.SGD([weight], lr=0.1), lambda *_: None)
        self.layout = [_gradients.Span(0, weight, 0, SIZE)]
        self.noise, self._pair, self._norms = _noise.NoiseScale(1), _gradients.Pair(norms), norms
        self._on_host = True
        self._take: Callable[..., None] = _model.AdaptiveDataParallel._take_norms
        self._step = _gradients.Step

    def step(self, step: int, shares: list[float]) -> None:
        own = gradients(step, shares)
        scaled = [share * one for share, one in zip(shares, own, strict=True)]
        mean = torch.stack(scaled).sum(0)
        if len(shares) == 1:
            self._pair.see(0, mean, self.layout)
        of = self._step(
            ranks=len(shares),
            count=1 / sum(share * share for share in shares),
            parts=1,
            scale=1.0,
            even=True,
            square=1.0,
            generation=0,
        )
        local = sum(float(one.square().sum()) for one in scaled)
        self.noise.age(1.0)
        self._take(self, of, [local, float(mean.square().sum())], None)

    def scale(self) -> float:
        sqr, var = self.noise.moments()
        return var / max(sqr, 1e-9)


def train(ranks_at: Callable[[int], int]) -> Iterator[tuple[int, float]]:
    """Yields (step, noise scale) at every tenth step after the change."""
    told = Told()
    for step in range(CHANGE + AFTER):
        told.step(step, even(ranks_at(step)))
        if step >= CHANGE and step % 10 == 9:
            yield step, told.scale()


@pytest.fixture(scope="module")
def steady() -> dict[int, dict[int, float]]:
    """Noise scales of steady jobs: number of ranks -> step -> scale."""
    return {n: dict(train(lambda _, n=n: n)) for n in range(1, 5)}


def check_near(found: float, of: float, most: float, what: object) -> None:
    assert of / most < found < of * most, f"{what}: {found:.3g}, not {of:.3g}"


def test_steady_ranks_tell_what_is_true(steady: dict[int, dict[int, float]]) -> None:
    for n, told in steady.items():
        for step, scale in told.items():
            check_near(scale, VAR / sqr_at(step), 2.0, (n, step))


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_a_change_of_ranks(before: int, after: int, steady: dict[int, dict[int, float]]) -> None:
    most = 2.0 if 1 in (before, after) else 1.3  # for some time, a single rank knows little
    for step, scale in train(lambda step: before if step < CHANGE else after):
        for n in (before, after):
            check_near(scale, steady[n][step], most, (step, f"steady {n}"))


@pytest.mark.parametrize("stays", [2, 3, 4])
def test_a_rank_is_alone_for_a_while(stays: int, steady: dict[int, dict[int, float]]) -> None:
    """A rank is alone while others are killed and started again."""
    for away in (1, 10, 60):
        alone = range(CHANGE, CHANGE + away)
        for step, scale in train(lambda step, a=alone: 1 if step in a else stays):
            check_near(scale, steady[stays][step], 1.5, (step, away))


def test_any_number_of_changes(steady: dict[int, dict[int, float]]) -> None:
    """Ranks change at random; some shares are unequal (5 ranks have 3, 3, 2, 2 and 2 of 12
    samples)."""
    rng = random.Random(SEED)
    for _ in range(3):
        turns = [rng.randint(1, 5) for _ in range(CHANGE + AFTER)]
        every = rng.choice([3, 20, 70])
        for step, scale in train(lambda step, t=turns, e=every: t[step // e]):
            check_near(scale, steady[4][step], 1.6, (step, every, turns[step // every]))


def test_a_pair_is_of_two_steps_that_follow_each_other() -> None:
    """A gradient kept from before others came is not compared with a much later one."""
    told = Told()
    for step in range(2):
        told.step(step, [1.0])
    assert told._pair._kept
    told.step(2, even(2))
    assert not told._pair._kept
    pair, own = told._pair, [1.0]
    pair._kept, pair._scale, pair._step = {0: torch.ones(SIZE)}, 2.0, 2
    assert pair.next(own, 1.0, 1.0) is None and pair.next(own, 1.0, 1.0) is None


def test_averages_that_were_saved_before_they_knew_their_age() -> None:
    from pawl import _core
    from pawl.elastic._noise import NoiseScale

    noise, weight = NoiseScale(1), 1 - 0.999**700
    row = [weight, 0.1, 2 * weight, 3 * weight, 5.0, 10.0, 6.0]
    noise.load_state_dict({"averages": [row, row], "differences": False})
    assert noise.moments() == pytest.approx((2.0, 3.0))
    assert noise.state_dict()["averages"][1][0] == pytest.approx(700, rel=1e-2)
    again = NoiseScale(1)
    again.load_state_dict(noise.state_dict())
    assert again.state_dict() == noise.state_dict()
    assert isinstance(again._whole, _core.Noise)


# ---- a job that trains ----

SCRIPT = Path(__file__).with_name("elastic_rank.py")
STEPS = 900
OPTIONS = ("n=720", f"epochs={STEPS // 30}", "batch=24", "pause=0.004")


def rows_of(path: Path) -> list[Any]:
    from pawl._report import _training

    return [row for row in _training.read(path) if row.noise is not None and row.noise_high]


def row_at(rows: list[Any], step: int) -> Any:
    """Returns the last row at or before a step."""
    return [row for row in rows if row.step <= step][-1]


def run(folder: Path, name: str, world: int, *options: str) -> list[Any]:
    """Runs a job, whose ranks may be killed. Returns its rows."""
    history = folder / f"{name}.csv"
    env = program.clean_env(PAWL_ELASTIC_HISTORY=str(history), PAWL_ELASTIC_REFIT="0.05")
    started = ranks.start_ranks(SCRIPT, world, *OPTIONS, *options, env=env)
    try:
        for rank in started:
            rank.communicate(timeout=program.LIMIT_S)
    finally:
        ranks.stop(started)
    assert any(rank.returncode == 0 for rank in started)
    return rows_of(history)


@pytest.mark.slow
def test_a_job_whose_ranks_go(tmp_path: Path) -> None:
    """A job of 4, then 3, 2 and 1 ranks reports the noise of 4 ranks at the same step."""
    steady_rows = run(tmp_path, "steady", 4)
    others = run(tmp_path, "others", 4, "kill=3@500,2@600,1@700")
    assert {row.ranks for row in others} >= {1, 3, 4}
    for step in range(520, STEPS, 40):  # by then gradients are mostly noise, and rows have bounds
        one, other = row_at(others, step), row_at(steady_rows, step)
        assert one.noise_low < 1.5 * other.noise_high, (step, one, other)
        assert other.noise_low < 1.5 * one.noise_high, (step, one, other)
