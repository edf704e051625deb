"""The ranks of pipelines: which pipeline and which stage this process is, and its groups.

Consecutive ranks form a pipeline, or those of equal distance. All pipelines are replicas of each
other: the ranks with the same stage average their gradients.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pawl import _core
from pawl._group import _process_group, _rendezvous
from pawl._group._meeting import exchange, meeting_place
from pawl._times import seconds
from pawl.errors import error

_TIMEOUT = timedelta(minutes=30)


class World:
    """This process among all ranks. Groups of one rank are None.

    ``stage``: this rank's number in its pipeline, of ``stages``; ``replica``: the number of its
    pipeline, of ``replicas``.
    """

    _made = 0  # worlds so far; the same number at all ranks

    def __init__(self, stages: int, spread: bool = False) -> None:
        _join()
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        rank = dist.get_rank() if dist.is_initialized() else 0
        if stages < 1 or ranks % stages != 0:
            raise error(
                "PAWL_EINVAL",
                f"pipeline: {ranks} ranks do not divide into pipelines of {stages} stages; start "
                f"a multiple of {stages}, or say pp.init(stages=...) with a divisor of {ranks}",
            )
        World._made += 1
        self.rank, self.ranks, self.stages = rank, ranks, stages
        self.replicas = ranks // stages
        self.spread = spread
        if spread:
            self.stage, self.replica = rank // self.replicas, rank % self.replicas
        else:
            self.stage, self.replica = rank % stages, rank // stages
        self.everyone = self._group("all", rank, ranks)
        self.pipeline = self._group(f"pipeline/{self.replica}", self.stage, stages)
        self.copies = self._group(f"stage/{self.stage}", self.replica, self.replicas)
        self._channel = self._channel_of(f"channel/{self.replica}")
        self.channel = _core.Stage(self._channel)

    def _store(self, name: str) -> Any:
        store = dist.distributed_c10d._get_default_store()
        return dist.PrefixStore(f"pawl-pipeline/{World._made}/{name}/", store)

    def _group(self, name: str, rank: int, ranks: int) -> Any:
        if ranks == 1:
            return None
        return _process_group.make(self._store(name), rank, ranks, _TIMEOUT)

    def _channel_of(self, name: str) -> _core.Group | None:
        """The group that calls and values pass through."""
        if self.stages == 1:
            return None
        store = self._store(name)
        group = _core.Group(self.stage, self.stages, meeting_place(store))
        endpoints = exchange(store, self.stage, self.stages, group.card, _TIMEOUT)
        group.join(endpoints, seconds("torch_join"))
        return group

    def number(self, stage: int, replica: int) -> int:
        """The rank that has a stage of a pipeline."""
        return stage * self.replicas + replica if self.spread else replica * self.stages + stage

    def broadcast(self, data: bytes | None) -> bytes:
        """Rank 0's bytes, at all ranks."""
        if self.everyone is None:
            assert data is not None
            return data
        length = torch.tensor([len(data) if data is not None else 0])
        self.everyone.broadcast([length], _from_first()).wait()
        buffer = torch.empty(int(length), dtype=torch.uint8)
        if data is not None and len(data) > 0:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if len(buffer) > 0:
            self.everyone.broadcast([buffer], _from_first()).wait()
        return buffer.numpy().tobytes()

    def gather(self, number: int) -> list[int]:
        """Each rank's number (64 bits, signed), at all ranks."""
        if self.everyone is None:
            return [number]
        mine = torch.tensor([number])
        found = [torch.empty_like(mine) for _ in range(self.ranks)]
        self.everyone.allgather([found], [mine]).wait()
        return [int(t) for t in found]

    def gather_bytes(self, data: bytes) -> list[bytes] | None:
        """What each stage of this pipeline passes, at its first stage."""
        if self.pipeline is None:
            return [data]
        length = torch.tensor([len(data)])
        if self.stage > 0:
            self.pipeline.send([length], 0, 2).wait()
            self.pipeline.send([torch.frombuffer(bytearray(data), dtype=torch.uint8)], 0, 2).wait()
            return None
        found = [data]
        for stage in range(1, self.stages):
            self.pipeline.recv([length], stage, 2).wait()
            buffer = torch.empty(int(length), dtype=torch.uint8)
            self.pipeline.recv([buffer], stage, 2).wait()
            found.append(buffer.numpy().tobytes())
        return found

    def meet(self) -> None:
        """Waits until all ranks of this pipeline have come."""
        if self.pipeline is not None:
            self.pipeline.barrier(dist.BarrierOptions()).wait()

    def leave(self) -> None:
        """Leaves all groups; the other ranks are notified. Nothing works afterwards."""
        self.channel.leave()
        for group in (self.copies, self.pipeline, self.everyone):
            if group is not None:
                group.shutdown()

    def close(self) -> None:
        """Leaves, and releases what this process has."""
        self.leave()
        self.channel.close()


def _from_first() -> Any:
    options = dist.BroadcastOptions()
    options.rootRank = 0
    return options


def _join() -> None:
    """Joins torch's default group, unless this process has one, or was started alone."""
    if dist.is_initialized():
        return
    _rendezvous.set_variables()
    if _core.env()["source"] != "none":
        dist.init_process_group("pawl")
