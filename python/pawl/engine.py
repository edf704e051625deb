"""Engine: saves by tag, for programs and frameworks that name their checkpoints and their files.

A tag is a directory of its name under the root; each partition is a file of exactly its name in it.
Ranks are matched by tag, and not every rank has to save each of them. Either all partitions at once
(save: parameters are copied while training goes on), or one by one (begin, add, commit: each is
copied when add returns).
"""

from __future__ import annotations

import os
import re
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import torch
from torch.serialization import _get_restore_location

from pawl import _core, _start
from pawl._ckpt import _fence
from pawl._ckpt._partitions import NAME_MAX_BYTES, check_step, has_state
from pawl._ckpt._raw import Raw, Safetensors
from pawl._ckpt._saver import Save, Saver
from pawl._ckpt._shards import Shard, take_apart
from pawl._ckpt._skeleton import Skeleton
from pawl._times import seconds
from pawl.errors import PawlError, error
from pawl.loading import MapLocation, load_part

__all__ = ["AsIs", "Building", "Engine", "Found", "Raw", "Safetensors"]

_ALONE: Final = 1  # as in include/pawl/ckpt.h
_ADDS: Final = 2
_STREAM: Final = 4
_FOLDERS_MAX: Final = 8  # depth of the folders that a partition may lie in
_TAGS_KEPT: Final = 1024  # newest saves by tag that are remembered, to be waited for or added to
_TRAILING: Final = re.compile(r"(\d+)\D*$")


def step_of(tag: str) -> int | None:
    """The last number in a tag, by which tags are ordered; None if it has none.

    ``global_step500`` -> 500; ``epoch=2-step=40.ckpt`` -> 40; ``best`` -> None.
    """
    found = _TRAILING.search(tag)
    return int(found[1]) if found and int(found[1]) < 1 << 63 else None


def beside(root: str | os.PathLike[str]) -> str:
    """The directory ``.<name>.pawl`` beside root, for unfinished files if none of
    them may lie in root.

    The `pawl` program looks there, too.
    """
    path = os.path.abspath(os.fspath(root))
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.pawl")


class AsIs(NamedTuple):
    """An object that is pickled itself, and not its ``state_dict()``, as torch.save does.

    ``shards``: id of a tensor in it -> shape of the whole tensor of which it is a box, in row-major
    order, and the box's first element.
    """

    obj: Any
    shards: Mapping[int, Shard] | None = None


class Engine(Saver):
    """A root of named tags.

    ``hidden``: a directory of root's file system for everything that is not a finished tag, so that
    root holds only whole files (see ``beside``); None: root itself. The other options are those of
    Checkpointer, except that ``keep=0`` keeps all tags, and ``persist_every=0`` makes each one
    durable.

    Raises PawlError as Checkpointer does. Its methods are for one thread at a time.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keep: int = 0,
        persist_every: float = 0.0,
        copy: str = "overlap",
        memory: int | None = None,
        trust: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        job: str | None = None,
        keep_every: int = 0,
        full_every: int = 1,
        hidden: str | os.PathLike[str] | None = None,
        on_exit: Literal["raise", "warn"] = "raise",
        replicas: int | None = None,
        parity: bool = False,
    ) -> None:
        super().__init__(
            root,
            keep=keep,
            persist_every=persist_every,
            copy=copy,
            memory=memory,
            trust=trust,
            rank=rank,
            world_size=world_size,
            job=job,
            keep_every=keep_every,
            full_every=full_every,
            hidden=None if hidden is None else os.path.abspath(os.fspath(hidden)),
            named=True,
            on_exit=on_exit,
            replicas=replicas,
            parity=parity,
        )
        # Saved by this process, oldest first.
        self._tags: OrderedDict[str, list[_Part]] = OrderedDict()
        self._building: Building | None = None
        self._remedy = "call find() before save()"

    def tell_starts(self, remedy: str, root: str | None = None) -> None:
        """Sets the advice for a process that saves without having looked for a
        checkpoint, for integrations.

        ``remedy``: how their users look for one; ``root``: the place of
        checkpoints, as users know it.
        """
        self._remedy = remedy
        self._saves_as = root or self.root

    def save(
        self,
        tag: str,
        parts: Mapping[str, Any],
        step: int | None = None,
        overlap: bool = True,
        alone: bool = False,
    ) -> Save:
        """Saves all partitions of this rank at once, and returns in milliseconds.

        ``parts``: file's name -> Raw, Safetensors, or any object, which becomes a torch zip (of its
        ``state_dict()``, if it has one and is not wrapped in AsIs). ``step``: orders tags; default:
        the tag's last number, else that of the newest tag. ``overlap``: parameters and optimizer
        tensors are copied while the next forward and backward pass run; see Checkpointer.save. Adds
        to a tag that was saved before since the ranks started. ``alone``: no other rank has a part
        in the tag.

        Raises PawlError (PAWL_EBUSY: another tag is being put together; PAWL_ENOTSUP naming the
        object that cannot be saved), ValueError for bad names. Later failures are in the Save's
        ``error``.
        """
        if any(not part.names <= parts.keys() for part in self._tags.get(tag, ())):
            return self._add_to(tag, parts, step, alone)
        began = time.perf_counter()
        session = self._live()
        step = _check_tag(tag, step)
        self._report_start()
        self._settle_pending()
        masks = _fence.guarded() if overlap and self._may_wait() else {}
        try:
            described = [self._describe_part(name, obj, masks) for name, obj in parts.items()]
        except BaseException:
            session.announce(None)  # where ranks span hosts, the others have this save
            raise
        capture = _fence.Capture([part for part, _ in described])
        _fence.queue_before_copies(spans for (_, _, spans), _ in described)
        sent = [row for _, row in described]
        save_id = session.save_tag(
            tag, step, self._flags(tag, alone), sent, overlap and self._watch
        )
        capture.started(session, save_id)
        save = self._remember(Save(self, capture, save_id, step, tag))
        self._tags[tag] = [_Part(save, set(parts))]
        save.stall_s = time.perf_counter() - began
        return save

    def begin(
        self, tag: str, step: int | None = None, alone: bool = False, stream: bool = False
    ) -> Building:
        """Starts a tag that is put together partition by partition; arguments
        otherwise as of ``save``.

        ``stream``: this rank writes its partitions to the store as they are added, not by way of
        memory: durable sooner, for callers that wait for that anyway.
        """
        session = self._live()
        step = _check_tag(tag, step)
        self._report_start()
        self._settle_pending()
        flags = self._flags(tag, alone) | (_STREAM if stream else 0)
        save_id = session.begin(tag, step, flags)
        capture = _fence.Capture([])
        capture.started(session, save_id)
        before = self._newest
        save = self._remember(Save(self, capture, save_id, step, tag))
        self._building = Building(self, save, before)
        self._tags[tag].append(_Part(save, self._building._names))
        return self._building

    def find(self, tag: str | None = None) -> Found | None:
        """The newest complete tag, or the one named ``tag``, in memory or in the
        store; None if there is none.

        It finds all that this process has saved so far, but no tag that is still being put
        together. A tag that turns out to be broken counts as missing.
        """
        _start.looked(self._saves_as)
        try:
            found = self._live().find(tag, seconds("engine_find"))
        except PawlError as reason:
            if reason.name == "PAWL_ECORRUPT":
                return None
            raise
        if found is None:
            return None
        try:
            return Found(self, found)
        finally:
            found.close()

    @property
    def newest(self) -> Save | None:
        """The last save of this process; None if there was none."""
        return self._newest

    def reopen(self, tag: str) -> _core.Restore | None:
        """The tag's bytes. The caller must close them soon: they may hold up saves."""
        _start.looked(self._saves_as)
        return self._live().find(tag, seconds("engine_find"))

    def flush(self, timeout: float | None = None, tag: str | None = None) -> bool:
        """Makes the newest tag, or the one named ``tag``, durable; False if it took
        longer, or it failed.
        """
        if tag is None:  # a failed one was never committed: the one before it is made durable
            durable = super().flush(timeout)
            return durable and (self._newest is None or self._newest.level != "failed")
        if self._tags.get(tag):
            return self._tags[tag][-1].save.wait("durable", timeout)
        return any(e["tag"] == tag and e["level"] == "durable" for e in self.list())

    def pin(self, tag: str, pinned: bool = True) -> None:
        """Forbids (or allows again) the deletion of a tag by ``keep``."""
        _check_tag(tag, None)
        self._live().pin(tag, pinned)

    def remove(self, tag: str) -> None:
        """Deletes a tag, in memory and in the store, once the current write is durable."""
        self._live().remove(tag)
        self._tags.pop(tag, None)

    def close(self, timeout: float | None = None) -> bool:
        """Closes as Checkpointer.close does. In a process that ends because of an error, a tag that
        not all ranks have finished is given up.
        """
        return super().close(timeout)

    def _remember(self, save: Save) -> Save:
        self._pending.append(save)
        self._newest = save
        self._tags.setdefault(save.tag, [])
        self._tags.move_to_end(save.tag)
        if len(self._tags) > _TAGS_KEPT:
            self._tags.popitem(last=False)
        self._after_save(self._live())
        return save

    def _flags(self, tag: str, alone: bool) -> int:
        adds = any(part.save.level != "failed" for part in self._tags.get(tag, ()))
        return (_ALONE if alone else 0) | (_ADDS if adds else 0)

    def _add_to(self, tag: str, parts: Mapping[str, Any], step: int | None, alone: bool) -> Save:
        """Saves partitions that are whole only together with those saved before:
        see Building.commit.
        """
        building = self.begin(tag, step, alone)
        try:
            for name, obj in parts.items():
                building.add(name, obj)
            return building.commit()
        except PawlError:
            if building.save.level == "failed":
                return building.save
            raise
        finally:
            if building.open:
                building.drop("one of its partitions cannot be saved")

    def _forget(self, tag: str, which: Callable[[_Part], bool]) -> None:
        if tag in self._tags:
            self._tags[tag] = [part for part in self._tags[tag] if not which(part)]

    def _lost(self, tag: str, names: set[str]) -> set[str]:
        """Partitions that this process saved of a tag and that are neither there
        nor among names.
        """
        parts = self._tags.get(tag, ())
        failed = [part.names for part in parts if part.save.level == "failed"]
        return set().union(*failed) - names

    def _describe_part(
        self, name: str, obj: Any, masks: dict[int, int]
    ) -> tuple[_fence.Part, _core.Part]:
        _check_name(name)
        raw = isinstance(obj, Raw | Safetensors)
        skeleton: Skeleton
        if isinstance(obj, Raw | Safetensors):
            skeleton = obj.skeleton(name)
        else:
            shards = None
            if isinstance(obj, AsIs):
                obj, shards = obj
            elif has_state(obj):
                obj = obj.state_dict()
            if not shards:
                obj, shards = take_apart(name, obj)
            skeleton = self._partition(name).build(obj, shards)
        spans = _fence.Spans(skeleton, masks, self._host_watch, self._evicted.get(name, set()))
        row = (name, False, skeleton.pickle, skeleton.table, spans.packed, raw)
        return (name, skeleton, spans), row


class Building:
    """A tag that is being put together by this rank."""

    def __init__(self, engine: Engine, save: Save, before: Save | None) -> None:
        self._engine = engine
        self._before = before  # the engine's newest save before
        self.save = save
        self.tag = save.tag
        self.names: list[str] = []  # names of partitions added so far
        self._names: set[str] = set()  # names added so far, and the one that failed
        self.open = True  # neither committed nor dropped nor failed

    def add(self, name: str, obj: Any) -> None:
        """Saves a partition; it is copied, or written, when this returns. ``obj``
        as for Engine.save.

        Raises PawlError: PAWL_EEXIST (there is one of this name), PAWL_ENOTSUP (it cannot be
        saved); on others the tag has failed.
        """
        part, row = self._engine._describe_part(name, obj, {})
        self._names.add(name)
        _fence.queue_before_copies([part[2]])
        began = time.perf_counter()
        try:
            self._engine._live().add(row)
        except PawlError as reason:
            self.open = self.open and reason.name == "PAWL_EEXIST"
            raise
        self.names.append(name)
        self.save.stall_s += time.perf_counter() - began

    def commit(self) -> Save:
        """Marks this rank's part as whole; returns the Save.

        Raises PawlError if the tag has failed; also if an earlier part that this process saved of
        it has failed (its agent died, for example) and was not added again: the parts added now
        would pass for the whole.
        """
        engine = self._engine
        self.open = False
        engine._building = None
        lost = engine._lost(self.tag, self._names)
        if lost:
            why = f"{', '.join(sorted(lost))} of it was lost or failed: save all of it again"
            engine._live().drop(why)
            raise error("PAWL_ECANCELED", f"save {self.tag}: {why}")
        engine._live().commit()
        engine._forget(self.tag, lambda part: part.names <= self._names)
        engine._tags.setdefault(self.tag, []).append(_Part(self.save, self._names))
        return self.save

    def drop(self, why: str) -> None:
        """Gives the tag up: it fails on all ranks."""
        engine = self._engine
        self.open = False
        engine._building = None
        engine._newest = self._before
        engine._forget(self.tag, lambda part: part.save is self.save)
        engine._live().drop(why)


class _Part(NamedTuple):
    """One save of a tag by this process; a tag may be made of several."""

    save: Save
    names: set[str]  # names of its partitions


class _Entry(NamedTuple):
    index: int  # index of the partition
    raw: bool
    size: int  # bytes of the file


class Source(Protocol):
    """The store or memory in which a tag was found, and is found again."""

    root: str

    def reopen(self, tag: str) -> _core.Restore | None: ...


class Found:
    """A complete tag. It holds no resource: each read looks for it again, under the same name."""

    def __init__(self, source: Source, found: _core.Restore) -> None:
        self._source = source
        self.tag = found.tag
        self.step = found.step
        self.source = found.source  # "memory" or "store"
        self._entries = _entries(found)

    @property
    def names(self) -> list[str]:
        """Names of the tag's files."""
        return list(self._entries)

    @property
    def root(self) -> str:
        """The directory that the tag lies in."""
        return self._source.root

    @property
    def size(self) -> int:
        """Bytes of the tag's files."""
        return sum(entry.size for entry in self._entries.values())

    def is_raw(self, name: str) -> bool:
        """Whether it is a file of bytes, for ``read``. Raises KeyError if there is none."""
        return self._entries[name].raw

    def load(self, name: str, map_location: MapLocation = None, trust: bool = True) -> Any:
        """The object of a torch zip, verified; ``map_location`` as for torch.load.

        Raises FileNotFoundError if there is no such partition; OSError naming file and offset if it
        is damaged (the tag is then put aside), or if the tag is gone meanwhile; PawlError
        (PAWL_ENOTSUP) naming the object that would run code, unless ``trust``.
        """
        place = _get_restore_location(map_location)
        found, index = self._open(name, raw=False)
        try:
            found.read([index])
            return load_part(found, index, f"{self.tag}/{name}", place, trust)
        except PawlError as reason:
            raise self._blame(found, reason) from reason
        finally:
            found.close()

    def read(self, name: str) -> bytes:
        """The bytes of a raw file, verified. Errors as of load."""
        found, index = self._open(name, raw=True)
        try:
            found.read([index])
            (size,) = found.storages(index)
            storage = torch.UntypedStorage(size)
            if size:
                found.copy(_copies(index, storage))
            return bytes(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy())
        except PawlError as reason:
            raise self._blame(found, reason) from reason
        finally:
            found.close()

    def _open(self, name: str, raw: bool) -> tuple[_core.Restore, int]:
        if name not in self._entries:
            raise FileNotFoundError(
                f"{self._source.root}/{self.tag} has no partition {name!r}: it has "
                f"{', '.join(self._entries)}"
            )
        if self._entries[name].raw != raw:
            how = "read" if self._entries[name].raw else "load"
            raise ValueError(f"{self.tag}/{name}: use {how}() for it")
        try:
            found = self._source.reopen(self.tag)
        except PawlError as reason:
            if reason.name != "PAWL_ECORRUPT":
                raise
            raise OSError(f"{self._source.root}: {reason}") from reason
        now = _entries(found).get(name) if found is not None else None
        if found is None or now is None or now.raw != raw:
            if found is not None:
                found.close()
            raise OSError(
                f"{self._source.root}/{self.tag} is gone since it was found: it was deleted, put "
                "aside as damaged, replaced, or given up in memory before it was durable"
            )
        return found, now.index

    def _blame(self, found: _core.Restore, reason: PawlError) -> Exception:
        """The exception to raise; puts a damaged tag aside."""
        if reason.name != "PAWL_ECORRUPT":
            return reason
        found.condemn(str(reason))
        return OSError(f"{self._source.root}: {reason}")

    def __repr__(self) -> str:
        return f"<pawl.Found {self.tag} in {self.source}>"


def _entries(found: _core.Restore) -> dict[str, _Entry]:
    files = zip(found.parts, found.files, strict=True)
    return {
        file: _Entry(index, raw, size) for index, ((_, _, size), (file, raw)) in enumerate(files)
    }


def _copies(index: int, storage: torch.UntypedStorage) -> Any:
    return array("Q", (index, 0, 0, storage.data_ptr(), storage.nbytes()))


def _check_tag(tag: Any, step: int | None) -> int | None:
    """The step of a tag. Raises TypeError or ValueError for anything that cannot be a tag."""
    if not isinstance(tag, str):
        raise TypeError(f"a tag must be a str, not a {type(tag).__qualname__}")
    size = len(tag.encode(errors="surrogatepass"))
    if not 0 < size < 128 or tag.startswith(".") or "/" in tag or not tag.isprintable():
        raise ValueError(
            f"tag {tag!r}: must have 1 to 127 bytes, no '/', no '.' in front, and be printable"
        )
    return step_of(tag) if step is None else check_step(step)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a partition's name must be a str, not a {type(name).__qualname__}")
    folders = name.split("/")
    if (
        {"", ".", ".."} & set(folders)
        or folders[0] in (".pawl", "complete.txt", "why.txt")
        or len(folders) - 1 > _FOLDERS_MAX
        or "\0" in name
        or len(name.encode(errors="surrogatepass")) > NAME_MAX_BYTES
    ):
        raise ValueError(
            f"partition {name!r}: must have 1 to {NAME_MAX_BYTES} bytes, be no . or .., in at most "
            f"{_FOLDERS_MAX} folders, and not .pawl, complete.txt or why.txt"
        )
