"""A stand-in for a device beside the host: its memory is the host's, its streams are threads.

It takes every tensor of a user for a tensor on the device, so all collectives use the code for
CUDA. Streams are late at random, which exposes what comes too early or is not waited for.

As a script, lanes.py SCRIPT ARG... runs a rank's script on the stand-in.
"""

from __future__ import annotations

import queue
import random
import runpy
import sys
import threading
import time
from collections.abc import Callable, Sequence

import torch

from pawl._group import _staging

LATE_S = 0.002  # delay of a copy, at most


class Event(threading.Event):
    def synchronize(self) -> None:
        assert self.wait(60)


class Stream:
    """A stream: does one thing after another, some time later."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._queue.get()()

    def launch(self, kernel: Callable[[], object]) -> None:
        self._queue.put(kernel)

    def wait_event(self, event: Event) -> None:
        self.launch(event.synchronize)

    def record_event(self) -> Event:
        event = Event()
        self.launch(event.set)
        return event


class Lane(_staging.Lane):
    """``patient``: a stream that follows an event waits for it on the host, too, as code that reads
    a device's tensor does."""

    def __init__(self, patient: bool) -> None:
        super().__init__(Stream(), Stream())
        self._current = Stream()
        self.patient = patient

    def current(self) -> Stream:
        return self._current

    def copy(self, copies: Sequence[_staging.Copy], stream: Stream) -> None:
        for to, of in copies:

            def copy(to: torch.Tensor = to, of: torch.Tensor = of) -> None:
                time.sleep(random.random() * LATE_S)  # pace
                with torch.no_grad():
                    to.copy_(of)

            stream.launch(copy)

    def follow(self, event: Event) -> None:
        super().follow(event)
        if self.patient:
            event.synchronize()


def install(patient: bool = True) -> Lane:
    lane = Lane(patient)
    _staging.lane_of = lambda tensor: lane  # type: ignore[assignment]
    _staging.is_plain = lambda tensor: False  # type: ignore[assignment]
    return lane


if __name__ == "__main__":
    install()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
