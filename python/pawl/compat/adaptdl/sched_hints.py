"""``adaptdl.sched_hints``: what a scheduler is told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pawl.elastic import _hints

log = logging.getLogger("pawl")

PERF_PARAMS = MappingProxyType(dict.fromkeys(_hints.ADAPTDL_PERF, 0.0))
SCHED_HINTS: Mapping[str, Any] = MappingProxyType(
    {
        "initBatchSize": 0,
        "localBszBounds": None,
        "globalBatchSize": None,
        "maxBatchSize": 0,
        "maxProfiledReplicas": 0,
        "gradientAccumulation": False,
        "gradParams": None,
        "perfParams": None,
    }
)


def post_sched_hints(sched_hints: Mapping[str, Any], job_key: str) -> None:
    """Tells the supervisor, in the background; a word that it has not is said, and nothing told."""
    unknown = sorted(set(sched_hints) - set(SCHED_HINTS))
    if unknown:
        log.warning("elastic: not told to the supervisor: there is no %s", ", ".join(unknown))
        return
    _hints.post(dict(sched_hints), job_key)
