"""All kinds of tensors between stages, and what users do with tensors and models."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks

HERE = Path(__file__).parent
CHECKS = [
    "tensors_without_gradients", "shapes_of_all_kinds", "complex_numbers",
    "complex_numbers_of_the_frame", "no_numbers", "inputs_that_require_gradients",
    "a_relu_in_place_that_is_a_unit", "results_that_share_memory", "a_buffer_that_is_returned",
    "what_a_module_keeps", "hooks", "tensor_hooks", "gradients_of_gradients_are_refused_or_right",
    "a_compiled_module", "evaluation", "copies", "clipping", "scaled_losses",
    "arguments_of_all_kinds",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_tensor(world: int) -> None:
    for said in ranks.run_ranks(HERE / "pipeline_tensor_rank.py", world):
        assert said == CHECKS
