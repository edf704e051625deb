"""pawl.elastic's protocol in simulated jobs: whatever happens, each sample counts once."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from conftest import SEED
from pawl.errors import PawlError
from simulated_job import Group, Rank, Shared, World

N, BATCH, EPOCHS = 70, 12, 2
EVENTS = 5
BLOCKS, SEEDS = (20, 25) if os.environ.get("PAWL_LONG") else (4, 10)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWL_LOG", "error")


@pytest.fixture(autouse=True, scope="module")
def group() -> Iterator[dist.ProcessGroup]:
    """Of this process, for all DDP."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def train(rank: Rank) -> None:
    rank.module("_model")._alone = lambda: dist.group.WORLD
    rank.module("_context")._job = rank.begin()
    el: Any = rank.modules["pawl.elastic"]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    data = TensorDataset(x, x.sum(1, keepdim=True) + x[:, :1] ** 2)
    net = nn.Linear(3, 1, dtype=torch.float64)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    model = el.AdaptiveDataParallel(net, optimizer)
    loader = el.AdaptiveDataLoader(data, BATCH, shuffle=True)
    checker = el.AdaptiveDataLoader(data, 40)
    rank.trains = True
    for epoch in el.remaining_epochs_until(EPOCHS):
        for inputs, outputs in loader:
            at = f"{epoch}:{loader._elastic.current_index}"
            optimizer.zero_grad()
            (model(inputs) - outputs).square().mean().backward()
            optimizer.step()
            if not loader._elastic._redo:
                rank.made[at] = loader._elastic._job.group.shared.members
        for inputs, _ in checker:
            model.module(inputs)
    rank.weights = torch.cat([p.detach().flatten() for p in net.parameters()])


@functools.cache
def undisturbed() -> Rank:
    world = World(0, train, 1)
    world.run(0)
    (rank,) = world.ranks
    if rank.failed is not None:
        raise rank.failed
    return rank


def try_seed(seed: int, script: Callable[[Rank], None] = train) -> None:
    world = World(seed, script, 2 + seed % 3)
    world.run(EVENTS)
    alone = undisturbed()
    assert alone.weights is not None
    ended = [rank for rank in world.ranks if rank.weights is not None]
    what = f"seed {seed}: {world.happened}"
    for rank in world.ranks:
        may = (rank.joins and not rank.made) or rank.was_frozen
        if rank.failed is not None and not may:
            raise AssertionError(f"{what}: {rank} failed") from rank.failed
    assert ended, what
    for rank in ended:
        steps = list(alone.made)[len(alone.made) - len(rank.made) :]
        assert list(rank.made) == steps, f"{what}: {rank} has made {rank.made}"
        assert rank.joins or len(rank.made) == len(alone.made), what
        for other in ended:  # no two parts of a job make the same step
            for step in rank.made.keys() & other.made.keys():
                both = other in rank.made[step] or rank in other.made[step]
                assert both, f"{what}: {rank} and {other} made {step} apart"
        assert torch.allclose(rank.weights, alone.weights, rtol=1e-9, atol=0), what


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whatever_happens(block: int) -> None:
    for seed in range(SEEDS):
        try_seed(SEED + block * SEEDS + seed)


def goes_on_alone(job: Any) -> None:
    """A rank that the others have left behind does."""
    plain = job.Job._shrink

    def shrink(self: Any) -> None:
        try:
            plain(self)
        except PawlError:
            self._succeed(Group(self.group.me, Shared([self.group.me])))

    job.Job._shrink = shrink


def forgets_who_is_behind(job: Any) -> None:
    """What one rank has agreed on and another one has not is done by the first only."""
    plain = job.Job.settle
    job.Job.settle = lambda self, lost, waiting: plain(self, lost, waiting)[:0]


def keeps_its_step(job: Any) -> None:
    """A step without all gradients is made."""
    plain = job.Job.check_gradients

    def check_gradients(self: Any) -> None:
        with contextlib.suppress(job.Skipped):
            plain(self)

    job.Job.check_gradients = check_gradients


@pytest.mark.parametrize("breaks", [goes_on_alone, forgets_who_is_behind, keeps_its_step])
def test_what_is_broken_is_found(breaks: Callable[[Any], None]) -> None:
    def script(rank: Rank) -> None:
        breaks(rank.module("_job"))
        train(rank)

    found = 0
    for seed in range(30):
        try:
            try_seed(seed, script)
        except AssertionError:
            found += 1
    assert found
