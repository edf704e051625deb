"""``adaptdl.sched_hints``: the hints that a scheduler gets."""

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
    """Posts hints to the supervisor, in the background. A hint with an unknown name
    is logged, and nothing is posted.
    """
    unknown = sorted(set(sched_hints) - set(SCHED_HINTS))
    if unknown:
        log.warning("elastic: hints not posted, as these names are unknown: %s", ", ".join(unknown))
        return
    _hints.post(dict(sched_hints), job_key)
