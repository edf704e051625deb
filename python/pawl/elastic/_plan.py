"""Which samples each rank takes in each step of a pass. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Batch:
    """What a step is of."""

    atomic: int  # samples of a rank, at most
    accum: int  # gradients before the last one
    total: int  # samples of all ranks: of a full step


@dataclass(frozen=True)
class Micro:
    """Samples that all ranks together take at once: [begin, begin + n) of a pass."""

    begin: int
    n: int
    index: int  # in its step
    parts: int  # of its step
    size: int  # samples of its step

    @property
    def last(self) -> bool:
        return self.index == self.parts - 1

    def of(self, rank: int, ranks: int) -> range:
        """A rank's own: as equal as can be, those of lower ranks one larger. May be empty."""
        each, more = divmod(self.n, ranks)
        first = self.begin + rank * each + min(rank, more)
        return range(first, first + each + (rank < more))

    def share(self, rank: int, ranks: int) -> float:
        """What a rank's mean gradient counts in the mean over all samples of the step."""
        return len(self.of(rank, ranks)) / self.size

    def gradients(self, ranks: int) -> float:
        """As how many of equally many samples each the ranks' own tell of their noise: the
        reciprocal of the sum of squared shares, 1 to ranks."""
        shares = [len(self.of(rank, ranks)) / self.n for rank in range(ranks)]
        return 1 / sum(share * share for share in shares)

    def even(self, ranks: int) -> bool:
        """Whether none has more than an eighth more than another."""
        return self.n % ranks == 0 or self.n // ranks >= 8


def cut(begin: int, end: int, batch: Batch) -> Iterator[Micro]:
    """A pass from begin to its end, step by step. What is too little for a full step becomes a step
    of fewer full parts, and what is too little for one of those, the last step."""
    full = batch.accum + 1
    part = batch.total // full
    while begin < end:
        parts = max(1, min(full, (end - begin) // part))
        n = min(part, end - begin)
        for index in range(parts):
            yield Micro(begin, n, index, parts, n * parts)
            begin += n


def order(n: int, epoch: int, turn: int, shuffle: bool) -> torch.Tensor:
    """The samples of a dataset of n, in the order of one pass over it."""
    if not shuffle:
        return torch.arange(n, device="cpu")
    # torch's generator takes 32 bits of a seed
    generator = torch.Generator().manual_seed(zlib.crc32(f"{epoch}/{turn}".encode()))
    return torch.randperm(n, generator=generator, device="cpu")
