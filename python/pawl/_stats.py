"""What a process group did, and where the time went: ``group.stats()``. See docs/distributed.md."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from pawl import _coll, _core


@dataclass(frozen=True)
class KindStats:
    """Operations of a kind that are done, and well.

    ``seconds`` is from submit to done, summed over them, and is the sum of the six behind it.
    Several may be under way at a time, beside the computation: what that waited is ``blocked``.
    """

    count: int
    bytes: int  # of the vector, or block, of each
    blocked: float  # s that threads waited for them
    seconds: float
    queued: float  # s: behind others on their channel
    idle: float  # s: nobody moved bytes
    late: float  # s: until the last rank that this one exchanges bytes with had begun
    network: float  # s: then until the last byte from or to another host
    memory: float  # s: then until done
    adding: float  # s: meanwhile, and not in the two before: adding parts of 16 KiB or more

    def __sub__(self, earlier: KindStats) -> KindStats:
        return KindStats(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))


@dataclass(frozen=True)
class PeerStats:
    """Between this rank and another one."""

    sent: int  # bytes of operations that are done
    received: int  # bytes
    sending: float  # s: that it was its turn to be sent to; only of other hosts
    last: int  # collectives for which it was the last to begin, of those exchanged with
    late: float  # s that this rank waited then, since it had begun itself

    def __sub__(self, earlier: PeerStats) -> PeerStats:
        return PeerStats(*(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True)))


@dataclass(frozen=True)
class Stats:
    """Since the group began; ``later - earlier``: between two."""

    clock: float  # s: CLOCK_MONOTONIC; of a difference, the time between the two
    kinds: dict[str, KindStats]  # by name, as in messages; those that were done
    peers: tuple[PeerStats, ...]  # by rank; then servers

    def __sub__(self, earlier: Stats) -> Stats:
        kinds = {k: v - earlier.kinds.get(k, _NONE) for k, v in self.kinds.items()}
        return Stats(
            self.clock - earlier.clock,
            {k: v for k, v in kinds.items() if v.count or v.blocked},
            tuple(p - e for p, e in zip(self.peers, earlier.peers, strict=True)),
        )


_NONE = KindStats(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def take(group: _core.Group) -> Stats:
    """Of a group, now."""
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
