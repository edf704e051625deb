"""``adaptdl.collective``: reductions of objects over all replicas."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from pawl.elastic import _context


def _add(a: Any, b: Any) -> Any:
    a += b
    return a


class _Done:
    """A result that is known already."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        """The value."""
        return self._value


def initialize(
    master_addr: str | None = None,
    master_port: int | None = None,
    replica_rank: int | None = None,
    num_replicas: int | None = None,
) -> None:
    """Has the replicas meet, if they have not yet. Arguments replace the launcher's variables."""
    given = {
        "MASTER_ADDR": master_addr,
        "MASTER_PORT": master_port,
        "REPLICA_RANK": replica_rank,
        "NUM_REPLICAS": num_replicas,
    }
    if _context.known() is None and not dist.is_initialized():
        for name, value in given.items():
            if value is not None:
                os.environ[f"ADAPTDL_{name}"] = str(value)
    _context.job()


def teardown() -> None:
    """Raises NotImplementedError, as AdaptDL's does."""
    raise NotImplementedError


def allreduce(value: Any, reduce_fn: Callable[[Any, Any], Any] = _add) -> Any:
    """Reduces all replicas' values to one, in their order; the values themselves
    are not changed.
    """
    values = [copy.deepcopy(value) for value in _context.job().agree_objects(value)]
    return functools.reduce(reduce_fn, values)


def allreduce_async(value: Any, reduce_fn: Callable[[Any, Any], Any] = _add) -> _Done:
    """Does the same as allreduce; returns a future that is done already."""
    return _Done(allreduce(value, reduce_fn))


def broadcast(value: Any) -> Any:
    """Rank 0's value."""
    return _context.job().agree_objects(value)[0]
