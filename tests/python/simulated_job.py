"""A job of pawl.elastic in one process, from a seed: ranks die, freeze, come and leave at any time.

Each rank is a thread with its own copy of the package's modules, in which torch.distributed and the
group are ours: everything else is what it is. One thread runs at a time; who is next is drawn at
each operation between ranks. An operation that lacks a rank that is gone fails at all who wait in
it; one that all have come to before one of them was gone may be over at some ranks and fail at
others.
"""

from __future__ import annotations

import importlib
import random
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from pawl._membership import Membership
from pawl.errors import PawlError, error

PACKAGE = "pawl.elastic"
TURNS = 100_000  # more are a job that does not end


class Killed(BaseException):
    """Unwinds the thread of a rank that is dead."""


def _loaded() -> dict[str, ModuleType]:
    return {n: m for n, m in sys.modules.items() if n == PACKAGE or n.startswith(f"{PACKAGE}.")}


def _copy() -> dict[str, ModuleType]:
    """The package's modules, made again."""
    was = _loaded()
    for name in was:
        del sys.modules[name]
    importlib.import_module(PACKAGE)
    made = _loaded()
    sys.modules.update(was)
    return made


class Rank:
    """One process, so to speak."""

    def __init__(self, world: World, number: int, script: Callable[[Rank], None]) -> None:
        self.world, self.number = world, number
        self.modules = _copy()
        self.joins = False
        self.joined: Group | None = None
        self.gone = self.doomed = False
        self.frozen = self.was_frozen = self.leaves = False
        self.until: Callable[[], bool] | None = None
        self.failed: BaseException | None = None
        self.begin: Callable[[], Any] = lambda: None  # makes its Job
        self.trains = False  # it has built its model: until then a death is the start's failure
        self.made: dict[str, list[Rank]] = {}  # steps, and who was in its group then
        self.weights: torch.Tensor | None = None  # in the end
        self.turn = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, args=(script,), daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return f"#{self.number}"

    def module(self, name: str) -> Any:
        return self.modules[f"{PACKAGE}.{name}"]

    def is_ready(self) -> bool:
        return not self.frozen and (self.doomed or self.until is None or self.until())

    def pause(self, until: Callable[[], bool] | None = None) -> None:
        """Lets others go on, until something is so."""
        if self.doomed:
            raise Killed
        self.until = until
        self.world.back.release()
        self.turn.acquire()
        self.until = None
        if self.doomed:
            raise Killed

    def _run(self, script: Callable[[Rank], None]) -> None:
        self.turn.acquire()
        try:
            if not self.doomed:
                script(self)
        except Killed:
            pass
        except SystemExit as end:
            self.failed = end if end.code else None
        except BaseException as failed:
            self.failed = failed
        finally:
            self.gone = True
            self.world.back.release()


class Shared:
    """What all ranks of a group know of it."""

    def __init__(self, members: list[Rank]) -> None:
        self.members = members
        self.left: set[Rank] = set()  # ended, or on their way to another group
        self.ops: dict[int, tuple[str, dict[Rank, Any]]] = {}
        self.next: Shared | None = None  # after a shrink
        self.joined: dict[int, Shared] = {}  # after an admission
        self.mail: dict[tuple[Rank, Rank], list[torch.Tensor]] = {}

    def lacks(self, rank: Rank) -> bool:
        return rank.gone or rank.frozen or rank in self.left


class Group(Membership):
    """As Job uses it."""

    def __init__(self, me: Rank, shared: Shared) -> None:
        self.me, self.shared = me, shared
        self.number = 0  # of the next operation
        self.lost: PawlError | None = None

    def rank(self) -> int:
        return self.shared.members.index(self.me)

    def size(self) -> int:
        return len(self.shared.members)

    def meet(self, kind: str, mine: Any = None) -> dict[Rank, Any]:
        """What all ranks have brought."""
        shared, number, rng = self.shared, self.number, self.me.world.rng
        self.number += 1
        if self.lost is not None:
            raise self.lost
        what, brought = shared.ops.setdefault(number, (kind, {}))
        assert what == kind, f"{self.me} is in {kind}, others in {what}"
        brought[self.me] = mine

        def missing() -> list[Rank]:
            return [r for r in shared.members if r not in brought]

        self.me.pause(lambda: not missing() or any(map(shared.lacks, missing())))
        gone = [r for r in shared.members if shared.lacks(r)]
        if missing() or (gone and rng.random() < 0.5):
            self.lost = error("PAWL_EPEER", f"collectives: {gone} are gone")
            raise self.lost
        return {r: brought[r] for r in shared.members}

    def shrink(self, least: int | None = None, timeout: Any = None) -> Group:  # type: ignore[override]
        shared = self.shared
        shared.left.add(self.me)

        def is_over() -> bool:
            if shared.next is None and all(map(shared.lacks, shared.members)):
                shared.next = Shared([r for r in shared.members if not (r.gone or r.frozen)])
            return shared.next is not None

        self.me.pause(is_over)
        assert shared.next is not None
        if self.me not in shared.next.members:
            raise error("PAWL_EPEER", f"collectives: {shared.next.members} go on without this one")
        return Group(self.me, shared.next)

    def shutdown(self) -> None:
        self.shared.left.add(self.me)

    def waiting(self) -> int:
        return len(self.me.world.waiting()) if self.rank() == 0 else 0

    def admit(self, most: int | None = None, timeout: Any = None) -> Group:  # type: ignore[override]
        number = self.number
        self.meet("admit")
        shared, waiting = self.shared, self.me.world.waiting()
        if number not in shared.joined and waiting:
            shared.joined[number] = joined = Shared([*shared.members, *waiting])
            for newcomer in waiting:
                newcomer.joined = Group(newcomer, joined)
        if number not in shared.joined:
            shared.joined[number] = shared
        joined = shared.joined[number]
        return self if joined is shared else Group(self.me, joined)


class Work:
    """Of an operation that is over."""

    def __init__(self, tensor: torch.Tensor, lost: PawlError | None = None) -> None:
        self._tensor, self._lost = tensor, lost

    def wait(self) -> None:
        if self._lost is not None:
            raise self._lost

    def get_future(self) -> Future[torch.Tensor]:
        future: Future[torch.Tensor] = Future()
        future.set_result(self._tensor)
        return future


def all_gather(tensors: list[torch.Tensor], mine: torch.Tensor, group: Group) -> None:
    found = group.meet(f"gather {mine.numel()}", mine.clone())
    for tensor, theirs in zip(tensors, found.values(), strict=True):
        tensor.copy_(theirs)


def broadcast(tensor: torch.Tensor, group: Group, group_src: int) -> None:
    found = group.meet(f"broadcast {tensor.numel()} of {group_src}", tensor.clone())
    tensor.copy_(list(found.values())[group_src])


def all_reduce(tensor: torch.Tensor, group: Group, async_op: bool) -> Work:
    try:
        found = group.meet(f"sum {tensor.numel()}", tensor.clone())
    except PawlError as lost:
        if group.me.world.rng.random() < 0.5:
            raise
        return Work(tensor.fill_(float("nan")), lost)
    tensor.copy_(sum(found.values()))
    return Work(tensor)


def isend(tensor: torch.Tensor, group: Group, group_dst: int) -> Work:
    to = group.shared.members[group_dst]
    group.me.pause()
    if to.gone:
        raise error("PAWL_EPEER", f"collectives: {to} is gone")
    group.shared.mail.setdefault((group.me, to), []).append(tensor.clone())
    return Work(tensor)


def recv(tensor: torch.Tensor, src: int | None = None, group: Any = None) -> int:
    shared, me = group.shared, group.me

    def found() -> list[int]:
        return [
            i for i, r in enumerate(shared.members)
            if src in (None, i) and shared.mail.get((r, me))
        ]  # fmt: skip

    def cannot() -> bool:
        return any(map(shared.lacks, shared.members))

    me.pause(lambda: bool(found()) or cannot())
    if not found():
        raise error("PAWL_EPEER", "collectives: a rank is gone")
    tensor.copy_(shared.mail[shared.members[found()[0]], me].pop(0))
    return found()[0] if src is None and found() else src or 0


DIST = SimpleNamespace(
    all_gather=all_gather,
    broadcast=broadcast,
    all_reduce=all_reduce,
    isend=isend,
    recv=recv,
    irecv=lambda tensor, src, group: Work(tensor) if recv(tensor, src, group) is not None else None,
    get_backend=lambda group: "pawl",
    is_initialized=lambda: True,
    ProcessGroup=dist.ProcessGroup,
)


class World:
    """All ranks, and what happens to them."""

    def __init__(self, seed: int, script: Callable[[Rank], None], ranks: int) -> None:
        self.rng = random.Random(seed)
        self.back = threading.Semaphore(0)
        self.happened: list[str] = []
        self._script = script
        self.ranks: list[Rank] = []
        first = Shared([])
        for _ in range(ranks):
            first.members.append(self._start())
        for rank in first.members:
            self._begin(rank, Group(rank, first))

    def _start(self) -> Rank:
        rank = Rank(self, len(self.ranks), self._script)
        self.ranks.append(rank)
        return rank

    def _begin(self, rank: Rank, group: Group, joins: bool = False) -> None:
        rank.joins = joins
        job = rank.module("_job")
        job.dist = DIST
        job._register = SimpleNamespace(replace_default=lambda was, made: None)
        job.time = rank.module("_data").time = SimpleNamespace(
            sleep=lambda seconds: rank.pause(), monotonic=lambda: 0.0, monotonic_ns=lambda: 0
        )
        job._knock = lambda path, meanwhile: self._knock(rank)
        rank.begin = lambda: job.Job(group, joins)

    def _knock(self, rank: Rank) -> Group:
        rank.pause(lambda: rank.joined is not None or self._is_over())
        if rank.joined is None:
            raise SystemExit(0)
        return rank.joined

    def _is_over(self) -> bool:
        return all(r.gone or (r.joins and r.joined is None) for r in self.ranks)

    def waiting(self) -> list[Rank]:
        """Newcomers."""
        return [r for r in self.ranks if r.joins and r.joined is None and not r.gone and r.until]

    def fit(self) -> list[Rank]:
        """Ranks that will not be gone by themselves: the job needs one."""
        return [
            r
            for r in self.ranks
            if not (r.gone or r.doomed or r.was_frozen or r.leaves) and (not r.joins or r.joined)
        ]

    def _happen(self) -> None:
        """Something."""
        what = self.rng.choice(["die", "die", "come", "leave", "freeze", "wake"])
        one = self.rng.choice([r for r in self.ranks if not r.gone])
        if what == "come":
            one = self._start()
            self._begin(one, Group(one, Shared([one])), joins=True)
        elif what == "wake":
            self._wake()
        elif self.fit() == [one]:
            return
        elif what == "leave":
            one.module("_context")._told_to_leave = one.leaves = True
        elif what == "die":
            one.doomed = True
            one.frozen = False
        else:
            one.frozen = one.was_frozen = True
        self.happened.append(f"{what} {one}")

    def _wake(self) -> None:
        for rank in self.ranks:
            rank.frozen = False

    def run(self, events: int) -> None:
        """To its end. AssertionError: it hangs."""
        was = _loaded()
        try:
            self._run(events)
        finally:
            sys.modules.update(was)

    def _run(self, events: int) -> None:
        due = sorted(self.rng.randrange(400) for _ in range(events))
        for turn in range(TURNS):
            while due and due[0] <= turn and all(r.trains or r.joins for r in self.ranks):
                due.pop(0)
                if self.fit():
                    self._happen()
            left = [r for r in self.ranks if not r.gone]
            if not left:
                return
            if all(r.frozen or (r.joins and r.joined is None) for r in left):
                self._wake()
            ready = [r for r in left if r.is_ready()]
            assert ready, f"{left} wait for ever after {self.happened}:\n{self._stacks(left)}"
            one = self.rng.choice(ready)
            sys.modules.update(one.modules)
            one.turn.release()
            self.back.acquire()
        raise AssertionError(f"it does not end, after {self.happened}")

    def _stacks(self, left: list[Rank]) -> str:
        frames = sys._current_frames()
        stacks = [traceback.format_stack(frames[r.thread.ident or 0])[-9:] for r in left]
        return "\n".join(f"{r}:\n{''.join(s)}" for r, s in zip(left, stacks, strict=True))
