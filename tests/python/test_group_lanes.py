"""Tensors of a device: on a CUDA device where there is one, and on a stand-in (lanes.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks
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


def test_every_collective_through_a_late_stand_in() -> None:
    script = str(HERE / "group_rank.py")
    for said in ranks.run_ranks(HERE / "lanes.py", 3, script):
        assert said == COLLECTIVES


def test_what_torch_builds_on_groups_through_a_late_stand_in() -> None:
    script = str(HERE / "group_torch_rank.py")
    for said in ranks.run_ranks(HERE / "lanes.py", 2, script):
        assert said == TORCH
