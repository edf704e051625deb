"""The work that a collective returns: waited for, or through a future, with libpawl's exception."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work as TorchWork
from torch.futures import Future

from pawl import _core
from pawl._group._pending import Pending
from pawl._group._staging import Lane

NO_TIMEOUT = timedelta(0)


class Work(TorchWork):
    """Operations of one call, and actions for when they are over.

    torch keeps the Python object alive until it is waited for; until the operations
    are over, they keep it alive, too.
    """

    # Defaults are class attributes: most of a small call's time goes into making this object.
    operation: _core.Operation | None = None  # the last operation; None: there was nothing to do
    before: tuple[_core.Operation, ...] = ()  # the other operations
    parts: Sequence[Work] = ()  # works that this one is made of
    keep: tuple[torch.Tensor | None, ...] = ()  # tensors that the operations work on
    ready: Callable[[], None] | None = None  # waits for the operations' input; see _staging
    after: tuple[Callable[[], object], ...] = ()  # called once all are over: copies of the results
    brought: tuple[tuple[Lane, Any], ...] = ()  # lane and event after each copy to a device
    shown: Future[Any] | None = None  # set when a profiler's event has ended; see _events
    # Called first, once the last operation is over.
    _over: Callable[[Future[None]], None] | None = None
    _lock: threading.Lock | None = None  # guards after
    _future: Future[Any] | None = None
    _base: Future[None] | None = None

    def __init__(
        self,
        outputs: Sequence[torch.Tensor],
        completers: Completers,
        pending: Pending | None = None,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self.pending = pending  # orders the work among calls on the same memory; None: a message
        self._completers = completers

    def wait(self, timeout: timedelta = NO_TIMEOUT, shown: bool = True) -> bool:
        """Waits until the work is over. Raises PawlError. torch's zero means no
        timeout but the call's own.

        ``shown``: waits for a profiler's event, too; the thread that completes the future must not.
        """
        seconds = timeout.total_seconds() or None
        for operation in self.before:
            operation.wait(seconds)
        if self.operation is not None:
            self.operation.wait(seconds)
        for part in self.parts:
            part.wait(timeout)
        if self.after or self.brought:
            self._finish()
        if shown and self.shown is not None:
            self.shown.wait()
        return True

    def call_when_over(self, call: Callable[[Future[None]], None]) -> None:
        """Has ``call`` called once the last operation is over, before the future's callbacks;
        possibly at once. Call this before get_future.
        """
        assert self._future is None
        self._over = call
        self.get_future()

    def finish_with(self, after: Callable[[], object]) -> None:
        """Adds an action that runs once all operations are over, before anyone sees the outputs."""
        self.after += (after,)
        self._lock = self._lock or threading.Lock()

    def _finish(self) -> None:
        assert self._lock is not None
        with self._lock:
            for after in self.after:
                after()
            self.after = ()
            self.keep = ()
        for lane, event in self.brought:
            lane.follow(event)

    def get_future(self) -> Future[Any]:
        """A future that holds the outputs; an error becomes a RuntimeError with its message."""
        if self._future is None:
            devices = {t.device for t in self.outputs if t.is_cuda}
            self._base = Future(devices=sorted(devices, key=str))
            if self._over is not None:
                self._base.add_done_callback(self._over)
            self._future = self._base.then(self._value)
            if self.parts:  # the operations belong to the parts
                self.parts[-1].get_future().add_done_callback(lambda _: self.complete())
            elif self.operation is None or not self._completers.await_(self.operation):
                self.complete()
        return self._future

    def _value(self, _: Future[None]) -> Sequence[torch.Tensor]:
        self.wait(shown=False)
        return self.outputs

    def complete(self) -> None:
        """Completes the future: the last operation is over. Callbacks run in the calling thread."""
        assert self._base is not None
        self._base.set_result(None)

    # Methods for callers from Python.

    def is_completed(self) -> bool:
        """Whether the work is over, with or without success."""
        return all(operation.done for operation in self._operations())

    def is_success(self) -> bool:
        """Whether the work is over and succeeded."""
        return self.is_completed() and not any(o.failed for o in self._operations())

    def exception(self) -> BaseException | None:
        """The error of the work; None: it has none."""
        if self.is_completed() and not self.is_success():
            try:
                self.wait()
            except _core.PawlError as error:
                return error
        return None

    def result(self) -> list[torch.Tensor]:
        """The outputs, once the work is over."""
        self.wait()
        return list(self.outputs)

    def source_rank(self) -> int:
        """The sender of a received message, as its number in the group."""
        return self.operation.source if self.operation is not None else -1

    _source_rank = source_rank

    def _operations(self) -> list[_core.Operation]:
        own = [*self.before, *([self.operation] if self.operation is not None else [])]
        return own + [each for part in self.parts for each in part._operations()]


class Completers:
    """Threads that complete futures of a group.

    A user's callbacks of a future run in these threads, and may themselves wait for a collective:
    so there is always one more thread that waits for the next operation.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._idle = 0  # number of threads that wait for an operation
        self._threads: set[threading.Thread] = set()

    def await_(self, operation: _core.Operation) -> bool:
        """Has the operation's work completed when it is over. False: it is over already."""
        if not operation.watch():
            return False
        with self._lock:
            if self._idle == 0:
                self._start()
        return True

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="pawl-completer", daemon=True)
        self._idle += 1
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        while True:
            work = self._group.next()
            with self._lock:
                self._idle -= 1
                if work is None:
                    self._threads.discard(threading.current_thread())
                    return
                if self._idle == 0:
                    self._start()
            work.complete()
            del work
            with self._lock:
                if self._idle > 1:
                    self._threads.discard(threading.current_thread())
                    return
                self._idle += 1

    def join(self) -> None:
        """Called after the group was left: waits until all threads but the
        calling one have ended.
        """
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout=1)
