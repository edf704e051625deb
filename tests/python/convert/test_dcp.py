"""torch.distributed.checkpoint on the engine, with real ranks: FSDP2 and DTensor state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from conftest import real_core
from sharded import run

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.slow
def test_saved_by_four_loaded_by_any(tmp_path):
    root = str(tmp_path / "root")
    run(
        tmp_path,
        (4, "dcp_save", root, "step-2", 2, "sync"),
        (1, "dcp_load", root, "step-2", "whole", "root"),
        (2, "dcp_load", root, "step-2", "columns", "engine"),
        (3, "dcp_load", root, "step-2", "rows", "root"),
        (4, "dcp_load", root, "step-2", "turned", "engine"),
        (8, "dcp_load", root, "step-2", "hybrid", "root"),
    )
    # Read without Pawl.
    part = torch.load(tmp_path / "root/step-2/dcp-rank1", weights_only=True)
    assert part["model.wide.weight"].shape == (14, 37)
    metadata = torch.load(tmp_path / "root/step-2/dcp-metadata", weights_only=False)
    assert metadata.state_dict_metadata["model.wide.weight"].size == (53, 37)


def test_async_save_is_of_the_moment(tmp_path):
    root = str(tmp_path / "root")
    run(
        tmp_path,
        (4, "dcp_save", root, "step-3", 3, "async"),
        (2, "dcp_load", root, "step-3", "rows", "engine"),
        (4, "dcp_load", root, "step-3", "rows", "root"),
    )


def test_async_save_copies_while_training_goes_on(tmp_path):
    run(tmp_path, (2, "dcp_overlap", str(tmp_path / "root")))


def test_what_changes_under_async_save_fails_it(tmp_path):
    if "does not watch" in run(tmp_path, (2, "dcp_changed", str(tmp_path / "root"))):
        pytest.skip("the kernel does not watch memory here")


def test_plans_that_are_not_sent_again(tmp_path):
    run(tmp_path, (2, "dcp_planned_once", str(tmp_path / "root")))


def test_a_writer_for_each_save(tmp_path):
    run(tmp_path, (2, "dcp_second_writer", str(tmp_path / "root")))


def damage(tag: Path, how: str) -> None:
    part = tag / "dcp-rank1"
    if how == "absent":
        part.unlink()
    elif how == "cut":
        with part.open("r+b") as file:
            file.truncate(part.stat().st_size - 4096)
    elif how == "flip":
        flip(part, part.read_bytes().index(b"PK\x07\x08") - 8)  # after the first payload
    else:
        part = tag / "dcp-metadata"
        flip(part, part.read_bytes().index(b"narrow.bias"))


@pytest.mark.slow
def test_damage_falls_back_on_all_ranks(tmp_path):
    saved = str(tmp_path / "root")
    save = (2, "dcp_save", saved)
    run(tmp_path, (*save, "step-1", 1, "sync"), (*save, "step-2", 2, "sync"))
    loads = []
    for how, where in (
        ("flip", "root"),
        ("flip", "engine"),
        ("cut", "engine"),
        ("absent", "root"),
        ("metadata", "root"),
        ("metadata", "engine"),
    ):
        root = f"{saved}-{how}-{where}"
        shutil.copytree(saved, root)
        shutil.copy(f"{saved}-step-1.pt", f"{root}-step-1.pt")
        damage(Path(root) / "step-2", how)
        loads.append((3, "dcp_load", root, "step-1", "rows", where))
    run(tmp_path, *loads)


def test_a_rank_that_fails_fails_the_tag(tmp_path):
    root = tmp_path / "root"
    run(tmp_path, (2, "dcp_fail", str(root), "step-1"))
    assert not (root / "step-1").exists()
    assert (root / "step-1-after" / "complete.txt").read_text() == "OK"


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_a_rank_that_vanishes_leaves_no_tag(tmp_path):
    root = tmp_path / "root"
    assert "rank 0 heard" in run(tmp_path, (2, "dcp_vanish", str(root), "step-1"))
    assert not (root / "step-1").exists()
