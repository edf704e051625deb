"""``adaptdl.reducer``: reductions of objects over some processes, in the background."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pawl._group import _process_group
from pawl._times import seconds
from pawl.elastic import _wire

_Reduce = Callable[[Any, Any], Any]


def default_reduce_fn(a: Any, b: Any) -> Any:
    """The sum of both, stored in the first one."""
    a += b
    return a


class Future:
    """The future result of a call."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._value: Any = None
        self._failed: BaseException | None = None

    def result(self) -> Any:
        """Waits until all processes have made the call; raises the call's error."""
        self._done.wait()
        if self._failed is not None:
            raise self._failed
        return self._value

    def _end(self, value: Any, failed: BaseException | None = None) -> None:
        self._value, self._failed = value, failed
        self._done.set()


class Reducer:
    """One of ``replicas`` processes, which all make the same calls in the same order.

    They meet at a port of rank 0's, and then are a group of backend pawl. A thread exchanges the
    objects, so that a process waits only in ``result``. A process that has a result knows that all
    others have the objects it is made of: each process may end then.
    """

    def __init__(self, rank: int, replicas: int, root_host: str, root_port: int) -> None:
        """Returns when all are there. ``root_port``: a free port at ``root_host``; any for one
        process. Raises torch's DistError if they do not come.
        """
        self._replicas = replicas
        self._work: queue.SimpleQueue[tuple[torch.Tensor, _Reduce, Future]] = queue.SimpleQueue()
        self._group: Any = None
        if replicas > 1:
            limit = timedelta(seconds=seconds("elastic_discover"))
            self._store = dist.TCPStore(
                root_host, root_port, replicas, is_master=rank == 0, timeout=limit
            )
            self._group = _process_group.make(self._store, rank, replicas)
        threading.Thread(target=self._run, name="adaptdl-reducer", daemon=True).start()

    def broadcast(self, obj: Any) -> Any:
        """Returns rank 0's object."""
        return self.allreduce(obj, lambda first, _: first)

    def allreduce(self, obj: Any, reduce_fn: _Reduce = default_reduce_fn) -> Any:
        """Reduces all replicas' objects to one, in their order; the objects
        themselves are not changed.
        """
        return self.allreduce_async(obj, reduce_fn).result()

    def allreduce_async(self, obj: Any, reduce_fn: _Reduce = default_reduce_fn) -> Future:
        """Does the same as allreduce, without waiting."""
        future = Future()
        self._work.put((_wire.dump(obj), reduce_fn, future))
        return future

    def _run(self) -> None:
        while True:
            data, reduce_fn, future = self._work.get()
            try:
                values = [_wire.load(row) for row in self._exchange(data)]
                # When this returns, all others have the values, too. It fails where one of them has
                # ended, which happens only after it has returned there.
                with contextlib.suppress(RuntimeError):
                    self._all_of(_NOTHING)
                future._end(functools.reduce(reduce_fn, values))
            except BaseException as failed:
                future._end(None, failed)

    def _exchange(self, mine: torch.Tensor) -> list[torch.Tensor]:
        return _wire.gather(mine, self._all_of)

    def _all_of(self, mine: torch.Tensor) -> torch.Tensor:
        if self._group is None:
            return mine[None]
        found = torch.empty(self._replicas, mine.numel(), dtype=mine.dtype, device="cpu")
        self._group.allgather([list(found)], [mine]).wait()
        return found


_NOTHING = torch.zeros(1, dtype=torch.uint8, device="cpu")
