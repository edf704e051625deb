"""A rank of test_d7_ranks_agree_on_a_step: plays its scenes, and prints its results as JSON.

Usage: recipes_rank.py FOLDER, run in FOLDER, with RANK and WORLD_SIZE set.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import guide
import pawl


def write(path: str, step: int) -> None:
    Path(path).write_bytes(f"{step} ".encode() * 100)


def read(path: str, step: int) -> int:
    if Path(path).read_bytes() != f"{step} ".encode() * 100:
        raise RuntimeError("incomplete")
    return step


def play_guide(rank: int) -> int:
    """Each rank has a folder; rank 1 lost half of step 4, rank 2 half of step 3."""
    folder = f"theirs{rank}"
    save = guide.save_checkpoint(folder)(
        lambda step: write(f"{folder}/checkpoint_step_{step}.pt", step)
    )
    for step in (1, 2, 3, 4):
        save(step)
    lose(folder, "checkpoint_step", rank)
    load = guide.load_checkpoint(folder)(
        lambda step: read(f"{folder}/checkpoint_step_{step}.pt", step)
    )
    return load(0)


def lose(folder: str, kind: str, rank: int) -> None:
    for at, step in ((1, 4), (2, 3)):
        if rank == at:
            Path(f"{folder}/{kind}_{step}.pt").write_bytes(b"half")


def play_own(rank: int) -> tuple[int, int]:
    """The same scene with Pawl's recipes; then step 2 of rank 0 and, by one bit, step 4 of rank 1
    are damaged."""
    folder = f"ours{rank}"
    save = pawl.recipes.save_checkpoint(folder)(
        lambda step: write(f"{folder}/mine_{step}.pt", step)
    )
    load = pawl.recipes.load_checkpoint(folder)(lambda step: read(f"{folder}/mine_{step}.pt", step))
    for step in (1, 2, 3, 4):
        save(step)
    lose(folder, "mine", rank)
    first = load(0)
    for step in (1, 2, 3, 4):
        save(step)
    for at, step in ((0, 2), (1, 4), (1, 3)):
        if rank == at:
            path = Path(f"{folder}/mine_{step}.pt")
            path.write_bytes(b"x" + path.read_bytes()[1:])
    return first, load(0)


def play_failing(rank: int) -> list[int]:
    """Rank 0 wrote one shared file for each step; loading that of step 3 fails on rank 1 alone."""
    if rank == 0:
        save = pawl.recipes.save_checkpoint("one")(lambda step: write(f"one/model_{step}.pt", step))
        for step in (1, 2, 3):
            save(step)
    dist.barrier()
    calls = []

    @pawl.recipes.load_checkpoint("one")
    def load(step: int) -> int:
        calls.append(step)
        if step == 3 and rank == 1:
            raise RuntimeError("only here")
        return read(f"one/model_{step}.pt", step)

    assert load(0) == 2 == load.step
    return calls


def play_shared(rank: int) -> tuple[int, int, list[str]]:
    """One folder has a file and a record of each rank; then rank 1 loses its record of step 3."""

    @pawl.recipes.save_checkpoint("all", max_checkpoints=2)
    def save(step: int) -> None:
        write(f"all/model_{step}_rank{rank}.pt", step)

    @pawl.recipes.load_checkpoint("all")
    def load(step: int) -> int:
        return read(f"all/model_{step}_rank{rank}.pt", step)

    for step in (1, 2, 3):
        save(step)
        dist.barrier()
    first = load(0)
    dist.barrier()
    kept = sorted(path.name for path in Path("all").glob("*.pt"))
    if rank == 1:
        Path("all/checkpoint_step_3_rank1_metadata.json").unlink()
    dist.barrier()
    return first, load(0), kept


def play_none(rank: int) -> int:
    """The folder is empty: each rank keeps its own arguments."""
    return pawl.recipes.load_checkpoint("none")(lambda step: step)(rank * 10)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=world
    )
    said: dict[str, Any] = {"theirs": play_guide(rank), "none": play_none(rank)}
    said["own"], said["flipped"] = play_own(rank)
    said["fails"] = play_failing(rank)
    said["shared"], said["unrecorded"], said["kept"] = play_shared(rank)
    print(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
