"""The history of a cluster (docs/format.md): which nodes there were, and who was on them when."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

VERSION: Final = 1
SLOTS_MAX: Final = 1024  # of a node, as the scheduler has it
NODES_MAX: Final = 16384  # likewise


@dataclass(frozen=True)
class Span:
    """That a node was there. Seconds."""

    lane: int  # row of the picture; no two nodes that are there at once share one
    begun: float
    ended: float
    slots: int
    price: float  # an hour
    pool: str  # "": none


@dataclass(frozen=True)
class Stay:
    """That a job had slots of a node, next to each other. Seconds."""

    job: int  # its id
    lane: int
    slot: int  # the first
    slots: int
    of: int  # slots of the node
    begun: float
    ended: float


@dataclass
class Job:
    id: int
    name: str
    kind: str
    submitted: float
    number: int  # in the order of submission, from 0
    begun: float | None = None
    ended: float | None = None  # None: it was there at the end
    end: str = ""  # how: "done", …
    changes: int = 0  # of its replicas, after its first start
    slot_s: float = 0.0  # slots times seconds that it had


@dataclass
class Cluster:
    name: str
    virtual: bool  # times are a simulator's, from 0; else since 1970
    nodes: list[Span] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    begun: float = 0.0
    ended: float = 0.0  # of the last row

    @property
    def zero(self) -> float:
        """The time from which a picture counts."""
        return 0.0 if self.virtual else self.begun

    @property
    def lanes(self) -> int:
        return max((span.lane for span in self.nodes), default=-1) + 1


class _Reader:
    """Rows of rising times, those of one time together."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: dict[str, tuple[Span, list[int | None]]] = {}  # of a slot, who has it
        self._free: list[int] = []  # lanes that had a node
        self._since: dict[tuple[str, int], float] = {}  # of a slot that somebody has
        self._at: dict[int, dict[str, int]] = {}  # of a job, its replicas by node

    def take(self, time: float, rows: list[dict[str, Any]]) -> None:
        self._cluster.ended = time
        nodes = [row for row in rows if "node" in row]
        jobs = [row for row in rows if "job" in row]
        for row in nodes:
            if row["slots"] > 0:
                self._add(time, row)
        for row in jobs:
            self._leave(time, row["job"], row["at"])
        for row in jobs:
            self._come(time, row)
        for row in nodes:
            if row["slots"] == 0:
                self._remove(time, row["node"])

    def finish(self, time: float) -> None:
        for job in list(self._at):
            self._leave(time, job, {})
        for name in list(self._nodes):
            self._remove(time, name)

    def _add(self, time: float, row: dict[str, Any]) -> None:
        if row["node"] in self._nodes:
            raise ValueError(f"node {row['node']} comes, and is there already")
        if len(self._nodes) == NODES_MAX or row["slots"] > SLOTS_MAX:
            raise ValueError(f"node {row['node']}: too many nodes, or slots")
        lane = min(self._free, default=len(self._nodes))
        if self._free:
            self._free.remove(lane)
        span = Span(lane, time, time, row["slots"], row["price"], row["pool"])
        self._nodes[row["node"]] = (span, [None] * row["slots"])

    def _remove(self, time: float, name: str) -> None:
        if name not in self._nodes:
            raise ValueError(f"node {name} goes, and is not there")
        span, slots = self._nodes.pop(name)
        for slot in range(len(slots)):
            self._close(time, name, span, slots, slot)
        for at in self._at.values():
            at.pop(name, None)
        self._free.append(span.lane)
        known = Span(span.lane, span.begun, time, span.slots, span.price, span.pool)
        self._cluster.nodes.append(known)

    def _close(
        self, time: float, name: str, span: Span, slots: list[int | None], slot: int
    ) -> None:
        """Nobody has the slot any more."""
        job = slots[slot]
        if job is None:
            return
        begun = self._since.pop((name, slot))
        slots[slot] = None
        if time <= begun:
            return
        self._cluster.jobs[job].slot_s += time - begun
        last = self._cluster.stays[-1] if self._cluster.stays else None
        wide = last is not None and last.lane == span.lane and last.slot + last.slots == slot
        if last is not None and wide and (last.job, last.begun, last.ended) == (job, begun, time):
            wider = Stay(job, span.lane, last.slot, last.slots + 1, span.slots, begun, time)
            self._cluster.stays[-1] = wider
        else:
            self._cluster.stays.append(Stay(job, span.lane, slot, 1, span.slots, begun, time))

    def _leave(self, time: float, job: int, at: Mapping[str, int]) -> None:
        """Gives back what it has no more: of each node the last slots."""
        for name, had in self._at.get(job, {}).items():
            more = had - at.get(name, 0)
            span, slots = self._nodes[name]
            mine = [slot for slot, who in enumerate(slots) if who == job]
            for slot in mine[len(mine) - max(more, 0) :]:
                self._close(time, name, span, slots, slot)
        left = {name: min(had, at.get(name, 0)) for name, had in self._at.get(job, {}).items()}
        self._at[job] = {name: count for name, count in left.items() if count > 0}

    def _come(self, time: float, row: dict[str, Any]) -> None:
        jobs, number, at = self._cluster.jobs, row["job"], row["at"]
        if number not in jobs:
            name = row.get("name", str(number))
            jobs[number] = Job(number, name, row.get("kind", ""), time, len(jobs))
        job = jobs[number]
        if at:
            job.changes += job.begun is not None
            job.begun = time if job.begun is None else job.begun
        if "end" in row:
            job.ended, job.end = time, row["end"]
        for node, count in at.items():
            if node not in self._nodes:
                raise ValueError(f"job {number} is on node {node}, which is not there")
            _, slots = self._nodes[node]
            wanted = count - self._at[number].get(node, 0)
            free = [slot for slot, who in enumerate(slots) if who is None]
            if wanted > len(free):
                raise ValueError(f"job {number} has {count} slots of node {node}: it is full")
            for slot in free[:wanted]:
                slots[slot] = number
                self._since[node, slot] = time
        self._at[number] = dict(at)


def _check(row: object) -> dict[str, Any]:
    """ValueError: it is not what a row should be."""
    if not isinstance(row, dict) or not isinstance(row.get("t"), (int, float)):
        raise ValueError("no object with a time t")
    if not math.isfinite(row["t"]) or row["t"] < 0:
        raise ValueError(f"t is {row['t']}")
    if isinstance(row.get("node"), str):
        good = isinstance(row.get("slots"), int) and row["slots"] >= 0
        good = good and isinstance(row.get("price"), (int, float))
        good = good and isinstance(row.get("pool"), str)
    elif isinstance(row.get("job"), int):
        at = row.get("at")
        good = isinstance(at, dict) and all(isinstance(n, int) and n > 0 for n in at.values())
        good = good and all(isinstance(row.get(key, ""), str) for key in ("name", "kind", "end"))
    else:
        good = False
    if not good:
        raise ValueError("neither a node with slots, price and pool, nor a job with at")
    return row


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                if number == 1:
                    if not isinstance(row, dict) or row.get("cluster") != VERSION:
                        raise ValueError(f"no history of a cluster, version {VERSION}")
                    yield row
                else:
                    yield _check(row)
            except ValueError as reason:
                raise ValueError(f"{path}:{number}: {reason}") from None


def read(path: Path) -> Cluster:
    """FileNotFoundError; ValueError naming what is wrong and where."""
    rows = _rows(path)
    head = next(rows, None)
    if head is None:
        raise ValueError(f"{path}: it is empty")
    cluster = Cluster(str(head.get("name", path.stem)), bool(head.get("virtual")))
    reader = _Reader(cluster)
    known = sorted(rows, key=lambda row: row["t"])
    cluster.begun = known[0]["t"] if known else 0.0
    try:
        for time, together in groupby(known, key=lambda row: row["t"]):
            reader.take(time, list(together))
    except ValueError as reason:
        raise ValueError(f"{path}: at {cluster.ended:g} s: {reason}") from None
    reader.finish(cluster.ended)
    return cluster
