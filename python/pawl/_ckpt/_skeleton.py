"""Turns the object of one partition into torch's pickle and a list of storages.

The pickle is what torch.save writes (protocol 2, tensors as calls of torch._utils._rebuild_*,
storages by persistent id), so torch.load reads it. The storages' bytes are copied elsewhere.

Happy path: CPython's pickler writes the object with every tensor replaced by an 8-byte marker; the
stream is cut at the markers and torch's spelling of each tensor is put in. As long as a partition
keeps its structure, the spelling of the last save is used again, and when plain values are the same
too, the whole pickle. What is not a plain tensor (sparse, quantized, with attributes or a
conjugate bit, a bare storage ...) sends its partition to the slow path for good: torch's own
__reduce_ex__, tensor by tensor, every time.
"""

from __future__ import annotations

import io
import pickle
import re
import secrets
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import torch
from torch.serialization import location_tag

from pawl import _core
from pawl._ckpt import _remedy, _safe, _spell
from pawl._ckpt._paths import locate, tensor_names
from pawl._ckpt._shards import Shard
from pawl.errors import error

# A marker is an int of 8 bytes: the index of the tensor in the low three, secret bytes above. A
# number in the user's state is a marker only by a chance of 1 in 2^38, and only if it is this
# large.
_SECRET: Final = secrets.token_bytes(4) + bytes([0x40 | secrets.randbelow(0x40)])
_MARK: Final = int.from_bytes(b"\0\0\0" + _SECRET, "little")
_MARKER: Final = re.compile(rb"\x8a\x08(...)" + re.escape(_SECRET) + rb"Q", re.DOTALL)
_TENSORS_MAX: Final = 1 << 20  # tensors in one partition; also the file format's limit on storages

_ROW_NAME_MAX: Final = 511  # bytes of a name in the tensor table
_INT_LIMIT = 1 << 2039  # for larger ints pickle uses an opcode that the safe loader lacks
_BUILTINS: Final = frozenset({str, float, bool, type(None), dict, list, tuple, set, bytes})
_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter})
_PLAIN_DTYPES: Final = frozenset(_spell.STORAGE_NAMES) | frozenset(_spell.UNTYPED_DTYPES)
_COMPLEX: Final = frozenset({torch.complex32, torch.complex64, torch.complex128})

_REACHABLE: Final = frozenset({"cpu", "cuda"})  # kinds of device

_attributes = attrgetter("__dict__")
_dtype = attrgetter("dtype")
_requires_grad = attrgetter("requires_grad")
_on_cpu = attrgetter("is_cpu")
_identity = attrgetter("_cdata")


class Skeleton(NamedTuple):
    """A partition in the form that a save takes."""

    pickle: bytes  # data.pkl of the torch zip
    table: bytes  # names, dtypes and shapes, encoded by _core.encode_tensors
    storages: list[torch.UntypedStorage]  # by key "0", "1", ...; in host or CUDA memory
    names: list[str]  # a path inside the partition for each storage
    tensors: Sequence[torch.Tensor | None]  # a tensor on each storage, for its version counter
    # Address and bytes of each, where not whole storages.
    places: Sequence[tuple[int, int]] | None = None


class _NotPlain(Exception):
    """Something in the partition needs torch's own pickling."""


class _Refused(Exception):
    """obj cannot be saved, because it ... why; unsafe: only because loading it runs code."""

    def __init__(self, obj: Any, why: str, unsafe: bool = False) -> None:
        super().__init__(why)
        self.obj = obj
        self.why = why
        self.unsafe = unsafe


class _Pickler(pickle.Pickler):
    """Writes a marker for each tensor and refuses objects that the safe loader would refuse."""

    def __init__(self, stream: io.BytesIO, trust: bool) -> None:
        super().__init__(stream, 2)
        self.trust = trust
        self.tensors: list[torch.Tensor] = []  # in the order of their markers

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in _BUILTINS:
            return None
        if kind in _PLAIN:
            tensors = self.tensors
            tensors.append(obj)
            return _MARK + len(tensors) - 1
        if kind is int:
            if not -_INT_LIMIT < obj < _INT_LIMIT:
                self.refuse_int(obj)
        elif isinstance(obj, _spell.TENSOR_LIKE):
            raise _NotPlain
        return None

    def refuse_int(self, value: int) -> None:
        if not self.trust:
            raise _Refused(value, "is an int of more than 255 bytes", unsafe=True)

    def reducer_override(self, obj: Any) -> Any:
        if not self.trust and _safe.is_unsafe(obj):
            raise _Refused(obj, f"is a {_safe.full_name(_class_of(obj))}", unsafe=True)
        return NotImplemented


class _TorchPickler(_Pickler):
    """Writes storages by persistent id and leaves tensors to torch, as torch.save does."""

    def __init__(self, stream: io.BytesIO, trust: bool) -> None:
        super().__init__(stream, trust)
        self.keys: dict[int, int] = {}  # identity of a storage -> key
        self.storages: list[torch.UntypedStorage] = []
        self.dtypes: list[torch.dtype] = []  # dtype as which each storage was written first

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in _BUILTINS:
            return None
        if kind is int:
            if not -_INT_LIMIT < obj < _INT_LIMIT:
                self.refuse_int(obj)
        elif isinstance(obj, torch.Tensor):
            self.check_tensor(obj, kind)
            self.tensors.append(obj)
        elif isinstance(obj, _spell.TENSOR_LIKE):
            return self.storage_id(obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            try:
                return obj.__reduce_ex__(2)
            except Exception as reason:  # torch raises several kinds of exceptions
                raise _Refused(obj, f"cannot be stored by torch: {reason}") from reason
        return super().reducer_override(obj)

    def check_tensor(self, tensor: torch.Tensor, kind: type) -> None:
        why = _spell.unsaveable(tensor)
        if why is not None:
            raise _Refused(tensor, why)
        if kind not in _PLAIN and not self.trust and not _safe.allows_class(kind):
            raise _Refused(tensor, f"is a {_safe.full_name(kind)}", unsafe=True)

    def storage_id(self, obj: Any) -> tuple[str, Any, str, str, int]:
        storage, dtype, kind, numel = _spell.describe_storage(obj)
        key = self.keys.setdefault(storage._cdata, len(self.keys))
        if key == len(self.storages):
            self.storages.append(storage)
            self.dtypes.append(dtype)
        elif self.dtypes[key] != dtype:
            raise _Refused(
                self.tensors[-1] if self.tensors else obj,
                f"sees as {dtype} the memory that another tensor sees as {self.dtypes[key]}, "
                "which torch cannot store beside tensors of special kinds",
            )
        return ("storage", kind, str(key), location_tag(storage), numel)


class Partition:
    """Makes the skeletons of one partition and keeps the parts that the next save can use again."""

    def __init__(self, name: str, trust: bool) -> None:
        self._name = name
        self._trust = trust
        self._slow = False  # True: something in it is not a plain tensor
        self._placeholder = b""  # the last stream, with markers
        # The last stream, cut at the markers: piece, index, piece, index, ... piece.
        self._pieces: list[bytes] = []
        self._columns: _spell.Columns | None = None  # properties that the spelling was made from
        self._boxes: list[Shard | None] = []  # one a marker; an empty list if nothing is sharded
        self._spelled: list[bytes] = []  # one a marker
        self._pickle = b""
        self._table = b""
        self._names: list[str] = []  # one a storage

    def build(self, value: Any, shards: Mapping[int, Shard] | None = None) -> Skeleton:
        """The skeleton of value. shards: id of a tensor in it -> which box of a whole it is.

        Raises PawlError naming the object that cannot be saved, and its place.
        """
        shards = shards or {}
        try:
            if not self._slow:
                try:
                    return self._build_fast(value, shards)
                except _NotPlain:
                    self._slow = True
            return self._build_slow(value, shards)
        except _Refused as refused:
            raise self._refusal(value, refused) from None

    def _refusal(self, value: Any, refused: _Refused) -> Exception:
        where = f"state[{self._name!r}]" + (locate(value, refused.obj) or "")
        remedy = ""
        if refused.unsafe:
            trusted = self._why_not_trusted(value)
            remedy = _remedy.for_unsafe(refused.obj, refused.obj is not value, trusted)
        return error("PAWL_ENOTSUP", f"{where} {refused.why}{remedy}")

    def _why_not_trusted(self, value: Any) -> str | None:
        """Why trust=True would not save the partition either; None: it would."""
        try:
            Partition(self._name, trust=True).build(value)
        except Exception as reason:  # any exception would be raised then, too
            return str(reason)
        return None

    def _dump(self, pickler: _Pickler, value: Any) -> None:
        try:
            pickler.dump(value)
        except (_NotPlain, _Refused):
            raise
        except Exception as reason:  # a user's __reduce__ may raise anything
            raise error(
                "PAWL_ENOTSUP", f"state[{self._name!r}] cannot be pickled: {reason}"
            ) from reason

    def _build_fast(self, value: Any, shards: Mapping[int, Shard]) -> Skeleton:
        stream = io.BytesIO()
        pickler = _Pickler(stream, self._trust)
        self._dump(pickler, value)
        placeholder = stream.getvalue()
        tensors = pickler.tensors
        columns, storages, firsts = _columns(tensors)
        boxes = [shards.get(id(tensor)) for tensor in tensors] if shards else []
        same = columns == self._columns and boxes == self._boxes
        self._boxes = boxes
        if not same or placeholder != self._placeholder:
            self._respell(value, tensors, columns, placeholder, same)
        hosts = storages if columns.places is None else _reachable(storages)
        on = tensors if firsts is None else [tensors[i] for i in firsts]
        return Skeleton(self._pickle, self._table, hosts, self._names, on)

    def _respell(
        self,
        value: Any,
        tensors: list[torch.Tensor],
        columns: _spell.Columns,
        placeholder: bytes,
        same: bool,
    ) -> None:
        pieces = _MARKER.split(placeholder)
        marks = b"".join(pieces[1::2])
        if marks != b"".join([i.to_bytes(3, "little") for i in range(len(tensors))]):
            raise _NotPlain  # a number of the user's looks like a marker
        if not same or columns.objects is not None:  # the memo's size may have changed
            self._spelled = _spell.spell(columns, len(placeholder))
        # Names stand before their tensors: the text after the last tensor cannot change one.
        if not same or pieces[:-1] != self._pieces[:-1]:
            self._table, self._names = _describe(self._name, value, tensors, columns, self._boxes)
        self._pieces = pieces
        whole = pieces.copy()
        whole[1::2] = self._spelled
        self._pickle = b"".join(whole)
        self._placeholder = placeholder
        self._columns = columns

    def _build_slow(self, value: Any, shards: Mapping[int, Shard]) -> Skeleton:
        stream = io.BytesIO()
        pickler = _TorchPickler(stream, self._trust)
        self._dump(pickler, value)
        storages = pickler.storages
        named = tensor_names(value, self._name)
        rows = []
        names = [f"storage {key}" for key in range(len(storages))]
        on: list[torch.Tensor | None] = [None] * len(storages)
        for tensor in pickler.tensors:
            key = pickler.keys.get(_spell.storage_identity(tensor), -1)
            if key < 0:
                continue
            name = named.get(id(tensor), "")
            if not name and on[key] is not None:
                continue  # a parameter's data, listed as the parameter before
            row = _spell.row(name or names[key], tensor, key)
            rows.append((*row, *shards.get(id(tensor), ())))
            if on[key] is None:
                on[key] = tensor
                names[key] = name or names[key]
        return Skeleton(
            stream.getvalue(), _encode(self._name, rows), _reachable(storages), names, on
        )


def _columns(
    tensors: list[torch.Tensor],
) -> tuple[_spell.Columns, list[torch.UntypedStorage], list[int] | None]:
    """The properties of plain tensors that the pickle holds, a list each (so that
    the work per tensor is C).

    Then the distinct storages, and the index of the first tensor on each (None: tensor i lies on
    storage i). Raises _NotPlain if a tensor is of a special kind.
    """
    if len(tensors) > _TENSORS_MAX:
        raise error("PAWL_ENOTSUP", f"a partition of more than {_TENSORS_MAX} tensors")
    try:
        storages = list(map(torch.Tensor.untyped_storage, tensors))
        shapes = list(map(torch.Tensor.size, tensors))
        strides = list(map(torch.Tensor.stride, tensors))
        offsets = list(map(torch.Tensor.storage_offset, tensors))
    except (RuntimeError, NotImplementedError):  # sparse, nested, opaque
        raise _NotPlain from None
    dtypes = list(map(_dtype, tensors))
    if (
        not _PLAIN_DTYPES.issuperset(dtypes)
        or any(map(_attributes, tensors))
        or any(map(torch.Tensor.is_neg, tensors))
        or (not _COMPLEX.isdisjoint(dtypes) and any(map(torch.Tensor.is_conj, tensors)))
    ):
        raise _NotPlain
    keys, firsts = _number(list(map(_identity, storages)))
    distinct = storages if firsts is None else [storages[i] for i in firsts]
    places = None if all(map(_on_cpu, tensors)) else list(map(location_tag, distinct))
    if places is not None and "meta" in places:
        raise _NotPlain
    columns = _spell.Columns(
        list(map(type, tensors)),
        dtypes,
        shapes,
        strides,
        offsets,
        list(map(_requires_grad, tensors)),
        _number(list(map(id, tensors)))[0],
        keys,
        list(map(torch.UntypedStorage.nbytes, distinct)),
        places,
    )
    return columns, distinct, firsts


def _number(identities: list[int]) -> tuple[list[int] | None, list[int] | None]:
    """Consecutive numbers for distinct identities, and the first index of each;
    None: all differ.
    """
    if len(set(identities)) == len(identities):
        return None, None
    numbers: dict[int, int] = {}
    firsts: list[int] = []
    for index, identity in enumerate(identities):
        if numbers.setdefault(identity, len(numbers)) == len(firsts):
            firsts.append(index)
    return [numbers[identity] for identity in identities], firsts


def _describe(
    partition: str,
    value: Any,
    tensors: list[torch.Tensor],
    columns: _spell.Columns,
    boxes: list[Shard | None],
) -> tuple[bytes, list[str]]:
    """The tensor table, and a name for each storage."""
    keys = columns.keys
    named = tensor_names(value, partition)
    names: list[str] = []
    rows = []
    for index, tensor in enumerate(tensors):
        key = index if keys is None else keys[index]
        name = named.get(id(tensor), f"tensor {index}")
        box = boxes[index] if boxes else None
        rows.append((*_spell.row(name, tensor, key), *(box or ())))
        if key == len(names):
            names.append(name)
    return _encode(partition, rows), names


def _encode(partition: str, rows: list[Any]) -> bytes:
    """The tensor table. A restore finds shards by its rows, so their names must be distinct."""
    sharded = [row[0] for row in rows if len(row) > 5]
    if len(set(sharded)) < len(sharded) or any(len(n.encode()) > _ROW_NAME_MAX for n in sharded):
        raise error(
            "PAWL_ENOTSUP",
            f"state[{partition!r}]: two sharded tensors have the same path, written with dots, or "
            f"one of more than {_ROW_NAME_MAX} bytes",
        )
    return _core.encode_tensors(rows)


def _reachable(storages: list[torch.UntypedStorage]) -> list[torch.UntypedStorage]:
    """The storages, copied to host memory if they are on devices that the library cannot reach."""
    return [s if s.device.type in _REACHABLE else s.cpu() for s in storages]


def _class_of(obj: Any) -> Any:
    """The class to name in a refusal: obj itself if it is a class or function, else its class."""
    return obj if isinstance(obj, type) or hasattr(obj, "__qualname__") else type(obj)
