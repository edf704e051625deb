"""Shared by ranks of tests: named checks, all of them or those of the command line; a small job."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CHECKS: dict[str, Callable[[], None]] = {}
# Under the names that torch has from 2.13 on; it warns of the older ones.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def run_checks() -> None:
    """Runs the checks that the command line names, or all; prints "> NAME" for each that held."""
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]()
        print(f"> {name}", flush=True)


def rank() -> int:
    return dist.get_rank()


def world() -> int:
    return dist.get_world_size()


def refused(call: Callable[[], object], why: str, kind: type[Exception] = RuntimeError) -> None:
    try:
        call()
    except kind as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"not refused: {why}")


def train(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Trains for a step with gradients reduced by hand: DDP could not change its group."""
    model.zero_grad()
    model(torch.full((4, 100), 1.0)).square().mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    for gradient in gradients:
        dist.all_reduce(gradient, dist.ReduceOp.AVG, group=group)
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= 0.01 * gradient


def go_back(step: int, group: dist.ProcessGroup) -> int:
    """Returns the lowest step of all ranks, to go on from: some ranks may have done a step in which
    others failed."""
    lowest = torch.tensor(step)
    dist.all_reduce(lowest, dist.ReduceOp.MIN, group=group)
    return int(lowest)


def compare(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Checks that all ranks have the same weights, and that torch builds on the group as on any
    other. Prints "> RANK of RANKS: SUM"."""
    at, of = dist.get_rank(group), dist.get_world_size(group)
    weights = [torch.empty(10, 100) for _ in range(of)]
    dist.all_gather(weights, next(model.parameters()).detach(), group=group)
    assert all(torch.equal(weights[0], other) for other in weights)
    wrapped = DDP(nn.Linear(100, 10), process_group=group)
    wrapped(torch.ones(1, 100)).sum().backward()
    objects: list[object] = [None] * of
    dist.all_gather_object(objects, at, group=group)
    assert objects == list(range(of))
    print(f"> {at} of {of}: {weights[0].sum():.6f}")
