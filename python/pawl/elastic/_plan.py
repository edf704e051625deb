"""Which samples each rank takes in each step of a pass. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Batch:
    """The sizes of a step."""

    atomic: int  # samples of a rank, at most
    accum: int  # number of gradients before the last one
    total: int  # samples of all ranks in a full step


@dataclass(frozen=True)
class Micro:
    """Samples that all ranks together take at once: [begin, begin + n) of a pass."""

    begin: int
    n: int
    index: int  # index of this part in its step
    parts: int  # number of parts of its step
    size: int  # samples in its step

    @property
    def last(self) -> bool:
        return self.index == self.parts - 1

    def of(self, rank: int, ranks: int) -> range:
        """A rank's own samples: divided equally, lower ranks with one more. May be empty."""
        each, more = divmod(self.n, ranks)
        first = self.begin + rank * each + min(rank, more)
        return range(first, first + each + (rank < more))

    def share(self, rank: int, ranks: int) -> float:
        """The weight of a rank's mean gradient in the mean over all samples of the step."""
        return len(self.of(rank, ranks)) / self.size

    def gradients(self, ranks: int) -> float:
        """The number of gradients of equal sizes that would show as much of the noise as the ranks'
        own: the reciprocal of the sum of squared shares, 1 to ranks.
        """
        shares = [len(self.of(rank, ranks)) / self.n for rank in range(ranks)]
        return 1 / sum(share * share for share in shares)

    def even(self, ranks: int) -> bool:
        """Whether no rank has over an eighth more than another."""
        return self.n % ranks == 0 or self.n // ranks >= 8


def cut(begin: int, end: int, batch: Batch) -> Iterator[Micro]:
    """Cuts a pass, from begin to its end, into steps.

    A rest too small for a full step becomes a step of fewer full parts, and a rest too small for a
    part becomes the last step.
    """
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
    # torch's generator takes 32 bits of a seed.
    generator = torch.Generator().manual_seed(zlib.crc32(f"{epoch}/{turn}".encode()))
    return torch.randperm(n, generator=generator, device="cpu")
