"""Which optimizer may change which memory, and the fence that makes it wait until that is copied.

A save returns before the bytes of parameters and optimizer tensors are copied. They are expected to
change in one place only: the step of their optimizer. torch calls a hook of ours before every step
of every optimizer of the process, and the hook waits until all memory that this optimizer may
change is copied. Each optimizer is one bit of a mask; a storage carries the bits of all optimizers
it belongs to.

A change of such memory elsewhere breaks the expectation; it is detected, not prevented: by the
kernel's watch, and here by the version counters of tensors not yet copied. That save is withdrawn.
Neither sees writes by another process: memory shared with one gets no bits, so that it is copied
before save returns. Memory of a CUDA device has only the fences and the version counters.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from pawl._ckpt import _graphs
from pawl._ckpt._shards import local_of
from pawl._ckpt._skeleton import Skeleton

log = logging.getLogger("pawl")

EVERYTHING: Final = (1 << 64) - 1  # mask of all optimizers
_OPTIMIZERS_MAX: Final = 63  # optimizers with a bit of their own; all later ones share bit 63
# Bytes; smaller storages are copied at once. CKPT_WATCH_MIN of src/ckpt/format/pieces.h.
WATCH_MIN: Final = 64 << 10
_NEVER: Final = 1 << 64  # bytes; larger than any storage

_version = attrgetter("_version")

_lock = threading.RLock()  # guards changes of the tables below; a signal's handler may save, too
_known: dict[int, tuple[weakref.ref[Optimizer], int]] = {}  # id -> optimizer, mask
_hooked = False

# Saves not known to be staged; the list is replaced, never changed in place.
_captures: list[Capture] = []


def install() -> None:
    """Puts the hook in place, once a process."""
    global _hooked
    with _lock:
        if _hooked:
            return
        hook: Callable[..., None] = _before_step
        shield = getattr(torch, "_disable_dynamo", None)
        if shield is not None:  # torch.compile must call the hook, not trace into it
            hook = shield(_before_step)
        register_optimizer_step_pre_hook(hook)
        for graphs in _graphs.classes():
            _graphs.install(fence_all, graphs)
        _hooked = True


def mask_of(optimizer: Optimizer) -> int:
    """The optimizer's bit, assigned at first use; the last bit is shared by all beyond the 63rd."""
    known = _known.get(id(optimizer))
    return known[1] if known is not None else _introduce(optimizer)


def _introduce(optimizer: Optimizer) -> int:
    identity = id(optimizer)
    with _lock:
        taken = 0
        for _, mask in _known.values():
            taken |= mask
        # The bit of a dead optimizer may be given again: at worst a fence waits for
        # more than it must.
        free = (bit for bit in range(_OPTIMIZERS_MAX) if not taken >> bit & 1)
        mask = 1 << next(free, _OPTIMIZERS_MAX)
        gone = weakref.ref(optimizer, lambda _: _known.pop(identity, None))
        _known[identity] = (gone, mask)
    return mask


def guarded() -> dict[int, int]:
    """Address of a storage -> mask of its optimizers, for all optimizers that were
    seen and still live.
    """
    masks: dict[int, int] = {}
    for reference, mask in list(_known.values()):
        optimizer = reference()
        if optimizer is not None:
            found = dict.fromkeys(_addresses(_tensors_of(optimizer)), mask)
            for address in masks.keys() & found.keys():
                found[address] |= masks[address]
            masks.update(found)
    return masks


def _tensors_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Parameters and state tensors."""
    params = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
    entries = [entry for entry in list(optimizer.state.values()) if isinstance(entry, dict)]
    values = itertools.chain.from_iterable(map(dict.values, entries))
    tensors = [*params, *(value for value in values if isinstance(value, torch.Tensor))]
    return list(map(local_of, tensors))


def _addresses(tensors: list[torch.Tensor]) -> Iterable[int]:
    try:
        storages = list(map(torch.Tensor.untyped_storage, tensors))
        return list(map(torch.UntypedStorage.data_ptr, storages))
    except (RuntimeError, NotImplementedError):  # a sparse tensor, for example: never watched
        found = []
        for tensor in tensors:
            try:
                found.append(tensor.untyped_storage().data_ptr())
            except (RuntimeError, NotImplementedError):
                continue
        return found


class Spans:
    """The storages of one partition: their memory, and the fences that guard it."""

    __slots__ = ("devices", "groups", "packed")

    def __init__(
        self, skeleton: Skeleton, masks: dict[int, int], watch: bool, evicted: set[str]
    ) -> None:
        """masks: see guarded(); empty: everything is copied at once. watch: the kernel watches host
        memory. evicted: names of storages that changed under a save; they are copied at once now.
        """
        storages = skeleton.storages
        owners = addresses = list(map(torch.UntypedStorage.data_ptr, storages))
        sizes = list(map(torch.UntypedStorage.nbytes, storages))
        if skeleton.places is not None:
            addresses = [address for address, _ in skeleton.places]
            sizes = [size for _, size in skeleton.places]
        devices = [0] * len(storages)
        if torch.cuda.is_initialized():
            devices = [s.device.index + 1 if s.is_cuda else 0 for s in storages]
        if masks:
            host_min = WATCH_MIN if watch else _NEVER
            groups = [
                masks.get(owner, 0) if device or size >= host_min else 0
                for owner, size, device in zip(owners, sizes, devices, strict=True)
            ]
            _clear_unwatchable(groups, devices, skeleton, evicted)
        else:
            groups = [0] * len(storages)
        self.devices = devices
        self.groups = groups
        self.packed = array("Q", bytes(32 * len(groups)))
        for column, values in enumerate((addresses, sizes, groups, devices)):
            self.packed[column::4] = array("Q", values)


Part = tuple[str, Skeleton, Spans]  # name, pickle and storages, memory


def queue_before_copies(parts: Iterable[Spans]) -> None:
    """Makes the default stream of each device wait for the stream in use; copies
    wait for the former.
    """
    if not torch.cuda.is_initialized():
        return
    for device in {number - 1 for spans in parts for number in spans.devices if number}:
        current = torch.cuda.current_stream(device)
        default = torch.cuda.default_stream(device)
        if current != default:
            default.wait_stream(current)


def _clear_unwatchable(
    groups: list[int], devices: list[int], skeleton: Skeleton, evicted: set[str]
) -> None:
    """Zeroes the groups of host memory that others may write unseen: processes, files, devices."""
    storages = skeleton.storages
    shared = list(map(torch.UntypedStorage.is_shared, storages))
    if any(shared):  # torch reports all CUDA memory as shared
        for index, others in enumerate(shared):
            if others and not devices[index]:
                groups[index] = 0
    if torch.cuda.is_initialized():
        for index, storage in enumerate(storages):
            if groups[index] and not devices[index] and storage.is_pinned():
                groups[index] = 0
    if evicted:
        for index, name in enumerate(skeleton.names):
            if name in evicted:
                groups[index] = 0


class Copying(Protocol):
    """The object that copies: a _core.Session, or a stand-in."""

    def status(self, id: int, /) -> Sequence[Any]: ...  # first: 0 while save id is being copied

    def fence(self, groups: int, /) -> None: ...

    def withdraw(self, id: int, part: int, storage: int, /) -> None: ...


_Watched = tuple[list[int], list[tuple[int, int]], list[torch.Tensor], list[int]]
_NOTHING: Final[_Watched] = ([], [], [], [])


class Capture:
    """A save on its way to staged: holds its memory, fences it, and checks version counters."""

    def __init__(self, parts: list[Part]) -> None:
        """Reads the version counters: to be made before the copy starts."""
        self._keepalive: Any = parts  # keeps all memory allocated until staged
        self._names = [(name, skeleton.names) for name, skeleton, _ in parts]
        self._session: Copying | None = None  # None: not started, or done
        self._id = -1
        # Held while counters are read; a snapshot thread reads them, too.
        self._lock = threading.RLock()
        masks: list[int] = []  # mask of each watched storage, in the order of the lists below
        where: list[tuple[int, int]] = []  # partition and storage of each
        tensors: list[torch.Tensor] = []
        for part, (_, skeleton, spans) in enumerate(parts):
            for storage, mask in enumerate(spans.groups):
                tensor = skeleton.tensors[storage]
                if mask and tensor is not None:
                    masks.append(mask)
                    where.append((part, storage))
                    tensors.append(tensor)
        self._watched: _Watched = (masks, where, tensors, _versions(tensors))  # replaced as a whole

    def started(self, session: Copying, save_id: int) -> None:
        """Makes the hook fence this save from now on."""
        global _captures
        self._session = session
        self._id = save_id
        if session.status(save_id)[0] == 0:
            with _lock:
                _captures = [*_captures, self]
        else:
            self._release()

    def name(self, part: int, storage: int) -> tuple[str, str]:
        """The partition of a storage, and the path in it of a tensor that lies there."""
        if not 0 <= part < len(self._names):
            return ("", "")
        partition, names = self._names[part]
        return (partition, names[storage] if 0 <= storage < len(names) else "")

    def fence(self, mask: int) -> None:
        """Waits until everything with a bit of mask is copied. Called before it is changed."""
        session = self._session  # another thread may see that the save is staged, and clear it
        if session is not None and self.is_staging():
            self._check(session, mask)
            session.fence(mask)
            self.is_staging()

    def is_staging(self) -> bool:
        """Whether memory is still being copied; releases it if not."""
        session = self._session
        if session is None:
            return False
        if session.status(self._id)[0] == 0:
            return True
        self.drop()
        return False

    def is_of(self, session: Copying, save_id: int) -> bool:
        """Whether this is the capture of that save."""
        return self._session is session and self._id == save_id

    def find_changed(self) -> tuple[int, int] | None:
        """Partition and storage of a tensor that was changed before a fence allowed
        it; None: none was.
        """
        with self._lock:
            _, where, tensors, versions = self._watched
            now = _versions(tensors)
            if now == versions:
                return None
            pairs = zip(where, versions, now, strict=True)
            return next(place for place, before, version in pairs if before != version)

    def _check(self, session: Copying, mask: int) -> None:
        """Withdraws the save if a tensor about to be fenced was changed already."""
        with self._lock:
            changed = self.find_changed()
            watched = self._watched
            open_ = [i for i, bits in enumerate(watched[0]) if not bits & mask]
            masks, where, tensors, versions = ([column[i] for i in open_] for column in watched)
            self._watched = (masks, where, tensors, versions)
        if changed is not None:
            session.withdraw(self._id, *changed)

    def drop(self) -> None:
        """Forgets the save: it is staged, or failed, or its session is closed."""
        global _captures
        if self._session is not None:
            with _lock:
                _captures = [capture for capture in _captures if capture is not self]
            self._release()

    def after_fork(self) -> None:
        """In the child: the snapshot thread, which may have held the lock, does not exist."""
        self._lock = threading.RLock()

    def _release(self) -> None:
        self._session = None
        self._keepalive = None
        self._watched = _NOTHING


def _versions(tensors: list[torch.Tensor]) -> list[int]:
    try:
        return list(map(_version, tensors))
    except RuntimeError:  # tensors made in inference mode have no counter
        return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]


def find_changed(session: Copying, save_id: int) -> tuple[int, int] | None:
    """Partition and storage of a tensor that was changed during a save; None: none was.

    Called when all of a save is copied of which some lay on a device, before the save counts. None
    also while save() has not returned.
    """
    captures = (capture for capture in _captures if capture.is_of(session, save_id))
    return next((capture.find_changed() for capture in captures), None)


def fence_all() -> None:
    """Waits until no save of this process reads live memory."""
    for capture in _captures:
        capture.fence(EVERYTHING)


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    known = _known.get(id(optimizer))
    if known is None:
        mask_of(optimizer)
    if _graphs.captures_step():
        return
    if _captures:
        # An optimizer never seen before may wrap another: it may change any memory.
        mask = EVERYTHING if known is None else known[1]
        for capture in _captures:
            capture.fence(mask)


def after_fork() -> None:
    """In the child nothing is being copied: snapshot threads stay with the parent."""
    global _captures, _lock
    for capture in _captures:
        capture.after_fork()
    _captures = []
    _lock = threading.RLock()
