"""Tensors of which each rank holds a part: DTensor, as FSDP2 and tensor parallelism use it.

A DTensor is pickled as the plain tensor of this rank's part, so that torch.load reads it without
Pawl and without the other ranks. The tensor table says which box of the whole it is; from there any
other split is assembled (Restore.reshard). Of a part that several ranks hold alike, the first of
these ranks saves the bytes, and the others an empty tensor.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

from pawl._ckpt._paths import locate
from pawl.errors import error

Shape = tuple[int, ...]
Shard = tuple[Shape, Shape]  # shape of the whole, first element of the box


def is_dtensor(value: Any) -> bool:
    """Whether value is a DTensor; does not import DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor; any other tensor itself."""
    return tensor._local_tensor if is_dtensor(tensor) else tensor


def box_of(tensor: torch.Tensor) -> Shard:
    """First element, and shape, of the box that this rank holds. Raises ValueError
    if it is not one box.
    """
    if not is_dtensor(tensor):
        return (0,) * tensor.dim(), tuple(tensor.shape)
    chunks = tensor.__create_chunk_list__()  # type: ignore[attr-defined]
    if len(chunks) != 1 or chunks[0].sizes != local_of(tensor).shape:
        raise ValueError("its part on this rank is not one box of it")
    return tuple(chunks[0].offsets), tuple(chunks[0].sizes)


def take_apart(partition: str, value: Any) -> tuple[Any, dict[int, Shard]]:
    """value with a plain tensor in place of each DTensor, and the box of each of these, by id.

    Raises PawlError (PAWL_ENOTSUP) naming a DTensor that cannot be saved.
    """
    shards: dict[int, Shard] = {}
    if "torch.distributed.tensor" not in sys.modules or not any(map(is_dtensor, _leaves(value))):
        return value, shards
    made: dict[int, Any] = {}  # by id of the original, so that ties and cycles stay

    def walk(item: Any) -> Any:
        if id(item) in made:
            return made[id(item)]
        if is_dtensor(item):
            try:
                made[id(item)] = _part(item, shards)
            except Exception as reason:  # partial sums, or a layout that torch cannot describe
                where = f"state[{partition!r}]" + (locate(value, item) or "")
                raise error("PAWL_ENOTSUP", f"{where} is a DTensor: {reason}") from reason
        elif type(item) in (dict, OrderedDict):
            # Copies attributes, too: a state_dict's _metadata.
            new = made[id(item)] = copy.copy(item)
            new.update((key, walk(inner)) for key, inner in item.items())
        elif type(item) is list:
            made[id(item)] = new = []
            new.extend(map(walk, item))
        elif type(item) is tuple:
            return tuple(map(walk, item))
        else:
            return item
        return made[id(item)]

    return walk(value), shards


def _leaves(value: Any) -> Iterator[Any]:
    """The leaves of nested dicts, lists and tuples."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) not in (dict, OrderedDict, list, tuple):
            yield item
        elif id(item) not in seen:
            seen.add(id(item))
            stack.extend(item.values() if isinstance(item, dict) else item)


def _part(tensor: Any, shards: dict[int, Shard]) -> torch.Tensor:
    """The tensor that this rank saves of a DTensor."""
    start, _ = box_of(tensor)
    local = local_of(tensor).detach()
    if local.dim() and not _is_first(tensor):  # a single number is saved by every rank
        local = local.new_empty((0, *local.shape[1:]))
        start = (0,) * local.dim()
    local = local.contiguous()
    shards[id(local)] = (tuple(tensor.shape), start)
    return local


def _is_first(tensor: Any) -> bool:
    """Whether no rank before this one holds the same part."""
    where = tensor.device_mesh.get_coordinate()
    if where is None:
        return False
    pairs = zip(tensor.placements, where, strict=True)
    return all(coordinate == 0 for placement, coordinate in pairs if placement.is_replicate())


def assemble(like: Any, local: torch.Tensor) -> torch.Tensor:
    """A DTensor laid out as like, of this part."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
