"""Pipelines that fail: each rank gets an error that names who failed, where, and by what."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks

HERE = Path(__file__).parent
CHECKS = [
    "a_module_raises", "a_backward_pass_raises", "the_step_function_raises",
    "the_first_step_raises", "a_batch_does_not_divide", "an_object_that_cannot_cross",
    "a_result_that_cannot_cross", "a_step_result_that_is_no_value", "results_that_change",
    "an_argument_changed_in_place_later", "a_saved_tensor_changed_in_place",
    "a_tensor_of_an_earlier_step",
    "what_works_in_a_step_only", "begins_in_the_wrong_order", "models_that_cannot_be_divided",
]  # fmt: skip
SOME = [
    "a_module_raises", "the_step_function_raises", "a_batch_does_not_divide",
    "what_works_in_a_step_only", "begins_in_the_wrong_order",
]  # fmt: skip


def test_some_faults() -> None:
    for said in ranks.run_ranks(HERE / "pipeline_fault_rank.py", 2, *SOME):
        assert said == SOME


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_fault(world: int) -> None:
    for said in ranks.run_ranks(HERE / "pipeline_fault_rank.py", world):
        assert said == CHECKS
