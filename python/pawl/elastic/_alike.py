"""Values that must be alike at all ranks: the place in the program, and properties of the loop."""

from __future__ import annotations

import zlib
from typing import Any, Final

from pawl.errors import error

# By index in a row: the message for a rank whose value differs from rank 0's. All values are exact
# in float64.
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
    """A checksum of a value whose repr is complete."""
    return float(zlib.crc32(repr(of).encode()))


def at_end(epochs: int) -> list[float]:
    """The row of a rank that has finished this number of epochs."""
    return [float(epochs), *[-1.0] * (N - 1)]


def check(rows: list[list[float]]) -> None:
    """Raises PawlError (PAWL_EINVAL) if a rank's row differs from rank 0's."""
    for index, text in enumerate(_PARTS):
        first = rows[0][index]
        for rank, row in enumerate(rows):
            if row[index] != first:
                message = text.format(rank=rank, its=row[index], first=first)
                raise error("PAWL_EINVAL", f"elastic: {message}")
