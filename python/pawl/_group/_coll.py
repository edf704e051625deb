"""The numbers of include/pawl/coll.h for torch's types and operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch.distributed import ReduceOp

from pawl.errors import error

ALL_REDUCE: Final = 0
REDUCE: Final = 1
BROADCAST: Final = 2
ALL_GATHER: Final = 3
REDUCE_SCATTER: Final = 4
GATHER: Final = 5
SCATTER: Final = 6
ALL_TO_ALL: Final = 7
BARRIER: Final = 8
SEND: Final = 9
RECEIVE: Final = 10
ANY_RANK: Final = 0xFFFFFFFF
KINDS: Final = (
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter",
    "all_to_all", "barrier", "send", "recv",
)  # fmt: skip

SUM: Final = 0
_PRODUCT: Final = 1
_MIN: Final = 2
_MAX: Final = 3
_BAND: Final = 4
_BOR: Final = 5
_BXOR: Final = 6

_BYTES: Final = 0
DTYPES: Final = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float32: 5,
    torch.float64: 6,
    torch.float16: 7,
    torch.bfloat16: 8,
    torch.bool: 0,
    torch.complex64: 5,  # real and imaginary parts are added separately
    torch.complex128: 6,
}

_Op = ReduceOp.RedOpType
_OPS: Final = {  # keyed by number: the enumeration's own hash takes longer than the rest of a call
    _Op.SUM.value: (SUM, False),
    _Op.AVG.value: (SUM, True),
    _Op.PRODUCT.value: (_PRODUCT, False),
    _Op.MIN.value: (_MIN, False),
    _Op.MAX.value: (_MAX, False),
    _Op.BAND.value: (_BAND, False),
    _Op.BOR.value: (_BOR, False),
    _Op.BXOR.value: (_BXOR, False),
}
# Operations on booleans: a sum is true where any summand is, as in NCCL.
_BOOLS: Final = {SUM: _BOR, _MAX: _BOR, _PRODUCT: _BAND, _MIN: _BAND}
_HERE: Final[dict[int, Callable[..., torch.Tensor]]] = {
    SUM: torch.add,
    _PRODUCT: torch.mul,
    _MIN: torch.minimum,
    _MAX: torch.maximum,
    _BAND: torch.bitwise_and,
    _BOR: torch.bitwise_or,
    _BXOR: torch.bitwise_xor,
}
_HALVES: Final = (DTYPES[torch.float16], DTYPES[torch.bfloat16])
_COMPLEX: Final = (torch.complex64, torch.complex128)


def dtype_of(tensor: torch.Tensor) -> int:
    """The number of a tensor's type, for operations that only move the elements."""
    return DTYPES.get(tensor.dtype, _BYTES)


def reduction(reduce_op: ReduceOp, dtype: torch.dtype) -> tuple[int, int, bool]:
    """(operation, type of the elements, whether the mean). Raises PawlError for
    unsupported ones.
    """
    found = _OPS.get(reduce_op.op.value)
    if found is None:
        raise error("PAWL_ENOTSUP", f"collectives: {reduce_op.op} is not supported: scale before")
    op, mean = found
    if dtype not in DTYPES or (dtype in _COMPLEX and op != SUM):
        raise error("PAWL_ENOTSUP", f"collectives: no {reduce_op.op} of {dtype}")
    if dtype is torch.bool:
        op = _BOOLS.get(op, op)
    return op, DTYPES[dtype], mean


def reduce_here(reduce_op: ReduceOp, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The reduction of several tensors of one rank, of one type; adds 16-bit floats in 32 bits."""
    op, dtype, mean = reduction(reduce_op, tensors[0].dtype)
    if mean:
        raise error("PAWL_EINVAL", f"collectives: a mean takes one tensor, not {len(tensors)}")
    wide = torch.float32 if dtype in _HALVES else tensors[0].dtype
    return functools.reduce(_HERE[op], [t.to(wide) for t in tensors]).to(tensors[0].dtype)


def sparse_mean(reduce_op: ReduceOp, dtype: torch.dtype) -> bool:
    """Whether a sum of sparse tensors is divided by the number of ranks. Raises PawlError."""
    op, _, mean = reduction(reduce_op, dtype)
    if op != SUM or (mean and not dtype.is_floating_point):
        raise error(
            "PAWL_ENOTSUP", f"collectives: no {reduce_op.op} of sparse {dtype}: make it dense"
        )
    return mean


def added_as(reduce_op: ReduceOp, dtype: torch.dtype) -> torch.dtype:
    """The type in which numbers are added: float32 for a mean of float16, whose sum may be too
    large for float16. bfloat16 has the range of float32.
    """
    is_mean = reduce_op.op.value == _Op.AVG.value
    return torch.float32 if is_mean and dtype is torch.float16 else dtype
