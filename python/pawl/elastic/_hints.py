"""What a job tells a scheduler: how fast it is where, what its batches are worth, what is left."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import urllib.request
from typing import Any, Final

from pawl._times import seconds

_URL: Final = "ADAPTDL_SUPERVISOR_URL"
_FILE: Final = "PAWL_HINTS"  # of a job of `pawl sched`: a file that it looks at
VERSION: Final = 1  # of what Pawl's jobs tell beyond AdaptDL's words
# What a step takes, as struct pawl_perf has it; AdaptDL's has no delta_n, and another order.
PERF: Final = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "delta_n", "gamma")
ADAPTDL_PERF: Final = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")

log = logging.getLogger("pawl")
_told = False
_busy = threading.Lock()


def adaptdl_perf(perf: tuple[float, ...]) -> dict[str, float]:
    """Of a model of pawl's what AdaptDL's has, by name."""
    known = dict(zip(PERF, perf, strict=True))
    return {name: known[name] for name in ADAPTDL_PERF}


def make(
    perf: tuple[float, ...],
    noise: tuple[float, float],
    bounds: tuple[int, int, int, int, bool],
    replicas: int,
    interval: tuple[float, float] | None,
    progress: float,
    remaining: float | None,
) -> dict[str, Any]:
    """The words of AdaptDL's ``PUT /hints``, whose scheduler drops what it does not know, and ours.

    ``replicas``: the most that were measured. ``interval``: of the noise scale, with 95 %, in
    initial batches. ``progress``, ``remaining``: steps of an initial batch. None: not known.
    """
    init, most, least_local, most_local, accumulate = bounds
    sqr, var = noise
    return {
        "hintsVersion": VERSION,
        "progress": progress,
        "remaining": remaining,
        "noiseInterval": None if interval is None else [_finite(limit) for limit in interval],
        "stepParams": dict(zip(PERF, perf, strict=True)),
        "initBatchSize": init,
        "localBszBounds": [least_local, most_local],
        "maxBatchSize": most,
        "maxProfiledReplicas": replicas,
        "gradientAccumulation": accumulate,
        "gradParams": {"norm": sqr, "var": var},
        "perfParams": adaptdl_perf(perf),
    }


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None


def post(hints: dict[str, Any], job: str = "") -> None:
    """Tells the scheduler that a variable names, if one does: by a file, else in the background. A
    failure costs a line, once. ``job``: "namespace/name", default as a variable says."""
    url = os.environ.get(_URL)
    path = os.environ.get(_FILE)
    if path:
        _write(path, hints)
    elif url and _busy.acquire(blocking=False):
        job = job or os.environ.get("ADAPTDL_JOB_ID", "")
        where = f"{url.rstrip('/')}/hints/{job}"
        threading.Thread(target=_put, args=(where, hints), daemon=True).start()


def _write(path: str, hints: dict[str, Any]) -> None:
    """Whoever reads it sees all of it, or what was there before."""
    global _told
    new = f"{path}.{os.getpid()}"
    try:
        with open(new, "w") as file:
            json.dump(hints, file)
        os.replace(new, path)
    except OSError as failed:
        if not _told:
            log.warning("elastic: hints cannot be written to %s: %s", path, failed)
        _told = True


def _put(where: str, hints: dict[str, Any]) -> None:
    global _told
    try:
        put = urllib.request.Request(
            where,
            data=json.dumps(hints).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(put, timeout=seconds("elastic_hints")):
            pass
    except OSError as failed:
        if not _told:
            log.warning("elastic: %s does not take hints: %s", where, failed)
        _told = True
    finally:
        _busy.release()
