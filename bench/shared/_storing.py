"""How fast a checkpoint becomes durable, and how fast it comes back into a new process."""

from __future__ import annotations

import logging
import multiprocessing as mp
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import torch

import pawl
from shared._agent import LIMIT_S, NEVER, end_agent, opened, persist_s, settle
from shared._bound import Memcpy, drop_caches, fill_cache, raw_read, raw_write
from shared._peers import dcp_save, torch_save
from shared._report import Report
from shared._sizes import Sizes
from shared._state import State

GIB = 1 << 30
PRELOAD = ["torch", "torch._dynamo", "numpy", "pawl"]  # modules that every process here imports
STEP = 1  # step of the checkpoint that is restored

median = statistics.median
Times = dict[str, list[float]]


def rotate(names: list[str], round_: int) -> list[str]:
    """names, rotated so that each comes first as often as the others."""
    first = round_ % len(names)
    return names[first:] + names[:first]


def measure_persist(report: Report, sizes: Sizes, folder: Path, state: State) -> None:
    """Row: from the first write until complete.txt is durable, compared with
    O_DIRECT into fresh files.
    """
    size = sum(tensor.nbytes for tensor in state.tensors())
    root = folder / "persist"
    step = 0
    with opened(root, persist_every=0, keep=1, copy="now") as checkpointer:

        def by_pawl() -> float:
            nonlocal step
            step += 1
            settle(checkpointer.save(step, state.parts), "durable")
            return persist_s(root, step)

        ways: dict[str, Callable[[], float]] = {
            "pawl": by_pawl,
            "raw": lambda: raw_write(folder / "persist.raw", size),
            "torch": lambda: torch_save(state, folder / "persist.pt"),
            "dcp": lambda: dcp_save(state, folder / "persist.dcp"),
        }
        times: Times = {name: [] for name in ways}
        by_pawl()
        for round_ in range(sizes.repeats):
            for name in rotate(list(ways), round_):
                times[name].append(ways[name]())
    report.title("making a checkpoint durable")
    took = {name: median(values) for name, values in times.items()}
    rate = {name: size / GIB / seconds for name, seconds in took.items()}
    report.bound("write_gib_s", "O_DIRECT, depth 16, fresh file, fsync", rate["raw"], "GiB/s")
    report.note("persist_gib_s", f"Pawl, median of {sizes.repeats}", rate["pawl"], "GiB/s")
    report.at_least("persist_to_raw", "to the bound", rate["pawl"] / rate["raw"], 0.9, "x")
    for name, what in (("torch", "torch.save + fsync"), ("dcp", "dcp.save")):
        beside = f"{what} {rate[name]:.2f} GiB/s"
        ratio = rate["pawl"] / rate[name]
        report.note(f"persist_to_{name}", f"to {what}", ratio, "x", beside)


class _Source(logging.Handler):
    """Notes the log line that says where a restore came from."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "pawl.start":
            self.text = record.getMessage()


def _restore(state: State, root: Path, source: str) -> tuple[float, pawl.Checkpointer]:
    """Restores in place, and checks that the data came from source; seconds from
    nothing to restored.
    """
    log = logging.getLogger("pawl")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(heard := _Source())
    first = next(iter(state.model.parameters())).detach()
    assert not first.any(), "restored before"
    begun = time.perf_counter()
    checkpointer = pawl.Checkpointer(root, job=f"bench:{root}", copy="now", persist_every=NEVER)
    step = checkpointer.restore(state.parts)
    took = time.perf_counter() - begun
    assert step == STEP and first.any(), f"restored {step}"
    where = "memory" if source == "memory" else f"the {source}"
    assert f", from {where})" in heard.text, heard.text
    return took, checkpointer


def _serve(conn: Connection, sizes: Sizes, root: Path) -> None:
    """A new training process: builds its state, then obeys commands and reports their seconds."""
    torch.set_num_threads(1)
    state = State(sizes.blocks, sizes.width, filled=False)
    bound = Memcpy(state.tensors())
    checkpointer: pawl.Checkpointer | None = None
    conn.send("ready")
    while True:
        word, path = conn.recv()
        begun = time.perf_counter()
        if word == "torch":
            loaded = torch.load(path)
            took = time.perf_counter() - begun
            del loaded
        elif word == "raw":
            took = raw_read(path)
        elif word == "memcpy":
            took = bound.run()
        elif word == "save":
            settle(checkpointer.save(STEP, state.parts), "committed")
            took = time.perf_counter() - begun
        else:  # store or memory: the source of a restore
            took, checkpointer = _restore(state, root, word)
        conn.send(took)


class Newcomer:
    """Our end of the connection to such a process. The process is always ended by
    SIGKILL, as by a crash.
    """

    def __init__(self, context: ForkServerContext, sizes: Sizes, root: Path) -> None:
        self._conn, theirs = context.Pipe()
        self._process: ForkServerProcess = context.Process(
            target=_serve, args=(theirs, sizes, root), daemon=True
        )
        self._process.start()
        theirs.close()
        self._hear()

    def _hear(self) -> Any:
        if not self._conn.poll(LIMIT_S):
            raise TimeoutError("a process that restores says nothing")
        return self._conn.recv()

    def ask(self, word: str, path: Path | None = None) -> float:
        self._conn.send((word, path))
        return self._hear()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._conn.close()


@contextmanager
def newcomer(context: ForkServerContext, sizes: Sizes, root: Path) -> Iterator[Newcomer]:
    one = Newcomer(context, sizes, root)
    try:
        yield one
    finally:
        one.kill()


def fork_server() -> ForkServerContext:
    """A server that new processes are forked from, with torch imported; call it
    before threads start.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


class Restores:
    """The files to read, and the times of reading them."""

    def __init__(self, context: ForkServerContext, sizes: Sizes, folder: Path) -> None:
        self._context = context
        self._sizes = sizes
        self._root = folder / "restore"
        self._torch = folder / "restore.pt"
        self._raw = folder / "restore.raw"
        self.cold: Times = {"raw": [], "torch": [], "store": []}
        self.warm: Times = {"torch": [], "store": []}
        self.memory: Times = {"memcpy": [], "memory": []}

    def prepare(self, state: State, size_bytes: int) -> None:
        raw_write(self._raw, size_bytes)
        torch_save(state, self._torch)
        with pawl.Checkpointer(
            self._root, job=f"bench:{self._root}", copy="now", persist_every=0
        ) as checkpointer:
            settle(checkpointer.save(STEP, state.parts), "durable")
        end_agent(self._root)

    def run_round(self, round_: int) -> None:
        paths = {"raw": self._raw, "torch": self._torch}
        with newcomer(self._context, self._sizes, self._root) as one:
            for name in rotate(list(self.cold), round_):
                drop_caches(self._raw, self._torch, self._root)
                self.cold[name].append(one.ask(name, paths.get(name)))
        end_agent(self._root)
        with newcomer(self._context, self._sizes, self._root) as one:
            fill_cache(self._torch, self._root)
            for name in rotate(list(self.warm), round_):
                self.warm[name].append(one.ask(name, paths.get(name)))
            with newcomer(self._context, self._sizes, self._root) as next_one:
                one.ask("save")
                one.kill()
                for name in rotate(list(self.memory), round_):
                    self.memory[name].append(next_one.ask(name))
        end_agent(self._root)


def measure_restore(
    report: Report, sizes: Sizes, folder: Path, state: State, context: ForkServerContext
) -> None:
    """Rows: restore cold, warm, and from the memory of an agent whose trainer was killed."""
    size = sum(tensor.nbytes for tensor in state.tensors())
    restores = Restores(context, sizes, folder)
    restores.prepare(state, size)
    for round_ in range(sizes.rounds):
        restores.run_round(round_)
    report.title(f"restore into a new process, Checkpointer included, medians of {sizes.rounds}")
    cold = {name: size / GIB / median(values) for name, values in restores.cold.items()}
    warm = {name: size / GIB / median(values) for name, values in restores.warm.items()}
    memory = {name: size / GIB / median(values) for name, values in restores.memory.items()}
    report.bound("read_gib_s", "cold: O_DIRECT, depth 16", cold["raw"], "GiB/s")
    report.note("cold_gib_s", "cold: Pawl, verified, all or nothing", cold["store"], "GiB/s")
    report.at_least("cold_to_raw", "cold: to the bound", cold["store"] / cold["raw"], 0.85, "x")
    beside = f"torch.load {cold['torch']:.2f} GiB/s"
    ratio = cold["store"] / cold["torch"]
    report.at_least("cold_to_torch", "cold: to torch.load", ratio, 1, "x", beside)
    report.note("warm_gib_s", "in the page cache: Pawl", warm["store"], "GiB/s")
    beside = f"torch.load {warm['torch']:.2f} GiB/s"
    ratio = warm["store"] / warm["torch"]
    report.at_least("warm_to_torch", "in the page cache: to torch.load", ratio, 1.5, "x", beside)
    report.bound("memcpy_gib_s", "from memory: memcpy", memory["memcpy"], "GiB/s")
    report.note("memory_gib_s", "from memory, trainer killed: Pawl", memory["memory"], "GiB/s")
    ratio = memory["memory"] / memory["memcpy"]
    report.at_least("memory_to_memcpy", "from memory: to the bound", ratio, 0.5, "x")
