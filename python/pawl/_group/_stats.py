"""Counters and times of a process group: ``group.stats()``. See docs/distributed.md."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from pawl import _core
from pawl._group import _coll


@dataclass(frozen=True)
class KindStats:
    """Operations of a kind that have succeeded.

    ``seconds`` is from submit to done, summed over the operations, and is the sum of queued, idle,
    late, network, memory and adding. Several may be under way at a time, beside the computation;
    ``blocked`` is the time that the computation waited.
    """

    count: int
    bytes: int  # sum of the operations' vectors, or blocks
    blocked: float  # s: threads waited for the operations
    seconds: float
    queued: float  # s: operations waited for others on their channel
    idle: float  # s: no bytes were moved
    late: float  # s: until the last rank that exchanges bytes with this one had begun
    network: float  # s: from there until the last byte from or to another host
    memory: float  # s: from there until done
    adding: float  # s: within these times, but counted here only: adding parts of 16 KiB or more

    def __sub__(self, earlier: KindStats) -> KindStats:
        return KindStats(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))


@dataclass(frozen=True)
class PeerStats:
    """Counters and times between this rank and another one."""

    sent: int  # bytes of operations that are done
    received: int  # bytes
    sending: float  # s: it was its turn to be sent to; only for other hosts
    last: int  # collectives in which it was the last to begin, of those exchanged with
    late: float  # s: this rank waited for it then, having begun itself

    def __sub__(self, earlier: PeerStats) -> PeerStats:
        return PeerStats(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))


@dataclass(frozen=True)
class Stats:
    """Counters and times since the group began; ``later - earlier`` is the difference of two."""

    clock: float  # s: CLOCK_MONOTONIC; of a difference, the time between the two
    kinds: dict[str, KindStats]  # by name, as in messages; only kinds that were used
    peers: tuple[PeerStats, ...]  # by rank; servers follow

    def __sub__(self, earlier: Stats) -> Stats:
        kinds = {k: v - earlier.kinds.get(k, _NONE) for k, v in self.kinds.items()}
        return Stats(
            self.clock - earlier.clock,
            {k: v for k, v in kinds.items() if v.count or v.blocked},
            tuple(p - e for p, e in zip(self.peers, earlier.peers, strict=True)),
        )


_NONE = KindStats(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def take(group: _core.Group) -> Stats:
    """The stats of a group as of now."""
    clock, kinds, peers = group.stats()
    return Stats(
        clock / 1e9,
        {
            name: KindStats(count, nbytes, blocked / 1e9, sum(ns) / 1e9, *(n / 1e9 for n in ns))
            for name, (count, nbytes, blocked, ns) in zip(_coll.KINDS, kinds, strict=True)
            if count or blocked
        },
        tuple(
            PeerStats(sent, received, sending / 1e9, last, late / 1e9)
            for sent, received, sending, last, late in peers
        ),
    )
