"""A rank that times DDP: _overlap.py ORDER STEPS.

ORDER: backends in the order in which they take their turns. How much a step computes is chosen so
that it takes as long as Gloo's reducing of its gradients. Prints, as the first rank, a JSON object:
{backend: {"compute", "reduce", "step": seconds in the slowest rank, "cpu": CPU seconds of all ranks
for one reducing}}.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from _reduce import MAX, SUM, cpu_s, over_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, LAYERS = 512, 20  # 21 MB of gradients
PROBE = 64  # samples, to see how long computing takes


def make_model() -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers)


def compute(model: nn.Module, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()


def time_rounds(rounds: int, work: object, group: dist.ProcessGroup) -> float:
    """Seconds a round in the slowest rank."""
    assert callable(work)
    work()
    dist.barrier(group)
    begun = time.perf_counter()
    for _ in range(rounds):
        work()
    return over_ranks((time.perf_counter() - begun) / rounds, MAX, group)


def measure(
    batch: torch.Tensor, steps: int, group: dist.ProcessGroup, gloo: dist.ProcessGroup
) -> dict[str, float]:
    model = DDP(make_model(), process_group=group)
    for _ in range(3):  # DDP makes its buckets anew after the first
        compute(model, batch)
    buckets = [torch.zeros(p.numel()) for p in model.parameters() if p.dim() > 1]

    def compute_alone() -> None:
        with model.no_sync():
            compute(model, batch)

    def reduce() -> None:
        for work in [dist.all_reduce(b, group=group, async_op=True) for b in buckets]:
            work.wait()

    found = {
        "compute": time_rounds(steps, compute_alone, gloo),
        "step": time_rounds(steps, lambda: compute(model, batch), gloo),
    }
    used = cpu_s()
    found["reduce"] = time_rounds(steps, reduce, gloo)
    found["cpu"] = over_ranks((cpu_s() - used) / (steps + 1), SUM, gloo)
    return found


def choose_batch(gloo: dist.ProcessGroup) -> torch.Tensor:
    """Computing with it takes as long as reducing."""
    model = make_model()
    gradients = torch.zeros(sum(p.numel() for p in model.parameters()))
    batch = torch.randn(PROBE, WIDTH)
    reduce_s = time_rounds(2, lambda: dist.all_reduce(gradients, group=gloo), gloo)
    compute_s = time_rounds(5, lambda: compute(model, batch), gloo)
    return torch.randn(max(1, round(PROBE * reduce_s / compute_s)), WIDTH)


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
