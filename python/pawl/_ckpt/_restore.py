"""Carries out one restore: read, verify, compare, vote, and only then change anything.

Happy path: choose this rank's partitions; read and verify their pickles, then, in a thread, all of
their bytes; meanwhile unpickle and match with the live objects. When both are done: fill the new
tensors, make the calls of load_state_dict, vote; with all ranks in favour, copy into live tensors
and assign. Of partitions with sharded tensors only the bytes that this rank needs are read, once
they are known.

Failure modes: until the vote is won everything is undone. A damaged checkpoint makes all ranks try
the one before, even if the part that was read does not fit the live state; a rank whose state does
not fit makes all of them raise. After the vote only copies between two places in memory are left.
"""

from __future__ import annotations

import errno
import logging
import threading
from array import array
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final

import torch

from pawl import _core
from pawl._ckpt import _parts, _rng
from pawl._ckpt._match import Loaded, Plan, match
from pawl._ckpt._partitions import RNG
from pawl._ckpt._paths import tensor_names
from pawl._ckpt._unpickle import reads_contents, unpickle
from pawl.errors import error

log = logging.getLogger("pawl")

_GO, _DAMAGED, _REFUSED = 0, 1, 2  # verdicts
# Errors of a medium that has lost bytes. Other errors of reading, such as too many open files, do
# not show that a checkpoint is damaged.
_LOST: Final = (errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA)


def _is_damage(reason: Exception) -> bool:
    """Whether an error shows that the checkpoint's bytes are wrong or lost: only then an older one
    is restored in its place. Any other error is raised: the next attempt may well succeed."""
    name = getattr(reason, "name", "")
    lost = name == "PAWL_EIO" and getattr(reason, "errno", 0) in _LOST
    return lost or name == "PAWL_ECORRUPT"


class _Reading:
    """Partitions being read and verified by a thread.

    Leaving the block waits for the thread; its error replaces any other but an interruption.
    """

    def __init__(self, found: _core.Restore, indices: list[int]) -> None:
        self._found = found
        self._indices = indices
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="pawl-restore")

    def _run(self) -> None:
        try:
            self._found.read(self._indices)
        except Exception as error:
            self._error = error

    def wait(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> _Reading:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.wait()
        else:
            self._thread.join()


class Job:
    """The restore of one checkpoint by this rank."""

    def __init__(
        self,
        found: _core.Restore,
        rank: int,
        world: int,
        trust: bool,
        strict: bool,
        strip: tuple[str, ...] = (),
    ) -> None:
        self._found = found
        self._rank = rank
        self._world = world
        self._trust = trust
        self._plan = Plan(strict, strip)
        self._undo: list[tuple[str, Callable[[], None]]] = []  # undoes the calls made, in order

    def run(self, state: MutableMapping[str, Any], names: list[str], timeout_s: float) -> bool:
        """True: restored. False: this checkpoint is damaged, on some rank; try again.

        Raises an error of the state, on this rank or another; then nothing has changed.
        """
        verdict, refusal = _GO, None
        try:
            try:
                self._prepare(state, names)
            except Exception as reason:
                verdict, refusal = (_DAMAGED if _is_damage(reason) else _REFUSED), reason
            why = str(refusal or "").replace("\0", "?").encode(errors="replace").decode()
            outcome = self._found.vote(verdict, why, timeout_s)
        except BaseException:
            self._take_back()
            if verdict == _REFUSED and refusal is not None:
                raise refusal from None  # the vote's error only repeats it
            raise
        if outcome != _GO:
            self._take_back()
            log.warning("%s is not used: %s", self._found.tag, refusal or "a rank found it damaged")
            return False
        self._commit()
        return True

    def _prepare(self, state: MutableMapping[str, Any], names: list[str]) -> None:
        chosen = self._choose(names)
        sharded = self._sharded(chosen)
        everything = [index for indices in chosen.values() for index in indices]
        pickles = {index: self._found.pickle(index) for index in everything}
        sizes = {index: self._found.storages(index) for index in everything}
        generators: Any = None
        loadeds = []
        whole = [index for index in everything if index not in sharded]
        with _Reading(self._found, whole) as reading:
            for name in [name for name, indices in chosen.items() if len(indices) > 1]:
                reading.wait()
                self._settle_for_one(name, chosen)
            for name, (index, *_) in chosen.items():
                loaded = Loaded(index, f"{self._found.tag}/{name}", sizes[index])
                loadeds.append(loaded)
                self._load(loaded, pickles[index], reading, index in sharded)
                if _parts.mark_of(loaded.value) is not None:
                    sharded.add(index)
                    self._join(loaded, name, state.get(name))
                elif index in sharded:
                    self._name_shards(loaded, name)
                if name == RNG:
                    loaded.need(loaded.value)
                    generators = loaded.value
                else:
                    match(self._plan, state, name, loaded)
        self._refuse_problems()
        self._need([loaded for loaded in loadeds if loaded.part in sharded])
        for loaded in loadeds:
            self._fill(loaded)
        self._found.copy(self._plan.fills)
        self._plan.problems += [why for check in self._plan.checks if (why := check()) is not None]
        self._refuse_problems()
        if generators is not None:
            try:
                _rng.check(generators)
            except (KeyError, RuntimeError, TypeError, ValueError) as reason:
                where = f"restore step {self._found.step}: {RNG}"
                raise error("PAWL_EMISMATCH", f"{where}: {reason}") from reason
            self._plan.assignments.append(partial(_rng.apply, generators))
        self._call()

    def _refuse_problems(self) -> None:
        if self._plan.problems:
            problems = "; ".join(self._plan.problems)
            raise error("PAWL_EMISMATCH", f"restore step {self._found.step}: {problems}")

    def _choose(self, names: list[str]) -> dict[str, list[int]]:
        """Name -> index of the partition to take; several if all of them must prove to be alike."""
        found, chosen = self._found, {}
        there: dict[str, dict[int, int]] = {}
        for index, (name, rank, _) in enumerate(found.parts):
            there.setdefault(name, {})[rank] = index
        for name in names:
            ranks = there.get(name, {})
            own = ranks.get(-1, ranks.get(self._rank))
            if own is not None:
                chosen[name] = [own]
                if len(ranks) > self._world:
                    log.info(
                        "%s/%s: %d ranks saved their own; only the first %d are restored here",
                        *(found.tag, name, len(ranks), self._world),
                    )
            elif name == RNG:
                log.info(
                    "%s has no state of random number generators for rank %d", found.tag, self._rank
                )
            elif 0 in ranks and (self._has_shards(ranks[0]) or self._is_part(ranks[0])):
                chosen[name] = [ranks[0]]
            elif ranks:
                chosen[name] = list(ranks.values())
            elif self._plan.strict:
                has = ", ".join(sorted(set(there) - {RNG}))
                self._plan.problems.append(f"{found.tag} has no partition {name!r} (it has {has})")
        return chosen

    def _has_shards(self, index: int) -> bool:
        return any(len(row) > 5 for row in _core.decode_tensors(self._found.tensors(index)))

    def _is_part(self, index: int) -> bool:
        """Whether a partition may be what one rank had of a divided model."""
        return _parts.MARK.encode() in self._found.pickle(index)

    def _sharded(self, chosen: dict[str, list[int]]) -> set[int]:
        """The chosen partitions that have shards. A rank that did not save takes rank 0's plain
        values beside them: a sharded module or optimizer keeps its unsharded values alike on all
        ranks.
        """
        return {one[0] for one in chosen.values() if len(one) == 1 and self._has_shards(one[0])}

    def _join(self, loaded: Loaded, name: str, live: Any) -> None:
        """Joins what the other ranks saved of a divided model. Where the ranks are laid out as they
        were, this rank's own tensors come first: replicas may have different buffers.
        """
        own, found = loaded.value, self._found
        divided = _parts.find(live)
        mark = _parts.mark_of(own) or {}
        same = divided is not None and divided.mark()["layout"] == mark["layout"]
        values = []
        for index, (part, _, _) in enumerate(found.parts):
            if index == loaded.part:
                values.append(own)
            elif part == name:
                values.append(self._structure(index, loaded.where))
        mine = set(tensor_names(own, name)) if same else set()
        loaded.value = _parts.join([own, *[v for v in values if v is not own]] if same else values)
        loaded.joined = True
        self._name_shards(loaded, name)
        for tensor in mine:
            loaded.shards.pop(tensor, None)

    def _structure(self, index: int, where: str) -> Any:
        """A partition's object, whose tensors have no numbers."""
        pickled = self._found.pickle(index)
        loaded = Loaded(index, where, self._found.storages(index))
        if reads_contents(pickled, self._trust):
            self._found.read([index])
            loaded.to_fill.update(range(len(loaded.sizes)))
            self._fill(loaded)
        return unpickle(pickled, loaded.sizes, loaded.fetch, where, self._trust)

    def _name_shards(self, loaded: Loaded, name: str) -> None:
        """Finds, by the tables' rows, which loaded tensors are shards, and of which tensor."""
        parts = [i for i, (part, _, _) in enumerate(self._found.parts) if part == name]
        rows = [
            row
            for index in (parts if loaded.joined else [loaded.part])
            for row in _core.decode_tensors(self._found.tensors(index))
        ]
        wholes = {row[0]: row[5] for row in rows if len(row) > 5}
        paths = tensor_names(loaded.value, name)
        loaded.shards = {i: (path, wholes[path]) for i, path in paths.items() if path in wholes}
        loaded.reshard = partial(self._found.reshard, name)

    def _need(self, loadeds: list[Loaded]) -> None:
        """Reads and verifies the bytes that are needed of partitions with shards."""
        if not loadeds:
            return
        parts = {loaded.part for loaded in loadeds}
        spec = self._plan.fills + self._plan.boxes
        for one in self._plan.copies.values():
            if one[0] in parts:
                spec.extend(one)
        for loaded in loadeds:
            for key in loaded.to_fill:
                spec.extend((loaded.part, key, 0, 0, loaded.sizes[key]))
        self._found.need(spec)

    def _settle_for_one(self, name: str, chosen: dict[str, list[int]]) -> None:
        """Takes the first of a name's partitions that other ranks saved, if all are alike."""
        first, *others = chosen[name]
        if all(self._alike(first, other) for other in others):
            chosen[name] = [first]
            return
        why = (
            f"state[{name!r}]: each of {self._found.world} ranks saved its own, and these differ: "
            f"none fits the further ranks of this world of {self._world}"
        )
        if self._plan.strict:
            self._plan.problems.append(why)
        log.warning("%s: left as it is", why)
        del chosen[name]

    def _alike(self, one: int, other: int) -> bool:
        found = self._found
        sizes = found.storages(one)
        if found.pickle(one) != found.pickle(other) or sizes != found.storages(other):
            return False
        for key, size in enumerate(sizes):
            left = torch.empty(size, dtype=torch.uint8, device="cpu")
            right = torch.empty(size, dtype=torch.uint8, device="cpu")
            if size:
                found.copy(array("Q", (one, key, 0, left.data_ptr(), size)))
                found.copy(array("Q", (other, key, 0, right.data_ptr(), size)))
            if not torch.equal(left, right):
                return False
        return True

    def _load(self, loaded: Loaded, pickled: bytes, reading: _Reading, is_sharded: bool) -> None:
        if reads_contents(pickled, self._trust):
            if is_sharded:
                self._found.read([loaded.part])
            reading.wait()
            loaded.to_fill.update(range(len(loaded.sizes)))
            self._fill(loaded)
        loaded.value = unpickle(pickled, loaded.sizes, loaded.fetch, loaded.where, self._trust)

    def _fill(self, loaded: Loaded) -> None:
        """Copies the wanted storages of a partition into new memory."""
        spec = array("Q")
        for key in sorted(loaded.to_fill):
            if loaded.sizes[key]:
                address = loaded.fetch(key).data_ptr()
                spec.extend((loaded.part, key, 0, address, loaded.sizes[key]))
        self._found.copy(spec)
        loaded.to_fill.clear()

    def _call(self) -> None:
        for call in self._plan.calls:
            try:
                self._undo.append((call.where, call.remember()))
                call.make()
            except Exception as reason:  # the user's code may raise anything
                raise error(
                    "PAWL_EMISMATCH",
                    f"restore step {self._found.step}: {call.where}{call.method}: "
                    f"{reason}{call.hint}",
                ) from reason

    def _take_back(self) -> None:
        while self._undo:
            where, undo = self._undo.pop()
            try:
                undo()
            except Exception as reason:  # the user's code again; the others must be undone too
                log.error("%s could not be put back after a failed restore: %s", where, reason)

    def _commit(self) -> None:
        plan = self._plan
        if plan.overlaps():
            for one in plan.copies.values():
                self._found.copy(array("Q", one))
        else:
            self._found.copy(plan.spec())
        self._found.copy(plan.boxes)
        # Makes autograd notice graphs that used the old values.
        for tensor in plan.touched:
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)
        for assign in plan.assignments:
            assign()
        for what, names in (("converted", plan.converted), ("replaced", plan.replaced)):
            if names:
                log.warning("restore step %s: %s: %s", self._found.step, what, ", ".join(names))
