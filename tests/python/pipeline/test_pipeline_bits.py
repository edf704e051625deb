"""The same bits, whatever the number of stages: with dropout, tied weights, clipping and AdamW."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks

HERE = Path(__file__).parent


def trained(world: int, *schedule: str) -> dict[str, str]:
    """Trains on that many stages. Returns hashes by the name of a parameter, and the losses."""
    found: dict[str, set[str]] = {}
    for said in ranks.run_ranks(HERE / "pipeline_bits_rank.py", world, *schedule):
        for line in said:
            name, _, text = line.partition(" ")
            found.setdefault(name, set()).add(text)
    assert all(len(texts) == 1 for texts in found.values()), found
    return {name: texts.pop() for name, texts in found.items()}


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


@pytest.mark.slow
def test_two_stages_have_the_bits_of_one() -> None:
    assert differing(trained(1), trained(2)) == []


@pytest.mark.slow
def test_three_and_four_stages_have_the_bits_of_one() -> None:
    one = trained(1)
    assert len(one) == 12  # 11 parameters, and the losses
    for world in (3, 4):
        assert differing(one, trained(world)) == []


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["interleaved", "zero-bubble", "zbv", "listed"])
def test_each_schedule_has_the_bits_of_one_stage(schedule: str) -> None:
    one = trained(1)
    for world in (2, 3):
        assert differing(one, trained(world, schedule)) == []
