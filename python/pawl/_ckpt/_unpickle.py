"""Reads the pickle of a partition, without running code from it unless the user trusts the file.

The safe way is torch's own unpickler for weights, which builds tensors and plain values and calls
nothing that is not on a list. Storages are allocated, but need not be filled before: a tensor that
is about to be copied into live memory never touches its own.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import _weights_only_unpickler as weights_only
from torch._utils import _validate_loaded_sparse_tensors
from torch.serialization import StorageType, _maybe_decode_ascii

from pawl._ckpt import _safe
from pawl.errors import PawlError, error

# Functions that rebuild a tensor without reading its contents, unlike those of
# quantized or nested ones.
_LAZY: Final = frozenset({b"_rebuild_tensor_v2", b"_rebuild_tensor_v3", b"_rebuild_parameter"})
_REBUILD: Final = re.compile(rb"_rebuild_\w+")
_LINE_MAX: Final = 200  # characters that are repeated of another library's message

Fetch = Callable[[int], torch.UntypedStorage]  # key -> storage, the same one every time
# Moves a storage to its device tag.
Place = Callable[[torch.UntypedStorage, str], torch.UntypedStorage]


def reads_contents(pickled: bytes, trust: bool) -> bool:
    """Whether storages must be filled before unpickle, rather than any time after."""
    return trust or not _LAZY.issuperset(_REBUILD.findall(pickled))


def unpickle(
    pickled: bytes,
    sizes: Sequence[int],
    fetch: Fetch,
    where: str,
    trust: bool,
    place: Place | None = None,
) -> Any:
    """The object of a pickle whose checksum was right. sizes: bytes of each storage. place None:
    everything stays in host memory.

    Raises PawlError: PAWL_ENOTSUP naming the class or function that the safe loader refuses, or why
    the pickle cannot be loaded here, such as a module that is missing or memory that is full;
    PAWL_ECORRUPT only if its storages are not those of the file. The caller puts a checkpoint
    aside on PAWL_ECORRUPT, so an error that may be this process's own fault never has that code.
    """
    used: dict[int, torch.UntypedStorage] = {}
    load = _persistent_load(sizes, fetch, where, place, used)
    try:
        if trust:
            value = _TrustingUnpickler(io.BytesIO(pickled), load).load()
        else:
            with _safe.extended_globals():
                value = _SafeUnpickler(io.BytesIO(pickled), load).load()
        _validate_loaded_sparse_tensors()
    except PawlError:
        raise
    except Exception as reason:
        if isinstance(reason, pickle.UnpicklingError) and not trust:
            what = str(reason).split(". ")[0].splitlines()[0].rstrip(".")
            raise error(
                "PAWL_ENOTSUP",
                f"{where} is refused: {what}. Loading it would run code from the file, which "
                "trust=True allows",
            ) from reason
        raise error(
            "PAWL_ENOTSUP",
            f"{where} is intact, but cannot be loaded here: {_first_line(reason)}",
        ) from reason
    if any(storage.nbytes() != sizes[key] for key, storage in used.items()):
        raise error("PAWL_ECORRUPT", f"{where}: data.pkl: a tensor is larger than its storage")
    return value


def _first_line(reason: Exception) -> str:
    """The exception's name and the beginning of its message: torch lists pages of kernels."""
    lines = str(reason).splitlines() or [""]
    return f"{type(reason).__name__}: {lines[0][:_LINE_MAX]}"


def _persistent_load(
    sizes: Sequence[int],
    fetch: Fetch,
    where: str,
    place: Place | None,
    used: dict[int, torch.UntypedStorage],
) -> Callable[[Any], Any]:
    """The unpickler's access to storages; those it handed out stand in used, by key."""

    def load(saved_id: Any) -> Any:
        tag, kind, name, location, numel = saved_id
        if _maybe_decode_ascii(tag) != "storage":
            raise error("PAWL_ECORRUPT", f"{where}: data.pkl: persistent id {tag!r}")
        dtype = torch.uint8 if kind is torch.UntypedStorage else kind.dtype
        key = int(_maybe_decode_ascii(name))
        if not 0 <= key < len(sizes) or numel * dtype.itemsize != sizes[key]:
            raise error(
                "PAWL_ECORRUPT",
                f"{where}: data.pkl: storage {key} of {numel} x {dtype} is not what the file holds",
            )
        storage = used.get(key)
        if storage is None:
            storage = fetch(key)
            if place is not None:
                storage = place(storage, _maybe_decode_ascii(location))
            used[key] = storage
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    return load


class _SafeUnpickler(weights_only.Unpickler):
    """torch's safe unpickler, which takes only names on its list (extended by _safe)."""

    def __init__(self, stream: io.BytesIO, load: Callable[[Any], Any]) -> None:
        super().__init__(stream, encoding="utf-8")
        self._load_storage = load

    def persistent_load(self, saved_id: Any) -> Any:
        return self._load_storage(saved_id)


class _TrustingUnpickler(pickle.Unpickler):
    """Python's own unpickler, with torch's names for storages."""

    def __init__(self, stream: io.BytesIO, load: Callable[[Any], Any]) -> None:
        super().__init__(stream, encoding="utf-8")
        self._load_storage = load

    def persistent_load(self, saved_id: Any) -> Any:
        return self._load_storage(saved_id)

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            try:
                return StorageType(name)
            except KeyError:
                pass  # TypedStorage and UntypedStorage are real classes
        return super().find_class(module, name)
