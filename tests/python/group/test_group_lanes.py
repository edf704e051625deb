"""Tensors of a device: on a CUDA device where there is one, and on a stand-in (lanes.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

import program
import ranks
from conftest import SEED
from test_group import COLLECTIVES, TORCH

HERE = Path(__file__).parent


@pytest.mark.parametrize("world", [2, 3])
def test_device_and_host_do_not_wait_for_each_other(world: int) -> None:
    for said in ranks.run_ranks(HERE / "lane_rank.py", world):
        assert said == [
            "the_host_goes_on", "what_comes_is_behind_what_was_queued",
            "an_output_that_is_still_written_to", "futures_too", "a_group_of_one",
            "a_device_that_fails", "ddp",
        ]  # fmt: skip


def run_on_stand_in(world: int, script: str, *names: str) -> list[list[str]]:
    env = program.clean_env(CUDA_VISIBLE_DEVICES="")  # torch's own hooks ask whether there is CUDA
    return ranks.run_ranks(HERE / "lanes.py", world, str(HERE / script), *names, env=env)


@pytest.mark.slow
def test_every_collective_through_a_late_stand_in() -> None:
    for said in run_on_stand_in(3, "group_rank.py"):
        assert said == COLLECTIVES


@pytest.mark.slow
def test_calls_that_share_memory_of_a_late_stand_in() -> None:
    for said in run_on_stand_in(3, "group_overlap_rank.py", str(SEED), "20"):
        assert said == ["held"]


@pytest.mark.slow
def test_what_torch_builds_on_groups_through_a_late_stand_in() -> None:
    for said in run_on_stand_in(2, "group_torch_rank.py"):
        assert said == TORCH


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_a_rank_alone_on_a_late_stand_in() -> None:
    (said,) = run_on_stand_in(1, "group_torch_rank.py", "ddp", "ddp_bucket_views")
    assert said == ["ddp", "ddp_bucket_views"]
    names = ["futures_too", "a_device_that_fails"]
    assert ranks.run_ranks(HERE / "lane_rank.py", 1, *names) == [names]
