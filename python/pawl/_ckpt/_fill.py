"""Conversions from a saved tensor to a live one, and the reasons why one is impossible.

All is checked before ranks vote on a restore: after the vote nothing may fail. The tensors here are
strides over bytes and nothing else (see _match.is_simple); only no_memory takes any tensor.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Final

import torch

_META: Final = (
    "is on the meta device, which holds no values: give it memory before restore() "
    "(module.to_empty(device=...), or build it outside of torch.device('meta'))"
)


def no_memory(live: torch.Tensor) -> str | None:
    """Why a live tensor has no memory to fill; None: it has. torch leaves a meta tensor as it is,
    and a copy into storage that was freed ends the process.
    """
    if live.is_meta:
        return _META
    is_dense = live.layout == torch.strided and not live.is_nested
    if is_dense and live.numel() > 0 and live.untyped_storage().nbytes() == 0:
        return "has no memory: its storage was freed"
    return None


def no_copy(live: torch.Tensor, saved: torch.Tensor) -> str | None:
    """Why torch cannot do live.copy_(saved), of one shape, saved on the CPU; None: it can."""
    is_plain = live.is_contiguous() and saved.is_contiguous()
    if _converts(saved.dtype, live.dtype, live.device.type, is_plain):
        return None
    return f"is {live.dtype}, to which torch cannot convert {saved.dtype}"


@cache
def _converts(saved: torch.dtype, live: torch.dtype, device: str, is_plain: bool) -> bool:
    """Whether torch can copy between these dtypes, to a device of that type. Tries it, since torch
    has no list of them. is_plain: both tensors are contiguous.
    """
    step = 1 if is_plain else 2
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        # Hides the warning that a complex number loses its imaginary part.
        warnings.simplefilter("ignore")
        try:
            target = torch.empty(2 * step, dtype=live, device=device)[::step]
            target.copy_(torch.empty(2 * step, dtype=saved, device="cpu")[::step])
        except (RuntimeError, TypeError):
            return False
    return True


def loses(saved: torch.dtype, live: torch.dtype) -> bool:
    """Whether a conversion drops a part of numbers: a fraction, an imaginary part, or values that
    are too large, or below 0. Fewer digits are no loss.
    """
    if saved.is_complex and not live.is_complex:
        return True
    if saved.is_floating_point and not (live.is_floating_point or live.is_complex):
        return True
    (low, high), (least, most) = _range(saved), _range(live)
    return low < 2 * least or high > 2 * most  # bfloat16 and float32 have about the same range


@cache
def _range(dtype: torch.dtype) -> tuple[float, float]:
    """Least and largest number of a dtype; for a complex one, of its parts."""
    if dtype == torch.bool:
        return 0, 1
    try:
        of = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    except TypeError:  # complex: its parts have a range; else a kind without numbers
        if not dtype.is_complex:
            return 0, 0
        of = torch.finfo(dtype.to_real())
    try:
        return of.min, of.max
    except NotImplementedError:  # a dtype with two numbers in an element: torch has no conversion
        return 0, 0


def repeats(tensor: torch.Tensor) -> bool:
    """Whether several of its elements are one place in memory, as expand() makes them."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(stride == 0 and size > 1 for size, stride in pairs)


def once(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """tensor without the elements that repeat others in like, which has the same shape."""
    for dim, (size, stride) in enumerate(zip(like.shape, like.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor
