"""Passes over the data that a job does once, however often it is interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from pawl.elastic import _alike, _context, _metrics, _record, _states
from pawl.elastic._job import Skipped

WISHES: Final = 4  # numbers of a rank in a loop, before those of _alike


class _Epochs(_states.State):
    """The number of finished epochs."""

    def __init__(self) -> None:
        super().__init__(".adaptdl-epoch")
        self.finished = 0
        self.current: int | None = None
        self.until = 0  # the current loop ends before this epoch
        _states.load_state(self)

    def save(self, fileobj: _states.Writer) -> None:
        fileobj.write(str(self.finished).encode())

    def load(self, fileobj: _states.Reader) -> None:
        self.finished = int(fileobj.read().decode())


_epochs: _Epochs | None = None


def _state() -> _Epochs:
    global _epochs
    if _epochs is None:
        _epochs = _Epochs()
    return _epochs


# Number of states of a kind that were made in each epoch.
_made: dict[tuple[str, int | None], int] = {}


def name_here(kind: str) -> str:
    """A name for a state that is made now: the same in each run of a program, by
    its place in its epoch.
    """
    epoch = current_epoch()
    number = _made.get((kind, epoch), 0)
    _made[kind, epoch] = number + 1
    return f"{kind}-epoch{epoch}-{number}"


def remaining_epochs_until(epoch: int) -> Iterator[int]:
    """Yields each epoch below ``epoch`` that was not finished yet, in this run or one before.

    An epoch is finished however its body is left. Code before the loop, and in its body before each
    loop over a loader, is run again after a restart.
    """
    state = _state()
    _context.enter()
    if state.current is not None:
        raise RuntimeError("overlapping epoch loops: an epoch is under way")
    begun, state.until = state.finished, epoch
    _states.drop_before(begun)
    while state.finished < epoch:
        state.current = state.finished
        try:
            yield state.current
        finally:
            state.finished += 1
            state.current = None
            _states.drop_before(state.finished)
    if state.finished > begun:
        _agree_on_end(state.finished)
        # A new start would otherwise do the last minute again.
        _context.checkpoint()
        metrics = _metrics.current()
        _record.current().end(metrics.steps, metrics.progress, metrics.samples)


def _agree_on_end(finished: int) -> None:
    """Waits until all ranks have come here: else one could end while others wait for it, or go on
    alone. Sends a row as in a loop, so that ranks inside a loop notice that this one is elsewhere.
    """
    while True:
        with contextlib.suppress(Skipped):
            row = [*[0.0] * WISHES, *_alike.at_end(finished)]
            _alike.check(_context.job().agree(row)[:, WISHES:].tolist())
            return


def current_epoch() -> int | None:
    """The current epoch; None: outside of the loop."""
    return None if _epochs is None else _epochs.current


def epochs_left() -> int:
    """The number of epochs left in the current loop, the current one included."""
    return _state().until - _state().finished


def finished_epochs() -> int:
    """The number of epochs that were finished, in all runs of the job."""
    return _state().finished
