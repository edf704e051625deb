"""A rank that trains by DDP, 200 steps, or all ranks' part of it in one process: _curves.py ROWS.

Prints, as the first rank, a JSON object: {backend: {"OPTIMIZER BITS": the losses of DDP}} of pawl
and gloo, and under "whole" for each of some orders of the rows the losses of one process that has
the whole batch. Losses are means over all ranks.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 200
ORDERS = 4
OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}
DTYPES = {"fp64": torch.float64, "fp32": torch.float32}


def make_model(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(9)
    sizes = (24, 200, 200, 10)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after, dtype=dtype), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def batch(step: int, rank: int, rows: int, dtype: torch.dtype) -> torch.Tensor:
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 24, generator=made, dtype=torch.float64).to(dtype)


def train(model: nn.Module, optimizer: str, rows: Callable[[int], torch.Tensor]) -> torch.Tensor:
    chosen = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for step in range(STEPS):
        x = rows(step)
        loss = (model(x) - x[:, :10].sin()).square().mean()
        loss.backward()
        losses.append(loss.detach())
        chosen.step()
        chosen.zero_grad()
    return torch.stack(losses).double()


def train_ranks(optimizer: str, dtype: torch.dtype, rows: int, group: dist.ProcessGroup) -> list:
    model = DDP(make_model(dtype), process_group=group, bucket_cap_mb=0.1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    losses = train(model, optimizer, lambda step: batch(step, rank, rows, dtype))
    dist.all_reduce(losses, group=group)
    return (losses / ranks).tolist()


def train_whole(optimizer: str, dtype: torch.dtype, rows: int, order: int) -> list:
    """order: number of the order of the rows; 0: the order that the ranks have."""
    ranks = range(dist.get_world_size())
    at = torch.arange(rows * len(ranks))
    if order:
        at = torch.randperm(len(at), generator=torch.Generator().manual_seed(order))
    return train(
        make_model(dtype),
        optimizer,
        lambda step: torch.cat([batch(step, rank, rows, dtype) for rank in ranks])[at],
    ).tolist()


def main() -> None:
    torch.set_num_threads(1)
    rows = int(sys.argv[1])
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("pawl", "gloo")}
    cases = [(o, bits) for o in OPTIMIZERS for bits in DTYPES]
    said: dict = {
        name: {f"{o} {bits}": train_ranks(o, DTYPES[bits], rows, group) for o, bits in cases}
        for name, group in groups.items()
    }
    if dist.get_rank() == 0:
        said["whole"] = {
            f"{o} {bits}": [train_whole(o, DTYPES[bits], rows, order) for order in range(ORDERS)]
            for o, bits in cases
        }
        print(json.dumps(said))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
