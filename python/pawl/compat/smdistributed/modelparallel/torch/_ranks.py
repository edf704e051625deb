"""SMP's ranks, groups and messages. Of its groups, TP is this rank alone: its degree is 1."""

from __future__ import annotations

import enum
import pickle
from typing import Any

import torch
import torch.distributed as dist

from pawl import _core
from pawl.errors import error
from pawl.pipeline import _state


class RankType(enum.Enum):
    """What the number of a rank counts."""

    WORLD_RANK = "world"
    MP_RANK = "pp"  # model parallel: the ranks of a pipeline, since tensor parallelism is 1
    PP_RANK = "pp"
    TP_RANK = "tp"
    DP_RANK = "dp"
    RDP_RANK = "dp"


class CommGroup(enum.Enum):
    """Groups of ranks."""

    WORLD = "world"
    MP_GROUP = "pp"
    PP_GROUP = "pp"
    TP_GROUP = "tp"
    DP_GROUP = "dp"
    RDP_GROUP = "dp"


_groups: dict[str, Any] = {}  # torch's groups of this rank, by kind


def make_groups() -> None:
    """Makes torch's groups. All ranks call it, after pawl.pipeline.init."""
    _groups.clear()
    if not dist.is_initialized():
        dist.init_process_group("pawl", store=dist.HashStore(), rank=0, world_size=1)
    world = _state.world()
    for stage in range(world.stages):
        ranks = [world.number(stage, replica) for replica in range(world.replicas)]
        made = dist.new_group(ranks)
        if stage == world.stage:
            _groups["dp"] = made
    for replica in range(world.replicas):
        made = dist.new_group([world.number(stage, replica) for stage in range(world.stages)])
        if replica == world.replica:
            _groups["pp"] = made
    _groups["tp"] = dist.new_group([world.rank], use_local_synchronization=True)
    _groups["world"] = dist.group.WORLD


def members(kind: str) -> list[int]:
    """Ranks of this rank's group of a kind, in order."""
    world = _state.world()
    if kind == "world":
        return list(range(world.ranks))
    if kind == "tp":
        return [world.rank]
    if kind == "pp":
        return [world.number(stage, world.replica) for stage in range(world.stages)]
    return [world.number(world.stage, replica) for replica in range(world.replicas)]


def rank() -> int:
    """This rank's number."""
    return _state.world().rank


def size() -> int:
    """Number of ranks."""
    return _state.world().ranks


def pp_rank() -> int:
    """This rank's stage."""
    return _state.world().stage


def pp_size() -> int:
    """Number of stages."""
    return _state.world().stages


def dp_rank() -> int:
    """The number of this rank's pipeline."""
    return _state.world().replica


def dp_size() -> int:
    """Number of pipelines."""
    return _state.world().replicas


def tp_rank() -> int:
    """0."""
    _state.world()
    return 0


def tp_size() -> int:
    """1."""
    _state.world()
    return 1


mp_rank, mp_size = pp_rank, pp_size
rdp_rank, rdp_size = dp_rank, dp_size


def local_rank() -> int:
    """This rank's number on its host."""
    return int(_core.env()["local_rank"])


def local_size() -> int:
    """Number of ranks on this host."""
    return int(_core.env()["local_world"])


def _group(kind: str) -> Any:
    _state.world()
    return _groups[kind]


def get_world_process_group() -> Any:
    """torch's group of all ranks."""
    return _group("world")


def get_pp_process_group() -> Any:
    """torch's group of this rank's pipeline."""
    return _group("pp")


def get_dp_process_group() -> Any:
    """torch's group of the ranks with this rank's stage."""
    return _group("dp")


def get_tp_process_group() -> Any:
    """torch's group of this rank alone."""
    return _group("tp")


get_mp_process_group = get_pp_process_group
get_rdp_process_group = get_dp_process_group


def get_world_group() -> list[int]:
    """All ranks."""
    return members("world")


def get_pp_group() -> list[int]:
    """Ranks of this rank's pipeline."""
    return members("pp")


def get_dp_group() -> list[int]:
    """Ranks with this rank's stage."""
    return members("dp")


def get_tp_group() -> list[int]:
    """This rank."""
    return members("tp")


get_mp_group, get_rdp_group = get_pp_group, get_dp_group


# ---- messages: any object that can be pickled ----


def _number(index: int, kind: RankType) -> int:
    found = members(kind.value)
    if not 0 <= index < len(found):
        raise error("PAWL_EINVAL", f"smp: there is no {kind.name} {index}, of {len(found)}")
    return found[index]


def send(obj: Any, dest_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> None:
    """Sends an object to one rank, which calls recv_from."""
    _send(obj, _number(dest_rank, rank_type))


def _send(obj: Any, to: int) -> None:
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    dist.send(torch.tensor([len(data)]), to)
    dist.send(data, to)


def recv_from(src_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> Any:
    """What a rank sends to this one, or broadcasts. It is unpickled: trust the sender."""
    source = _number(src_rank, rank_type)
    length = torch.empty(1, dtype=torch.int64)
    dist.recv(length, source)
    data = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(data, source)
    return pickle.loads(data.numpy().tobytes())


def broadcast(obj: Any, group: CommGroup = CommGroup.WORLD) -> None:
    """Sends an object to all other ranks of a group, which call recv_from."""
    for other in members(group.value):
        if other != rank():
            _send(obj, other)


def allgather(obj: Any, group: CommGroup = CommGroup.WORLD) -> list[Any]:
    """The objects of all ranks of a group, in its order."""
    found = [None] * len(members(group.value))
    dist.all_gather_object(found, obj, group=_group(group.value))
    return found


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Waits for all ranks of a group."""
    if len(members(group.value)) > 1:
        dist.barrier(group=_group(group.value))


def dp_barrier() -> None:
    """Waits for the ranks with this rank's stage."""
    barrier(CommGroup.DP_GROUP)


def mp_barrier() -> None:
    """Waits for the ranks of this rank's pipeline."""
    barrier(CommGroup.MP_GROUP)


pp_barrier, rdp_barrier = mp_barrier, dp_barrier
