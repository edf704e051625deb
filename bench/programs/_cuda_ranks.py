"""A rank of several that share one device, for cuda.py: all-reduces of its memory, then DDP.

_cuda_ranks.py DEVICE RUNS SHAPE SIZE...    SIZE: bytes of an all-reduce; SHAPE: "-" for no DDP

Backends take their turns, the order alternated. The first rank prints a JSON object with all that
is known, after each run: {"link": [down, up] in bytes a second, "reduce": {backend: {size: seconds
a run}}, "ddp": {way: seconds of a step, a run}, "parameters"}. Seconds are those of the slowest
rank, from an idle device to an idle one.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from programs._reduce import MAX, over_ranks
from shared._cuda_model import (
    SHAPES,
    Link,
    Shape,
    loss_of,
    make_batch,
    make_model,
    make_optimizer,
    synchronize,
)
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("pawl", "gloo")
WAYS = (*BACKENDS, "none")  # ways to train by DDP; none: no_sync
TIMEOUT = timedelta(seconds=60)
LINK_BYTES = 1 << 28
LONG_BYTES = 1 << 24  # larger operations are measured over FEW of them, others over MANY
MANY, FEW = 20, 3  # operations in a run
WARM = 2
STEPS = 2  # DDP steps in a run
# Relative difference of the gradients' norms that another order of additions in bfloat16 may make.
ALIKE = 0.02

Groups = dict[str, dist.ProcessGroup]


class Rank:
    def __init__(self, device: str, runs: int, groups: Groups) -> None:
        self.device = device
        self._runs = runs
        self._groups = groups
        self._gloo = groups["gloo"]
        self.found: dict[str, Any] = {"reduce": {}, "ddp": {}, "link": []}

    def say(self) -> None:
        if dist.get_rank() == 0:
            print(json.dumps(self.found), flush=True)

    def measure_link(self) -> None:
        """Measures the link at the first rank, while the others wait."""
        if dist.get_rank() == 0:
            link = Link(self.device, LINK_BYTES)
            self.found["link"] = [link.down(), link.up()]
        dist.barrier(self._gloo)

    def _time(self, times: int, work: Callable[[], None]) -> float:
        synchronize(self.device)
        dist.barrier(self._gloo)
        begun = time.perf_counter()
        for _ in range(times):
            work()
            synchronize(self.device)
        return over_ranks((time.perf_counter() - begun) / times, MAX, self._gloo)

    # ---- all-reduce ----

    def reduce(self, sizes: list[int]) -> None:
        found = {name: {str(size): [] for size in sizes} for name in BACKENDS}
        self.found["reduce"] = found
        for size in sizes:
            tensor = torch.zeros(size // 4, device=self.device)
            for name in BACKENDS:
                self._check(tensor, self._groups[name])
            for run in range(self._runs):
                for name in BACKENDS[:: -1 if run % 2 else 1]:
                    group = self._groups[name]
                    times = FEW if size >= LONG_BYTES else MANY
                    took = self._time(times, lambda g=group, t=tensor: dist.all_reduce(t, group=g))
                    found[name][str(size)].append(took)
                self.say()

    def _check(self, tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Raises an error if a sum is wrong, so that no figure is given for it. Warms up, too."""
        ranks = dist.get_world_size()
        for _ in range(WARM):
            tensor.copy_(torch.arange(tensor.numel(), device=self.device) % 1000 + dist.get_rank())
            want = tensor * ranks + (sum(range(ranks)) - dist.get_rank() * ranks)
            dist.all_reduce(tensor, group=group)
            if not torch.equal(tensor, want):
                raise RuntimeError(f"a wrong sum of {tensor.nbytes} bytes")
        tensor.zero_()

    # ---- DDP ----

    def train(self, shape: Shape) -> None:
        batch = make_batch(shape, self.device, seed=dist.get_rank())
        steps, norms = {}, {}
        for name in BACKENDS:
            model = make_model(shape, self.device)
            wrapped = DistributedDataParallel(model, process_group=self._groups[name])
            steps[name] = self._make_step(wrapped, batch)
            # Uses the model of the last backend.
            steps["none"] = self._make_step(wrapped, batch, wrapped.no_sync)
            steps[name]()
            norms[name] = self._norm(wrapped)
        if abs(norms["pawl"] / norms["gloo"] - 1) > ALIKE:
            raise RuntimeError(f"gradients' norms differ: {norms}")
        steps["none"]()
        self.found["parameters"] = sum(p.numel() for p in model.parameters())
        self.found["ddp"] = {name: [] for name in WAYS}
        for run in range(self._runs):
            for name in WAYS[:: -1 if run % 2 else 1]:
                self.found["ddp"][name].append(self._time(STEPS, steps[name]))
            self.say()

    @staticmethod
    def _make_step(
        model: DistributedDataParallel,
        batch: torch.Tensor,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Callable[[], None]:
        optimizer = make_optimizer(model)

        def step() -> None:
            optimizer.zero_grad()
            with within():
                loss_of(model, batch).backward()
            optimizer.step()

        return step

    def _norm(self, model: torch.nn.Module) -> float:
        """The norm of the gradients, which are the same on all ranks."""
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = float(sum(g.double().square().sum() for g in gradients)) ** 0.5
        most, least = over_ranks(norm, MAX, self._gloo), -over_ranks(-norm, MAX, self._gloo)
        if most != least:
            raise RuntimeError(f"gradients differ between ranks: norms from {least} to {most}")
        return norm


def main() -> None:
    device, runs, shape, *sizes = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    groups = {name: dist.new_group(backend=name, timeout=TIMEOUT) for name in BACKENDS}
    rank = Rank(device, int(runs), groups)
    rank.measure_link()
    rank.reduce([int(size) for size in sizes])
    if shape != "-":
        rank.train(dataclasses.replace(SHAPES[shape], rows=2))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
