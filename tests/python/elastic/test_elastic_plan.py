"""The samples that each rank takes: none is left out, none comes twice, all count alike."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from pawl.elastic._plan import Batch, Micro, cut, order  # noqa: E402


def plans(seed: int, n: int) -> list[tuple[int, int, int, Batch]]:
    """Yields (first sample, end, ranks, batch)."""
    rng = random.Random(seed)
    made = []
    for _ in range(n):
        ranks, atomic, accum = rng.randint(1, 9), rng.randint(1, 12), rng.randint(0, 4)
        total = ranks * atomic * (accum + 1) if rng.random() < 0.7 or accum else rng.randint(1, 90)
        begin = rng.randint(0, 300)
        made.append((begin, begin + rng.randint(0, 300), ranks, Batch(atomic, accum, total)))
    return made


def test_parts_lie_one_behind_the_other() -> None:
    for begin, end, ranks, batch in plans(1, 2000):
        at = begin
        for micro in cut(begin, end, batch):
            for rank in range(ranks):
                own = micro.of(rank, ranks)
                assert own.start == at and len(own) - micro.n // ranks in (0, 1)
                at = own.stop
        assert at == end


def test_gradients_that_ranks_have() -> None:
    """The number of gradients is that of the ranks, if their parts are equal; a rank without
    samples does not count."""
    for begin, end, ranks, batch in plans(3, 500):
        for micro in cut(begin, end, batch):
            found, parts = micro.gradients(ranks), min(ranks, micro.n)
            assert parts * 0.88 < found < parts + 1e-9
            assert micro.n % ranks or abs(found - ranks) < 1e-9


def test_steps_are_no_larger_than_the_batch_and_weigh_one() -> None:
    for begin, end, ranks, batch in plans(2, 2000):
        step: list[Micro] = []
        for micro in cut(begin, end, batch):
            assert micro.index == len(step)
            step.append(micro)
            if micro.last:
                assert sum(m.n for m in step) == step[0].size <= batch.total
                assert len(step) == step[0].parts
                shares = sum(m.share(r, ranks) for m in step for r in range(ranks))
                assert shares == pytest.approx(1)
                step = []
        assert not step


def test_only_the_end_of_a_pass_is_smaller() -> None:
    for begin, end, _, batch in plans(3, 2000):
        micros = list(cut(begin, end, batch))
        part = batch.total // (batch.accum + 1)
        full = part * (batch.accum + 1)
        sizes = [m.size for m in micros if m.last]
        assert sizes[:-2] == [full] * len(sizes[:-2])
        assert [m.n for m in micros[:-1]] == [part] * (len(micros) - 1)


def test_orders() -> None:
    first = order(100, 3, 0, True)
    assert sorted(first.tolist()) == list(range(100))
    assert first.equal(order(100, 3, 0, True))
    assert not first.equal(order(100, 3, 1, True)) and not first.equal(order(100, 4, 0, True))
    assert order(5, 3, 1, False).tolist() == [0, 1, 2, 3, 4]
