"""Checkpointer with FSDP2 modules and DTensors: saved by some ranks, restored by others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from conftest import real_core
from sharded import run

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")


@pytest.mark.slow
def test_saved_by_four_restored_by_any(tmp_path):
    root = str(tmp_path / "root")
    run(
        tmp_path,
        (4, "ckpt_save", root, 2, "grid"),
        (1, "ckpt_load", root, 2, "plain", "fresh"),
        (1, "ckpt_load", root, 2, "whole", "trained"),
        (2, "ckpt_load", root, 2, "columns", "trained"),
        (3, "ckpt_load", root, 2, "rows", "fresh"),
        (4, "ckpt_load", root, 2, "turned", "trained"),
        (8, "ckpt_load", root, 2, "hybrid", "fresh"),
        (8, "ckpt_refused", root),
    )
    # Read without Pawl, and without the other ranks.
    tag = tmp_path / "root/global_step2"
    part = torch.load(tag / "model-rank1", weights_only=True)
    assert part["wide.weight"].shape == (14, 37) and type(part["wide.weight"]) is torch.Tensor
    whole = torch.cat([torch.load(tag / f"model-rank{r}")["wide.weight"] for r in range(4)])
    assert torch.equal(whole, torch.load(f"{root}-2.pt", weights_only=False)[0]["wide.weight"])


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_of_replicas_one_is_saved(tmp_path):
    root = tmp_path / "root"
    run(
        tmp_path,
        (4, "ckpt_save", str(root), 1, "hybrid"),
        (4, "ckpt_load", str(root), 1, "hybrid", "trained"),
        (3, "ckpt_load", str(root), 1, "rows", "trained"),
    )
    parts = [torch.load(root / f"global_step1/tensors-rank{r}") for r in range(4)]
    assert [len(part["g"]) for part in parts] == [150, 150, 0, 0]


@pytest.mark.slow("absent")
@pytest.mark.parametrize("how", ["flip", "cut", "absent"])
def test_damage_falls_back_on_all_ranks(tmp_path, how):
    root = tmp_path / "root"
    save = (4, "ckpt_save", str(root))
    run(tmp_path, (*save, 1, "rows"), (*save, 2, "rows"))
    for source in ("tensors-rank2", "model-rank3"):
        copy = Path(f"{root}-{source}")
        shutil.copytree(root, copy)
        shutil.copy(f"{root}-1.pt", f"{copy}-1.pt")
        part = copy / "global_step2" / source
        data = bytearray(part.read_bytes())
        data[data.index(b"PK\x07\x08") - 8] ^= 1
        part.unlink()
        if how != "absent":
            part.write_bytes(data if how == "flip" else data[:-4096])
    run(
        tmp_path,
        (3, "ckpt_load", f"{root}-tensors-rank2", 1, "rows", "trained"),
        (2, "ckpt_load", f"{root}-model-rank3", 1, "columns", "fresh"),
    )
