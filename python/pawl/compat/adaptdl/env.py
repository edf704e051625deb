"""``adaptdl.env``: what a launcher says, in AdaptDL's variables or in others'."""

from __future__ import annotations

import os

from pawl import _core


def _text(name: str) -> str | None:
    return os.environ.get(name) or None


def _number(name: str, other: str) -> int:
    found = os.environ.get(name)
    return int(found) if found else int(_core.env()[other])  # type: ignore[literal-required]


def checkpoint_path() -> str | None:
    """Where checkpoints go; None: nowhere."""
    return _text("ADAPTDL_CHECKPOINT_PATH")


def share_path() -> str | None:
    """A folder that all replicas see; None: there is none."""
    return _text("ADAPTDL_SHARE_PATH")


def job_id() -> str | None:
    """ "namespace/name"."""
    return _text("ADAPTDL_JOB_ID")


def master_addr() -> str:
    """Where rank 0 is."""
    return os.environ.get("ADAPTDL_MASTER_ADDR") or os.environ.get("MASTER_ADDR") or "0.0.0.0"


def master_port() -> int:
    """And its port; 0: any."""
    return int(os.environ.get("ADAPTDL_MASTER_PORT") or os.environ.get("MASTER_PORT") or 0)


def replica_rank() -> int:
    """Of this process, from 0."""
    return _number("ADAPTDL_REPLICA_RANK", "rank")


def num_replicas() -> int:
    """Processes of the job."""
    return _number("ADAPTDL_NUM_REPLICAS", "world")


def num_nodes() -> int:
    """Hosts that they are on; without a launcher that says so, as many as replicas."""
    if "ADAPTDL_NUM_NODES" not in os.environ and "ADAPTDL_NUM_REPLICAS" in os.environ:
        return num_replicas()
    return _number("ADAPTDL_NUM_NODES", "nodes")


def num_restarts() -> int:
    """How often the job was started again."""
    return _number("ADAPTDL_NUM_RESTARTS", "attempt")


def adaptdl_sched_version() -> str | None:
    """Of AdaptDL's scheduler."""
    return _text("ADAPTDL_SCHED_VERSION")


def supervisor_url() -> str | None:
    """Of its supervisor."""
    return _text("ADAPTDL_SUPERVISOR_URL")


def from_ray() -> bool:
    """Whether Ray started it: no."""
    return False
