"""Saves and restores of a training on a device, in a process of its own, for cuda.py.

_cuda_save.py FOLDER SHAPE DEVICE [--ram=FOLDER] [--durable] [--rounds=N] [--seconds=N] ...

Ways take their turns, the order alternated, a quiet window of steps between each two. After every
save a JSON object with all that is known by then is printed, so that a hang loses only the rest.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from shared._bound import drop_caches
from shared._cuda_model import SHAPES, Link, Training, synchronize
from shared._cuda_ways import LIMIT_S, Pawl, Torch, Way, make_ways
from shared._peers import init_dcp

PAWLS = ("overlap", "now")
RARE = ("torch", "torch_ram", "dcp")  # ways that take long: see --rare
RESTORES = {"memory": "overlap", "torch_ram": "torch_ram", "disk": "now", "torch": "torch"}
COLD = ("disk", "torch")  # restores that read from a disk


class Found:
    """The results so far; also printed."""

    def __init__(self, size_bytes: int) -> None:
        self.saves: dict[str, list[dict[str, float]]] = {}  # way -> its saves, the first one first
        self.restores: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}  # part of the benchmark -> its error
        self.proofs: dict[str, str] = {}  # way of Pawl's -> proof of a save that was verified
        self.link: dict[str, list[float]] = {"down": [], "up": []}  # bytes a second
        self.quiet: list[float] = []  # seconds of a step
        self.size_bytes = size_bytes
        # True: Pawl and DCP save into memory; else all ways save to the disk.
        self.into_memory = False

    def say(self) -> None:
        print(json.dumps(vars(self)), flush=True)

    def attempt(self, what: str, work: Callable[[], None]) -> None:
        """Runs a part of the benchmark; notes its error, if it fails, so that the others go on."""
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
        try:
            work()
        except Exception as why:
            self.failed[what] = f"{type(why).__name__}: {why}"[:300]
        self.say()


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal, bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other.to(one.device))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: clone(one) for key, one in value.items()}
    return [clone(one) for one in value] if isinstance(value, list) else value


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.training = Training(SHAPES[args.shape], args.device)
        self.found = Found(sum(t.nbytes for t in self.training.tensors()))
        self.found.into_memory = args.ram is not None and not args.durable
        self.ways: dict[str, Way] = {}
        self._makers = make_ways(self.training, args.folder, args.ram, args.durable)
        self._link = Link(args.device, min(1 << 30, self.found.size_bytes))
        self._number = 0  # number of the last save
        self._last = 0.0  # seconds of the last window in which nothing was saved
        # Copy of the state that prove() saved; restores are compared with it.
        self._kept: dict[str, Any] = {}

    def measure_link(self) -> None:
        self.found.link["down"].append(self._link.down())
        self.found.link["up"].append(self._link.up())

    # ---- saves ----

    def run_saves(self) -> None:
        """Runs all rounds; the first one has the first saves. When time is up, only
        Pawl's ways go on.
        """
        begun = time.monotonic()
        self._last = self._quiet()
        for round_ in range(1 + self.args.rounds):
            late = (time.monotonic() - begun) / self.args.seconds
            if round_ > 2 and late > 2:
                break
            for name in list(self._makers)[:: -1 if round_ % 2 else 1]:
                if name in self.found.failed:
                    continue
                if name in RARE and not 0 < round_ <= self.args.rare:
                    continue
                if name not in PAWLS and round_ > 1 and late > 1:
                    continue
                self.found.attempt(name, lambda name=name: self._save(name))
            self.measure_link()

    def _quiet(self) -> float:
        took = self.training.time_steps(self.args.steps)
        self.found.quiet.append(took / self.args.steps)
        return took

    def _save(self, name: str) -> None:
        """Measures one save. Its cost is the difference from the windows before and
        after, without saves.
        """
        way = self.ways.get(name)
        if way is None:
            way = self.ways[name] = self._makers[name]()
        one: dict[str, float] = {}
        self._number += 1
        synchronize(self.training.device)
        begun = time.perf_counter()
        look = way.save(self._number)
        one["call"] = time.perf_counter() - begun
        windows = 0
        while windows == 0 or way.last not in one:
            for _ in range(self.args.steps):
                self.training.step(way.before_update)
                for level in look():
                    one.setdefault(level, time.perf_counter() - begun)
            synchronize(self.training.device)
            windows += 1
            if windows == 1:
                one["window"] = time.perf_counter() - begun
            if time.perf_counter() - begun > LIMIT_S:
                raise TimeoutError(f"not {way.last} within {LIMIT_S:g} s")
        whole = time.perf_counter() - begun
        before, self._last = self._last, self._quiet()
        quiet = (before + self._last) / 2
        one["lost"] = one.pop("window") - quiet
        one["lost_in_all"] = whole - windows * quiet
        self.found.saves.setdefault(name, []).append(one)

    # ---- what was saved, and restores ----

    def prove(self) -> None:
        """Verifies that a save by each of Pawl's ways holds the state as of the call of save()."""
        self._number += 1
        self._kept = clone(self.training.dicts())
        for name in PAWLS:
            if isinstance(self.ways.get(name), Pawl):
                self.found.attempt(f"proof of {name}", lambda name=name: self._prove(name))
            if f"proof of {name}" in self.found.failed:
                self.found.saves.pop(name, None)

    def _prove(self, name: str) -> None:
        way = self.ways[name]
        assert isinstance(way, Pawl)
        begun = time.perf_counter()
        save = way.checkpointer.save(self._number, self.training.parts)
        self.training.time_steps(self.args.steps)
        if not save.wait("committed", LIMIT_S):
            raise RuntimeError(f"not committed: {save.error}")
        if not way.checkpointer.flush(LIMIT_S):
            raise RuntimeError(f"not durable: {save.error}")
        self.found.saves[name][-1].setdefault("durable", time.perf_counter() - begun)
        folder = way.root / save.tag
        for part, kept in self._kept.items():
            (path,) = [one for one in folder.rglob("*") if one.stem == part and one.is_file()]
            read = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            if not same(kept, read):
                raise RuntimeError(f"{path.name} is not what was saved")
        if way.checkpointer.restore(self.training.parts) != self._number:
            raise RuntimeError("another step was restored")
        if not same(self._kept, self.training.dicts()):
            raise RuntimeError("what is restored is not what was saved")
        self.found.proofs[name] = save.proof

    def run_restores(self) -> None:
        begun = time.monotonic()
        there = [name for name, way in RESTORES.items() if way in self.ways]
        for round_ in range(self.args.rounds):
            if round_ > 0 and time.monotonic() - begun > self.args.restore_seconds:
                break
            for name in there[:: -1 if round_ % 2 else 1]:
                what, cold = f"restore {name}", name in COLD
                if what not in self.found.failed and (not cold or round_ < self.args.cold):
                    self.found.attempt(what, lambda name=name, cold=cold: self._back(name, cold))

    def _back(self, name: str, cold: bool) -> None:
        way = self.ways[RESTORES[name]]
        took = self._restore(way, cold) if isinstance(way, Pawl) else self._load(way, cold)
        self.found.restores.setdefault(name, []).append(took)

    def _restore(self, way: Pawl, cold: bool) -> float:
        """Seconds of a restore. cold: from the disk, by a new Checkpointer, whose
        start counts too.
        """
        if cold:
            way.forget()
            drop_caches(way.root)
        self._spoil()
        begun = time.perf_counter()
        if cold:
            way.open()
        step = way.checkpointer.restore(self.training.parts)
        synchronize(self.training.device)
        took = time.perf_counter() - begun
        if step != self._number or not same(self._kept, self.training.dicts()):
            raise RuntimeError(f"step {step} was restored, which is not what was saved")
        return took

    def _load(self, way: Way, cold: bool) -> float:
        assert isinstance(way, Torch)
        if cold:
            drop_caches(way.path)
        self._spoil()
        begun = time.perf_counter()
        loaded = torch.load(way.path, map_location=self.training.device, weights_only=True)
        for name, part in self.training.parts.items():
            part.load_state_dict(loaded[name])
        synchronize(self.training.device)
        return time.perf_counter() - begun

    def _spoil(self) -> None:
        for tensor in self.training.tensors():
            tensor.zero_()
        synchronize(self.training.device)

    def close(self) -> None:
        for name, way in self.ways.items():
            self.found.attempt(f"end of {name}", way.close)

    def drop_peers(self) -> None:
        """Closes the ways whose memory is not needed for restores."""
        for name in [name for name, way in self.ways.items() if not isinstance(way, (Pawl, Torch))]:
            self.found.attempt(f"end of {name}", self.ways.pop(name).close)
        if self.args.device == "cuda":
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("device")
    parser.add_argument("--ram", type=Path, help="a folder in memory")
    parser.add_argument("--durable", action="store_true", help="each save, on the disk")
    parser.add_argument("--rare", type=int, default=5, help="saves of what takes long")
    parser.add_argument("--cold", type=int, default=5, help="restores from the disk")
    parser.add_argument("--steps", type=int, default=5, help="of a window")
    parser.add_argument("--rounds", type=int, default=5, help="behind the first")
    parser.add_argument("--seconds", type=float, default=60, help="of saves, but for Pawl's")
    parser.add_argument("--restore-seconds", type=float, default=30, help="no new round after it")
    args = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)
    warnings.simplefilter("ignore")
    for quiet in ("pawl", "torch.distributed", "torch.distributed.checkpoint"):
        logging.getLogger(quiet).setLevel(logging.ERROR)
    init_dcp(args.folder)
    bench = Bench(args)
    bench.measure_link()
    bench.run_saves()
    bench.drop_peers()
    bench.found.attempt("proofs", bench.prove)
    bench.run_restores()
    bench.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
