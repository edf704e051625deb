"""How much a benchmark measures: in full, or quickly, which proves only that it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    quick: bool
    blocks: int  # blocks in the state
    width: int  # width of a block
    pairs: int  # pairs of saved and unsaved steps, at each of compute_s
    compute_s: tuple[float, ...]  # seconds of a forward and backward pass
    peers: int  # saves by each peer beside the pairs
    repeats: int  # repetitions of every other measurement
    rounds: int  # new processes that restore
    small_saves: int  # saves of a small state, while memory is watched
    starts: int  # short programs that are started


FULL = Sizes(
    quick=False,
    blocks=20,
    width=608,
    pairs=100,
    compute_s=(0.05, 0.15, 0.5),
    peers=5,
    repeats=7,
    rounds=5,
    small_saves=2000,
    starts=11,
)
QUICK = Sizes(
    quick=True,
    blocks=2,
    width=256,
    pairs=4,
    compute_s=(0.01,),
    peers=1,
    repeats=2,
    rounds=1,
    small_saves=60,
    starts=1,
)
