"""A job's checkpoints: what rank 0 writes of all states, and what a new start reads."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Final

import torch

from pawl import _core, _stop
from pawl._saver import EXIT_UNSAVED
from pawl._times import seconds
from pawl.elastic import _adaptdl, _metrics, _states, _wire
from pawl.engine import AsIs, Engine, Found, Raw
from pawl.errors import PawlError

log = logging.getLogger("pawl")

ROOT: Final = ("PAWL_ELASTIC_ROOT", "ADAPTDL_CHECKPOINT_PATH")
_INTERVAL: Final = "PAWL_ELASTIC_INTERVAL"  # seconds between two saves
_INTERVAL_S: Final = 60.0
_KEEP: Final = 2
LEFT: Final = 79  # exit code: it has left the others, as it was told
PREEMPTED: Final = 143  # exit code: it saved, and wants to be started again


def root() -> str:
    """Where a job's checkpoints are; "": it has none."""
    return next((os.environ[name] for name in ROOT if os.environ.get(name)), "")


class Checkpoints:
    """Of one job; ``root`` "": there are none."""

    def __init__(self) -> None:
        self.root = root()
        self._interval_s = float(os.environ.get(_INTERVAL) or _INTERVAL_S)
        self._due = time.monotonic() + self._interval_s
        self._engine: Engine | None = None
        self._listens = bool(self.root) and _stop.install(interrupt=True)

    def is_due(self) -> bool:
        """Whether it is time for the next one."""
        return bool(self.root) and time.monotonic() >= self._due

    def is_last(self) -> bool:
        """Whether this process was told to end, by SIGTERM or SIGINT."""
        return self._listens and _stop.asked()

    def read(self) -> dict[str, torch.Tensor]:
        """The bytes of what the newest one holds, by name, or AdaptDL's newest; nothing, if there
        is none."""
        if not self.root:
            return {}
        found = self._open().find()
        if found is None:
            files = _adaptdl.read(self.root)
        else:
            files = {name: _bytes_of(found, name) for name in found.names}
        return {name: _wire.raw(data) for name, data in files.items()}

    def save(self, took_over: bool, wait: bool) -> None:
        """Saves all states, in milliseconds. At rank 0. ``took_over``: another one was that before;
        its agent, on another host, may still have the root. The next save is made then; ``wait``:
        this one, as soon as it can be."""
        end = time.monotonic() + seconds("elastic_flush")
        while True:
            try:
                self._save()
                return
            except PawlError as held:
                if held.name != "PAWL_EBUSY" or not took_over or time.monotonic() > end:
                    raise
                if not wait:
                    log.warning("elastic: not saved, but when the next save is due: %s", held)
                    self._due = time.monotonic() + self._interval_s
                    return
            time.sleep(seconds("elastic_save_again"))

    def _save(self) -> None:
        parts = {_states.file_of(state.name): _part_of(state) for state in _states.every()}
        tag = f"elastic-{_metrics.current().steps}"
        self._open().save(tag, parts, alone=True)
        self._due = time.monotonic() + self._interval_s

    def flush(self) -> str | None:
        """Why what was saved last is not durable when this returns; None: it is."""
        if self._engine is None or self._engine.flush():
            return None
        newest = self._engine.newest
        return (newest.error if newest is not None else None) or "it took too long"

    def finish(self) -> None:
        """The last one that there is, is durable when this returns; else that is in the log, and
        the process will not end with 0: others wait for this rank to say that it has come to it."""
        if self._engine is not None and not self._engine.close():
            _core.exit_with(EXIT_UNSAVED, 0)

    def _open(self) -> Engine:
        """One process saves for all: they are not the engine's ranks, who go and come."""
        if self._engine is None:
            self._engine = Engine(self.root, keep=_KEEP, rank=0, world_size=1, on_exit="warn")
        return self._engine


def _part_of(state: _states.State) -> Any:
    if isinstance(state, _states.ObjectState):
        return AsIs(state.pack())
    return Raw(_states.bytes_of(state))


def _bytes_of(found: Found, name: str) -> bytes:
    return found.read(name) if found.is_raw(name) else _states.zipped(found.load(name))
