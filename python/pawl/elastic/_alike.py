"""What must be alike at all ranks: each says where its program is, and of what its loop is."""

from __future__ import annotations

import zlib
from typing import Any, Final

from pawl.errors import error

# By word, what a rank with another one than rank 0 is told of. All are exact as float64.
_PARTS: Final = (
    "rank {rank} is in epoch {its:.0f}, rank 0 in epoch {first:.0f}: all ranks need the same loops",
    "rank {rank} is in loop {its:.0f} of its epoch, rank 0 in loop {first:.0f}: all ranks need the "
    "same loops",
    "rank {rank} has a dataset of {its:.0f} samples, rank 0 one of {first:.0f}: all ranks need the "
    "same",
    "rank {rank} has batch_size={its:.0f}, rank 0 batch_size={first:.0f}: all ranks need the same",
    "rank {rank} has autoscale_batch_size with other arguments than rank 0: all ranks need the "
    "same",
    "rank {rank} is at sample {its:.0f} of its loop, rank 0 at sample {first:.0f}: all ranks need "
    "to make the same steps",
)
N: Final = len(_PARTS)


def checksum(of: Any) -> float:
    """Of what has a repr that says all of it."""
    return float(zlib.crc32(repr(of).encode()))


def at_end(epochs: int) -> list[float]:
    """The words of a rank that has come to the end of its epochs, so many."""
    return [float(epochs), *[-1.0] * (N - 1)]


def check(rows: list[list[float]]) -> None:
    """Raises PAWL_EINVAL if a rank has said something else than rank 0."""
    for word, text in enumerate(_PARTS):
        first = rows[0][word]
        for rank, row in enumerate(rows):
            if row[word] != first:
                told = text.format(rank=rank, its=row[word], first=first)
                raise error("PAWL_EINVAL", f"elastic: {told}")
