"""A job's checkpoints: rank 0 writes all states, and a new start reads them."""

from __future__ import annotations

import logging
import multiprocessing.util
import os
import time
from typing import TYPE_CHECKING, Any, Final

import torch

from pawl import _core, _start, _stop
from pawl._ckpt._saver import EXIT_UNSAVED
from pawl._times import seconds
from pawl.elastic import _adaptdl, _metrics, _states, _wire
from pawl.engine import AsIs, Engine, Found, Raw
from pawl.errors import PawlError

if TYPE_CHECKING:
    from pawl._ckpt._saver import Save

log = logging.getLogger("pawl")

ROOT: Final = ("PAWL_ELASTIC_ROOT", "ADAPTDL_CHECKPOINT_PATH")
_INTERVAL: Final = "PAWL_ELASTIC_INTERVAL"  # seconds between two durable checkpoints
_INTERVAL_S: Final = 60.0
_COMMIT: Final = "PAWL_ELASTIC_COMMIT"  # seconds between two checkpoints committed to memory
_LEAST_S: Final = 1.0  # seconds between two saves, at least
_DEAREST: Final = 20  # seconds between two saves, at least, in durations of the last save
_KEEP: Final = 2
LEFT: Final = 79  # exit code: this rank has left the others, as requested
PREEMPTED: Final = 143  # exit code: the job has saved, and wants to be started again


def root() -> str:
    """The directory of a job's checkpoints; "": it has none."""
    return next((os.environ[name] for name in ROOT if os.environ.get(name)), "")


class Checkpoints:
    """The checkpoints of one job; ``root`` "": there are none.

    Every few seconds one is committed to memory, which outlives the ranks; so is one when ranks
    have gone or come, and after each pass, since it may be long until the next one. Once in a
    while the newest is made durable.
    """

    def __init__(self) -> None:
        self.root = root()
        self._interval_s = float(os.environ.get(_INTERVAL) or _INTERVAL_S)
        commit_s = float(os.environ.get(_COMMIT) or seconds("elastic_commit"))
        self._commit_s = min(commit_s, self._interval_s)
        self._due = time.monotonic() + self._commit_s
        self._soonest = 0.0  # no save before this time
        self._generation = 0  # generation of the ranks at the last save
        self._engine: Engine | None = None
        self._has_read = False  # a checkpoint was read, and _warn_unclaimed not called yet
        self._listens = bool(self.root) and _stop.install(interrupt=True)

    def is_due(self, generation: int) -> bool:
        """Whether it is time for the next save. ``generation``: number of times that ranks have
        gone or come. Some of many such events are skipped, so that saving takes at most a twentieth
        of the time.
        """
        now = time.monotonic()
        changed = generation != self._generation
        return bool(self.root) and now >= self._soonest and (changed or now >= self._due)

    def hurry(self) -> None:
        """Makes the next save due: work is over that would be expensive to repeat."""
        self._due = 0.0

    def is_last(self) -> bool:
        """Whether this process was asked to end, by SIGTERM or SIGINT."""
        return self._listens and _stop.asked()

    def read(self) -> dict[str, torch.Tensor]:
        """The bytes of the states in the newest checkpoint, by name, or in AdaptDL's newest; empty
        if there is none. Logs the checkpoint that the job begins from.
        """
        if not self.root:
            _start.nowhere(f"{ROOT[0]} names a folder for that")
            return {}
        found = self._open().find()
        if found is not None:
            files = {name: _bytes_of(found, name) for name in found.names}
            _start.restored(self.root, f"step {found.step}", found.size, found.source)
        else:
            files, folder = _adaptdl.read(self.root)
            if folder is not None:
                _start.resumed(str(folder), "a checkpoint of AdaptDL's")
            else:
                _start.nothing(self.root)
        self._has_read = True
        return {name: _wire.raw(data) for name, data in files.items()}

    def save(self, generation: int, took_over: bool, wait: bool) -> None:
        """Saves all states, in milliseconds. At rank 0. ``generation``: as for is_due.

        ``took_over``: another rank was rank 0 before; its agent, on another host, may still have
        the root. Then this save is skipped, and the next one is due later; with ``wait`` this one
        is made as soon as it can be, and is made durable at once.
        """
        end = time.monotonic() + seconds("elastic_flush")
        self._generation = generation
        while True:
            try:
                save = self._save()
                if wait and save.wait("committed", seconds("elastic_flush")):
                    self._open().flush(0)
                return
            except PawlError as busy:
                if busy.name != "PAWL_EBUSY" or not took_over or time.monotonic() > end:
                    raise
                if not wait:
                    log.warning("elastic: skipped a save; the next one will try again: %s", busy)
                    self._due = time.monotonic() + self._commit_s
                    return
            time.sleep(seconds("elastic_save_again"))

    def _save(self) -> Save:
        if self._has_read:
            self._has_read = False
            self._warn_unclaimed()
        began = time.monotonic()
        parts = {_states.file_of(state.name): _part_of(state) for state in _states.every()}
        tag = f"elastic-{_metrics.current().steps}"
        save = self._open().save(tag, parts, alone=True)
        now = time.monotonic()
        self._due = now + self._commit_s
        self._soonest = now + min(max(_LEAST_S, _DEAREST * (now - began)), self._interval_s)
        return save

    def _warn_unclaimed(self) -> None:
        """Before the first save: warns of saved states that nothing has loaded; the
        save will not have them.
        """
        left = _states.unclaimed()
        if left:
            log.warning(
                "elastic: begins anew, without saved states that nothing here has loaded: %s: a "
                "name, or a model's shape, has changed",
                ", ".join(left),
            )

    def flush(self) -> str | None:
        """Waits until the last save is durable; returns why it is not, None if it is."""
        if self._engine is None or self._engine.flush():
            return None
        newest = self._engine.newest
        return (newest.error if newest is not None else None) or "writing it took too long"

    def finish(self) -> None:
        """Waits until the last save of the job is durable. Else logs it, and the process will not
        end with 0: the other ranks wait for this rank to confirm it.
        """
        if self._engine is not None and not self._engine.close():
            _core.exit_with(EXIT_UNSAVED, 0)

    def _open(self) -> Engine:
        """The engine. One process saves for all: ranks go and come, so they are not
        the engine's ranks.
        """
        if self._engine is None:
            _start.looked(self.root)  # rank 0 has looked, at the job's start
            self._engine = engine = Engine(
                self.root,
                keep=_KEEP,
                persist_every=self._interval_s,
                rank=0,
                world_size=1,
                on_exit="warn",
            )
            # Children of multiprocessing end without atexit.
            if multiprocessing.parent_process() is not None:
                multiprocessing.util.Finalize(None, engine.close, exitpriority=0)
        return self._engine


def _part_of(state: _states.State) -> Any:
    if isinstance(state, _states.ObjectState):
        return AsIs(state.pack())
    return Raw(_states.bytes_of(state))


def _bytes_of(found: Found, name: str) -> bytes:
    return found.read(name) if found.is_raw(name) else _states.zipped(found.load(name))
