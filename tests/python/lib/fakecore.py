"""pawl._core in plain Python, in one process: the same contract, without agent, kernel or disk.

It copies watched spans at the last moment the contract allows (at the fence, or when somebody
waits), and notices any change by a checksum taken in save(); the C library has the kernel's watch
instead. Ranks are threads. Durable checkpoints are written as zip files that torch.load reads.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

version = "fake"
TIMES = Path(__file__).parents[3] / "src/base/times.h"

ECORRUPT, EINVAL, ECHANGED, EMISMATCH, ENOENT, ETIMEDOUT = -7, -6, -11, -12, -4, -9
_NAMES = {
    -4: "PAWL_ENOENT",
    -6: "PAWL_EINVAL",
    -7: "PAWL_ECORRUPT",
    -9: "PAWL_ETIMEDOUT",
    -11: "PAWL_ECHANGED",
}
_NAMES[-12] = "PAWL_EMISMATCH"

try:
    from pawl._core import PawlError  # both cores raise one class, if the real one is there
except ImportError:

    class PawlError(RuntimeError):
        code = 0
        name = ""


def fail(code: int, message: str) -> PawlError:
    error = PawlError(message)
    error.code, error.name, error.errno = code, _NAMES[code], 0
    return error


class _Root:
    """State of one root that all ranks of a job share."""

    def __init__(self) -> None:
        self.cond = threading.Condition()
        self.steps: dict[int, dict[int, list[_Part]]] = {}  # step -> rank -> partitions
        self.world: dict[int, int] = {}  # step -> number of ranks, of committed steps
        self.durable: set[int] = set()
        self.pinned: set[int] = set()
        self.damaged: set[int] = set()  # steps whose reads raise ECORRUPT
        self.aside: set[int] = set()  # steps found damaged
        self.votes: dict[int, tuple[int, str]] = {}
        self.outcome: tuple[int, str] = (0, "")
        self.round = 0
        self.diverged: list[str] = []


class _Part:
    def __init__(self, name: str, shared: bool, pickle: bytes, tensors: bytes, spans: Any) -> None:
        self.name, self.shared, self.pickle, self.tensors = name, shared, pickle, tensors
        flat = memoryview(spans).cast("B").cast("Q").tolist() if len(spans) else []
        self.spans = list(zip(flat[0::4], flat[1::4], flat[2::4], strict=True))
        self.bytes: list[bytes | None] = [None] * len(self.spans)
        self.sums = [zlib.crc32(_peek(a, n)) for a, n, _ in self.spans]


def _peek(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size) if size else b""


_roots: dict[str, _Root] = {}
proof = 1  # tests set 0: everything is copied before save returns
kernel = True  # tests set False: changes go unnoticed
environment: dict[str, Any] = {}  # tests override fields of env()


def root_of(path: str) -> _Root:
    return _roots.setdefault(path, _Root())


def env() -> dict[str, Any]:
    base = {"rank": 0, "world": 1, "local_rank": 0, "local_world": 1, "node_rank": 0, "nodes": 1}
    return {**base, "attempt": 0, "job": "", "source": "none", "job_source": "", **environment}


def encode_tensors(tensors: list[Any]) -> bytes:
    for name, dtype, shape, storage, offset in tensors:
        assert isinstance(name, str) and isinstance(dtype, str) and isinstance(storage, int)
        assert isinstance(shape, tuple) and isinstance(offset, int)
    return json.dumps(tensors).encode()


def decode_tensors(table: bytes) -> list[Any]:
    return [(n, d, tuple(s), k, o) for n, d, s, k, o in json.loads(table)]


class Session:
    def __init__(
        self, root: str, job: str, rank: int, world: int, attempt: int, **options: Any
    ) -> None:
        self.root, self.job, self.rank, self.world = root, job, rank, world
        self.options = options
        self._shared = root_of(root)
        self._saves: list[dict[str, Any]] = []
        self.told = ""
        self.is_stopping = False
        self.is_due = False
        self.notifications_left = ["a note"] if options.get("socket") == "note" else []
        self.log: list[str] = []  # names of calls, in order
        self._ended = threading.Event()

    def save(self, step: int, parts: list[Any], watch: bool) -> int:
        self.log.append(f"save {step}")
        if self._saves:
            self._copy(~0)
        held = [_Part(*part) for part in parts]
        lazy = watch and proof
        save = {"step": step, "parts": held, "code": 0, "where": (-1, -1), "level": 0}
        save["proof"] = int(bool(lazy) and any(g for p in held for _, _, g in p.spans))
        self._saves.append(save)
        for part in held:
            for i, (address, size, groups) in enumerate(part.spans):
                if not (lazy and groups and size >= 65536):
                    part.bytes[i] = _peek(address, size)
        self._advance(save)
        return len(self._saves) - 1

    def _copy(self, groups: int) -> None:
        save = self._saves[-1]
        for p, part in enumerate(save["parts"]):
            for i, (address, size, mine) in enumerate(part.spans):
                if part.bytes[i] is None and mine & groups & 0xFFFFFFFFFFFFFFFF:
                    part.bytes[i] = _peek(address, size)
                    changed = kernel and zlib.crc32(part.bytes[i]) != part.sums[i]
                    if changed and save["code"] == 0:
                        save["code"], save["where"] = ECHANGED, (p, i)
        self._advance(save)

    def _advance(self, save: dict[str, Any]) -> None:
        if save["code"] or save["level"] or any(None in p.bytes for p in save["parts"]):
            return
        save["level"] = 1
        root = self._shared
        with root.cond:
            ranks = root.steps.setdefault(save["step"], {})
            ranks[self.rank] = save["parts"]
            if len(ranks) == self.world:
                root.world[save["step"]] = self.world
            root.cond.notify_all()

    def _level(self, save: dict[str, Any]) -> int:
        if save["code"]:
            return -1
        if save["level"] and save["step"] in self._shared.world:
            return 4 if save["step"] in self._shared.durable else 2
        return save["level"]

    def announce(self, step: int | None) -> None:
        self.announced = step

    def fence(self, groups: int) -> None:
        self.log.append(f"fence {groups & 0xFFFFFFFFFFFFFFFF:x}")
        if self._saves:
            self._copy(groups)

    def status(self, save_id: int) -> tuple[Any, ...]:
        if save_id < len(self._saves) - 256:
            raise fail(ENOENT, f"save {save_id} is forgotten")
        save = self._saves[save_id]
        message = "changed while it was copied" if save["code"] else ""
        return (self._level(save), save["code"], message, save["proof"], *save["where"], {})

    def wait(self, save_id: int, level: int, timeout: float | None) -> bool:
        save = self._saves[save_id]
        if save is self._saves[-1]:
            self._copy(~0)
        if level > 2 and self._level(save) == 2:
            self._persist(save["step"])
        with self._shared.cond:
            self._shared.cond.wait_for(lambda: not 0 <= self._level(save) < level, timeout)
        return self._level(save) >= level

    def withdraw(self, save_id: int, part: int, storage: int) -> None:
        self.log.append(f"withdraw {part} {storage}")
        save = self._saves[save_id]
        if not save["level"]:
            save["code"], save["where"] = ECHANGED, (part, storage)
            for p in save["parts"]:
                p.bytes = [b"" if b is None else b for b in p.bytes]

    def _persist(self, step: int) -> None:
        for name, rank, part in _files(self._shared, step):
            world = self._shared.world[step]
            file = name if rank < 0 or world == 1 else f"{name}-rank{rank}"
            write_zip(os.path.join(self.root, f"global_step{step}", file), part)
        self._shared.durable.add(step)

    def restore(self, step: int | None, timeout: float) -> Restore | None:
        root = self._shared
        steps = [s for s in root.world if s not in root.aside and step in (None, s)]
        return Restore(root, max(steps), self.rank, self.world) if steps else None

    def flush(self, timeout: float | None) -> None:
        if (
            self._saves
            and not self._saves[-1]["code"]
            and not self.wait(len(self._saves) - 1, 4, timeout)
        ):
            raise fail(ETIMEDOUT, "timed out")

    def next_notification(self, wait: bool) -> str | None:
        if wait:
            self._ended.wait()
        return self.notifications_left.pop(0) if self.notifications_left else None

    def end_notifications(self) -> None:
        self._ended.set()

    def pending(self) -> list[tuple[int, str]]:
        steps = sorted(set(self._shared.world) - self._shared.durable)
        return [(step, f"global_step{step}") for step in steps]

    def pin(self, tag: str, pinned: bool) -> None:
        step = int(tag.removeprefix("global_step"))
        (self._shared.pinned.add if pinned else self._shared.pinned.discard)(step)

    def imports(self, names: str) -> None:
        self.told = names

    def abandon(self, why: str) -> None:
        self.log.append(f"abandon {why}")

    def close(self, timeout: float | None) -> None:
        self.log.append("close")
        self.flush(timeout)

    @property
    def stopping(self) -> bool:
        return self.is_stopping

    @property
    def due(self) -> bool:
        return self.is_due

    def stop(self) -> None:
        self.is_stopping = True

    @property
    def diverged(self) -> list[str]:
        return self._shared.diverged

    @property
    def best_proof(self) -> tuple[int, str]:
        return (proof, "" if proof else "switched off")


def _listed(root: _Root, step: int) -> dict[str, Any]:
    size = sum(len(b) for _, _, p in _files(root, step) for b in p.bytes)
    extra = {"created": time.time(), "world": root.world[step], "why": ""}
    pinned = step in root.pinned
    return {"step": step, "tag": f"global_step{step}", "level": "durable", "size": size} | {
        "pinned": pinned,
        **extra,
    }


def _files(root: _Root, step: int) -> list[tuple[str, int, _Part]]:
    """Returns (name, rank or -1, partition) of each; each rank saves every n-th storage of shared
    partitions."""
    files = []
    ranks = root.steps[step]
    for rank, parts in sorted(ranks.items()):
        for index, part in enumerate(parts):
            if not part.shared:
                files.append((part.name, rank, part))
            elif rank == 0:
                part.bytes = [ranks[i % len(ranks)][index].bytes[i] for i in range(len(part.bytes))]
                files.append((part.name, -1, part))
    return files


def write_zip(path: str, part: _Part) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", part.pickle)
        file.writestr("archive/byteorder", "little")
        for i, data in enumerate(part.bytes):
            file.writestr(f"archive/data/{i}", data)
        file.writestr("archive/version", "3\n")


class Restore:
    def __init__(self, root: _Root, step: int, rank: int, world: int) -> None:
        self._root, self._rank, self._world = root, rank, world
        self.step, self.tag, self.source = step, f"global_step{step}", "memory"
        self.world = root.world[step]
        self._files = _files(root, step)
        self._listed: set[int] = set()  # partitions whose pickle was read
        self._read: set[int] = set()

    @property
    def parts(self) -> list[tuple[str, int, int]]:
        return [(n, r, len(p.pickle) + sum(map(len, p.bytes))) for n, r, p in self._files]

    def read(self, indices: list[int]) -> None:
        if self.step in self._root.damaged:
            raise fail(ECORRUPT, f"{self.tag}/{self._files[indices[0]][0]}: bytes 0..9 are wrong")
        self._read.update(indices)

    def pickle(self, index: int) -> bytes:
        self._listed.add(index)
        return self._files[index][2].pickle

    def storages(self, index: int) -> list[int]:
        assert index in self._listed | self._read, "not read"
        return [len(data) for data in self._files[index][2].bytes]

    def tensors(self, index: int) -> bytes:
        return self._files[index][2].tensors

    def copy(self, spec: Any) -> None:
        flat = memoryview(spec).cast("B").cast("Q").tolist() if len(spec) else []
        for part, storage, offset, destination, size in zip(*[iter(flat)] * 5, strict=True):
            assert part in self._read, "not read"
            data = self._files[part][2].bytes[storage]
            assert offset + size <= len(data), "copy beyond a storage"
            ctypes.memmove(destination, data[offset : offset + size], size)

    def vote(self, verdict: int, why: str, timeout: float) -> int:
        root = self._root
        with root.cond:
            now = root.round
            root.votes[self._rank] = (verdict, why)
            if len(root.votes) == self._world:
                root.outcome = max(root.votes.values())
                if root.outcome[0] == 1:
                    root.aside.add(self.step)
                root.votes, root.round = {}, now + 1
                root.cond.notify_all()
            elif not root.cond.wait_for(lambda: root.round > now, timeout):
                raise AssertionError("a rank did not vote")
            worst, reason = root.outcome
        if worst == 2:
            raise fail(EMISMATCH, reason)
        return worst

    def close(self) -> None:
        self._read.clear()


def time_s(name: str) -> float:
    """Returns a default of the table of times: nothing here reads PAWL_TEST_TIMES."""
    row = re.search(rf'"{name}", (\d+) \* (\w+)', TIMES.read_text())
    if row is None:
        raise KeyError(name)
    return int(row[1]) * {"NS_PER_S": 1.0, "NS_PER_MS": 0.001}[row[2]]


def open_root(root: str, step: int | None) -> Restore:
    shared = root_of(root)
    steps = [s for s in shared.durable if step in (None, s)]
    if not steps:
        raise fail(ENOENT, f"{root}: no complete checkpoint")
    restore = Restore(shared, max(steps), 0, 1)
    restore.source = "store"
    return restore


def list_root(root: str) -> list[dict[str, Any]]:
    shared = root_of(root)
    return [_listed(shared, step) for step in sorted(shared.durable)]
