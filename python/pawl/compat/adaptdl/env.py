"""``adaptdl.env``: a launcher's settings, from AdaptDL's variables or from others'."""

from __future__ import annotations

import os

from pawl import _core


def _text(name: str) -> str | None:
    return os.environ.get(name) or None


def _number(name: str, other: str) -> int:
    found = os.environ.get(name)
    return int(found) if found else int(_core.env()[other])  # type: ignore[literal-required]


def checkpoint_path() -> str | None:
    """The folder of checkpoints; None: there is none."""
    return _text("ADAPTDL_CHECKPOINT_PATH")


def share_path() -> str | None:
    """A folder that all replicas see; None: there is none."""
    return _text("ADAPTDL_SHARE_PATH")


def job_id() -> str | None:
    """The job's "namespace/name"."""
    return _text("ADAPTDL_JOB_ID")


def master_addr() -> str:
    """The address of rank 0."""
    return os.environ.get("ADAPTDL_MASTER_ADDR") or os.environ.get("MASTER_ADDR") or "0.0.0.0"


def master_port() -> int:
    """The port of rank 0; 0: any."""
    return int(os.environ.get("ADAPTDL_MASTER_PORT") or os.environ.get("MASTER_PORT") or 0)


def replica_rank() -> int:
    """The rank of this process, from 0."""
    return _number("ADAPTDL_REPLICA_RANK", "rank")


def num_replicas() -> int:
    """The number of processes of the job."""
    return _number("ADAPTDL_NUM_REPLICAS", "world")


def num_nodes() -> int:
    """The number of hosts of the job; without a launcher that says so, that of the replicas."""
    if "ADAPTDL_NUM_NODES" not in os.environ and "ADAPTDL_NUM_REPLICAS" in os.environ:
        return num_replicas()
    return _number("ADAPTDL_NUM_NODES", "nodes")


def num_restarts() -> int:
    """The number of times that the job was started again."""
    return _number("ADAPTDL_NUM_RESTARTS", "attempt")


def adaptdl_sched_version() -> str | None:
    """The version of AdaptDL's scheduler."""
    return _text("ADAPTDL_SCHED_VERSION")


def supervisor_url() -> str | None:
    """The URL of AdaptDL's supervisor."""
    return _text("ADAPTDL_SUPERVISOR_URL")


def from_ray() -> bool:
    """Whether Ray started the job: always False."""
    return False
