"""A rank that times DDP: _overlap.py ORDER STEPS.

ORDER: backends in the order in which they take their turns. How much a step computes is chosen so
that its backward pass takes as long as Gloo's reducing of its gradients. Prints, as the first rank,
a JSON object: {backend: {"forward", "compute" (both passes), "reduce", "step_CAP" of DDP with
bucket_cap_mb=CAP: seconds in the slowest rank, "cpu": CPU seconds of all ranks for one reducing,
"beside": a computing of the first rank while the others only reduce, to one when nothing is}}.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from programs._reduce import MAX, SUM, cpu_s, over_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS = 512, 20  # 21 MB of gradients
SLOWED = 5  # measurements with and without
WARM = 3  # rounds before measuring: TCP learns what the network allows
PROBE = 64  # samples in a probe that measures how long computing takes
CAPS_MB = (25, 1)  # sizes of DDP's buckets: the default, and one that suits a network of 200 Mbit/s


def make_model() -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


def compute(model: nn.Module, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()


def time_rounds(rounds: int, work: object, group: dist.ProcessGroup) -> float:
    """Seconds of a round in the slowest rank."""
    assert callable(work)
    for _ in range(WARM):
        work()
    dist.barrier(group)
    begun = time.perf_counter()
    for _ in range(rounds):
        work()
    return over_ranks((time.perf_counter() - begun) / rounds, MAX, group)


def measure(
    batch: torch.Tensor, steps: int, group: dist.ProcessGroup, gloo: dist.ProcessGroup
) -> dict[str, float]:
    model = make_model()
    buckets = [torch.zeros(p.numel()) for p in model.parameters() if p.dim() > 1]

    def compute_alone() -> None:
        compute(model, batch)

    def begin() -> list[Any]:
        return [dist.all_reduce(b, group=group, async_op=True) for b in buckets]

    def reduce() -> None:
        for work in begin():
            work.wait()

    found = {
        "forward": time_rounds(steps, lambda: model(batch).square().mean(), gloo),
        "compute": time_rounds(steps, compute_alone, gloo),
    }
    for cap in CAPS_MB:
        wrapped = DDP(make_model(), process_group=group, bucket_cap_mb=cap)
        found[f"step_{cap}"] = time_rounds(steps, lambda m=wrapped: compute(m, batch), gloo)
    used = cpu_s()
    found["reduce"] = time_rounds(steps, reduce, gloo)
    found["cpu"] = over_ranks((cpu_s() - used) / (steps + WARM), SUM, gloo)
    beside = slow_down(compute_alone, begin, gloo)
    found["beside"] = over_ranks(beside if dist.get_rank() == 0 else 0, MAX, gloo)
    return found


def slow_down(
    compute_alone: Callable[[], None], reduce: Callable[[], list[Any]], gloo: dist.ProcessGroup
) -> float:
    """How much slower the first rank computes while the others reduce on the core
    that they leave free.
    """
    first, times = dist.get_rank() == 0, []
    for beside in (False, True) * SLOWED:
        dist.barrier(gloo)
        works = reduce() if beside else []
        begun = time.perf_counter()
        if first:
            compute_alone()
        times.append(time.perf_counter() - begun)
        for work in works:
            work.wait()
    return statistics.median(times[1::2]) / statistics.median(times[::2])


def choose_batch(gloo: dist.ProcessGroup) -> torch.Tensor:
    """Chooses a batch whose backward pass takes as long as reducing."""
    model = make_model()
    gradients = torch.zeros(sum(p.numel() for p in model.parameters()))
    batch = torch.randn(PROBE, WIDTH)
    reduce_s = time_rounds(2, lambda: dist.all_reduce(gradients, group=gloo), gloo)
    forward_s = time_rounds(5, lambda: model(batch).square().mean(), gloo)
    backward_s = time_rounds(5, lambda: compute(model, batch), gloo) - forward_s
    return torch.randn(max(1, round(PROBE * reduce_s / backward_s)), WIDTH)


def main() -> None:
    torch.set_num_threads(1)
    order, steps = sys.argv[1].split(","), int(sys.argv[2])
    dist.init_process_group("gloo")
    gloo = dist.group.WORLD
    assert gloo is not None
    groups = {name: dist.new_group(backend=name) for name in sorted(order)}
    batch = choose_batch(gloo)
    said = {name: measure(batch, steps, groups[name], gloo) for name in order}
    if dist.get_rank() == 0:
        print(json.dumps({**said, "batch": len(batch)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
