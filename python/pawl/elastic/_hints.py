"""A job's report to a scheduler: speeds by placement, the worth of its batches, work left."""

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
# Names a file for a job of `pawl sched` to write; the scheduler reads it.
_FILE: Final = "PAWL_HINTS"
VERSION: Final = 1  # version of the keys that Pawl's jobs add to AdaptDL's
# Parameters of the time of a step, as in struct pawl_perf. AdaptDL's have no
# delta_n, and another order.
PERF: Final = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "delta_n", "gamma")
ADAPTDL_PERF: Final = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")

log = logging.getLogger("pawl")
_has_warned = False
_busy = threading.Lock()


def adaptdl_perf(perf: tuple[float, ...]) -> dict[str, float]:
    """Parameters of Pawl's model that AdaptDL's has, by name."""
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
    """The keys of AdaptDL's ``PUT /hints``, whose scheduler drops unknown ones, and ours.

    ``replicas``: most replicas that were measured. ``interval``: 95 % interval of the noise scale,
    in initial batches. ``progress``, ``remaining``: steps of an initial batch. None: not known.
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
    """The number; None instead of infinity or nan, which JSON lacks."""
    return number if math.isfinite(number) else None


def post(hints: dict[str, Any], job: str = "") -> None:
    """Sends hints to the scheduler that a variable names, if one does: by a file,
    else in the background.

    A failure is logged once. ``job``: "namespace/name"; default: from a variable.
    """
    url = os.environ.get(_URL)
    path = os.environ.get(_FILE)
    if path:
        _write(path, hints)
    elif url and _busy.acquire(blocking=False):
        job = job or os.environ.get("ADAPTDL_JOB_ID", "")
        where = f"{url.rstrip('/')}/hints/{job}"
        threading.Thread(target=_put, args=(where, hints), daemon=True).start()


def _write(path: str, hints: dict[str, Any]) -> None:
    """Writes the file as a whole: a reader sees all of it, or the version before."""
    global _has_warned
    new = f"{path}.{os.getpid()}"
    try:
        with open(new, "w") as file:
            json.dump(hints, file)
        os.replace(new, path)
    except OSError as failed:
        if not _has_warned:
            log.warning("elastic: hints cannot be written to %s: %s", path, failed)
        _has_warned = True


def _put(where: str, hints: dict[str, Any]) -> None:
    global _has_warned
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
        if not _has_warned:
            log.warning("elastic: %s does not take hints: %s", where, failed)
        _has_warned = True
    finally:
        _busy.release()
