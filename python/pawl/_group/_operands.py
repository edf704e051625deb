"""Checks of the tensors of an operation, and offsets of each rank's part in them.

Pure functions; each raises PawlError PAWL_EINVAL that says what is wrong with the call.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pawl.errors import error


def check_sizes(what: str, whole: torch.Tensor, part: torch.Tensor, ranks: int) -> None:
    """Checks that ``whole`` has the elements of ``ranks`` times ``part``, of its type."""
    if whole.dtype != part.dtype or whole.numel() != part.numel() * ranks:
        raise error(
            "PAWL_EINVAL",
            f"collectives: {what} of {ranks} ranks: {whole.numel()} {whole.dtype} are not "
            f"{ranks} x {part.numel()} {part.dtype}",
        )


def check_alike(what: str, tensors: Sequence[torch.Tensor], ranks: int) -> None:
    """Checks that there are as many tensors as ranks, of one type."""
    if len(tensors) != ranks or any(t.dtype != tensors[0].dtype for t in tensors):
        raise error(
            "PAWL_EINVAL",
            f"collectives: {what} of {ranks} ranks: takes as many tensors, of one type; got "
            f"{len(tensors)}",
        )


def check_like(what: str, tensors: Sequence[torch.Tensor]) -> None:
    """Checks that all tensors have one shape and type."""
    first = tensors[0]
    if any(t.shape != first.shape or t.dtype != first.dtype for t in tensors[1:]):
        raise error(
            "PAWL_EINVAL",
            f"collectives: {what} of {len(tensors)}: they are not of one shape and type",
        )


def only(what: str, tensors: Sequence[Any]) -> Any:
    """Returns the single element of a list of one tensor, or of one list."""
    if len(tensors) != 1:
        raise error("PAWL_EINVAL", f"collectives: {what} takes one tensor, not {len(tensors)}")
    return tensors[0]


def offsets(sizes: Iterator[int]) -> array[int]:
    """The offset of each part, and the end of the last."""
    at = array("Q", [0])
    for size in sizes:
        at.append(at[-1] + size)
    return at


def row_offsets(tensor: torch.Tensor, splits: Sequence[int], ranks: int, what: str) -> array[int]:
    """Bytes at which each rank's rows of a tensor begin; without splits, ranks get equal shares."""
    rows = tensor.shape[0] if tensor.dim() > 0 else 0
    if not splits:
        if rows % ranks != 0:
            raise error(
                "PAWL_EINVAL",
                f"collectives: all_to_all: {rows} rows of the {what} are not shared equally by "
                f"{ranks} ranks: give the sizes",
            )
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or sum(splits) != rows or min(splits) < 0:
        raise error(
            "PAWL_EINVAL",
            f"collectives: all_to_all: sizes {list(splits)} of the {what} are not {rows} rows for "
            f"{ranks} ranks",
        )
    row = tensor.nbytes // rows if rows else 0
    return offsets(size * row for size in splits)
