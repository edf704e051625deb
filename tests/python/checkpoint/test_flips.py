"""One flipped bit anywhere in a checkpoint is found, with file and offset, and the older one
loaded.

As controls, torch.load and DCP read the same flips; the counts are printed.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from pathlib import Path

import pytest
import torch

import pawl
import program
from conftest import SEED
from pawl import _core

FLIPS = 10_000 if os.environ.get("PAWL_LONG") else 1_000
CONTROLS = FLIPS // 5


def make(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {f"w{n}": torch.randn(n, generator=generator) for n in (1, 5_000, 30_000)}


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def pick(rng: random.Random, directory: Path) -> tuple[Path, int]:
    """Draws a bit of a file below directory, by size, but small files at least now and then."""
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    weights = [max(p.stat().st_size, 2_000) for p in files]
    path = rng.choices(files, weights)[0]
    return path, rng.randrange(path.stat().st_size * 8)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / "root"
    with pawl.Checkpointer(path, persist_every=0, job="flips") as ckpt:
        for step in (1, 2):
            save = ckpt.save(step, {"state": make(step), "note": "x"})
            assert save.wait("durable", program.LIMIT_S)
    return path


def load(root: Path, step: int) -> dict[str, torch.Tensor]:
    return pawl.load(root, step=step, partition="state")


def verify(root: Path, step: int) -> None:
    opened = _core.open_root(str(root), step)
    try:
        opened.read(range(len(opened.parts)))
    finally:
        opened.close()  # nobody may write into a file while it is mapped


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_flip_is_found_or_harmless(root: Path) -> None:
    rng = random.Random(SEED)
    tag = root / "global_step2"
    found = harmless = 0
    for _ in range(FLIPS):
        path, bit = pick(rng, tag)
        flip(path, bit)
        try:
            verify(root, 2)
        except _core.PawlError as error:
            found += 1
            assert path.name in str(error) or path.name in ("manifest", "complete.txt"), (
                path,
                error,
            )
            if path.parent == tag and path.name != "complete.txt":
                low, high = str(error).split("bytes ")[1].split(" ")[0].split("..")
                assert int(low) <= bit // 8 <= int(high), (path, bit, error)
        else:
            harmless += 1
            assert same(load(root, 2), make(2)), (path, bit)
        finally:
            flip(path, bit)
    assert same(load(root, 2), make(2))
    assert harmless == 0  # checksums cover every byte of a tag
    print(f"pawl: {found} of {FLIPS} flips found, {harmless} harmless")


def test_a_damaged_tag_is_put_aside_and_the_older_one_restored(root: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for run in range(5):
        copy = tmp_path / f"root{run}"
        shutil.copytree(root, copy)
        path, bit = pick(rng, copy / "global_step2")
        flip(path, bit)
        state = {"state": {}, "note": ""}
        with pawl.Checkpointer(copy, job=f"flips{run}") as ckpt:
            assert ckpt.restore(state) == 1
        assert same(state["state"], make(1))
        assert not (copy / "global_step2").exists()
        aside = list((copy / ".bad").iterdir())
        assert len(aside) == 1
        assert (aside[0] / "why.txt").read_text().strip()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_controls_miss_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.load and DCP miss some of these flips, which proves that the flips are real."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    rng = random.Random(SEED)
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    torch.save(make(2), tmp_path / "control.pt")
    dcp.save(make(2), checkpoint_id=tmp_path / "dcp", no_dist=True)
    for name in ("torch.load", "dcp.load"):
        refused = wrong = 0
        for _ in range(CONTROLS):
            where = tmp_path / "control.pt" if name == "torch.load" else tmp_path / "dcp"
            path, bit = (
                pick(rng, where)
                if where.is_dir()
                else (where, rng.randrange(where.stat().st_size * 8))
            )
            flip(path, bit)
            try:
                if where.is_dir():
                    got = {k: torch.zeros_like(v) for k, v in make(2).items()}
                    dcp.load(got, checkpoint_id=where, no_dist=True)
                else:
                    got = torch.load(where, weights_only=True)
                wrong += not same(got, make(2))
            except (Exception, CheckpointException):
                refused += 1
            finally:
                flip(path, bit)
        print(f"{name}: {refused} of {CONTROLS} flips refused, {wrong} loaded as wrong tensors")
        assert wrong > 0
