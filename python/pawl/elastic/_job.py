"""The ranks of a job, and their agreements while some of them go and come.

Between two steps all ranks get the same results, by *agreements*: numbered collectives of ours.
When a rank is lost, the others settle which agreements were complete anywhere, so that a step that
one rank has taken, all take; see ``Job.settle``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import sys
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

from pawl._group import _membership, _register
from pawl._group._membership import Membership
from pawl._times import seconds
from pawl.elastic import _wire
from pawl.elastic._saving import LEFT
from pawl.errors import PawlError

log = logging.getLogger("pawl")

_T = TypeVar("_T")
# Names the membership file: the address of rank 0's join listener, and the numbers of all ranks.
# Programs that start more ranks read it.
MEMBERSHIP_FILE: Final = "PAWL_ELASTIC_DOOR"
# Suffix of a second file: modules that rank 0 has imported, a line each.
_IMPORTS: Final = ".imports"
_IMPORTED: Final = 2  # agreements after which most modules are imported
# Content of the membership file when the job has ended; the exit code follows, if not 0.
_OVER: Final = "over"
JOIN: Final = _register.JOIN  # number of a newcomer; a process without it has RANK
_LEAST: Final = "PAWL_ELASTIC_MIN"  # least number of ranks; with fewer, nothing is trained
_NOBODY: Final = 75  # exit code: the job has not admitted this rank
# Errors after which a group of ours goes on; all others are mistakes in the program.
_GONE: Final = {"PAWL_EPEER", "PAWL_ETIMEDOUT", "PAWL_ECANCELED"}


class Skipped(Exception):
    """A rank was lost before all had the gradients of this step: it is done again."""


def _host() -> int:
    """A number that is the same for all ranks of a host: of its kernel and network."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return zlib.crc32((file.read() + os.readlink("/proc/self/ns/net")).encode())


class Job:
    """This process among the ranks of its job. Not thread-safe: for the training thread only."""

    group: Any  # a ProcessGroup of torch, or of ours

    def __init__(self, group: dist.ProcessGroup, newcomer: bool = False) -> None:
        """``group``: of all ranks; if its backend is not ours, the ranks are fixed. ``newcomer``:
        the group is of this process alone, which is to join the others.
        """
        self.group = group
        self._device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
        self.newcomer = newcomer
        self.generation = 0  # number of times that ranks have gone or come
        # Error of lost gradients, and its generation.
        self._lost: tuple[PawlError, int] | None = None
        self._agreed = 0  # number of agreements that are complete here
        self._last: Any = None  # result of the last agreement
        self._lent: list[weakref.ref[torch.Tensor]] = []  # tensors that the group may still hold
        self.least = int(os.environ.get(_LEAST) or 1)
        # Groups that were shrunk; each carries the next one.
        self._kept: list[dist.ProcessGroup] = []
        self._number = int(os.environ.get(JOIN) or os.environ.get("RANK") or 0)
        self._numbers: list[int] = []  # numbers of all ranks
        self._membership_text = ""
        self._membership_error = ""  # last error of writing the membership file
        self._imports_written = False
        self._others_part = False  # True: lost ranks are those that were asked to leave
        self.fixed = False  # True: its ranks cannot go and come
        self._meet()
        self._began_first = self.rank == 0 and not newcomer

    def _meet(self, *row: int) -> list[list[int]]:
        """Exchanges hosts, numbers and ``row``; returns the rows of all ranks."""
        self.rank, self.ranks = self.group.rank(), self.group.size()
        table = self._gather(torch.tensor([_host(), self._number, *row], device="cpu")).tolist()
        hosts = Counter(host for host, *_ in table)
        self.place = (len(hosts), self.ranks, max(hosts.values()))
        self._numbers = [number for _, number, *_ in table]
        return [rest for _, _, *rest in table]

    def let_go(self) -> None:
        """Called before the process ends: some versions of gloo abort if their group outlives the
        interpreter, or if their thread has yet to give a tensor back, for which it needs the
        interpreter.
        """
        ours = isinstance(self.group, Membership)
        end = time.monotonic() + seconds("elastic_give_back")
        while any(ref() is not None for ref in self._lent) and time.monotonic() < end:
            time.sleep(seconds("elastic_give_back_look"))
        self.group = None
        self._kept.clear()
        if not ours and dist.is_initialized():
            dist.destroy_process_group()

    @property
    def took_over(self) -> bool:
        """Whether this rank has become rank 0 in the place of another."""
        return self.rank == 0 and not self._began_first

    @property
    def can_go_on(self) -> bool:
        """Whether the job survives the loss of a rank."""
        return not self.fixed and isinstance(self.group, Membership)

    # ---- agreements ----

    def agree(self, row: Sequence[float]) -> torch.Tensor:
        """All ranks' rows of numbers, of one length: ranks x numbers, in float64.

        Raises Skipped; PawlError if the job cannot go on.
        """
        mine = torch.tensor(row, dtype=torch.float64, device="cpu")
        return self._agree(lambda: self._gather(mine))

    def agree_objects(self, mine: Any) -> list[Any]:
        """All ranks' objects, in their order. Errors as of agree."""
        return self._agree(lambda: self._gather_objects(mine))

    def _agree(self, act: Callable[[], _T]) -> _T:
        while True:
            try:
                result = act()
            except PawlError as lost:
                found = self.settle(lost, waiting=True)
                if not found:
                    continue
                result = found[0]
            self._agreed += 1
            self._last = result
            return result

    def lose(self, lost: PawlError) -> None:
        """Records that gradients could not be reduced: the step is done again, once all ranks have
        come to its end. Raises the error if the job cannot go on.
        """
        self._check_survivable(lost)
        self._lost = (lost, self.generation)

    @property
    def has_lost(self) -> bool:
        """Whether gradients of this step were lost."""
        return self._lost is not None

    def check_gradients(self) -> None:
        """At the end of a step: raises Skipped if some gradients were lost."""
        if self._lost is None:
            return
        (lost, generation), self._lost = self._lost, None
        if generation == self.generation:
            self.settle(lost, waiting=False)
        raise Skipped

    def settle(self, lost: PawlError, waiting: bool) -> list[Any]:
        """Goes on without the lost ranks. ``waiting``: in an agreement, with all gradients at hand.

        An agreement may be complete at some ranks and not at others: the others get the result,
        returned as [result]. Else returns [], and the agreement is made again. Where some ranks
        wait in an agreement, and others have lost gradients, no rank has completed it: raises
        Skipped at those that wait.
        """
        before, why = self.ranks, lost
        while True:
            self._check_survivable(lost)
            self._shrink()  # no retry if it raises: the others go on without this rank
            try:
                table = self._meet(self._agreed, int(waiting))
                top = max(agreed for agreed, _ in table)
                behind = any(agreed < top for agreed, _ in table)
                first = next(r for r, (agreed, _) in enumerate(table) if agreed == top)
                result = self.broadcast_object(self._last, first) if behind else None
                break
            except PawlError as again:
                lost = again
        # A program that starts ranks checks at once whether others go on.
        self.open_door(again=False)
        # Logged even if the lost rank ended with 0: it did so too early.
        if self.rank == 0 and not self._others_part:
            log.warning("elastic: %s: %d of %d ranks go on", why, self.ranks, before)
        if self._agreed < top:
            return [result]
        if waiting and not behind and not all(waits for _, waits in table):
            raise Skipped
        return []

    def _check_survivable(self, lost: PawlError) -> None:
        if lost.name not in _GONE or not self.can_go_on:
            raise lost

    def _shrink(self) -> None:
        was = self.group
        self._succeed(was.shrink(least=1))
        self._kept.append(was)

    def _succeed(self, group: dist.ProcessGroup) -> None:
        _register.replace_default(self.group, group)
        self.group = group
        self.generation += 1

    def part(self, leaves: bool) -> None:
        """Called by all ranks: those that leave end here, the others go on without them.

        They do so by an agreement, which is complete when all that leave are gone: until then some
        may still be in the last one. Shrinking the group at once, and again, would break off that
        agreement each time, and those ranks could not leave.
        """
        if leaves:
            self.group.shutdown()
            raise SystemExit(LEFT)
        self._others_part = True
        try:
            self.agree([0.0])
        finally:
            self._others_part = False

    # ---- newcomers ----

    def open_door(self, again: bool = True) -> None:
        """At rank 0: writes the membership file, by which newcomers find the job.

        A rank 0 that was stopped while the others went on may have written an old text there.
        ``again``: write the text, if the ranks have changed, even where the file says that the job
        is over.
        """
        path = os.environ.get(MEMBERSHIP_FILE)
        if not path or self.rank != 0 or self.newcomer or not self.can_go_on:
            return
        text = " ".join(map(str, [self.group.door(), *self._numbers]))
        content = _read(Path(path))
        changed = text != self._membership_text
        if (changed and again) if _is_over(content) else (changed or content != text):
            self._write_membership(Path(path), text)

    def _write_membership(self, path: Path, text: str) -> None:
        """Writes the file. If that fails, as on a full disk, training goes on, and
        a later call tries again.
        """
        try:
            _write(path, text)
            self._membership_text = text
        except OSError as why:
            if self._membership_error != str(why):
                log.warning(
                    "elastic: no rank can join, as the membership file cannot be written: %s", why
                )
            self._membership_error = str(why)

    def close_door(self, code: int) -> None:
        """At rank 0, before all ranks end with this code: notifies launchers and newcomers."""
        if self._membership_text:
            # Without the file, each launcher sees how its own ranks end.
            with contextlib.suppress(OSError):
                _write(Path(os.environ[MEMBERSHIP_FILE]), f"{_OVER} {code}\n")

    def write_imports(self) -> None:
        """At rank 0, between two steps: lists its modules, once most are imported, so that programs
        that start newcomers can import them in advance.
        """
        if self._imports_written or self.rank != 0 or self._agreed < _IMPORTED:
            return
        self._imports_written = True
        path = os.environ.get(MEMBERSHIP_FILE)
        if path:
            # Without the file, newcomers import the modules themselves.
            with contextlib.suppress(OSError):
                _write(Path(path + _IMPORTS), "\n".join(list(sys.modules)))

    def arrivals(self) -> int:
        """The number of newcomers that wait at this rank's join listener."""
        return self.group.waiting() if self.can_go_on else 0

    def admit(self, pack: Callable[[], dict[str, Any]]) -> None:
        """Called by all ranks: admits waiting newcomers, and sends them the result of ``pack``.

        The ranks agree on whether anybody comes: where that fails at one rank, another one may not
        have come to it yet, and all try again.
        """
        joined: list[dist.ProcessGroup] = []

        def admit() -> None:
            found = self.group.admit()
            if found is not self.group:
                joined.append(found)

        self._agree(admit)
        if joined:
            try:
                self._welcome(joined[0], pack)
            except PawlError as lost:  # whichever it is, the next step goes on without it
                self.lose(lost)

    def _welcome(self, joined: dist.ProcessGroup, pack: Callable[[], dict[str, Any]]) -> None:
        """Goes on in a group with newcomers, and sends them this rank's part."""
        before, was = self.ranks, [*self._kept, self.group]
        self._succeed(joined)
        self._meet()
        # A program that starts ranks sees at once that the newcomers are not alone.
        self.open_door(again=False)
        for group in was:
            group.shutdown()
        self._kept.clear()
        mine = [r for r in range(before, self.ranks) if (r - before) % before == self.rank]
        if mine:
            header, tensors = _wire.take_apart((self._agreed, pack()))
            message = [torch.tensor([header.numel()], device="cpu"), header, *tensors]
            for newcomer in mine:
                sent = [dist.isend(t, group=self.group, group_dst=newcomer) for t in message]
                for work in sent:
                    work.wait()

    def enter(
        self, unpack: Callable[[dict[str, Any]], None], meanwhile: Callable[[], None]
    ) -> None:
        """Called by a newcomer: joins the other ranks, and takes over the states that they send.

        ``meanwhile`` is called while it waits, and may raise. Ends the process if
        the job ends first.
        """
        if not self.newcomer:
            return
        self._succeed(_request_join(Path(os.environ[MEMBERSHIP_FILE]), meanwhile))
        self.newcomer = False
        self._meet()
        size = torch.empty(1, dtype=torch.int64, device="cpu")
        sender = dist.recv(size, group=self.group)
        header = torch.empty(int(size), dtype=torch.uint8, device="cpu")
        dist.recv(header, sender, group=self.group)
        tensors = [
            torch.empty(shape, dtype=dtype, device="cpu") for dtype, shape in _wire.rooms(header)
        ]
        received = [dist.irecv(tensor, sender, group=self.group) for tensor in tensors]
        for work in received:
            work.wait()
        self._agreed, packed = _wire.put_together(header, tensors)
        unpack(packed)

    # ---- collectives ----

    def _gather(self, mine: torch.Tensor) -> torch.Tensor:
        if self.ranks == 1:
            return mine[None]
        found = torch.empty(self.ranks, mine.numel(), dtype=mine.dtype, device=self._device)
        tensors = [mine.to(self._device), *found]
        dist.all_gather(tensors[1:], tensors[0], group=self.group)
        self._lent = [ref for ref in self._lent if ref() is not None]
        self._lent += map(weakref.ref, tensors)
        return found.cpu()

    def _gather_objects(self, mine: Any) -> list[Any]:
        return [_wire.load(data) for data in _wire.gather(_wire.dump(mine), self._gather)]

    def broadcast_object(self, mine: Any, root: int = 0) -> Any:
        """Root's object, at all ranks."""
        data = (
            _wire.dump(mine)
            if self.rank == root
            else torch.empty(0, dtype=torch.uint8, device="cpu")
        )
        size = torch.tensor([data.numel()], device="cpu")
        self.broadcast(size, root)
        if self.rank != root:
            data = torch.empty(int(size), dtype=torch.uint8, device="cpu")
        self.broadcast(data, root)
        return mine if self.rank == root else _wire.load(data)

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> None:
        """Copies root's tensor to all others, in place. Raises the group's error
        if a rank is lost.
        """
        if self.ranks == 1:
            return
        there = tensor.to(self._device)
        dist.broadcast(there, group=self.group, group_src=root)
        if there is not tensor:
            tensor.copy_(there)

    def sum(self, tensor: torch.Tensor) -> Any:
        """Begins a sum over all ranks, in place; does nothing if there is only one."""
        return dist.all_reduce(tensor, group=self.group, async_op=True)


def _read(path: Path) -> str:
    """The text of a membership file; "" if there is none, or it cannot be read now. NFS shows a new
    file once its directory has been opened (docs/nfs.md).
    """
    try:
        os.close(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY))
        return path.read_text().strip()
    except OSError:
        return ""


def _is_over(content: str) -> bool:
    return content.partition(" ")[0] == _OVER


def _write(path: Path, text: str) -> None:
    """Writes a file for this user's processes only, whole or not at all."""
    temporary = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


class _Moved(Exception):
    """The join listener is at another rank now: the rank of this one may never answer."""


def _request_join(path: Path, meanwhile: Callable[[], None]) -> dist.ProcessGroup:
    """Waits until it is admitted; the join listener may move to another rank meanwhile."""
    end = time.monotonic() + seconds("elastic_join")

    def look(address: str) -> None:
        meanwhile()
        if _read(path).partition(" ")[0] not in (address, ""):
            raise _Moved(f"{address} is no longer the address")

    while True:
        meanwhile()
        content = _read(path)
        address, _, exit_code = content.partition(" ")
        if _is_over(content):
            raise SystemExit(int(exit_code or 0))
        try:
            if not address:
                raise _Moved("the file has no address yet")
            return _membership.join(
                address,
                timedelta(seconds=seconds("elastic_join")),
                functools.partial(look, address),
            )
        except (PawlError, _Moved) as why:
            if time.monotonic() > end:
                log.error("elastic: this rank was not admitted by way of %s: %s", path, why)
                raise SystemExit(_NOBODY) from why
        time.sleep(seconds("elastic_join_again"))
