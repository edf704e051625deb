"""The job of this process, and its checkpoints: made at first use."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from types import FrameType
from typing import Any

import torch.distributed as dist

from pawl import _start
from pawl.elastic import _metrics, _states
from pawl.elastic._job import MEMBERSHIP_FILE, Job
from pawl.elastic._saving import LEFT, PREEMPTED, Checkpoints
from pawl.elastic._start import begin, init_group, is_newcomer, launcher_place

_job: Job | None = None
_checkpoints: Checkpoints | None = None
_leave_requested = False


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    **kwargs: Any,
) -> None:
    """Calls torch's init_process_group with the arguments, completed from a launcher's variables or
    AdaptDL's; rank 0 then sends all saved states to all ranks, so that objects made later load
    without waiting.

    ``backend``: default "pawl", whose ranks may go and come. Where a model was made first, the
    ranks have met already, and the call only checks the arguments. Raises PawlError if a supervisor
    does not say where rank 0 is, or is of another major version; ValueError if the ranks that have
    met are others.
    """
    init_group(backend, init_method, world_size, rank, **kwargs)
    job()


def place() -> tuple[int, int]:
    """(rank, ranks) of this process. Never waits: where the ranks have not met
    yet, the launcher's values.
    """
    return launcher_place() if _job is None else (_job.rank, _job.ranks)


def known() -> Job | None:
    """The job of this process, if it was made before; None: it was not. Never waits."""
    return _job


def job() -> Job:
    """The job of torch's default process group; without one, of the ranks in a
    launcher's variables.

    If it was begun before, its states are those of its newest checkpoint.
    """
    global _job
    if _job is None:
        _job = Job(_find_group(), is_newcomer())
        atexit.register(_job.let_go)
        _listen()
        if not _job.newcomer:
            _states.promise(_job.broadcast_object(checkpoints().read() if _job.rank == 0 else None))
        _states.load_waiting()
    return _job


def enter() -> None:
    """Makes a newcomer join the other ranks, with their state; any other rank is
    among them already.
    """
    if job().newcomer:
        job().enter(_states.unpack, check_ending)
        _start.joined(job().rank, job().ranks, _metrics.current().steps)


def checkpoints() -> Checkpoints:
    """The checkpoints of the job."""
    global _checkpoints
    if _checkpoints is None:
        _checkpoints = Checkpoints()
    return _checkpoints


def is_to_leave() -> bool:
    """Whether SIGUSR1 has asked this rank to leave the other ranks."""
    return _leave_requested


def check_ending() -> None:
    """Called while nothing is trained: ends the process if it was asked to end, or to leave."""
    if checkpoints().is_last():
        raise SystemExit(PREEMPTED)
    if is_to_leave():
        raise SystemExit(LEFT)


def _listen() -> None:
    """Handles SIGUSR1, which asks a rank to leave, if ranks may come and go."""
    if MEMBERSHIP_FILE in os.environ and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, _on_signal)


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _leave_requested
    _leave_requested = True


def checkpoint() -> None:
    """Called by all ranks: makes a checkpoint of all states, if there is a root, as
    if none were to follow.
    """
    for state in _states.every():
        state.sync()
    _save(wait=True)


def save(last: bool) -> None:
    """Saves states that are synchronized already. If ``last``, the process ends."""
    if last:
        _save_last()
    else:
        _save(wait=False)


def _save(wait: bool) -> None:
    if job().rank == 0 and checkpoints().root:
        checkpoints().save(job().generation, job().took_over, wait)


def _save_last() -> None:
    """Makes the last checkpoint. No rank ends before it is durable; if rank 0 is
    lost, the next one saves.
    """
    saved = False
    while True:
        if job().rank == 0 and not saved:
            checkpoints().save(job().generation, job().took_over, wait=True)
            checkpoints().finish()
            job().close_door(PREEMPTED)
            saved = True
        if job().agree([float(saved)]).any():
            raise SystemExit(PREEMPTED)


def _find_group() -> dist.ProcessGroup:
    if not dist.is_initialized():
        begin()
    assert dist.group.WORLD is not None
    return dist.group.WORLD
