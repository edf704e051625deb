"""pawl.distributed.powersgd, on one host."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks

HERE = Path(__file__).parent
CHECKS = [
    "same_bits", "like_the_paper", "nothing_is_lost", "unused", "full_rank", "accumulation",
    "resumed", "saved_by_pawl", "error_feedback", "other_data", "transformer", "bytes_are_counted",
    "not_finite", "sixteen_bits", "wrong",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_powersgd(world: int) -> None:
    for said in ranks.run_ranks(HERE / "powersgd_rank.py", world):
        assert said == CHECKS
