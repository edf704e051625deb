"""A job of pawl.elastic in one process, from a seed: events happen to ranks in the midst of their
work.

Each rank is a thread with its own copy of the package's modules, in which torch.distributed and the
group are replaced by this module's; everything else is real. One thread runs at a time; each
operation between ranks draws the next one. Groups have the rules of src/coll. A collective may be
over at any part of the ranks when one dies. After its first failure a group only fails. Ranks that
shrink it agree on the ranks that are left, and a rank that the others take for gone is left out. An
admission takes three collectives. A rank that has completed the last one moves on and notifies the
others, one by one. A rank that has not completed it follows when it gets that notice, or gives the
new group up. Ranks also end and start again from the last save. The events, and the operations in
which they happen, are drawn.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

import pawl.elastic
from pawl._group._membership import Membership
from pawl.errors import PawlError, error

PACKAGE = "pawl.elastic"
TURNS_MAX = 30_000  # most turns; a sequence has some hundreds
SPAN = 260  # turns in which events fall
RESTARTS_MAX = 2
PREEMPTED = 143
LEFT = 79
SPOTS = (
    "gather", "sum", "broadcast", "shrink", "admit", "joined", "moved", "send", "recv", "save",
)  # fmt: skip
EVENTS = (
    "die", "die", "die", "die two", "only one is left", "freeze", "freeze", "come", "come",
    "come two", "leave", "leave two", "end", "all die",
)  # fmt: skip


class Killed(BaseException):
    """Unwinds the thread of a rank that is dead."""


def _loaded() -> dict[str, ModuleType]:
    return {n: m for n, m in sys.modules.items() if n == PACKAGE or n.startswith(f"{PACKAGE}.")}


def _copy() -> dict[str, ModuleType]:
    """Makes the package's modules again."""
    was = _loaded()
    for name in was:
        del sys.modules[name]
    importlib.import_module(PACKAGE)
    made = _loaded()
    sys.modules.update(was)
    pawl.elastic = was[PACKAGE]  # the import has bound the copy to the name in its parent
    return made


class Node:
    """A process, and what others know of it."""

    def __init__(self, sim: Sim, number: int, script: Callable[[Any], None], joins: bool) -> None:
        self.sim, self.number, self.joins = sim, number, joins
        self.modules = _copy()
        self.spot = ""  # operation that the process is in; "": none
        self.until: Callable[[], bool] | None = None  # condition that it waits for; None: none
        self.gone = self.doomed = False
        self.frozen = self.was_frozen = False
        self.noticed = False  # frozen for so long that others take it for lost
        self.leaves = False  # asked to leave, by SIGUSR1
        self.terminated = False  # asked to end, by SIGTERM
        self.entered = not joins
        self.trains = False  # has built its model; a death before that is a failure of the start
        self.trained = False  # has trained to the end
        self.speed = sim.rng.choice([0.1, 1, 1, 5])
        self.failed: BaseException | None = None
        self.final: Any = None  # the rank's state at the end
        self.turn = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, args=(script,), daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return f"#{self.number}"

    def module(self, name: str) -> Any:
        return self.modules[f"{PACKAGE}.{name}"]

    def is_ready(self) -> bool:
        return not self.frozen and (self.doomed or self.until is None or self.until())

    def wait(self, spot: str, until: Callable[[], bool] | None = None) -> None:
        """Lets other ranks run until the condition holds."""
        if self.doomed:
            raise Killed
        self.spot, self.until = spot, until
        self.sim.back.release()
        self.turn.acquire()
        self.until = None
        if self.doomed:
            raise Killed
        self.spot = ""

    @property
    def is_out(self) -> bool:
        """Returns whether others find the process gone when they look."""
        return self.gone or self.doomed or self.noticed

    def _run(self, script: Callable[[Any], None]) -> None:
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
            self.sim.back.release()


@dataclass
class Family:
    """A group and the groups shrunk from it: they agree over the streams of the first."""

    inside: dict[Node, Shared] = field(default_factory=dict)  # rank in shrink -> its group
    given: dict[Node, Shared] = field(default_factory=dict)  # rank -> its next group
    without: set[Node] = field(default_factory=set)  # ranks known to be left out
    closed: set[Node] = field(default_factory=set)
    grown: dict[Node, Shared] = field(default_factory=dict)  # rank -> newest group that it joined
    # (from, to): "from" has notified "to" that it has moved on.
    told: set[tuple[Node, Node]] = field(default_factory=set)

    def hears(self, node: Node) -> bool:
        """Returns whether a member of node's group has notified node that it moved on."""
        return any((n, node) in self.told for n in self.inside[node].members)

    def view(self, node: Node) -> list[Node]:
        """Returns the ranks that are left, as far as this one knows."""
        for told in self.inside:
            self.without |= {n for n in self.inside[told].members if n.noticed and n is not told}
        out = self.without | self.closed
        return [
            n
            for n in self.inside[node].members
            if n is node or not (n.is_out or n in out)
        ]  # fmt: skip

    def settle(self, node: Node) -> bool:
        """Returns whether shrinking is over for a rank that is in it."""
        if node in self.given or node in self.without or self.hears(node):
            return True
        left = self.view(node)
        before = 0
        while len(left) != before:
            before = len(left)
            if not all(n in self.inside and not self.hears(n) for n in left):
                return False
            left = [n for n in left if all(n in self.view(other) for other in left)]
        if node not in left:
            self.without.add(node)
            return True
        made = Shared(node.sim, left, self)
        for member in left:
            self.given[member] = made
            del self.inside[member]
        return True


class Shared:
    """State of a group that all its ranks share."""

    def __init__(self, sim: Sim, members: list[Node], family: Family | None = None) -> None:
        self.members, self.family = members, family or Family()
        self.is_first = family is None
        self.number = len(sim.groups)
        sim.groups.append(self)
        self.left: set[Node] = set()  # ranks that closed the group
        self.failed: tuple[str, str] | None = None  # error code, reason
        self.ops: dict[int, tuple[str, dict[Node, Any]]] = {}
        # (from, to) -> messages: tensor, taken.
        self.mail: dict[tuple[Node, Node], list[list[Any]]] = {}
        self.joined: dict[int, Shared] = {}  # groups by admission; key: number of the operation

    def lost(self) -> list[Node]:
        """Returns the ranks that are gone and did not leave. A single rank does not miss itself."""
        return [n for n in self.members if len(self.members) > 1 and (n.noticed or n.doomed)]

    def leave(self, node: Node) -> None:
        self.left.add(node)
        if self.is_first:
            self.family.closed.add(node)

    def lacks(self, node: Node) -> bool:
        return node.is_out or node in self.left

    @property
    def is_failing(self) -> bool:
        return self.failed is not None or bool(self.lost())

    def fail(self, code: str, why: str) -> None:
        if self.failed is None:
            self.failed = code, why


class Group(Membership):
    """A group as pawl.elastic's Job uses it."""

    def __init__(self, me: Node, shared: Shared) -> None:
        self.me, self.shared = me, shared
        self.number = 0  # number of the next operation
        self.lost: PawlError | None = None

    def __del__(self) -> None:
        """Leaves the group: the process has dropped it."""
        self.shared.leave(self.me)

    def rank(self) -> int:
        return self.shared.members.index(self.me)

    def size(self) -> int:
        return len(self.shared.members)

    def _fail(self, lacking: Iterable[Node]) -> PawlError:
        """Keeps the first error, which names the missing rank, and fails the group for the
        others."""
        named = next(iter(self.shared.lost() or lacking), self.me)
        code = "PAWL_ETIMEDOUT" if named.noticed else "PAWL_EPEER"
        self.shared.fail(code, f"collectives: {named} is lost")
        assert self.shared.failed is not None
        self.lost = error(*self.shared.failed)
        return self.lost

    def _end(self, spot: str, is_over: Callable[[], bool], lacking: Callable[[], Any]) -> None:
        """Waits for an operation. It may fail if a rank is gone, even where it could be over."""
        if self.lost is not None:
            raise self.lost
        shared = self.shared
        self.me.wait(
            spot,
            lambda: is_over() or shared.is_failing or any(map(shared.lacks, lacking())),
        )
        if not is_over() or (shared.is_failing and self.me.sim.rng.random() < 0.5):
            raise self._fail([n for n in lacking() if shared.lacks(n)])

    def meet(self, spot: str, kind: str, mine: Any, root: int | None = None) -> dict[Node, Any]:
        """Returns what each rank has brought; waits for all, or for ``root`` alone."""
        shared, number = self.shared, self.number
        self.number += 1
        if self.lost is not None:
            raise self.lost
        what, brought = shared.ops.setdefault(number, (kind, {}))
        assert what == kind, f"{self.me} is in {kind!r}, others in {what!r}"
        brought[self.me] = mine
        needed = shared.members if root is None else [shared.members[root]]

        def lacking() -> list[Node]:
            return [n for n in needed if n not in brought]

        self._end(spot, lambda: not lacking(), lacking)
        return {n: brought.get(n) for n in shared.members}

    def shrink(self, least: int | None = None, timeout: Any = None) -> Group:  # type: ignore[override]
        me, shared, family = self.me, self.shared, self.shared.family
        if len(shared.members) == 1:
            raise error("PAWL_EINVAL", "collectives: a group of one rank cannot be shrunk")
        while True:
            shared.fail("PAWL_ECANCELED", f"collectives: {me} shrinks the group")
            assert shared.failed is not None
            self.lost = self.lost or error(*shared.failed)
            family.inside[me] = shared
            me.wait("shrink", partial(family.settle, me))
            if me in family.given:
                shared = family.given.pop(me)
                # A rank that is lost before the new group is joined is left out at once, or soon.
                if not shared.lost() or me.sim.rng.random() < 0.5:
                    break
                continue
            follows = family.hears(me) and me in family.grown
            del family.inside[me]
            if not follows:
                family.closed.add(me)
                raise error("PAWL_EPEER", f"collectives: others go on without {me}")
            self._tell_moved(shared)
            guests = set(family.grown[me].members) - set(shared.members)
            shared = family.grown.pop(me)
            family = shared.family
            family.without |= guests
        self._give_up_grown()
        return Group(me, shared)

    def _tell_moved(self, shared: Shared) -> None:
        """Notifies all members of a group, one by one; a member that has left this rank out gets
        no notice."""
        me, family = self.me, shared.family
        for other in me.sim.rng.sample(shared.members, len(shared.members)):
            me.wait("moved")
            if me not in family.without and other is not me:
                family.told.add((me, other))

    def _give_up_grown(self) -> None:
        """Gives up the grown group: the ranks that are left have agreed to go on without the
        newcomers."""
        me, grown = self.me, self.shared.family.grown.pop(self.me, None)
        if grown is None:
            return
        self._tell_moved(grown)
        grown.leave(me)
        if me in grown.family.without:
            raise error("PAWL_EPEER", f"collectives: others go on without {me}")

    def shutdown(self) -> None:
        self.shared.left.add(self.me)
        self.shared.family.closed.add(self.me)

    def door(self) -> str:
        return f"door{self.me.number}"

    def waiting(self) -> int:
        return len(self.me.sim.at_door(self.me))

    def admit(self, most: int | None = None, timeout: Any = None) -> Group:  # type: ignore[override]
        number, me, shared = self.number, self.me, self.shared
        counts = self.meet("admit", "admit", me.sim.at_door(me))
        guests = [guest for at in counts.values() for guest in at]
        if not guests:
            return self
        made = shared.joined.setdefault(
            number, Shared(me.sim, [*shared.members, *guests])
        )  # all ranks use the first one's
        for guest in counts[me]:
            me.sim.invited[guest] = made
        can = False
        try:
            self.meet("admit", "cards", None)
            can = not any(g.is_out or g.frozen for g in guests)
            well = all(self.meet("joined", "joined", can).values())
            if well:
                self._tell_moved(shared)
        except PawlError:
            if can:
                shared.family.grown[me] = made
            else:
                made.leave(me)
            me.sim.send_away(counts[me], made)
            raise
        if not well:
            made.leave(me)
            me.sim.send_away(counts[me], made)
            return self
        me.sim.welcome(counts[me], made)
        return Group(me, made)


class Work:
    """An operation under way: ``end`` waits for it."""

    def __init__(self, end: Callable[[], torch.Tensor]) -> None:
        self._end = end
        self._over: torch.Tensor | PawlError | None = None

    def wait(self) -> None:
        if self._over is None:
            try:
                self._over = self._end()
            except PawlError as lost:
                self._over = lost
        if isinstance(self._over, PawlError):
            raise self._over

    def get_future(self) -> Future[torch.Tensor]:
        """Returns the future of an operation that is over: DDP would wait for it in C++."""
        future: Future[torch.Tensor] = Future()
        try:
            self.wait()
            future.set_result(self._over)
        except PawlError as lost:
            future.set_exception(RuntimeError(str(lost)))
        return future


def all_gather(tensors: list[torch.Tensor], mine: torch.Tensor, group: Group) -> None:
    found = group.meet("gather", f"gather {mine.numel()}", mine.clone())
    for tensor, theirs in zip(tensors, found.values(), strict=True):
        tensor.copy_(theirs)


def broadcast(tensor: torch.Tensor, group: Group, group_src: int) -> None:
    what = f"broadcast of {group_src}"
    found = group.meet("broadcast", what, tensor.clone(), group_src)
    tensor.copy_(list(found.values())[group_src])


def all_reduce(tensor: torch.Tensor, group: Group, async_op: bool) -> Work:
    mine = tensor.clone()
    if group.lost is not None:
        raise group.lost

    def end() -> torch.Tensor:
        tensor.fill_(float("nan"))  # a failed sum leaves this
        found = group.meet("sum", f"sum {mine.numel()}", mine)
        return tensor.copy_(sum(found.values()))

    return Work(end)


def isend(tensor: torch.Tensor, group: Group, group_dst: int) -> Work:
    """Sends a message; the operation is over when it was taken."""
    to = group.shared.members[group_dst]
    if group.lost is not None:
        raise group.lost
    letter = [tensor.clone(), False]
    group.shared.mail.setdefault((group.me, to), []).append(letter)

    def end() -> torch.Tensor:
        group._end("send", lambda: letter[1], lambda: [to])
        return tensor

    return Work(end)


def recv(tensor: torch.Tensor, src: int | None = None, group: Any = None) -> int:
    shared, me = group.shared, group.me
    senders = shared.members if src is None else [shared.members[src]]

    def letters() -> list[tuple[Node, list[Any]]]:
        return [(n, m) for n in senders for m in shared.mail.get((n, me), []) if not m[1]]

    group._end("recv", lambda: bool(letters()), lambda: [] if letters() else senders)
    sender, letter = letters()[0]
    letter[1] = True
    tensor.copy_(letter[0])
    return shared.members.index(sender)


def irecv(tensor: torch.Tensor, src: int, group: Group) -> Work:
    def end() -> torch.Tensor:
        recv(tensor, src, group)
        return tensor

    return Work(end)


DIST = SimpleNamespace(
    all_gather=all_gather,
    broadcast=broadcast,
    all_reduce=all_reduce,
    isend=isend,
    recv=recv,
    irecv=irecv,
    get_backend=lambda group: "pawl",
    is_initialized=lambda: False,
    ProcessGroup=dist.ProcessGroup,
)


class Saves:
    """Stands in for Checkpoints."""

    root = "there is one"

    def __init__(self, node: Node) -> None:
        self.node = node

    def is_due(self, generation: int) -> bool:
        return self.node.sim.rng.random() < self.node.sim.saves

    def is_last(self) -> bool:
        return self.node.terminated

    def read(self) -> dict[str, torch.Tensor]:
        wire = self.node.module("_wire")
        return {name: wire.raw(data) for name, data in self.node.sim.saved.items()}

    def hurry(self) -> None:
        """Does nothing: saves are due at random."""

    def save(self, generation: int, took_over: bool, wait: bool) -> None:
        states = self.node.module("_states")
        self.node.sim.saved = {states.file_of(s.name): states.bytes_of(s) for s in states.every()}
        self.node.wait("save")

    def finish(self) -> None:
        self.node.wait("save")


@dataclass
class Event:
    """Something that happens at a turn, or in the nth operation of a kind."""

    what: str
    turn: int = 0
    spot: str = ""
    nth: int = 0


class Sim:
    """A job, from its first start to its end."""

    def __init__(self, seed: int, script: Callable[[Any], None], events: int) -> None:
        self.rng = random.Random(seed)
        self.back = threading.Semaphore(0)
        self.script = script
        self.groups: list[Shared] = []
        self.nodes: list[Node] = []  # nodes of all starts
        self.here: list[Node] = []  # nodes of this start
        self.happened: list[str] = []
        self.saved: dict[str, bytes] = {}
        self.door = ""
        self.knocking: dict[Node, str] = {}
        self.invited: dict[Node, Shared] = {}
        self.sent_away: set[Node] = set()
        self.welcomed: dict[Node, Shared] = {}
        self.least = self.rng.choice([1, 1, 1, 2])
        self.saves = self.rng.choice([0, 0.1, 0.5])  # probability that a save is due
        self.due = [self._draw() for _ in range(events)]

    def _draw(self) -> Event:
        what = self.rng.choice(EVENTS)
        if self.rng.random() < 0.5:
            return Event(what, turn=self.rng.randrange(SPAN))
        spot = self.rng.choice(SPOTS)
        nth = self.rng.choice([1, 2, 3, 5, 8, 20] if spot not in ("gather", "sum") else [5, 20, 60])
        return Event(what, turn=SPAN * 10, spot=spot, nth=nth)

    # ---- processes ----

    def _new(self, joins: bool) -> Node:
        node = Node(self, len(self.nodes), self.script, joins)
        self.nodes.append(node)
        self.here.append(node)
        return node

    def _furnish(self, node: Node, group: Group) -> None:
        """Puts the simulation in place of the environment of a process."""
        context, job = node.module("_context"), node.module("_job")
        clock = SimpleNamespace(
            sleep=lambda seconds: node.wait("sleep"),
            monotonic=lambda: 0.0,
            monotonic_ns=lambda: 0,
            time=lambda: 0.0,
        )
        for name in ("_job", "_data", "_metrics", "_model", "_record"):
            node.module(name).time = clock
        job.dist = DIST
        job._register = SimpleNamespace(replace_default=lambda was, made: None)
        job._membership = SimpleNamespace(join=lambda door, *_: self._join(node, door))
        job._host = lambda: node.number % 2
        names = {"PAWL_ELASTIC_DOOR": "door", "PAWL_ELASTIC_MIN": str(self.least)}
        job.os = SimpleNamespace(environ={**names, "RANK": str(node.number)}, getpid=os.getpid)
        job._read = lambda path: self._said_at_door()
        job._write = lambda path, text: setattr(self, "door", text)
        plain = job.Job.enter

        def enter(*args: Any) -> None:
            plain(*args)
            node.entered = True

        job.Job.enter = enter
        job.Job.write_imports = lambda _: None  # no rank starts from a template here
        context._find_group = lambda: group
        context.is_newcomer = lambda: node.joins
        context.atexit = SimpleNamespace(register=lambda act: None)
        context._checkpoints = Saves(node)
        node.module("_metrics").Metrics.is_due = lambda _: self.rng.random() < 0.2

    def _said_at_door(self) -> str:
        """Returns the text of the membership file, which names the join listener."""
        return "over" if self.is_over() else self.door

    def at_door(self, node: Node) -> list[Node]:
        """Returns the ranks that wait at a node's join listener."""
        door = f"door{node.number}"
        return [
            n
            for n, at in self.knocking.items()
            if at == door and not n.is_out and n not in self.welcomed and n not in self.sent_away
        ]

    def send_away(self, guests: list[Node], made: Shared) -> None:
        """Sends newcomers away; they request to join again if they still wait."""
        self.sent_away.update(g for g in guests if self.invited.get(g) is made)

    def welcome(self, guests: list[Node], made: Shared) -> None:
        self.welcomed.update((g, made) for g in guests if self.invited.get(g) is made)

    def _join(self, node: Node, door: str) -> Group:
        self.knocking[node] = door
        owner = self.nodes[int(door.removeprefix("door"))]
        heard = (self.welcomed, self.sent_away)
        node.wait("door", lambda: any(node in h for h in heard) or owner.is_out or node.terminated)
        del self.knocking[node]
        self.sent_away.discard(node)
        if node in self.welcomed:
            del self.invited[node]
            return Group(node, self.welcomed.pop(node))
        if node in self.invited:
            self.invited.pop(node).leave(node)
        raise error("PAWL_EPEER", "collectives: the door is lost")

    def is_over(self) -> bool:
        """Returns whether no rank is left that could let others in."""
        return all(n.gone or not n.entered for n in self.here)

    # ---- events ----

    def alive(self) -> list[Node]:
        return [n for n in self.here if not (n.gone or n.doomed)]

    def fit(self) -> list[Node]:
        """Returns the ranks that can carry the job on; without one, it is lost."""
        told = [n for n in self.alive() if n.entered and not n.was_frozen]
        return [n for n in told if not n.leaves]

    def _kill(self, node: Node) -> None:
        node.doomed, node.frozen = True, False

    def happen(self, what: str, at: Node) -> None:
        """Makes one event happen; ``at``: the rank for which it was drawn."""
        kind, _, more = what.partition(" ")
        self.happened.append(f"{what} at {at}.{at.spot}")
        if kind == "come":
            for _ in range(2 if more else 1):
                self._come()
        elif what == "end":
            at.terminated = True
            for node in self.here:
                node.terminated |= not node.entered
        elif what == "all die":
            for node in self.alive():
                self._kill(node)
        else:
            n = {"two": 2, "is left": len(self.here)}.get(more.removeprefix("one "), 1)
            others = self.alive()
            self.rng.shuffle(others)
            for node in ([at] + [o for o in others if o is not at])[:n]:
                self._strike(kind, node)

    def _come(self) -> None:
        node = self._new(joins=True)
        self._furnish(node, Group(node, Shared(self, [node])))

    def _strike(self, kind: str, node: Node) -> None:
        if node.gone or self.fit() in ([node], []):
            return
        self.happened.append(f"({kind} {node})")
        if kind == "leave":
            node.module("_context")._leave_requested = node.leaves = True
        elif kind == "freeze":
            node.frozen = node.was_frozen = True
        else:
            self._kill(node)

    def _look(self, ran: Node, turn: int) -> None:
        """Fires the events that are due, after a turn of one rank."""
        for event in list(self.due):
            if event.spot and event.spot == ran.spot:
                event.nth -= 1
            if event.turn <= turn or (event.spot and event.nth <= 0):
                self.due.remove(event)
                near = event.spot and self.rng.random() < 0.6
                at = ran if near or not self.alive() else self.rng.choice(self.alive())
                self.happen(event.what, at)
        for node in self.here:
            if node.frozen and self.rng.random() < 0.02:
                node.noticed |= self.rng.random() < 0.7
            if node.frozen and self.rng.random() < 0.01:
                node.frozen = False

    # ---- the scheduler ----

    def run(self) -> None:
        """Runs the job to its end. Raises AssertionError if it hangs."""
        was = _loaded()
        gc.disable()  # groups are forgotten at the same turn each time
        try:
            for start in range(RESTARTS_MAX + 1):
                self.here, self.door = [], ""
                first = Shared(self, [])
                first.members += [self._new(False) for _ in range(self.rng.choice([1, 2, 3, 4]))]
                for node in first.members:
                    self._furnish(node, Group(node, first))
                self._run_start()
                if any(n.trained for n in self.here):
                    return
                self.happened.append(f"start {start + 1} is over")
                self.due = [e for e in self.due if e.what not in ("end", "all die")]
            raise AssertionError(f"it was lost: {[n.failed for n in self.nodes]}")
        finally:
            sys.modules.update(was)
            gc.enable()

    def _run_start(self) -> None:
        begun = 0
        for turn in range(TURNS_MAX):
            left = [n for n in self.here if not n.gone]
            if not left:
                return
            ready = self._ready(left)
            one = self.rng.choices(ready, [n.speed for n in ready])[0]
            sys.modules.update(one.modules)
            one.turn.release()
            self.back.acquire()
            if all(n.trains or n.joins for n in self.here):
                begun = begun or turn
                self._look(one, turn - begun)
                self._feed()
        raise AssertionError(f"it does not end: {self.happened}\n{self._stacks(self.alive())}")

    def _feed(self) -> None:
        """Acts as the launcher: starts another rank if too few are left."""
        if any(n.trained for n in self.here) or self.is_over():
            return
        if len([n for n in self.alive() if not n.was_frozen and not n.leaves]) < self.least:
            self._come()

    def _ready(self, left: list[Node]) -> list[Node]:
        """Returns the ranks that can go on. If none can, a frozen rank is noticed, and
        wakes later."""
        sleeps = ("sleep", "door")
        while True:
            ready = [n for n in left if n.is_ready()]
            frozen = [n for n in left if n.frozen]
            if ready and (not frozen or any(n.spot not in sleeps for n in ready)):
                return ready
            if not frozen:
                raise AssertionError(f"they hang: {self.happened}\n{self._stacks(left)}")
            one = self.rng.choice(frozen)
            one.frozen, one.noticed = not one.noticed, True

    def _stacks(self, left: list[Node]) -> str:
        frames = sys._current_frames()
        found = []
        for node in left:
            stack = traceback.format_stack(frames[node.thread.ident or 0])[-9:]
            found.append(f"{node} in {node.spot!r}:\n{''.join(stack)}")
        return "\n".join(found)
