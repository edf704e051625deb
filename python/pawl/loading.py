"""pawl.load: whole partitions of a checkpoint as new objects, for tools and notebooks."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch.serialization import _get_restore_location

from pawl import _core
from pawl._ckpt._mounts import root_name
from pawl._ckpt._unpickle import Place, unpickle
from pawl.errors import error

MapLocation = (
    Callable[[torch.UntypedStorage, str], torch.UntypedStorage]
    | torch.device
    | str
    | dict[str, str]
    | None
)


def load(
    root: str | os.PathLike[str],
    step: int | None = None,
    partition: str | None = None,
    map_location: MapLocation = None,
    trust: bool = False,
) -> Any:
    """Loads the newest complete checkpoint under ``root``, or that of ``step``, verified.

    Returns a dict partition -> object, or the object of ``partition``. A partition that each of
    several ranks saved for itself is called ``"rng-rank0"``, ``"rng-rank1"``, ..., as its file is.
    ``map_location`` is that of ``torch.load``; None: tensors go to the device they were on.

    Raises PawlError: PAWL_ENOENT (no such checkpoint or partition), PAWL_ECORRUPT naming file and
    offset, PAWL_ENOTSUP naming the object that would run code from the file, which ``trust=True``
    allows.
    """
    path = root_name(root)
    found = _core.open_root(path, step)
    try:
        names = _names(found)
        if partition is None:
            chosen = list(names)
        elif partition in names:
            chosen = [partition]
        else:
            raise error(
                "PAWL_ENOENT",
                f"{path}/{found.tag} has no partition {partition!r}: it has {', '.join(names)}",
            )
        found.read([names[name] for name in chosen])
        place = _get_restore_location(map_location)
        values = {
            name: load_part(found, names[name], f"{found.tag}/{name}", place, trust)
            for name in chosen
        }
    finally:
        found.close()
    return values if partition is None else values[partition]


def _names(found: _core.Restore) -> dict[str, int]:
    """Name, with the rank where several ranks have one of their own, -> index."""
    names = {}
    for index, (name, rank, _) in enumerate(found.parts):
        names[name if rank < 0 or found.world == 1 else f"{name}-rank{rank}"] = index
    return names


def load_part(
    found: _core.Restore, index: int, where: str, place: Place | None, trust: bool
) -> Any:
    """The object of a partition that was read. where: for messages; place: see unpickle."""
    sizes = found.storages(index)
    storages = [torch.UntypedStorage(size) for size in sizes]
    spec = array("Q")
    for key, storage in enumerate(storages):
        if sizes[key]:
            spec.extend((index, key, 0, storage.data_ptr(), sizes[key]))
    found.copy(spec)
    return unpickle(found.pickle(index), sizes, storages.__getitem__, where, trust, place)
