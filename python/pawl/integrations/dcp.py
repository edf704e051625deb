"""torch.distributed.checkpoint through Pawl: a storage writer, which is a stager too, and a reader.

    writer = PawlWriter("runs/fsdp")
    future = dcp.async_save(state, storage_writer=writer, checkpoint_id="step-100")
    tag = pawl.integrations.dcp.load(state, PawlReader("runs/fsdp"))  # the newest that is whole

The checkpoint id is the tag. Each rank's tensors are one partition of it, a torch zip that
`torch.load` reads; DCP's metadata is another, which rank 0 adds when all others are there. So a tag
is complete with all of them or not at all.

How ranks share the work, and what of a tensor goes where, is DCP's own planning. Reading, a rank
verifies all that it needs while its local plan is made, which is before any rank's tensors change.
"""

from __future__ import annotations

import copy
import io
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import (
    CheckpointException,
    LoadPlan,
    LoadPlanner,
    Metadata,
    SavePlan,
    SavePlanner,
    StorageReader,
    StorageWriter,
)
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from pawl import _core, _start
from pawl._ckpt import _fence
from pawl._ckpt._mounts import is_bucket, root_name
from pawl._ckpt._overlap import Buffer, Copied, Overlap, copies
from pawl._ckpt._shards import Shape, Shard, is_dtensor
from pawl.engine import AsIs, Building, Engine
from pawl.errors import PawlError, error
from pawl.loading import load_part

log = logging.getLogger("pawl.dcp")

METADATA: Final = "dcp-metadata"  # the partition with DCP's Metadata
_TRIES_MAX: Final = 16  # damaged tags that one load puts aside before it gives up

# The place of an item: partition's file, name in it, dtype; and its box of a tensor: shape of the
# whole, first element, shape. Plain values, so that the metadata can be read without Pawl.
_Place = tuple[str, str, torch.dtype, Shape, Shape, Shape]


class Damaged(OSError):
    """The data that was read is not the data that was written; the message names
    file and offset.
    """


def partition(rank: int) -> str:
    """The file of a rank's tensors in a tag."""
    return f"dcp-rank{rank}"


class PawlStager(AsyncStager):
    """Copies a state into buffers that the next save uses again, so that no page is ever new.

    The buffers are used again once ``give_back`` was called, when nothing reads them any more; a
    state that is staged before gets new ones.

    ``watch``: memory that optimizers own is copied after ``stage`` has returned, where the kernel
    can report changes; a reader of the staged state calls ``wait`` first, as PawlWriter does.
    """

    _synchronize_after_execute = False

    def __init__(self, watch: bool = False) -> None:
        self._overlap = Overlap(watch)
        self._buffers: dict[int, torch.Tensor | Buffer] = {}  # by place in the state
        # Tensors made of buffers, by place of the first buffer.
        self._made: dict[int, tuple[Any, torch.Tensor]] = {}
        self._lent = False  # True: a staged state may still be read
        self._next = 0  # place of the next tensor
        self._left: list[Copied] = []  # copies to make when all of the state was seen
        self._devices: set[torch.device] = set()  # devices with copies to host memory under way

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The same state, with tensors of its own in host memory."""
        if self._lent:
            self._buffers, self._made = {}, {}
        self._lent = True
        self._next = 0
        self._left = []
        self._devices = set()
        staged: dict[str, Any] = self._copy(state_dict, "")
        for place in range(self._next, len(self._buffers)):  # the state has become smaller
            del self._buffers[place]
            self._made.pop(place, None)
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()
        self._overlap.start(self._left)
        return staged

    def wait(self) -> str | None:
        """Waits until the last staged state is copied. Returns the error of the
        copy; None: it succeeded.
        """
        return self._overlap.wait()

    def give_back(self) -> None:
        """Marks the last staged state as read: its buffers may be used again."""
        self._lent = False

    def close(self) -> None:
        """Frees the buffers."""
        self.wait()
        self._buffers, self._made = {}, {}

    def _copy(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            prefix = f"{name}." if name else ""
            return {key: self._copy(inner, f"{prefix}{key}") for key, inner in value.items()}
        if type(value) in (list, tuple):
            return type(value)([self._copy(inner, f"{name}.{i}") for i, inner in enumerate(value)])
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return self._copy_tensor(value.detach(), name)
        if isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__"):
            return self._copy_parts(value, name)
        return copy.deepcopy(value)

    def _copy_parts(self, tensor: Any, name: str) -> torch.Tensor:
        """Copies a tensor made of others; makes a new DTensor only if it differs
        from the one before.
        """
        place = self._next
        names, context = tensor.__tensor_flatten__()
        parts = {one: getattr(tensor, one) for one in names}
        for one, part in parts.items():
            if isinstance(part, torch.Tensor):  # else the mesh, which is not copied
                parts[one] = self._copy(part, name)
        size, stride = tensor.size(), tensor.stride()
        what = (type(tensor), context, size, stride, *map(id, parts.values()))
        before = self._made.get(place)
        if before is None or not is_dtensor(tensor) or before[0] != what:
            made = type(tensor).__tensor_unflatten__(parts, context, size, stride)
            before = self._made[place] = (what, made)
        return before[1]

    def _copy_tensor(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        place, self._next = self._next, self._next + 1
        buffer = self._buffers.get(place)
        if copies(tensor):
            if not isinstance(buffer, Buffer) or not _alike(buffer.tensor, tensor):
                buffer = self._buffers[place] = Buffer(tensor)
            self._left.append((name, tensor, buffer))
            return buffer.tensor
        if not isinstance(buffer, torch.Tensor) or not _alike(buffer, tensor):
            pinned = tensor.is_cuda
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned, device="cpu")
            self._buffers[place] = buffer
        if tensor.is_cuda:
            self._devices.add(tensor.device)
        return buffer.copy_(tensor, non_blocking=True)


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


# Real path of a root, or address of a bucket -> its engine, and options.
_engines: dict[str, tuple[Engine, dict[str, Any]]] = {}


def _engine(root: str | os.PathLike[str], options: dict[str, Any]) -> Engine:
    """The Engine that writers of this process share for a root: scripts make a new
    writer for each save.
    """
    path = root_name(root)
    path = path if is_bucket(path) else os.path.realpath(path)
    engine, made_with = _engines.get(path, (None, {}))
    if engine is None or engine.closed:
        engine, made_with = _engines[path] = Engine(root, **options), options
        engine.tell_starts("load with pawl.integrations.dcp.load() before dcp.save()")
    if made_with != options:
        raise error(
            "PAWL_EBUSY",
            f"PawlWriter: {root} is open with the options {made_with}, not {options}: give all "
            "writers of a root the same ones",
        )
    return engine


class PawlWriter(StorageWriter, PawlStager):
    """Saves the data that DCP plans through an Engine.

    ``where``: the root, or an open Engine. ``tag``: of checkpoints that are saved without a
    ``checkpoint_id``. ``level``: the level at which a save counts as done: ``"durable"``, or
    ``"committed"`` for memory that outlives the training processes. ``options``: of the Engine that
    is made for a root, which all writers of this process share.

    Saving needs all ranks of the job. A save that fails on one rank fails on all, and its tag never
    appears. ``async_save`` stages through this object by default, and returns before
    memory that optimizers own is copied, as Engine.save does; with the engine's ``copy="now"``,
    after it is copied.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Engine,
        tag: str | None = None,
        level: str = "durable",
        **options: Any,
    ) -> None:
        if level not in ("committed", "durable"):
            raise ValueError(f"level must be 'committed' or 'durable', not {level!r}")
        self.engine = where if isinstance(where, Engine) else _engine(where, options)
        PawlStager.__init__(self, self.engine.watches)
        self._default = tag
        self._level = level
        self._tag: str | None = tag
        self._alone = False  # True: no other rank has a part in the tag
        self._building: Building | None = None
        self._save_id = ""
        # Error of the copy that is being saved; None: it succeeded.
        self._changed: str | None = None

    def close(self) -> None:
        """Frees the staging buffers. The engine stays open."""
        PawlStager.close(self)

    def __reduce__(self) -> Any:
        """Refuses to be sent to another process."""
        raise error(
            "PAWL_ENOTSUP",
            "PawlWriter: AsyncCheckpointerType.PROCESS: leave it at THREAD: the agent, which is a "
            "process of its own, writes to the storage",
        )

    # ---- called by DCP, in this order; parameters must keep these names ----

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a new checkpoint; one that was not finished is given up."""
        if self._building is not None and self._building.open:
            self._building.drop("a rank failed before all had written their part")
        self._building = None
        self._tag = _tag_of(checkpoint_id, self.engine.root) or self._default
        self._save_id = str(uuid.uuid4())
        self._changed = self.wait() if self._lent else None  # planners may read the staged state

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Refuses plans that a tag which is whole or absent cannot hold."""
        if not kwargs.get("use_collectives", True):
            raise error("PAWL_ENOTSUP", "PawlWriter: use_collectives=False: a tag has one metadata")
        if self._tag is None:
            raise ValueError("PawlWriter: pass checkpoint_id=<tag> to dcp.save, or a tag to this")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Returns the plan unchanged."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Returns the plans unchanged, if they are those of all ranks, or of this
        one alone (no_dist).
        """
        if len(plans) not in (1, self.engine.world_size):
            raise error(
                "PAWL_ENOTSUP",
                f"PawlWriter: {len(plans)} ranks save, of {self.engine.world_size}: a process "
                "group of some of them needs an Engine of its own, made with its rank and "
                "world_size",
            )
        self._alone = len(plans) == 1
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Adds this rank's partition; it is copied, or written, when this returns."""
        assert self._tag is not None
        if self._changed is not None:  # raised here, where DCP notifies the other ranks
            self.give_back()
            raise error("PAWL_ECHANGED", f"save {self._tag}: {self._changed}")
        data: dict[str, torch.Tensor] = {}
        shards: dict[int, Shard] = {}
        results = []
        name = partition(self.engine.rank)
        for item in plan.items:
            label = _label(item.index, data)
            tensor = data[label] = _resolve(planner, item)
            shards[id(tensor)] = whole, start = _box(item, tensor)
            place: _Place = (name, label, tensor.dtype, whole, start, tuple(tensor.shape))
            results.append(WriteResult(item.index, tensor.nbytes, place))
        waited = self._level == "durable" and not self._lent  # dcp.save: training stands still
        building = self.engine.begin(self._tag, alone=self._alone, stream=waited)
        self._building = building
        building.add(name, AsIs(data, shards))
        self.give_back()
        if self.engine.rank != 0 and not self._alone:
            building.commit()
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Adds the metadata; then the tag is whole. Raises PawlError if it does
        not reach its level.
        """
        assert self._building is not None
        metadata.storage_data = {one.index: one.storage_data for rank in results for one in rank}
        metadata.storage_meta = self.storage_meta()
        self._building.add(METADATA, AsIs(metadata))
        save = self._building.commit()
        if not save.wait(self._level):
            raise error("PAWL_ECANCELED", save.error or f"{save.tag} is not {self._level}")

    def storage_meta(self) -> StorageMeta:
        """The place of this checkpoint."""
        return StorageMeta(f"{self.engine.root}/{self._tag}", self._save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """False: an id alone does not choose this storage."""
        return False


class PawlReader(StorageReader):
    """Reads checkpoints that PawlWriter saved, on any number of ranks.

    ``where``: an open Engine, to find checkpoints in memory as well; or a root, which is read
    without an agent and while another job saves to it. ``tag``: to be loaded if no
    ``checkpoint_id`` is given; None: the newest. ``trust``: DCP's metadata is a pickle of torch's
    classes; False refuses it.

    Raises Damaged before any rank's tensors have changed. A tag that an Engine finds damaged is put
    aside. A load that failed keeps its data, which holds up saves, until ``close`` or the next
    load.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Engine,
        tag: str | None = None,
        trust: bool = True,
    ) -> None:
        super().__init__()
        self._engine = where if isinstance(where, Engine) else None
        self.root = where.root if isinstance(where, Engine) else root_name(where)
        self._default = tag
        self._tag: str | None = tag
        self._trust = trust
        # Damaged tags of a root that has no agent to put them aside.
        self._damaged: set[str] = set()
        self._found: _core.Restore | None = None
        self._indices: dict[str, int] = {}  # file -> partition
        self._places: dict[MetadataIndex, _Place] = {}
        self._logs = False  # True: this rank logs for all ranks

    def newest(self) -> str | None:
        """The newest complete tag whose metadata can be read; None if there is none."""
        for _ in range(_TRIES_MAX):
            tag = self._newest_tag()
            if tag is None:
                return None
            try:
                self.reset(tag)
                self.read_metadata()
                return tag
            except Damaged as reason:
                log.warning("%s is not used: %s", tag, reason)
                self.give_up(tag)
            finally:
                self.close()
        raise Damaged(f"{self.root}: {_TRIES_MAX} damaged tags, one after the other")

    def give_up(self, tag: str) -> None:
        """Records that a rank found the tag damaged."""
        if self._engine is None:  # else the rank that found it has notified the agent
            self._damaged.add(tag)

    def close(self) -> None:
        """Releases the data that was read."""
        if self._found is not None:
            self._found.close()
        self._found = None

    # ---- called by DCP, in this order; parameters must keep these names ----

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins to read a checkpoint."""
        self.close()
        self._tag = _tag_of(checkpoint_id, self.root) or self._default

    def read_metadata(self) -> Metadata:
        """DCP's metadata of the tag, verified. Raises FileNotFoundError if there
        is none; Damaged.
        """
        found = self._open()
        if METADATA not in self._indices:
            raise FileNotFoundError(f"{self.root}/{found.tag} was not saved by PawlWriter")
        index = self._indices[METADATA]
        self._verify(lambda: found.read([index]))
        metadata: Metadata = load_part(found, index, f"{found.tag}/{METADATA}", None, self._trust)
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Takes the place of every item from the metadata."""
        self._places = metadata.storage_data
        self._logs = is_coordinator and _start.is_first()

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Reads and verifies the data that the plan needs: no tensor of any rank
        has changed yet.
        """
        self._need(plan)
        plan.storage_data = self._open().tag
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Returns the plans unchanged, if all ranks read the same tag."""
        tags = sorted({str(plan.storage_data) for plan in plans})
        if len(tags) > 1:
            raise error(
                "PAWL_EMISMATCH",
                f"{self.root}: the ranks found different newest tags ({', '.join(tags)}): pass "
                "checkpoint_id, or use pawl.integrations.dcp.load",
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copies into the tensors that the planner names."""
        found = self._open()
        self._need(plan)  # a planner may have changed the plan since
        _fence.fence_all()  # a save may still be copying memory that is about to be overwritten
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                self._load_bytes(found, item, planner)
            else:
                self._load_tensor(found, item, planner)
        if self._logs:
            size = sum(size for _, _, size in found.parts)
            _start.restored(self.root, found.tag, size, found.source)
        self.close()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """False: an id alone does not choose this storage."""
        return False

    def _newest_tag(self) -> str | None:
        if self._engine is not None:
            found = self._engine.find()
            return None if found is None else found.tag
        if not is_bucket(self.root) and not os.path.isdir(self.root):
            return None
        listed = _core.list_root(self.root)
        tags = [one["tag"] for one in listed if one["level"] == "durable"]
        return next((tag for tag in reversed(tags) if tag not in self._damaged), None)

    def _open(self) -> _core.Restore:
        if self._found is not None:
            return self._found
        _start.looked(self.root)
        tag = self._tag if self._tag is not None else self._newest_tag()
        found = None
        if tag is not None and self._engine is not None:
            found = self._engine.reopen(tag)
        elif tag is not None:
            found = _core.open_root(self.root, tag)
        if found is None:
            raise FileNotFoundError(f"{self.root} has no complete checkpoint {self._tag or ''}")
        self._found = found
        self._indices = {file: index for index, (file, _) in enumerate(found.files)}
        return found

    def _need(self, plan: LoadPlan) -> None:
        """Reads and verifies the data that the items need."""
        found = self._open()
        self._verify(
            lambda: found.need(b"".join(self._copies(found, item, 0) for item in plan.items))
        )

    def _copies(self, found: _core.Restore, item: ReadItem, address: int) -> bytes:
        """The copies that put an item's data at an address."""
        file, label, dtype, whole, start, shape = self._places[item.storage_index]
        if file not in self._indices:
            raise Damaged(f"{self.root}/{found.tag} has no partition {file}")
        if item.type != LoadItemType.BYTE_IO:
            pairs = zip(start, item.storage_offsets, strict=True)
            start, shape = tuple(a + b for a, b in pairs), tuple(item.lengths)
        name, _, _ = found.parts[self._indices[file]]
        text = str(dtype).removeprefix("torch.")
        return found.reshard(name, label, text, dtype.itemsize, whole, start, shape, address)

    def _verify(self, read: Callable[[], None]) -> None:
        try:
            read()
        except PawlError as reason:
            if reason.name not in ("PAWL_ECORRUPT", "PAWL_EIO"):
                raise
            if reason.name == "PAWL_ECORRUPT" and self._engine is not None:
                self._open().condemn(str(reason))
            raise Damaged(f"{self.root}: {reason}") from reason

    def _load_bytes(self, found: _core.Restore, item: ReadItem, planner: LoadPlanner) -> None:
        data = torch.empty(self._places[item.storage_index][-1], dtype=torch.uint8, device="cpu")
        found.copy(self._copies(found, item, data.data_ptr()))
        planner.load_bytes(item, io.BytesIO(bytes(data.numpy())))

    def _load_tensor(self, found: _core.Restore, item: ReadItem, planner: LoadPlanner) -> None:
        dtype = self._places[item.storage_index][2]
        target = planner.resolve_tensor(item).detach()
        if target.shape != item.lengths:
            raise error(
                "PAWL_EMISMATCH",
                f"{item.storage_index.fqn}: {tuple(item.lengths)} in the checkpoint, "
                f"{tuple(target.shape)} to be loaded",
            )
        direct = target.is_cpu and target.dtype == dtype and target.is_contiguous()
        buffer = target if direct else torch.empty(tuple(item.lengths), dtype=dtype, device="cpu")
        found.copy(self._copies(found, item, buffer.data_ptr()))
        if not direct:
            target.copy_(buffer)
        planner.commit_tensor(item, target)


def load(
    state_dict: dict[str, Any],
    reader: PawlReader,
    planner: LoadPlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
) -> str | None:
    """`dcp.load` of the newest complete tag, the same on all ranks; returns it.

    If data that any rank needs is damaged, all take the tag before, and so on; the tensors change
    only once all ranks have verified their data. Returns None, with nothing changed, if there is no
    checkpoint. Other errors are those of `dcp.load`.
    """
    for _ in range(_TRIES_MAX):
        tag = _agree(reader, process_group)
        if tag is None:
            if _start.is_first():
                _start.nothing(reader.root)
            return None
        try:
            dcp.load(
                state_dict,
                checkpoint_id=tag,
                storage_reader=reader,
                planner=planner,
                process_group=process_group,
            )
            return tag
        except CheckpointException as reason:
            reader.close()
            damages = [why for why, _ in reason.failures.values() if isinstance(why, Damaged)]
            if not damages:
                raise
            log.warning("%s is not used: %s", tag, damages[0])
            reader.give_up(tag)
    raise Damaged(f"{reader.root}: {_TRIES_MAX} damaged tags, one after the other")


def _agree(reader: PawlReader, group: dist.ProcessGroup | None) -> str | None:
    """The newest tag as the group's first rank sees it."""
    if not dist.is_available() or not dist.is_initialized():
        return reader.newest()
    first = dist.get_rank(group) == 0
    tags = [reader.newest() if first else None]
    dist.broadcast_object_list(tags, group=group, group_src=0)
    return tags[0]


def _tag_of(checkpoint_id: str | os.PathLike[str] | None, root: str) -> str | None:
    """A checkpoint id is a tag, or the path of a tag under root."""
    if not checkpoint_id:
        return None
    path = os.fspath(checkpoint_id)
    parent, tag = os.path.split(path if is_bucket(path) else os.path.abspath(path))
    return tag if "/" in path and parent == root else path


def _box(item: WriteItem, tensor: torch.Tensor) -> Shard:
    """Shape of the tensor that an item is a part of, and the part's first element."""
    if item.tensor_data is None:
        return tuple(tensor.shape), (0,) * tensor.dim()
    return tuple(item.tensor_data.size), tuple(item.tensor_data.chunk.offsets)


def _label(index: MetadataIndex, taken: Mapping[str, Any]) -> str:
    """The name under which `torch.load` of the partition shows an item."""
    if index.fqn not in taken or index.offset is None:
        return index.fqn
    return f"{index.fqn}@{','.join(map(str, index.offset))}"


def _resolve(planner: SavePlanner, item: WriteItem) -> torch.Tensor:
    """An item's data: a contiguous tensor that is most of its storage."""
    data = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        assert isinstance(data, io.BytesIO)
        return torch.frombuffer(bytearray(data.getvalue()), dtype=torch.uint8)
    assert isinstance(data, torch.Tensor)
    tensor = data.detach().contiguous().resolve_conj().resolve_neg()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
