"""``adaptdl.sched_hints``: what a scheduler is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pawl.elastic import _hints

PERF_PARAMS = dict.fromkeys(_hints.ADAPTDL_PERF)
SCHED_HINTS = dict.fromkeys(
    [
        "initBatchSize",
        "localBszBounds",
        "globalBatchSize",
        "maxBatchSize",
        "maxProfiledReplicas",
        "gradientAccumulation",
        "gradParams",
        "perfParams",
    ]
)


def post_sched_hints(sched_hints: Mapping[str, Any], job_key: str) -> None:
    """Tells the supervisor, in the background. Raises ValueError for a word that it has not."""
    unknown = sorted(set(sched_hints) - set(SCHED_HINTS))
    if unknown:
        raise ValueError(f"hints: there is no {', '.join(unknown)}")
    _hints.post(dict(sched_hints), job_key)
