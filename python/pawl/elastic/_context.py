"""The job of this process, and its checkpoints: made when they are first wanted."""

from __future__ import annotations

import atexit
import os
from typing import Final

import torch.distributed as dist

from pawl import _register
from pawl.elastic import _states
from pawl.elastic._job import Job
from pawl.elastic._saving import PREEMPTED, Checkpoints

_JOIN: Final = "PAWL_ELASTIC_JOIN"  # set: this process is to join a job that runs

_job: Job | None = None
_checkpoints: Checkpoints | None = None


def job() -> Job:
    """Of torch's default process group; without one, of what a launcher's variables say.

    If it was begun before, its states are those of its newest checkpoint.
    """
    global _job
    if _job is None:
        newcomer = bool(os.environ.get(_JOIN))
        _job = Job(_find_group(newcomer), newcomer)
        atexit.register(_job.let_go)
        if not newcomer:
            _states.promise(_job.tell(checkpoints().read() if _job.rank == 0 else None))
    return _job


def checkpoints() -> Checkpoints:
    """Of the job."""
    global _checkpoints
    if _checkpoints is None:
        _checkpoints = Checkpoints()
    return _checkpoints


def save(last: bool) -> None:
    """All ranks: a checkpoint, of what rank 0 has. If it is the last one the process ends."""
    if job().rank == 0:
        checkpoints().save()
    if last:
        checkpoints().finish()
        job().barrier()  # nobody ends, and is missed, before it is durable
        raise SystemExit(PREEMPTED)


def _find_group(newcomer: bool) -> dist.ProcessGroup:
    if not dist.is_initialized():
        from pawl import _rendezvous

        _rendezvous.set_variables()
        if newcomer or int(os.environ.get("WORLD_SIZE") or 1) == 1:
            dist.init_process_group(_register.NAME, store=dist.HashStore(), rank=0, world_size=1)
        else:
            dist.init_process_group(_register.NAME)
    assert dist.group.WORLD is not None
    return dist.group.WORLD
