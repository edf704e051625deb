"""A rank of test_smddp.py: every call of SMDDP 1.0 to 1.3, under whatever launcher.

Usage: smddp_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each that
held.
"""

from __future__ import annotations

import os

import smdistributed.dataparallel.torch.distributed as dist
import torch
from smdistributed.dataparallel.torch.parallel import DistributedDataParallel
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
from torch import nn

from group_checks import check, run_checks
from pawl import PawlError


def row(rank: int) -> torch.Tensor:
    return torch.arange(6.0) * (rank + 1)


def all_rows() -> torch.Tensor:
    return torch.stack([row(r) for r in range(dist.get_world_size())])


def gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
    into = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(into, tensor)
    return into


@check
def who_is_who() -> None:
    assert dist.is_available() and dist.is_initialized()
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK"
    found = dist.get_rank(dist.group.WORLD), dist.get_world_size(), dist.get_local_rank()
    assert found == tuple(int(os.environ[name]) for name in names), found
    ranks = torch.cat(gathered(torch.tensor([dist.get_rank()])))
    assert ranks.tolist() == list(range(dist.get_world_size()))


@check
def reductions() -> None:
    ops = dist.ReduceOp
    for op, wanted in (
        (None, all_rows().sum(0)),
        (ops.SUM, all_rows().sum(0)),
        (ops.AVERAGE, all_rows().mean(0)),
        (ops.MIN, all_rows().amin(0)),
        (ops.MAX, all_rows().amax(0)),
    ):
        tensor = row(dist.get_rank())
        assert dist.all_reduce(tensor, op, dist.group.WORLD) is None
        torch.testing.assert_close(tensor, wanted)
        assert all(torch.equal(each, tensor) for each in gathered(tensor))
    tensor = row(dist.get_rank())
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert torch.equal(tensor, all_rows().sum(0))


@check
def moves() -> None:
    tensor = row(dist.get_rank())
    assert dist.broadcast(tensor) is None
    assert torch.equal(tensor, row(0))
    last = dist.get_world_size() - 1
    tensor = row(dist.get_rank())
    dist.broadcast(tensor, src=last, async_op=True).wait()
    assert torch.equal(tensor, row(last))
    assert torch.equal(torch.stack(gathered(row(dist.get_rank()))), all_rows())
    world, rank = dist.get_world_size(), dist.get_rank()
    output_t = torch.empty(world)
    dist.all_to_all_single(output_t=output_t, input_t=torch.arange(world) + 100.0 * rank)
    assert output_t.tolist() == [100.0 * r + rank for r in range(world)]
    # Elements sent to each rank; every rank sends equally many to this one.
    sizes = [r + 1 for r in range(world)]
    got = torch.empty(world * (rank + 1))
    dist.all_to_all_single(got, torch.full((sum(sizes),), float(rank)), [rank + 1] * world, sizes)
    assert got.tolist() == [float(r) for r in range(world) for _ in range(rank + 1)]
    assert dist.barrier() is None
    dist.barrier(async_op=True).wait()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)))


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def batch(rank: int) -> torch.Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(rank))


@check
def ddp_averages() -> None:
    """Training starts from rank 0's parameters, whatever the others began with."""
    assert DDP is DistributedDataParallel
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Linear(6, 2), bucket_cap_mb=1, process_group=dist.group.WORLD)
    torch.manual_seed(0)
    alone, wanted = nn.Linear(6, 2), 0.0
    for r in range(dist.get_world_size()):
        alone.zero_grad()
        alone(batch(r)).square().mean().backward()
        wanted = wanted + gradients(alone) / dist.get_world_size()
    model(batch(dist.get_rank())).square().mean().backward()
    torch.testing.assert_close(gradients(model), wanted)
    assert all(torch.equal(each, gradients(model)) for each in gathered(gradients(model)))


@check
def ddp_no_sync() -> None:
    torch.manual_seed(0)
    model, alone = DDP(nn.Linear(6, 2)), nn.Linear(6, 2)
    alone.load_state_dict(model.module.state_dict())
    with model.no_sync():
        model(batch(dist.get_rank())).sum().backward()
    alone(batch(dist.get_rank())).sum().backward()
    torch.testing.assert_close(gradients(model), gradients(alone))
    model(batch(dist.get_rank())).sum().backward()
    assert all(torch.equal(each, gradients(model)) for each in gathered(gradients(model)))


@check
def ddp_leaves_buffers_alone() -> None:
    """Rank 0 may evaluate alone, since each rank keeps the statistics of its own batches."""
    torch.manual_seed(dist.get_rank())
    net = Net()
    net.norm.running_mean.fill_(dist.get_rank() + 1.0)
    model = DDP(net)
    assert net.norm.running_mean.tolist() == [1.0] * 8
    for step in range(2):
        model(batch(dist.get_rank() + 10 * step)).sum().backward()
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            model(batch(0))
    means = gathered(net.norm.running_mean)
    assert not torch.equal(means[0], means[-1])


@check
def ddp_of_some_ranks() -> None:
    group = torch.distributed.new_group([0])
    try:
        DDP(nn.Linear(2, 2), process_group=group)
    except PawlError as error:
        assert "group.WORLD is the only one" in str(error)
    else:
        raise AssertionError("a group of some ranks was accepted")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("ignored", timeout=5)
    run_checks()
