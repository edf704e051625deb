"""The place where AdaptDL's ranks meet: from its variables, or from a supervisor."""

from __future__ import annotations

import json
import logging
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

import torch.distributed as dist

from pawl import _core
from pawl._group import _register, _rendezvous
from pawl._times import seconds
from pawl.elastic._job import JOIN
from pawl.errors import error

log = logging.getLogger("pawl")

VERSION: Final = "0.2.11"  # version of AdaptDL whose names and protocols these are


_begun = False  # begin() was called, by code that needed ranks before the script set how they meet


def is_newcomer() -> bool:
    """Whether this process is to join a running job: it is alone until it is admitted."""
    return bool(os.environ.get(JOIN))


def launcher_place() -> tuple[int, int]:
    """(rank, ranks) of this process, from its launcher's variables."""
    if is_newcomer():
        return 0, 1
    if _is_adaptdl(os.environ):
        rank, ranks = (
            os.environ.get(f"ADAPTDL_{name}") for name in ("REPLICA_RANK", "NUM_REPLICAS")
        )
        return int(rank or 0), int(ranks or 1)
    env = _core.env()
    return env["rank"], env["world"]


def init_group(
    backend: str | None = None,
    init_method: str | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    **kwargs: Any,
) -> None:
    """Implements _context.init_process_group."""
    if _begun and dist.is_initialized():
        _keep(backend, world_size, rank)
        return
    if is_newcomer():
        rank, world_size, init_method = 0, 1, None
    elif _is_adaptdl(os.environ):
        _set_variables()
    else:
        _rendezvous.set_variables()
    world = int(os.environ.get("WORLD_SIZE") or 1) if world_size is None else world_size
    number = int(os.environ.get("RANK") or 0) if rank is None else rank
    where: dict[str, Any] = {"init_method": init_method or "env://"}
    if world == 1 and init_method is None:
        where = {"store": dist.HashStore()}
    dist.init_process_group(
        backend or _register.NAME, rank=number, world_size=world, **where, **kwargs
    )


def _is_adaptdl(env: Mapping[str, str]) -> bool:
    """Whether AdaptDL's variables say how ranks meet. A launcher in a job of ``pawl sched`` takes
    precedence: it has started the ranks, and the scheduler knows only the nodes.
    """
    if "PAWL_SCHED_JOB" in env and "RANK" in env:
        return False
    return "ADAPTDL_NUM_REPLICAS" in env or "ADAPTDL_SUPERVISOR_URL" in env


def begin() -> None:
    """Has the ranks meet by the launchers' variables, before the script asked for it."""
    global _begun
    init_group()
    _begun = True


def _keep(backend: str | None, world_size: int | None, rank: int | None) -> None:
    """Checks that the group that begin() made has the ranks that the script asks for."""
    have = dist.get_rank(), dist.get_world_size()
    want = have[0] if rank is None else rank, have[1] if world_size is None else world_size
    if want != have and not is_newcomer():
        raise ValueError(
            f"init_process_group: rank {want[0]} of {want[1]}; earlier calls were answered "
            f"for rank {have[0]} of {have[1]}, as the launcher set"
        )
    if backend not in (None, _register.NAME):
        log.info(
            "elastic: the ranks are connected already, by backend pawl in place of %s", backend
        )


def _set_variables() -> None:
    """Sets torch's own variables from AdaptDL's, which take precedence."""
    env = os.environ
    env["RANK"] = env.get("ADAPTDL_REPLICA_RANK", "0")
    env["WORLD_SIZE"] = env.get("ADAPTDL_NUM_REPLICAS", "1")
    address, port = env.get("ADAPTDL_MASTER_ADDR", ""), env.get("ADAPTDL_MASTER_PORT", "")
    if env.get("ADAPTDL_SUPERVISOR_URL"):
        _check_version(env.get("ADAPTDL_SCHED_VERSION", ""))
        address = _discover(env["ADAPTDL_SUPERVISOR_URL"], int(env["WORLD_SIZE"]))
    if address not in ("", "0.0.0.0"):  # 0.0.0.0 is AdaptDL's default, and means this host
        env["MASTER_ADDR"] = address
    else:
        env.setdefault("MASTER_ADDR", "127.0.0.1")
    if port not in ("", "0"):
        env["MASTER_PORT"] = port


def _check_version(scheduler: str) -> None:
    found = re.match(r"(\d+)\.\d+\.\d+", scheduler)
    if found is None or scheduler == "0.0.0" or found[1] == VERSION.split(".")[0]:
        return
    raise error(
        "PAWL_ENOTSUP",
        f"elastic: the scheduler is of version {scheduler}; this job supports {VERSION}",
    )


def _discover(url: str, ranks: int) -> str:
    """The address of rank 0; a supervisor answers 408 until it knows the address."""
    job, group = os.environ.get("ADAPTDL_JOB_ID", ""), os.environ.get("ADAPTDL_NUM_RESTARTS", "0")
    ask = f"{url.rstrip('/')}/discover/{job}/{group}"
    end = time.monotonic() + seconds("elastic_discover")
    why: object = "408 Request Timeout"
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(ask, timeout=seconds("elastic_ask")) as answer:
                found = json.load(answer)
            if isinstance(found, list) and len(found) == ranks:
                return str(found[0])
            why = f"it names {found!r}, for {ranks} ranks"
        except urllib.error.HTTPError as refused:
            why = refused
            if refused.code != 408:
                break
        except (OSError, ValueError) as failed:
            why = failed
        time.sleep(seconds("elastic_ask_again"))
    raise error("PAWL_EPEER", f"elastic: {ask} does not say where the ranks are: {why}")
