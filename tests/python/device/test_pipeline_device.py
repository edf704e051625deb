"""Pipelines whose stages compute on a device; a stand-in, mock_device.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import program
import ranks

HERE = Path(__file__).parent
PIPELINE = HERE.parent / "pipeline"
CHECKS = [
    "all_is_on_the_device", "only_what_others_want_comes_to_the_host", "offloaded_activations",
    "a_batch_on_the_device", "devices_are_refused_by_name",
]  # fmt: skip
# Not among them: what changes arguments in place, which units of the stand-in cannot; and what
# mixes tensors of two devices, or converts them to NumPy's, as no program on a device can.
EXACT = [
    "skips", "replicas", "branches_on_numbers", "a_module_called_by_numbers", "tied_weights",
    "a_weight_read_elsewhere", "batch_norm", "frozen_and_unused", "kinds_of_results",
    "two_losses", "gradients_for_a_tensor", "gradients_are_added",
    "what_the_program_keeps_on_its_modules", "states_of_ranks_make_the_whole",
    "operators_with_new_numbers",
]  # fmt: skip
TENSORS = [
    "tensors_without_gradients", "complex_numbers", "no_numbers", "inputs_that_require_gradients",
    "what_a_module_keeps", "gradients_of_gradients_are_refused_or_right", "clipping",
    "arguments_of_all_kinds",
]  # fmt: skip


def run(script: Path, world: int, *args: str, device: str = "mock") -> list[list[str]]:
    env = program.clean_env(PIPELINE_DEVICE=device)
    env["PYTHONPATH"] = f"{HERE}:{PIPELINE}:{env['PYTHONPATH']}"
    return ranks.run_ranks(script, world, *args, env=env)


def test_stages_compute_on_their_devices() -> None:
    for said in run(HERE / "pipeline_device_rank.py", 2):
        assert said == CHECKS


def all_of(said: list[list[str]]) -> set[str]:
    """What ranks have said, whichever it was: they may have divided the model in another way."""
    return {line for lines in said for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_model(world: int) -> None:
    for said in run(PIPELINE / "pipeline_exact_rank.py", world, *EXACT):
        assert said == EXACT


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_on_a_gpu() -> None:
    for script, checks in (
        (HERE / "pipeline_device_rank.py", CHECKS),
        (PIPELINE / "pipeline_exact_rank.py", [*EXACT, "in_place", "in_place_of_flags"]),
        (PIPELINE / "pipeline_tensor_rank.py", [*TENSORS, "scaled_losses", "hooks"]),
    ):
        for said in run(script, 2, *checks, device="cuda"):
            assert said == checks


@pytest.mark.slow
def test_tensors() -> None:
    for said in run(PIPELINE / "pipeline_tensor_rank.py", 2, *TENSORS):
        assert said == TENSORS


@pytest.mark.slow
def test_every_schedule() -> None:
    schedules = ["schedules", "a_schedule_and_replicas"]
    for said in run(PIPELINE / "pipeline_schedules_rank.py", 2, *schedules):
        assert said == schedules


@pytest.mark.slow
def test_bits_are_those_of_the_host() -> None:
    script = PIPELINE / "pipeline_bits_rank.py"
    for world in (1, 2):
        there, here = run(script, world), run(script, world, device="cpu")
        assert all_of(there) == all_of(here) and len(all_of(here)) == 12


@pytest.mark.slow
def test_a_model_that_is_too_big_to_be_made() -> None:
    script = PIPELINE / "pipeline_delayed_rank.py"
    assert all_of(run(script, 2)) == all_of(run(script, 2, device="cpu"))
