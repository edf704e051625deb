"""Copies of tensors that are made while training goes on, for those who stage a state."""

from __future__ import annotations

import mmap

import torch

from pawl import _core, _guard
from pawl._skeleton import Skeleton


class Buffer:
    """Host memory like a tensor, whose address stays what it is whatever torch does with it."""

    __slots__ = ("memory", "tensor")

    def __init__(self, like: torch.Tensor) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = mmap.mmap(-1, like.nbytes, flags)
        self.tensor = torch.frombuffer(self.memory, dtype=like.dtype).view(like.shape)


def copies(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be copied by address, and is worth it."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.nbytes >= _guard.WATCH_MIN
        and tensor.is_contiguous()
        and not (tensor.is_conj() or tensor.is_neg())
    )


Copied = tuple[str, torch.Tensor, Buffer]  # name, for people; from; to


class Overlap:
    """Copies states, one after the other: start, and wait before reading the buffers.

    What an optimizer owns is copied after ``start`` returned, and the optimizer's next step waits
    for that (see pawl._guard); everything else before. Between start and wait another thread may be
    the one that waits.
    """

    def __init__(self, watch: bool) -> None:
        """watch: the kernel can tell of changes; else all is copied before start returns."""
        self._watch = watch
        self._copier = _core.Copier(watch)
        self._evicted: set[str] = set()  # names of what changed; copied at once from then on
        self._copy: _Copy | None = None  # the last one started

    def start(self, copied: list[Copied]) -> None:
        """Begins, once the copy before is over. All tensors are such as ``copies`` says."""
        if self._copy is not None:
            self._copy.end()
        names = [name for name, _, _ in copied]
        tensors = [tensor for _, tensor, _ in copied]
        places = [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]
        storages = [tensor.untyped_storage() for tensor in tensors]
        skeleton = Skeleton(b"", b"", storages, names, tensors, places)
        masks = _guard.guarded() if self._watch else {}
        spans = _guard.Spans(skeleton, masks, self._watch, self._evicted)
        capture = _guard.Capture([("", skeleton, spans)])
        self._copier.begin(spans.packed, [buffer.memory for _, _, buffer in copied])
        self._copy = _Copy(self._copier, names)
        capture.started(self._copy, 0)

    def wait(self) -> str | None:
        """Waits until what was started is copied. What went wrong with it; None: nothing."""
        if self._copy is None:
            return None
        name = self._copy.end()
        if name is None:
            return None
        self._evicted.add(name)
        return (
            f"{name} changed while it was copied, outside the step of its optimizer; from now on "
            "it is copied before staging returns"
        )


class _Copy:
    """One copy: what a Capture asks of a session, asked of the copier."""

    def __init__(self, copier: _core.Copier, names: list[str]) -> None:
        self._copier = copier
        self._names = names
        self._over = False
        self._changed: str | None = None  # name of the tensor

    def status(self, _: int, /) -> tuple[int]:
        """0 while it goes on."""
        return (0 if not self._over and self._copier.busy else 1,)

    def fence(self, groups: int, /) -> None:
        self._copier.fence(groups)

    def withdraw(self, _: int, __: int, index: int, /) -> None:
        """The tensor was seen to change."""
        self._changed = self._changed or self._names[index]

    def end(self) -> str | None:
        """Waits until it is over. The tensor that changed; None: none did."""
        if not self._over:
            code, index = self._copier.wait()
            if code != 0 and not self._over:  # else the copier may have begun the next one
                self._changed = self._changed or self._names[index]
            self._over = True
        return self._changed
