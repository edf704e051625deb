"""The history of a cluster (docs/format.md): its nodes over time, and the jobs on them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

VERSIONS: Final = (1, 2)
SLOTS_MAX: Final = 1024  # slots of a node, at most; the scheduler has the same limit
NODES_MAX: Final = 16384  # nodes of a cluster, at most; the scheduler has the same limit
AWAY_S: Final = 1.0  # seconds without a scheduler from which on they are reported
UNKNOWN: Final = "?"  # end of a job of which no end was written

_WRITTEN: Final = (
    "`pawl sched` writes one in its directory (--root DIR) from its first start on, "
    "`pawl sim --report` a file"
)

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """The time during which a node was there. Times in seconds."""

    lane: int  # row of the picture; nodes that are there at the same time have different rows
    begun: float
    ended: float
    slots: int
    price: float  # price of an hour; 0: not known
    pool: str  # "": none
    name: str
    type: str  # "": not known
    spot: bool


@dataclass(frozen=True)
class Drained:
    """The time during which a node was drained, so that no job started on it. Times in seconds."""

    lane: int
    begun: float
    ended: float


@dataclass(frozen=True)
class Stay:
    """The time during which a job had adjacent slots of a node. Times in seconds."""

    job: int  # id of the job
    lane: int
    slot: int  # number of the first slot
    slots: int
    of: int  # slots of the whole node
    begun: float
    ended: float

    @property
    def slot_s(self) -> float:
        return (self.ended - self.begun) * self.slots


@dataclass
class Job:
    id: int
    name: str
    kind: str  # the application, in a simulator's history; else ""
    submitted: float
    number: int  # position in the order in which jobs first appear, from 0
    user: str = ""
    queue: str = ""
    begun: float | None = None
    ended: float | None = None  # None: it was still there at the end
    end: str = ""  # how it ended: "done", …; "": it has not
    why: str = ""  # the reason for its state
    # Times at which its replicas changed, after its first start.
    changed: list[float] = field(default_factory=list)
    slot_s: float = 0.0  # slots times seconds that the job had
    goodput: float | None = None  # samples/s, as last reported
    batch: int | None = None  # samples in a step at that goodput

    @property
    def changes(self) -> int:
        return len(self.changed)


@dataclass
class Cluster:
    name: str
    virtual: bool  # times are a simulator's, from 0; else since 1970
    policy: str = ""
    nodes: list[Span] = field(default_factory=list)
    drained: list[Drained] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    jobs: dict[int, Job] = field(default_factory=dict)
    # Times without a scheduler, while jobs ran on.
    away: list[Interval] = field(default_factory=list)
    lost: list[Interval] = field(default_factory=list)  # times of which nothing could be written
    begun: float = 0.0
    ended: float = 0.0  # time of the last row, or until when the scheduler is known to run

    @property
    def zero(self) -> float:
        """The time from which a picture counts."""
        return 0.0 if self.virtual else self.begun

    @property
    def lanes(self) -> int:
        return max((span.lane for span in self.nodes), default=-1) + 1


@dataclass
class _Node:
    span: Span
    slots: list[int | None]  # job id in each slot; None: free
    drained: float | None = None  # time since when it is drained; None: it is not


def _span(lane: int, time: float, row: Mapping[str, Any]) -> Span:
    if row["slots"] > SLOTS_MAX:
        raise ValueError(f"node {row['node']}: too many nodes, or slots")
    return Span(
        lane,
        time,
        math.inf,
        row["slots"],
        row["price"],
        row["pool"],
        row["node"],
        row.get("type", ""),
        row.get("spot", False),
    )


def _turns(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of jobs, in order, cut before a job's second row: it moved on in the same moment."""
    turns: list[list[dict[str, Any]]] = [[]]
    seen: set[int] = set()
    for row in rows:
        if row["job"] in seen:
            turns.append([])
            seen.clear()
        seen.add(row["job"])
        turns[-1].append(row)
    return turns


class _Reader:
    """Builds a cluster from rows of rising times; rows of one time are taken together."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: dict[str, _Node] = {}
        self._free: list[int] = []  # lanes whose node is gone
        # (node, slot) -> time since when a job has it.
        self._since: dict[tuple[str, int], float] = {}
        self._at: dict[int, dict[str, int]] = {}  # job that is not over -> its replicas by node
        self._restarts: dict[int, int] = {}  # job -> number of its restarts, as last reported
        self._whole = False  # True: the rows list all nodes and jobs there are

    def take(self, time: float, rows: Sequence[dict[str, Any]]) -> None:
        before, self._cluster.ended = self._cluster.ended, time
        nodes = [row for row in rows if "node" in row]
        jobs = [row for row in rows if "job" in row]
        for row in nodes:
            if row["slots"] > 0 and row["node"] not in self._nodes:
                self._add(time, row)
            elif row["slots"] > 0 and self._cluster.virtual:
                raise ValueError(f"node {row['node']} arrives, but is there already")
        changed = [row for row in nodes if row["slots"] > 0]
        for turn in _turns(jobs):
            for row in turn:
                self._leave(time, row["job"], row["at"])
            for row in changed:
                self._change(time, row)
            changed = []
            for row in turn:
                self._come(time, row)
        for row in nodes:
            if row["slots"] == 0:
                self._remove(time, row["node"])
        for row in rows:
            if "scheduler" in row:
                self._cluster.policy = row["policy"]
                if row["scheduler"] == "started" and time - before >= AWAY_S:
                    self._cluster.away.append((before, time))

    def begin(self, header: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        """Begins a file, whose first rows list all nodes and jobs there are."""
        time = max(header["t"], self._cluster.ended)
        if "lost" in header and header["lost"] < time:
            self._cut(max(header["lost"], self._cluster.begun), time)
        nodes = {row["node"] for row in rows if "node" in row}
        jobs = {row["job"] for row in rows if "job" in row}
        for number in [number for number in self._at if number not in jobs]:
            self._leave(time, number, {})
            self._end(time, number, UNKNOWN)
        for name in [name for name in self._nodes if name not in nodes]:
            self._remove(time, name)
        self._whole = True
        self.take(time, rows)
        self._whole = False
        self._cluster.policy = header["policy"]

    def missing(self, header: dict[str, Any]) -> None:
        """Records that the file before this one is missing."""
        header["lost"] = min(header.get("lost", math.inf), self._cluster.ended)

    def finish(self, time: float) -> None:
        self._cluster.ended = time
        for job in list(self._at):
            self._leave(time, job, {})
        for name in list(self._nodes):
            self._remove(time, name)

    def _cut(self, begun: float, ended: float) -> None:
        """Records that nothing is known of the time between begun and ended."""
        for number in self._at:
            self._leave(begun, number, {})
        for name in list(self._nodes):
            self._remove(begun, name)
        self._cluster.lost.append((begun, ended))

    def _add(self, time: float, row: dict[str, Any]) -> None:
        if len(self._nodes) == NODES_MAX:
            raise ValueError(f"node {row['node']}: too many nodes, or slots")
        lane = min(self._free, default=len(self._nodes))
        if self._free:
            self._free.remove(lane)
        self._nodes[row["node"]] = _Node(_span(lane, time, row), [None] * row["slots"])

    def _change(self, time: float, row: dict[str, Any]) -> None:
        """Takes a row of a node that is there."""
        node = self._nodes[row["node"]]
        span = _span(node.span.lane, time, row)
        if replace(span, begun=node.span.begun) != node.span:
            self._renew(time, row["node"], node, span)
        drained = row.get("state", "up") != "up"
        if drained and node.drained is None:
            node.drained = time
        elif not drained:
            self._undrain(time, node)

    def _renew(self, time: float, name: str, node: _Node, span: Span) -> None:
        """Gives a node another price or size; its jobs stay on it."""
        who = [job for job in node.slots if job is not None]
        if len(who) > span.slots:
            raise ValueError(f"node {name} has {span.slots} slots, and {len(who)} are used")
        for slot in range(len(node.slots)):
            self._close(time, name, node, slot)
        self._undrain(time, node)
        self._cluster.nodes.append(replace(node.span, ended=time))
        node.span = span
        node.slots = [*who, *[None] * (span.slots - len(who))]
        self._since.update(((name, slot), time) for slot in range(len(who)))

    def _undrain(self, time: float, node: _Node) -> None:
        if node.drained is not None and time > node.drained:
            self._cluster.drained.append(Drained(node.span.lane, node.drained, time))
        node.drained = None

    def _remove(self, time: float, name: str) -> None:
        if name not in self._nodes:
            raise ValueError(f"node {name} leaves, but is not there")
        node = self._nodes[name]
        for slot in range(len(node.slots)):
            self._close(time, name, node, slot)
        for at in self._at.values():
            at.pop(name, None)
        self._undrain(time, node)
        del self._nodes[name]
        self._free.append(node.span.lane)
        self._cluster.nodes.append(replace(node.span, ended=time))

    def _close(self, time: float, name: str, node: _Node, slot: int) -> None:
        """Frees a slot, and adds the job's stay on it."""
        job = node.slots[slot]
        if job is None:
            return
        begun = self._since.pop((name, slot))
        node.slots[slot] = None
        if time <= begun:
            return
        span = node.span
        self._cluster.jobs[job].slot_s += time - begun
        last = self._cluster.stays[-1] if self._cluster.stays else None
        wide = last is not None and last.lane == span.lane and last.slot + last.slots == slot
        if last is not None and wide and (last.job, last.begun, last.ended) == (job, begun, time):
            wider = Stay(job, span.lane, last.slot, last.slots + 1, span.slots, begun, time)
            self._cluster.stays[-1] = wider
        else:
            self._cluster.stays.append(Stay(job, span.lane, slot, 1, span.slots, begun, time))

    def _leave(self, time: float, job: int, at: Mapping[str, int]) -> None:
        """Takes from a job the slots that it no longer has: on each node the last ones."""
        for name, had in self._at.get(job, {}).items():
            more = had - at.get(name, 0)
            node = self._nodes[name]
            mine = [slot for slot, who in enumerate(node.slots) if who == job]
            for slot in mine[len(mine) - max(more, 0) :]:
                self._close(time, name, node, slot)
        left = {name: min(had, at.get(name, 0)) for name, had in self._at.get(job, {}).items()}
        self._at[job] = {name: count for name, count in left.items() if count > 0}

    def _come(self, time: float, row: dict[str, Any]) -> None:
        number, at = row["job"], row["at"]
        job = self._cluster.jobs.get(number) or self._new(time, row)
        job.why = row.get("why", "")
        if "restarts" in row:
            job.changed += [time] * (row["restarts"] - self._restarts[number])
            self._restarts[number] = row["restarts"]
        elif at and job.begun is not None:
            job.changed.append(time)
        if at and job.begun is None:
            job.begun = row.get("begun", time)
        if "goodput" in row:
            job.goodput, job.batch = row["goodput"], row.get("batch")
        for node, count in at.items():
            if node not in self._nodes:
                raise ValueError(f"job {number} is on node {node}, which is not there")
            slots = self._nodes[node].slots
            wanted = count - self._at[number].get(node, 0)
            free = [slot for slot, who in enumerate(slots) if who is None]
            if wanted > len(free):
                raise ValueError(f"job {number} has {count} slots of node {node}: it is full")
            for slot in free[:wanted]:
                slots[slot] = number
                self._since[node, slot] = time
        self._at[number] = dict(at)
        if "end" in row:
            self._end(time, number, row["end"])

    def _new(self, time: float, row: dict[str, Any]) -> Job:
        jobs, number = self._cluster.jobs, row["job"]
        submitted = min(row.get("submitted", time), time)
        job = Job(number, row.get("name", str(number)), row.get("kind", ""), submitted, len(jobs))
        job.user, job.queue = row.get("user", ""), row.get("queue", "")
        job.begun = row.get("begun")
        jobs[number] = job
        self._restarts[number] = row.get("restarts", 0) if self._whole else 0
        return job

    def _end(self, time: float, number: int, how: str) -> None:
        job = self._cluster.jobs[number]
        job.ended, job.end = time, how
        if not self._at[number]:
            del self._at[number]


# ---- rows ----


def _is_number(value: object, least: float = 0) -> bool:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return good and math.isfinite(value) and value >= least  # type: ignore[operator, arg-type]


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_texts(row: Mapping[str, Any], *keys: str) -> bool:
    return all(isinstance(row.get(key, ""), str) for key in keys)


def _check(row: object) -> dict[str, Any]:
    """Returns the row. Raises ValueError if it is not as a row should be."""
    if not isinstance(row, dict) or not isinstance(row.get("t"), (int, float)):
        raise ValueError("not an object with a time t")
    if not _is_number(row["t"]):
        raise ValueError(f"t is {row['t']}")
    if isinstance(row.get("node"), str):
        good = _is_count(row.get("slots")) and _is_number(row.get("price"))
        good = good and isinstance(row.get("pool"), str) and _are_texts(row, "type", "state")
        good = good and isinstance(row.get("spot", False), bool)
    elif isinstance(row.get("job"), int):
        at = row.get("at")
        good = isinstance(at, dict) and all(_is_count(n, 1) for n in at.values())
        good = good and _are_texts(row, "name", "kind", "end", "user", "queue", "state", "why")
        good = good and _is_count(row.get("restarts", 0)) and _is_count(row.get("batch", 0))
        good = good and all(_is_number(row.get(k, 0)) for k in ("submitted", "begun", "goodput"))
    else:
        good = row.get("scheduler") in ("started", "stopped") and _are_texts(row, "policy")
    if not good:
        raise ValueError("neither a node with slots, price and pool, nor a job with at")
    return row


def _check_header(row: object) -> dict[str, Any]:
    if not isinstance(row, dict) or row.get("cluster") not in VERSIONS:
        raise ValueError(f"no history of a cluster, version {' or '.join(map(str, VERSIONS))}")
    live = row["cluster"] > 1 and not row.get("virtual")
    if live and not (
        _is_number(row.get("t")) and _is_number(row.get("lost", 0)) and _are_texts(row, "policy")
    ):
        raise ValueError("a header without its time t")
    row["live"] = live
    row.setdefault("policy", "")
    return row


def _read_header(path: Path) -> dict[str, Any] | None:
    """The header of a file; None: the writer died before the header was whole."""
    with path.open("rb") as file:
        line = file.readline()
    try:
        return _check_header(json.loads(line)) if line.endswith(b"\n") else None
    except ValueError as reason:
        raise ValueError(f"{path}:1: {reason}") from None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows after the header. A line without its end was cut off when its writer died."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                if number > 1 and line.endswith(b"\n"):
                    yield _check(json.loads(line))
            except ValueError as reason:
                raise ValueError(f"{path}:{number}: {reason}") from None


def _steps(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Groups of rows that count together; leaves out the last group if it is cut off."""
    step: list[dict[str, Any]] = []
    for row in rows:
        step.append(row)
        if not row.get("more"):
            yield step
            step = []


# ---- files ----


def _read_virtual(path: Path, cluster: Cluster) -> None:
    reader = _Reader(cluster)
    known = sorted(_rows(path), key=lambda row: row["t"])
    cluster.begun = known[0]["t"] if known else 0.0
    try:
        for time, together in groupby(known, key=lambda row: row["t"]):
            reader.take(time, list(together))
    except ValueError as reason:
        raise ValueError(f"{path}: at {cluster.ended:g} s: {reason}") from None
    reader.finish(cluster.ended)


def _take_file(path: Path, header: dict[str, Any], reader: _Reader, cluster: Cluster) -> None:
    steps = _steps(_rows(path))
    try:
        there = next(steps, None) if header.get("more") else []
        if there is None:
            return  # the file was cut off before its first rows were whole
        reader.begin(header, there)
        for step in steps:
            reader.take(max(step[0]["t"], cluster.ended), step)
    except ValueError as reason:
        if str(reason).startswith(str(path)):
            raise
        raise ValueError(f"{path}: at {cluster.ended:.6f}: {reason}") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(
        (file for file in path.iterdir() if file.suffix == ".jsonl" and file.stem.isdigit()),
        key=lambda file: int(file.stem),
    )


def _read_live(
    headers: Mapping[Path, dict[str, Any]], cluster: Cluster, since: float, until: float
) -> None:
    reader = _Reader(cluster)
    files = list(headers)
    # Each file begins with all nodes and jobs there are, so older files are not needed.
    first = max((i for i, file in enumerate(files) if headers[file]["t"] <= since), default=0)
    cluster.begun = cluster.ended = headers[files[first]]["t"]
    before: Path | None = None
    for file in files[first:]:
        if before and int(file.stem) != int(before.stem) + 1:
            reader.missing(headers[file])
        _take_file(file, headers[file], reader, cluster)
        before = file
    reader.finish(max(cluster.ended, until))


def read(path: Path, since: float = 0.0, until: float = 0.0) -> Cluster:
    """Reads a file, or a scheduler's directory of files; of a directory, the
    history from ``since`` on.

    ``until``: the scheduler runs, so its newest rows hold until then. Both are seconds since 1970.
    Raises FileNotFoundError; ValueError saying what is wrong and where.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no history of a cluster is there: {_WRITTEN}")
    files = _files(path)
    headers = {file: header for file in files if (header := _read_header(file)) is not None}
    if not headers:
        if path.is_dir():
            raise FileNotFoundError(f"{path}: no history of a cluster is in it: {_WRITTEN}")
        raise ValueError(f"{path}: the file is empty")
    first = next(iter(headers.values()))
    if any(header["live"] != first["live"] for header in headers.values()):
        raise ValueError(f"{path}: a simulator's file is among those of a scheduler")
    name = str(first.get("name", path.stem))
    cluster = Cluster(name, not first["live"], str(first["policy"]))
    if not first["live"]:
        if since > 0:
            raise ValueError(
                f"{path}: a simulator's history has no clock: it is read without a start time"
            )
        _read_virtual(files[0], cluster)
        return cluster
    _read_live(headers, cluster, since, until)
    if since > cluster.ended:
        raise FileNotFoundError(f"{path}: it has no rows after that time: give an earlier one")
    return clip(cluster, since) if since > cluster.begun else cluster


def clip(cluster: Cluster, since: float) -> Cluster:
    """The cluster without everything that was over before ``since``."""

    def cut(items: Sequence[Any]) -> list[Any]:
        later = [item for item in items if item.ended > since]
        return [replace(item, begun=max(item.begun, since)) for item in later]

    def cut_times(times: Sequence[Interval]) -> list[Interval]:
        return [(max(begun, since), ended) for begun, ended in times if ended > since]

    jobs = {
        job.id: replace(job, slot_s=0.0, changed=[t for t in job.changed if t >= since])
        for job in cluster.jobs.values()
        if job.ended is None or job.ended >= since
    }
    stays = cut(cluster.stays)
    for stay in stays:
        jobs[stay.job].slot_s += stay.slot_s
    return replace(
        cluster,
        nodes=cut(cluster.nodes),
        drained=cut(cluster.drained),
        stays=stays,
        jobs=jobs,
        away=cut_times(cluster.away),
        lost=cut_times(cluster.lost),
        begun=max(cluster.begun, since),
        ended=max(cluster.ended, since),
    )
