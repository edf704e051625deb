"""A pipeline computes what one process computes: results, gradients, parameters and buffers."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks

HERE = Path(__file__).parent
CHECKS = [
    "skips", "replicas", "branches_on_numbers",
    "a_module_called_by_numbers", "tied_weights",
    "a_weight_read_elsewhere", "in_place", "in_place_of_flags", "batch_norm", "frozen_and_unused",
    "kinds_of_results", "kinds_of_step_results", "numbers_inside_of_the_step", "two_losses",
    "gradients_for_a_tensor", "gradients_are_added",
    "what_the_program_keeps_on_its_modules", "states_of_ranks_make_the_whole",
    "operators_with_new_numbers",
    "autocast",
]  # fmt: skip
SCHEDULES = ["schedules", "no_more_is_kept_than_planned", "a_schedule_and_replicas"]
SOME = ["branches_on_numbers", "a_weight_read_elsewhere", "in_place", "batch_norm", "two_losses",
    "what_the_program_keeps_on_its_modules"]  # fmt: skip


def test_some_models() -> None:
    for said in ranks.run_ranks(HERE / "pipeline_exact_rank.py", 2, *SOME):
        assert said == SOME


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_model(world: int) -> None:
    for said in ranks.run_ranks(HERE / "pipeline_exact_rank.py", world):
        assert said == CHECKS


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_schedule(world: int) -> None:
    for said in ranks.run_ranks(HERE / "pipeline_schedules_rank.py", world):
        assert said == SCHEDULES
