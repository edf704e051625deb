"""The user's function, once for each microbatch, in threads of which one runs at a time.

A function that waits for a number (``loss.item()``) hands its turn back, so that the next
microbatch begins meanwhile. Threads are used since torch's modes and autograd's walk belong to a
thread. They are kept for later steps: a new thread that computes would start OpenMP's threads anew.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

_current = threading.local()


class Fiber:
    """One call of the user's function. Fields are the driver's, which runs one fiber at a time."""

    def __init__(self, microbatch: int, call: Callable[[], Any]) -> None:
        self.microbatch = microbatch
        self.call = call
        self.backward = False  # the backward pass has begun
        self.random = 0  # operators with random numbers so far
        self.reals: dict[int, Any] = {}  # tensors of this process that other ranks have been sent
        self.reads: dict[Any, Any] = {}  # parameters read so far
        self.kept: dict[tuple[int, str], Any] = {}  # see _attributes.py
        self.arrived: Any = None  # the value that was waited for
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._worker: _Worker | None = None

    def wait(self) -> None:
        """Hands the turn back; returns when the driver resumes this fiber."""
        assert self._worker is not None
        self._worker.wait()


def current() -> Fiber | None:
    """The fiber that this thread runs."""
    return getattr(_current, "fiber", None)


class Fibers:
    """Threads that run fibers, for one thread that drives them."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def resume(self, fiber: Fiber) -> None:
        """Runs a fiber until it waits or finishes; begins it if it is new."""
        if fiber._worker is None:
            if not self._idle:
                self._idle.append(_Worker())
            fiber._worker = self._idle.pop()
            fiber._worker.begin(fiber)
        else:
            fiber._worker.go_on()
        if fiber.finished:
            self._idle.append(fiber._worker)

    def close(self) -> None:
        """Ends the threads. A fiber that waits is left: its thread ends with the process."""
        for worker in self._idle:
            worker.end()
        self._idle.clear()


class _Worker:
    def __init__(self) -> None:
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._fiber: Fiber | None = None
        threading.Thread(target=self._loop, name="pawl fiber", daemon=True).start()

    def begin(self, fiber: Fiber) -> None:
        """Runs a fiber, with the modes and context variables of the thread that calls."""
        self._fiber = fiber
        self._modes = modes_now(torch.is_grad_enabled())
        self._cache = torch.is_autocast_cache_enabled()
        self._context = contextvars.copy_context()
        self.go_on()

    def go_on(self) -> None:
        self._turn.release()
        self._back.acquire()

    def wait(self) -> None:
        self._back.release()
        self._turn.acquire()

    def end(self) -> None:
        self._fiber = None
        self._turn.release()

    def _loop(self) -> None:
        while True:
            self._turn.acquire()
            fiber = self._fiber
            if fiber is None:
                return
            _current.fiber = fiber
            try:
                with in_modes(self._modes, self._cache):
                    fiber.result = self._context.run(fiber.call)
            except BaseException as raised:  # handed to the driver's thread, whatever it is
                fiber.error = raised
            finally:
                _current.fiber = None
                fiber.finished = True
                self._fiber = None
                del fiber
                self._back.release()


_DEVICES: Final = ("cpu", "cuda")

Modes = tuple[Any, ...]  # whether gradients are recorded; then autocast's devices, with dtypes


def modes_now(grad: bool) -> Modes:
    """This thread's modes, as a part of a key. ``grad``: whether gradients are recorded."""
    casts = [
        (device, str(torch.get_autocast_dtype(device)).removeprefix("torch."))
        for device in _DEVICES
        if torch.is_autocast_enabled(device)
    ]
    return (grad, *casts)


@contextmanager
def in_modes(modes: Modes, cache: bool = True) -> Iterator[None]:
    """Sets modes in this thread. ``cache``: whether autocast keeps the weights that it casts."""
    grad, *casts = modes
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(grad))
        for device, dtype in casts:
            cast = torch.autocast(device, dtype=getattr(torch, dtype), cache_enabled=cache)
            stack.enter_context(cast)
        yield
