"""Copies of tensors made while training goes on, for integrations that stage a state."""

from __future__ import annotations

import mmap

import torch

from pawl import _core
from pawl._ckpt import _fence
from pawl._ckpt._skeleton import Skeleton


class Buffer:
    """Host memory like a tensor; its address stays the same, whatever torch does with it."""

    __slots__ = ("memory", "tensor")

    def __init__(self, like: torch.Tensor) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = mmap.mmap(-1, like.nbytes, flags)
        self.tensor = torch.frombuffer(self.memory, dtype=like.dtype).view(like.shape)


def copies(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be copied by address, and is large enough to be worth it."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.nbytes >= _fence.WATCH_MIN
        and tensor.is_contiguous()
        and not (tensor.is_conj() or tensor.is_neg())
    )


Copied = tuple[str, torch.Tensor, Buffer]  # name for messages, source, target


class Overlap:
    """Copies states, one after the other: start, and wait before reading the buffers.

    Memory that an optimizer owns is copied after ``start`` has returned, and the optimizer's next
    step waits for that (see _fence.py); all other memory is copied before. ``wait`` may be called
    in another thread than ``start``.
    """

    def __init__(self, watch: bool) -> None:
        """watch: the kernel reports changes; else everything is copied before start returns."""
        self._watch = watch
        self._copier = _core.Copier(watch)
        # Names of tensors that changed under a copy; later copied at once.
        self._evicted: set[str] = set()
        self._copy: _Copy | None = None  # the copy that was started last

    def start(self, copied: list[Copied]) -> None:
        """Begins a copy, once the one before is over. ``copies`` must be true for all tensors."""
        if self._copy is not None:
            self._copy.end()
        names = [name for name, _, _ in copied]
        tensors = [tensor for _, tensor, _ in copied]
        places = [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]
        storages = [tensor.untyped_storage() for tensor in tensors]
        skeleton = Skeleton(b"", b"", storages, names, tensors, places)
        masks = _fence.guarded() if self._watch else {}
        spans = _fence.Spans(skeleton, masks, self._watch, self._evicted)
        capture = _fence.Capture([("", skeleton, spans)])
        self._copier.begin(spans.packed, [buffer.memory for _, _, buffer in copied])
        self._copy = _Copy(self._copier, names)
        capture.started(self._copy, 0)

    def wait(self) -> str | None:
        """Waits until the copy is over. Returns its error; None: it succeeded."""
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
    """One copy, with the methods of a session that a Capture calls."""

    def __init__(self, copier: _core.Copier, names: list[str]) -> None:
        self._copier = copier
        self._names = names
        self._over = False
        self._changed: str | None = None  # name of the tensor that changed

    def status(self, _: int, /) -> tuple[int]:
        """The status: 0 while the copy goes on."""
        return (0 if not self._over and self._copier.busy else 1,)

    def fence(self, groups: int, /) -> None:
        self._copier.fence(groups)

    def withdraw(self, _: int, __: int, index: int, /) -> None:
        """Withdraws the copy: the tensor with this index was seen to change."""
        self._changed = self._changed or self._names[index]

    def end(self) -> str | None:
        """Waits until the copy is over. Returns the tensor that changed; None: none did."""
        if not self._over:
            code, index = self._copier.wait()
            if code != 0 and not self._over:  # once over, the copier may have begun the next copy
                self._changed = self._changed or self._names[index]
            self._over = True
        return self._changed
