"""What a collective returns: waited for, or through a future, with the exception of libpawl."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work as TorchWork
from torch.futures import Future

from pawl import _core
from pawl._pending import Pending
from pawl._staging import Lane

NO_TIMEOUT = timedelta(0)


class Work(TorchWork):
    """Operations of one call, and what is to be done when they are over.

    torch keeps the Python object alive until it is waited for; until the operations are over they
    do that, too.
    """

    # Of the class, until there is something: a small call's time is mostly that of making this.
    operation: _core.Operation | None = None  # the last one; None: there was nothing to do
    before: tuple[_core.Operation, ...] = ()  # the others
    parts: Sequence[Work] = ()  # works that this one is made of
    keep: tuple[torch.Tensor | None, ...] = ()  # what they work on
    ready: Callable[[], None] | None = None  # waits for what they begin with; see _staging
    after: tuple[Callable[[], object], ...] = ()  # once all are over: copies to where it goes
    brought: tuple[tuple[Lane, Any], ...] = ()  # events behind those to devices
    shown: Future[Any] | None = None  # a profiler's event ended; see _events
    _over: Callable[[Future[None]], None] | None = None  # called first, once the last one is over
    _lock: threading.Lock | None = None  # for after
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
        self.pending = pending  # orders it among calls on the same memory; None: a message
        self._completers = completers

    def wait(self, timeout: timedelta = NO_TIMEOUT, shown: bool = True) -> bool:
        """Until it is over. Raises PawlError; torch's zero means no timeout but the call's own.

        ``shown``: a profiler has its end, too. What completes the future would wait for itself.
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
        """Has something called once the last operation is over, before what hangs on the future;
        it may be called at once. Only before the future is asked for."""
        assert self._future is None
        self._over = call
        self.get_future()

    def finish_with(self, after: Callable[[], object]) -> None:
        """Has something more done once all operations are over, before anyone sees the outputs."""
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
        """Holds the outputs; an error arrives in it as RuntimeError, with the message."""
        if self._future is None:
            devices = {t.device for t in self.outputs if t.is_cuda}
            self._base = Future(devices=sorted(devices, key=str))
            if self._over is not None:
                self._base.add_done_callback(self._over)
            self._future = self._base.then(self._value)
            if self.parts:  # whose operations are given out as theirs
                self.parts[-1].get_future().add_done_callback(lambda _: self.complete())
            elif self.operation is None or not self._completers.await_(self.operation):
                self.complete()
        return self._future

    def _value(self, _: Future[None]) -> Sequence[torch.Tensor]:
        self.wait(shown=False)
        return self.outputs

    def complete(self) -> None:
        """The last operation is over, and somebody waits for the future. Callbacks run here."""
        assert self._base is not None
        self._base.set_result(None)

    # For callers from Python.

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return all(operation.done for operation in self._operations())

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self.is_completed() and not any(o.failed for o in self._operations())

    def exception(self) -> BaseException | None:
        """What it failed with."""
        if self.is_completed() and not self.is_success():
            try:
                self.wait()
            except _core.PawlError as error:
                return error
        return None

    def result(self) -> list[torch.Tensor]:
        """The outputs, once it is over."""
        self.wait()
        return list(self.outputs)

    def source_rank(self) -> int:
        """Of a message received: its sender, in the group."""
        return self.operation.source if self.operation is not None else -1

    _source_rank = source_rank

    def _operations(self) -> list[_core.Operation]:
        own = [*self.before, *([self.operation] if self.operation is not None else [])]
        return own + [each for part in self.parts for each in part._operations()]


class Completers:
    """Threads that complete futures of a group.

    What a user hangs on a future runs in them, and may itself wait for a collective: so there is
    always one more that waits for the next operation.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._idle = 0  # waiting for an operation
        self._threads: set[threading.Thread] = set()

    def await_(self, operation: _core.Operation) -> bool:
        """Has the operation's work completed when it is over. False: it is over."""
        if not operation.tell():
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
        """After the group was left: until none runs, but for the one that calls this."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout=1)
