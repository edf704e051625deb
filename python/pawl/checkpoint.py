"""Checkpointer: saves the state of training in milliseconds and restores it, all or nothing.

Order of a save: ask the agent for a slot; meanwhile state_dict() of everything and the pickles
(_skeleton), with the fences of each storage (_fence); then the call into C that copies unguarded
memory and watches the rest. From the first optimizer step after it, the memory may change again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Literal

from pawl import _core, _start, _stop
from pawl._ckpt import _fence, _parts, _restore, _rng
from pawl._ckpt._partitions import RNG, Sharing, check_names, check_step, only_names
from pawl._ckpt._saver import Save, Saver
from pawl._ckpt._shards import take_apart
from pawl._times import seconds

log = logging.getLogger("pawl")

__all__ = ["Checkpointer", "Save"]


class Checkpointer(Saver):
    """Saves and restores a training state under ``root``.

    ``root``: directory, made when missing; one job at a time may save to it.
    ``keep``: durable checkpoints kept, newest first (0: all), besides pinned ones and those whose
    step divides by ``keep_every`` (0: none).
    ``persist_every``: seconds between checkpoints made durable; 0: every save; ``"auto"``: the
    interval that costs least, see ``due``. All saves are committed to memory that outlives the
    training processes.
    ``full_every``: one of so many durable checkpoints is written whole; in the others, parameters
    that are unchanged since the one before (frozen ones) are not written again, see
    docs/incremental.md. 1: all are written whole.
    ``copy``: ``"overlap"`` copies parameters and optimizer tensors while the next forward and
    backward pass run; ``"now"`` copies everything before ``save`` returns.
    ``memory``: bytes per node for the memory tier; None: as much as two checkpoints need and the
    machine allows, and a third while storage is slower than the saves. Where two do not fit, saves
    are streamed to the store; where three do not, see docs/limits.md.
    ``trust``: save objects that need code to be loaded (pickle), and run that code when loading.
    ``rank``, ``world_size``: default: torch.distributed if initialised, else the environment
    that a launcher set, else 0 of 1.
    ``job``: id of the training run, the same over restarts; default: the launcher's, else made of
    the script's and the root's path.
    ``on_exit``: the reaction of ``close`` if the newest save does not become durable: ``"raise"``
    NotDurable; ``"warn"`` in the log, and return False.
    ``replicas``: hosts that keep a copy of this host's part of each committed checkpoint in memory,
    0 to 8, so that it survives the loss of as many hosts. Default: 1 under ``pawl run`` with
    several hosts, else 0. They take memory on those hosts: docs/run.md, "Replicas".
    ``parity``: keep ``replicas`` sums over the parts of up to 8 hosts in place of as many copies
    of each part. As many hosts may be lost, for a fraction of the memory; a restore after a loss
    reads from all hosts of the sum. ``replicas`` is 1 to 3 then. With fewer than 4 hosts, copies
    are kept.

    Where ranks span hosts, root is a directory that all of them see. Under ``pawl run`` the value
    of ``persist_every`` on rank 0's host counts, and 0 means the newest save whenever storage is
    free. Under other launchers every save is made durable, whatever ``persist_every`` says.

    Raises PawlError: PAWL_EBUSY (another job saves to root), PAWL_ENOTSUP (a URL).
    Its methods are for one thread at a time.
    While one is open in the main thread, SIGTERM sets ``stopping`` instead of ending the process;
    not where ``stopping`` is refused.
    At exit it is closed, which waits for the newest save; if that is not durable then, and
    ``on_exit`` is ``"raise"``, the process ends with 74 where it would have ended with 0.
    The logger ``pawl`` reports trouble in the background (a full disk, for example) when it begins,
    rarely again while it lasts, and once when it is over: docs/operate.md.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keep: int = 3,
        persist_every: float | Literal["auto"] = 60,
        copy: str = "overlap",
        memory: int | None = None,
        trust: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        job: str | None = None,
        keep_every: int = 0,
        full_every: int = 1,
        on_exit: Literal["raise", "warn"] = "raise",
        replicas: int | None = None,
        parity: bool = False,
    ) -> None:
        super().__init__(
            root,
            keep=keep,
            persist_every=persist_every,
            copy=copy,
            memory=memory,
            trust=trust,
            rank=rank,
            world_size=world_size,
            job=job,
            keep_every=keep_every,
            full_every=full_every,
            on_exit=on_exit,
            replicas=replicas,
            parity=parity,
        )
        self._sharing = Sharing(self.world_size)
        self._remedy = "call restore() before save()"

    def save(self, step: int, state: Mapping[str, Any]) -> Save:
        """Saves ``state`` as ``global_step{step}`` and returns in milliseconds.

        ``state``: name -> module, optimizer, anything with ``state_dict()``, tensor, or picklable
        value; each name becomes one file that ``torch.load`` reads. The state of this process's
        random number generators is added as ``"rng"``. All ranks call it with the same step.

        With ``copy="overlap"`` do not change parameters and optimizer tensors before the next
        ``optimizer.step()`` except by it: a save whose bytes changed is withdrawn, never published.

        Raises PawlError (PAWL_ENOTSUP) naming an object that could not be loaded again, and its
        place in the state; ValueError or TypeError for bad steps and names. Later failures are in
        the Save's ``error`` and do not stop training.
        """
        began = time.perf_counter()
        session = self._live()
        step = check_step(step)
        check_names(state)
        self._report_start()
        self._settle_pending()
        session.announce(step)
        try:
            parts, sent = self._describe(state)
        except BaseException:
            session.announce(None)
            raise
        capture = _fence.Capture(parts)
        _fence.queue_before_copies(spans for _, _, spans in parts)
        save_id = session.save(step, sent, self._watch)
        capture.started(session, save_id)
        save = Save(self, capture, save_id, step, f"global_step{step}")
        self._pending.append(save)
        self._newest = save
        self._after_save(session)
        save.stall_s = time.perf_counter() - began
        return save

    def _describe(self, state: Mapping[str, Any]) -> tuple[list[_fence.Part], list[_core.Part]]:
        """The pickle and memory of every partition: for the capture, and as
        Session.save takes them.
        """
        session = self._live()
        diverged = set(session.diverged) if self.world_size > 1 else set()
        pieces = self._sharing.split(state, diverged)
        masks = _fence.guarded() if self._may_wait() else {}
        parts, sent = [], []
        for name, shared, value in [*pieces, (RNG, False, _rng.capture())]:
            taken = value if isinstance(value, _parts.Saved) else take_apart(name, value)
            skeleton = self._partition(name).build(*taken)
            evicted = self._evicted.get(name, set())
            spans = _fence.Spans(skeleton, masks, self._host_watch, evicted)
            parts.append((name, skeleton, spans))
            sent.append((name, shared, skeleton.pickle, skeleton.table, spans.packed))
        return parts, sent

    def due(self) -> bool:
        """Whether a save is worth it now: ``if ckpt.due(): ckpt.save(step, state)``.

        Ask once a step, on all ranks alike: the answer turns to True at the same question on every
        rank, and to False with the next save. It takes microseconds. While ``stopping`` it is True.
        Raises PawlError as ``stopping`` does.

        A save is due when the interval since the last one is that which minimizes the sum of the
        time that saving takes from training and the work that a failure loses (Daly 2006, equation
        37). The cost of a save is the recent mean duration of ``save`` in the slowest rank; 0.1 s
        before there was one. Failures are expected as often as they came in this root, earlier runs
        included, with one a day as the prior: (1 + failures) / (1 day + time run), the mean of a
        Gamma distribution of shape 1 that is updated with each. The interval is at least 1 s and 20
        times the cost of a save, at most half an hour.

        ``persist_every="auto"`` is decided in the same way, from the failures that ended the agent,
        and so its memory, and from the slowdown of training while a checkpoint is written (10 %
        before it was measured). It is at least 10 s and twice the time that writing takes, at most
        an hour.
        """
        self._refuse_hosts("due")
        if self._session is None:
            return _stop.asked()
        return self.stopping or self._live().due

    def restore(
        self,
        state: MutableMapping[str, Any],
        step: int | None = None,
        strict: bool = True,
        only: Iterable[str] | None = None,
        strip: str | Iterable[str] = (),
    ) -> int | None:
        """Puts the newest valid checkpoint (or that of ``step``) into ``state``; returns its step.

        Returns None, changing nothing, if there is none. All ranks get the same step. Everything is
        read, verified and compared with ``state`` before anything changes; if any rank refuses,
        none changes. A damaged checkpoint is put aside and the one before it taken.

        Modules, tensors and optimizers that have the saved structure are changed in place, and so
        are dicts and lists; other values are replaced in ``state``, and so are plain tensors that
        repeat themselves (``expand``). A tensor of another dtype takes the numbers converted.
        Tensors on the meta device are refused. Objects with their own
        ``load_state_dict`` get it called, before the tensors of modules and optimizers are filled.
        The random number generators come last.

        ``strict``: every name in ``state`` must be in the checkpoint, and every key of a module
        in both; else a missing one stays as it is. Tensors must be of the saved shape; only one
        that stands in ``state`` itself is replaced by a saved one of another shape, if not
        ``strict``. ``only``: restore just these names (the generators only if ``"rng"`` is among
        them). ``strip``: parts of names in modules that are ignored, in the saved and in the live
        names: ``"_orig_mod."`` where one of the modules is compiled by ``torch.compile``.

        Raises PawlError (PAWL_EMISMATCH) listing all mismatches; PAWL_ENOTSUP for a file that
        needs ``trust=True``. Waits up to half an hour for the other ranks.
        """
        session = self._live()
        if step is not None:
            step = check_step(step)
        check_names(state)
        wanted = only_names(only, state)
        parts = (strip,) if isinstance(strip, str) else tuple(strip)
        _fence.fence_all()
        while True:
            found = session.restore(step, seconds("restore_ranks"))
            _start.looked(self.root)
            if found is None:
                if self.rank == 0 and step is None:
                    _start.nothing(self.root)
                return None
            try:
                job = _restore.Job(found, self.rank, self.world_size, self._trust, strict, parts)
                if job.run(state, wanted, seconds("restore_ranks")):
                    if self.rank == 0:
                        size = sum(size for _, _, size in found.parts)
                        _start.restored(self.root, f"step {found.step}", size, found.source)
                    return found.step
            finally:
                found.close()

    def pin(self, step: int, pinned: bool = True) -> None:
        """Forbids (or allows again) the deletion of a checkpoint by ``keep``."""
        self._live().pin(f"global_step{check_step(step)}", pinned)
