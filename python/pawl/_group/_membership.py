"""Ranks that go and come while a group runs: methods of our process group beyond torch's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from pawl import _core
from pawl._group import _register
from pawl._times import seconds
from pawl.errors import error

if TYPE_CHECKING:
    from pawl._group._process_group import ProcessGroup


class Membership:
    """The part of ProcessGroup that makes groups of other ranks from it."""

    _rank: int
    _ranks: int
    _store: dist.Store
    _route_hint: str | None
    _timeout_s: float
    _others: dict[str, Any]
    _devices: list[torch.device]
    _group: _core.Group
    _listener: _core.Door | None = None

    def shrink(self, least: int | None = None, timeout: timedelta | None = None) -> ProcessGroup:
        """Returns a group of the ranks that are left, in their order, once ranks were lost.

        Each rank that is left calls it, usually when an operation has failed. It needs no store:
        the ranks agree by themselves. ``least``: number of ranks needed (default: half of them).
        Raises PawlError if fewer are left, or if this rank was taken for lost and the others go on
        without it. The new group is for ``group=`` of torch.distributed's functions, for DDP and
        DeviceMesh. Keep this one, all of whose operations fail from now on, until the new one is no
        longer needed.
        """
        self._refuse_others()
        wanted = (self._ranks + 1) // 2 if least is None else least
        joined, ranks = self._group.shrink(wanted, self._seconds(timeout))
        known = _register.numbers(self)
        return self._succeed(joined, [known[r] for r in ranks] if known else ranks)

    def door(self) -> str:
        """Opens a join listener at this rank, once; returns the text by which newcomers find it.

        The text holds a secret: anyone who knows it may become a rank. Usually rank 0 opens one;
        any rank may, and several may. A listener moves with its rank from group to group, until
        ``close_door``.
        """
        if self._listener is None:
            self._listener = _core.Door(self._route_hint)
        return self._listener.name

    def waiting(self) -> int:
        """The number of newcomers that wait at this rank's join listener."""
        return self._listener.waiting() if self._listener is not None else 0

    def close_door(self) -> None:
        """Closes the join listener and sends waiting newcomers away."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def admit(self, most: int | None = None, timeout: timedelta | None = None) -> ProcessGroup:
        """Lets newcomers in; returns a group of all ranks, with their numbers, and
        the newcomers after them.

        All ranks call it, at the same place in their operations, as often as they like: it costs a
        small all-gather. Returns this group if no newcomer waits, if ``most`` ranks are there,
        or if a newcomer fails to join, which is logged. If it returns another group, this one may
        be destroyed. torch numbers newcomers (for ``src=`` and ``dst=``) after all other ranks;
        better use ``group_src=``. Raises PawlError if a rank is lost meanwhile.
        """
        self._refuse_others()
        limit = 0xFFFFFFFF if most is None else most
        joined = self._group.admit(self._listener, limit, self._seconds(timeout))
        if joined is None:
            return self  # type: ignore[return-value]
        known = _register.numbers(self) or list(range(self._ranks))
        free = max([*known, dist.get_world_size() - 1 if dist.is_initialized() else 0]) + 1
        newcomers = range(free, free + joined.ranks - self._ranks)
        return self._succeed(joined, [*known, *newcomers])

    def _refuse_others(self) -> None:
        if self._others:
            raise error(
                "PAWL_ENOTSUP", "collectives: the ranks of a group with other backends are fixed"
            )

    def _seconds(self, timeout: timedelta | None) -> float:
        return self._timeout_s if timeout is None else timeout.total_seconds()

    def _succeed(self, joined: _core.Group, ranks: list[int]) -> ProcessGroup:
        """Makes the group that follows this one. ``ranks``: as torch numbers them."""
        store = dist.PrefixStore(f"{'.'.join(map(str, ranks))}/", self._store)
        made = make(joined, store, self._route_hint, self._timeout_s)
        made._devices = self._devices
        made._listener, self._listener = self._listener, None
        _register.enroll(made, self, ranks, store)
        return made


def make(
    joined: _core.Group, store: dist.Store, route_hint: str | None, timeout_s: float
) -> ProcessGroup:
    from pawl._group._process_group import ProcessGroup

    options = SimpleNamespace(
        store=store,
        route_hint=route_hint,
        group_rank=joined.rank,
        group_size=joined.ranks,
        timeout=timedelta(seconds=timeout_s),
    )
    return ProcessGroup(options, joined)


def join(
    listener_name: str, timeout: timedelta, meanwhile: Callable[[], None] | None = None
) -> ProcessGroup:
    """Implements pawl.distributed.join.

    ``listener_name``: the text that door() returned at a rank of the group. ``meanwhile`` is called
    now and then; an exception that it raises ends the wait. The new group replaces the existing
    default group.
    """
    if dist.is_initialized() and meanwhile is None:
        raise error("PAWL_EINVAL", "join: this process has a default process group already")
    joined = _request_join(listener_name, timeout.total_seconds(), meanwhile)
    made = make(
        joined,
        dist.HashStore(),
        listener_name.rpartition(":")[0].rpartition(":")[0].strip("[]"),
        timeout.total_seconds(),
    )
    _register.enroll_first(made, made._store)
    return made


def _request_join(
    listener_name: str, timeout_s: float, meanwhile: Callable[[], None] | None
) -> _core.Group:
    """Waits for admission in a thread, so that Ctrl-C works."""
    found: list[_core.Group | Exception] = []

    def request() -> None:
        try:
            found.append(_core.knock(listener_name, timeout_s))
        except Exception as failed:
            found.append(failed)

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(seconds("torch_look"))
        if meanwhile is not None:
            meanwhile()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]
