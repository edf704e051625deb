"""One way of saving, in a process of its own (or in several, by torchrun), for headline.py.

_headline.py sizes WAY FOLDER BLOCKS WIDTH SAVES
_headline.py streamed WAY FOLDER BLOCKS WIDTH SAVES
_headline.py run WAY FOLDER BLOCKS WIDTH STEPS
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from shared._state import State, Training
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pawl

STEP_S = 0.3  # time of a forward and backward pass
CHECKPOINTS = 4  # number of checkpoints in a run
TIMEOUT_S = 600.0
ROWS = 16  # rows in a rank's batch in a run

Look = Callable[[], bool]  # returns whether a save is durable


class Saving:
    """A way to save parts (name -> module or optimizer) in folder, by all ranks."""

    def __init__(self, folder: Path, parts: dict[str, Any], size_bytes: int) -> None:
        self.folder = folder
        self.parts = parts

    def dicts(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def save(self, step: int) -> Look:
        """Begins a save; returns a function that tells whether it is durable."""
        return lambda: True

    def close(self) -> None:
        """Waits until all saves are durable."""


class Torch(Saving):
    """torch.save and fsync by the first rank, while the others wait."""

    def save(self, step: int) -> Look:
        if not dist.is_initialized() or dist.get_rank() == 0:
            with (self.folder / f"{step % 2}.pt").open("wb") as file:
                torch.save(self.dicts(), file)
                file.flush()
                os.fsync(file.fileno())
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.barrier()
        return lambda: True


class Dcp(Saving):
    """torch.distributed.checkpoint's async_save; a save waits for the one before."""

    def __init__(self, folder: Path, parts: dict[str, Any], size_bytes: int) -> None:
        super().__init__(folder, parts, size_bytes)
        self._future: Future[Any] | None = None
        self._group = dist.new_group()  # DDP uses the default group meanwhile

    def save(self, step: int) -> Look:
        self.close()
        path = self.folder / f"{step % 2}.dcp"
        if dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)
        future: Any = dcp.async_save(self.dicts(), checkpoint_id=path, process_group=self._group)
        self._future = future
        return future.done

    def close(self) -> None:
        if self._future is not None:
            self._future.result()


class Pawl(Saving):
    """Pawl, with each save made durable."""

    def __init__(self, folder: Path, parts: dict[str, Any], size_bytes: int) -> None:
        super().__init__(folder, parts, size_bytes)
        # Memory for two generations: half of this machine's memory might be less.
        # With a size of 0, 1 byte: Pawl streams.
        memory = round(2.2 * size_bytes) or 1
        self._ckpt = pawl.Checkpointer(folder / "root", keep=1, persist_every=0, memory=memory)

    def save(self, step: int) -> Look:
        save = self._ckpt.save(step, self.parts)
        return lambda: save.level == "durable"

    def close(self) -> None:
        if not self._ckpt.flush(TIMEOUT_S):
            sys.exit("what was saved does not become durable")


WAYS = {"none": Saving, "torch": Torch, "dcp": Dcp, "pawl": Pawl}


class Watched:
    """Training steps that check, between two matrix products, whether a save is durable."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.is_durable: Look = lambda: True
        self.durable_at: float | None = None

    def look(self) -> None:
        if self.durable_at is None and self.is_durable():
            self.durable_at = time.perf_counter()

    def step(self, optimizer: torch.optim.Optimizer) -> float:
        begun = time.perf_counter()
        for index in range(self._training.units):
            self._training.unit(index)
            self.look()
        optimizer.step()
        return time.perf_counter() - begun


def measure_sizes(way: str, folder: Path, blocks: int, width: int, saves: int) -> dict[str, Any]:
    """For each save: the training time lost until it is durable, and the seconds until then."""
    state = State(blocks, width)
    training = Training(state)
    size_bytes = sum(t.numel() * t.element_size() for t in state.tensors())
    saving = WAYS[way](folder, state.parts, size_bytes)
    training.calibrate(STEP_S)
    watched = Watched(training)
    watched.step(state.optimizer)
    seen: list[float] = []
    durable: list[float] = []
    for number in range(saves):
        plain_s = statistics.median(watched.step(state.optimizer) for _ in range(3))
        watched.durable_at = None
        begun = time.perf_counter()
        watched.is_durable = saving.save(number)
        stall_s = time.perf_counter() - begun
        watched.look()
        stall_s += watched.step(state.optimizer) - plain_s
        while watched.durable_at is None:
            stall_s += watched.step(state.optimizer) - plain_s
            if time.perf_counter() - begun > TIMEOUT_S:
                sys.exit("a save does not become durable")
        seen.append(stall_s)
        durable.append(watched.durable_at - begun)
    saving.close()
    return {"seen": seen, "durable": durable, "bytes": size_bytes}


def measure_streamed(way: str, folder: Path, blocks: int, width: int, saves: int) -> dict[str, Any]:
    """For each save of a state that leaves no memory for a copy: seconds until it is durable."""
    state = State(blocks, width)
    saving = WAYS[way](folder, state.parts, 0)
    durable: list[float] = []
    for number in range(saves):
        begun = time.perf_counter()
        look = saving.save(2 * number)  # torch.save writes over the same file
        while not look():
            time.sleep(0.001)
        durable.append(time.perf_counter() - begun)
    saving.close()
    return {"durable": durable, "bytes": sum(t.nbytes for t in state.tensors())}


def measure_run(way: str, folder: Path, blocks: int, width: int, steps: int) -> dict[str, Any]:
    """Seconds of a run with four checkpoints: to its last step, and until all are durable."""
    torch.manual_seed(0)
    layers = [nn.Linear(width, width) for _ in range(12 * blocks)]
    model: nn.Module = nn.Sequential(*layers)
    if dist.get_world_size() > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = torch.ones(ROWS, width)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    step()  # makes the optimizer's state and DDP's buckets
    size_bytes = 3 * sum(p.numel() * 4 for p in model.parameters())
    saving = WAYS[way](folder, {"model": model, "optimizer": optimizer}, size_bytes)
    dist.barrier()
    begun = time.perf_counter()
    for number in range(1, steps + 1):
        step()
        if number % (steps // (CHECKPOINTS + 1)) == 0 and number < steps:
            saving.save(number)
    dist.barrier()
    trained_s = time.perf_counter() - begun
    saving.close()
    dist.barrier()
    durable_s = time.perf_counter() - begun
    return {"trained": [trained_s], "all_durable": [durable_s], "bytes": size_bytes}


def main() -> None:
    what, way, path, *numbers = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for quiet in ("pawl", "torch.distributed", "torch.distributed.checkpoint"):
        logging.getLogger(quiet).setLevel(logging.ERROR)
    folder = Path(path)
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:  # DCP saves asynchronously only in a process group
        dist.init_process_group("gloo", f"file://{folder}/ranks", rank=0, world_size=1)
    measure = {"sizes": measure_sizes, "streamed": measure_streamed, "run": measure_run}[what]
    result = measure(way, folder, *(int(number) for number in numbers))
    if rank == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
