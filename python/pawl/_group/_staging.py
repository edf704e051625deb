"""The memory that a collective works on: tensors in host memory, or copies of them there.

CUDA tensors go through page-locked memory, on streams beside the caller's: the operation has its
place in the order at once and begins when its data has come (pawl_group_release); its result is
copied back when it is over, and the stream of a caller that waits then waits for that copy. So a
host never waits for a device to compute, and a device goes on computing while hosts reduce. All
other tensors that are not contiguous host memory are copied at once.
"""

from __future__ import annotations

import functools
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pawl import _core
from pawl._group._pending import check_writable
from pawl.errors import error

if TYPE_CHECKING:
    from pawl._group._work import Work

Copy = tuple[torch.Tensor, torch.Tensor]  # target, source


class Lane:
    """A device's copies to and from the host: two streams, on which they wait for
    the caller's stream.
    """

    def __init__(self, down: Any, up: Any) -> None:
        self._down, self._up = down, up

    def current(self) -> Any:
        """The caller's stream."""
        raise NotImplementedError

    def copy(self, copies: Sequence[Copy], stream: Any) -> None:
        """Queues the copies on a stream."""
        raise NotImplementedError

    def mark(self) -> Any:
        """An event after all that the caller has queued."""
        return self.current().record_event()

    def fetch(self, copies: Sequence[Copy]) -> Any:
        """Queues copies from device to host; returns an event after them."""
        return self._copy(copies, self._down, self.mark())

    def bring(self, copies: Sequence[Copy], after: Any) -> Any:
        """Queues copies from host to device, after the event ``after``; returns an
        event after them.
        """
        return self._copy(copies, self._up, after)

    def _copy(self, copies: Sequence[Copy], stream: Any, after: Any) -> Any:
        stream.wait_event(after)
        self.copy(copies, stream)
        return stream.record_event()

    def follow(self, event: Any) -> None:
        """Makes the caller's later work wait for the event."""
        self.current().wait_event(event)

    def await_(self, event: Any) -> None:
        """Blocks the calling thread until the event has happened."""
        event.synchronize()


class CudaLane(Lane):
    """The lane of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(torch.cuda.Stream(device), torch.cuda.Stream(device))
        self._device = device

    def current(self) -> torch.cuda.Stream:
        """The caller's stream."""
        return torch.cuda.current_stream(self._device)

    def copy(self, copies: Sequence[Copy], stream: torch.cuda.Stream) -> None:
        """Queues the copies. torch gives neither end's memory to others before the copy is made."""
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            for to, of in copies:
                to.copy_(of, non_blocking=True)
                (to if to.is_cuda else of).record_stream(stream)

    def await_(self, event: torch.cuda.Event) -> None:
        """Blocks until the event. Sets the device: a new thread is at device 0,
        where waiting would take up memory.
        """
        with torch.cuda.device(self._device):
            event.synchronize()


_lanes: dict[torch.device, Lane] = {}


def lane_of(tensor: torch.Tensor) -> Lane | None:
    """The lane of a tensor's device; None: copies are made at once."""
    if not tensor.is_cuda:
        return None
    lane = _lanes.get(tensor.device)
    if lane is None:
        lane = _lanes.setdefault(tensor.device, CudaLane(tensor.device))
    return lane


def _make(
    shape: Sequence[int], like: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Host memory that a device can copy to and from. torch caches it after use."""
    dtype = dtype or like.dtype
    return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=like.is_cuda)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the elements lie in host memory, contiguous and in order."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.is_conj() or tensor.is_neg())
    )


def host(
    work: Work,
    tensor: torch.Tensor,
    *,
    reads: bool = False,
    writes: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The tensor, or memory of ours for it; with its content if the work ``reads`` it.

    ``writes``: the work changes the tensor, by put_back where it is memory of ours. ``dtype``: type
    of the numbers in that memory; None: the tensor's. Waits for works on memory that is copied.
    """
    if is_plain(tensor) and dtype in (None, tensor.dtype):
        if work.pending is not None:
            work.pending.settle(work, tensor, writes)
        return tensor
    prepare(work, tensor, writes)
    made = _make(tensor.shape, tensor, dtype)
    if reads:
        fetch(work, [(made, tensor)])
    return made


def block(
    work: Work,
    tensors: Sequence[torch.Tensor],
    *,
    reads: bool = False,
    writes: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """One block of our memory for several tensors, one after the other;
    arguments as of ``host``.
    """
    for tensor in tensors:
        prepare(work, tensor, writes)
    made = _make([sum(t.numel() for t in tensors)], tensors[0], dtype)
    if reads:
        fetch(work, list(zip(_views(made, tensors), tensors, strict=True)))
    return made


def prepare(work: Work, tensor: torch.Tensor, writes: bool) -> None:
    """Checks that a tensor can be copied, or copied to, and waits for earlier
    works on its memory.
    """
    if tensor.layout is not torch.strided:
        raise error(
            "PAWL_ENOTSUP", f"collectives: tensors of layout {tensor.layout}: make it dense"
        )
    if writes:
        check_writable(tensor)
    if work.pending is not None:
        work.pending.settle_all(work, tensor, writes)


def _views(memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    parts = memory.view(-1).split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def fetch(work: Work, copies: Sequence[Copy]) -> None:
    """Copies the input of the work's operations from tensors of one device."""
    copies = [(to, of.detach()) for to, of in copies]
    lane = lane_of(copies[0][1])
    if lane is not None:
        if work.pending is not None:
            work.pending.add(work, [of for _, of in copies], writes=False)
        work.ready = functools.partial(lane.await_, lane.fetch(copies))
        return
    for to, of in copies:
        to.copy_(of)


def put_back(work: Work, tensor: torch.Tensor, host: torch.Tensor) -> None:
    """Copies the result from memory of ours to its tensor, once the work is over."""
    if host is not tensor:
        _bring(work, [(tensor.detach(), host)])


def spread(work: Work, memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copies the result from memory that block made to its tensors, once the work is over."""
    views = _views(memory, tensors)
    _bring(work, [(t.detach(), view) for t, view in zip(tensors, views, strict=True)])


def _bring(work: Work, copies: Sequence[Copy]) -> None:
    if work.pending is not None:
        work.pending.add(work, [to for to, _ in copies], writes=True)
    lane = lane_of(copies[0][0])
    after = lane.mark() if lane is not None else None

    def run() -> None:
        if lane is not None:
            work.brought += ((lane, lane.bring(copies, after)),)
            return
        for to, of in copies:
            to.copy_(of)

    work.finish_with(run)


class Releaser:
    """A thread that releases operations, in their order, once their data has come."""

    def __init__(self, fail: Callable[[], None]) -> None:
        self._fail = fail  # ends the group
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], _core.Operation] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def add(self, ready: Callable[[], None], operation: _core.Operation) -> None:
        """Adds an operation that was submitted deferred; it begins once ``ready`` has returned."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pawl-releaser", daemon=True)
            self._thread.start()
        self._queue.put((ready, operation))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            ready, operation = item
            try:
                ready()
            except RuntimeError as why:  # the device has failed: none of its data can be used
                print(f"pawl: collectives: copying from a device: {why}", file=sys.stderr)
                self._fail()
            operation.release()
            del item, operation, ready

    def end(self) -> None:
        """Waits until the thread has ended, unless a device hangs; nothing may be
        added afterwards.
        """
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=1)
