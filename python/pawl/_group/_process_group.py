"""The process group of torch.distributed's backend "pawl": how it begins and ends, and its names.

A subclass of torch's ProcessGroup in Python, which torch then uses as the group itself, for all
devices. Its collectives and messages are in _operations.py, ranks that go and come in
_membership.py.
"""

from __future__ import annotations

import atexit
from collections import deque
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from pawl import _core
from pawl._group import _coll, _register, _staging, _stats
from pawl._group._beside import device_map, other_backend
from pawl._group._meeting import exchange, meeting_place
from pawl._group._membership import Membership
from pawl._group._operations import RECENT_WORKS, Operations
from pawl._group._pending import Pending
from pawl._group._work import Completers, Work
from pawl._times import seconds


def create(options: Any, pg_options: Any) -> ProcessGroup:
    """Makes a group; torch calls it for ``init_process_group("pawl")`` and ``new_group``."""
    return ProcessGroup(options)


def make(
    store: dist.Store, rank: int, ranks: int, timeout: timedelta = dist.default_pg_timeout
) -> ProcessGroup:
    """Makes a group of some ranks, which torch does not know.

    new_group will not do: all ranks would have to call it, or torch names the group of some ranks
    by how many groups each of them has.
    """
    return ProcessGroup(
        SimpleNamespace(store=store, group_rank=rank, group_size=ranks, timeout=timeout)
    )


class ProcessGroup(Operations, Membership, dist.ProcessGroup):
    """Ranks that do collectives by libpawl. Made by torch; errors are pawl.PawlError.

    Threads: as torch requires, all ranks call in the same order.
    """

    def __init__(self, options: Any, joined: _core.Group | None = None) -> None:
        """``joined``: the group to use, if other ranks went or came; None: one is made."""
        rank, ranks = options.group_rank, options.group_size
        super().__init__(rank, ranks)
        self._rank, self._ranks = rank, ranks
        self._store = options.store
        self._timeout_s = options.timeout.total_seconds()
        self._name = self._desc = ""
        self._coalesced: list[Work] | None = None
        self._recent: deque[Work] = deque(maxlen=RECENT_WORKS)
        self._others: dict[str, Any] = {}  # device type -> backend that is not ours
        self._devices = self._route(options)
        self._route_hint = options.route_hint if joined else meeting_place(self._store)
        self._group = joined or _core.Group(rank, ranks, self._route_hint)
        self._completers = Completers(self._group)
        self._pending = Pending(self._group)
        self._releaser = _staging.Releaser(self._group.leave)
        atexit.register(self.shutdown)
        if joined is not None:
            return
        endpoints = [self._group.card]
        if ranks > 1:
            endpoints = exchange(self._store, rank, ranks, self._group.card, options.timeout)
        self._group.join(endpoints, min(self._timeout_s, seconds("torch_join")))
        self._work_of([], _coll.BARRIER).wait()  # no rank leaves before all have joined

    def _route(self, options: Any) -> list[torch.device]:
        """Makes the other backends that were named; returns the devices that are known."""
        devices = [torch.device("cpu")]
        for device, name in device_map().items():
            if device != "cpu":
                devices.append(torch.device(device))
            if name not in _register.OURS:
                kind, made = other_backend(name, options)
                self._others[device] = made
                self._register_backend(torch.device(device), kind, made)
        if "cuda" in map(str, devices) and not torch.cuda.is_available():
            devices = [d for d in devices if d.type != "cuda"]
        return devices

    def stats(self) -> _stats.Stats:
        """The group's counters and times so far; subtract two of them for the time between."""
        return _stats.take(self._group)

    def shutdown(self) -> None:
        """Leaves the group: operations under way fail, and the other ranks are notified."""
        atexit.unregister(self.shutdown)
        self._group.leave()
        self._completers.join()
        self._releaser.end()
        for other in self._others.values():
            other.shutdown()

    def abort(self) -> None:
        """Leaves the group, as shutdown does."""
        self.shutdown()

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing: all ranks count from 0."""

    def _get_sequence_number_for_group(self) -> int:
        """The number of collectives that are over; messages do not count."""
        collectives = _coll.KINDS[: _coll.SEND]
        return sum(s.count for kind, s in self.stats().kinds.items() if kind in collectives)

    def getBackendName(self) -> str:  # torch's name
        """The backend's name, as registered."""
        return "pawl"

    name = getBackendName

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations that begin from now on."""
        self._timeout_s = timeout.total_seconds()
        for other in self._others.values():
            other._set_default_timeout(timeout)

    def get_group_store(self) -> dist.Store:
        """The store by which the ranks met."""
        return self._store

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_name(self) -> str:
        """torch's name of the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """torch's description of the group."""
        return self._desc

    @property
    def _device_types(self) -> list[torch.device]:
        return self._devices

    # torch asks the backend of a device for these, to choose how it calls the group.
    supports_splitting = supports_coalescing = supports_time_estimate = False
    supports_shrinking = supports_reconfigure = supports_window = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Returns False: all memory is equally good."""
        return False

    def _get_backend(self, device: torch.device) -> Any:
        other = torch.device(device).type in self._others
        return super()._get_backend(device) if other else self

    get_backend = _get_backend  # torch calls this name from 2.14 on
