"""Calls of a group that work on the same memory: each behaves as if earlier ones were over.

libpawl keeps that order for the memory that it is given. Where a tensor goes through memory of ours
(_staging), two copies lie outside of it: from the tensor when a call begins, and back to it when
its work is waited for. So before a tensor is copied, and before it is given to libpawl while a copy
back to it is still to come, the works on its memory are waited for. Sends and receives have no
order.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from pawl import _core
from pawl.errors import error

if TYPE_CHECKING:
    from pawl._group._work import Work

Extent = tuple[torch.device, int, int]  # address of the first byte, and of the one after the last
FEW = 32  # number of copies kept before those that are over are removed


def extent(tensor: torch.Tensor) -> Extent:
    """The memory between the first and the last element of a strided tensor."""
    if tensor.numel() == 0:
        return tensor.device, 0, 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return tensor.device, begin, begin + (last + 1) * tensor.element_size()


def _overlap(a: Extent, b: Extent) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def conflict(written: Sequence[torch.Tensor], read: Sequence[torch.Tensor] = ()) -> bool:
    """Whether memory of a written tensor belongs to another tensor, too. The gaps between elements
    of a strided tensor count as its memory.
    """
    found = sorted(
        (
            *((*extent(t), True) for t in written if t.layout is torch.strided),
            *((*extent(t), False) for t in read if t.layout is torch.strided),
        ),
        key=lambda each: (str(each[0]), each[1]),
    )
    device, end, end_written = None, 0, 0  # end of the memory of the tensors so far
    for where, begin, behind, writes in found:
        if where != device:
            device, end, end_written = where, 0, 0
        if begin < behind and begin < (end if writes else end_written):
            return True
        end = max(end, behind)
        end_written = max(end_written, behind) if writes else end_written
    return False


def check_writable(tensor: torch.Tensor) -> None:
    """Raises PawlError for a tensor of which several elements are one number, as
    expand() makes it.
    """
    if any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True)):
        raise error(
            "PAWL_EINVAL",
            f"collectives: a result of shape {tuple(tensor.shape)} and strides {tensor.stride()} "
            "has several elements in one place (expand): give a clone() of it",
        )


class Pending:
    """Works of a group that are still to copy from, or back to, tensors."""

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        self._copies: list[tuple[weakref.ref[Work], list[Extent], bool]] = []
        self._most = FEW

    def add(self, work: Work, tensors: Iterable[torch.Tensor], writes: bool) -> None:
        """Adds a work that copies from these tensors until it is over; back to
        them, if it ``writes``.
        """
        if len(self._copies) >= self._most:
            self._copies = [each for each in self._copies if _is_pending(each[0]())]
            self._most = max(FEW, 2 * len(self._copies))
        self._copies.append((weakref.ref(work), [extent(t) for t in tensors], writes))

    def settle(self, work: Work | None, tensor: torch.Tensor, writes: bool) -> None:
        """Waits for other works' copies before a work begins to read a tensor, or to write it."""
        if not self._copies:
            return
        ours = extent(tensor)
        for ref, theirs, written in list(self._copies):
            other = ref()
            if other is None or other is work or not (writes or written):
                continue
            if any(_overlap(ours, each) for each in theirs):
                other.wait()

    def settle_all(self, work: Work | None, tensor: torch.Tensor, writes: bool) -> None:
        """Waits for all works on a tensor's memory before it is copied."""
        self.settle(work, tensor, writes)
        _, begin, end = extent(tensor)
        while tensor.is_cpu and (under_way := self._group.using(begin, end - begin)) is not None:
            under_way.wait()

    def copies(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies of tensors, made once all earlier works on them are over."""
        for tensor in tensors:
            self.settle_all(None, tensor, writes=False)
        return [tensor.detach().clone() for tensor in tensors]

    def apart(
        self, read: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        """The tensors that a call reads, or copies of them if the call writes into their memory."""
        return self.copies(read) if conflict(written, read) else read


def _is_pending(work: Work | None) -> bool:
    return work is not None and not (work.is_completed() and not work.after)
