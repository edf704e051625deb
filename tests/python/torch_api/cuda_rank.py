"""A rank whose tensors are on a device that all ranks share (on_device.py): named checks.

Usage: cuda_rank.py NAME...; prints "> NAME" for each check that held. The variable BACKEND names
another backend than "pawl".
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import pawl.elastic as el
from elastic_checks import BATCH, adamw, adaptive, data, epochs, net, sgd
from group_checks import (
    all_gather_single,
    check,
    rank,
    reduce_scatter_single,
    run_checks,
    world,
)
from on_device import DEVICE, share

CUDA = DEVICE.type == "cuda"
BACKEND = os.environ.get("BACKEND", "pawl")
LARGE = 1 << 24 if CUDA else 1 << 18  # elements


@contextlib.contextmanager
def other_stream() -> Iterator[None]:
    """Queues work on a stream of its own, which waits only for work that takes some time."""
    if not CUDA:
        yield
        return
    stream = torch.cuda.Stream()
    torch.cuda._sleep(50_000_000)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, of: int | None = None) -> torch.Tensor:
    made = torch.Generator().manual_seed(rank() if of is None else of)
    return torch.randint(0, 9, shape, generator=made).to(dtype)


def calls() -> dict[str, Callable[[torch.device], torch.Tensor]]:
    """Returns every collective as a function that makes its tensors on a device and returns the
    result."""
    n, me, last = world(), rank(), world() - 1

    def here(device: torch.device, *shape: int, **options: Any) -> torch.Tensor:
        return numbers(*shape, **options).to(device)

    def reduce_all(device: torch.device, dtype: torch.dtype, op: Any) -> torch.Tensor:
        tensor = here(device, 1001, dtype=dtype)
        dist.all_reduce(tensor, op)
        return tensor

    def turned(device: torch.device) -> torch.Tensor:
        tensor = here(device, 30, 20).t()
        dist.all_reduce(tensor)
        return tensor

    def broadcast(device: torch.device) -> torch.Tensor:
        tensor = here(device, 77)
        dist.broadcast(tensor, last)
        return tensor

    def reduce(device: torch.device) -> torch.Tensor:
        tensor = here(device, 77)
        dist.reduce(tensor, last)
        return tensor

    def all_gather(device: torch.device) -> torch.Tensor:
        into = [torch.empty(r + 3, device=device) for r in range(n)]
        dist.all_gather(into, here(device, me + 3))
        return torch.cat(into)

    def gather_into(device: torch.device) -> torch.Tensor:
        into = torch.empty(n * 40, device=device)
        all_gather_single(into, here(device, 40))
        return into

    def reduce_scatter(device: torch.device) -> torch.Tensor:
        output = torch.empty(40, device=device)
        reduce_scatter_single(output, here(device, 40 * n))
        return output

    def gather_scatter(device: torch.device) -> torch.Tensor:
        into = [torch.empty(9, device=device) for _ in range(n)] if me == last else None
        dist.gather(here(device, 9), into, dst=last)
        output = torch.empty(9, device=device)
        dist.scatter(output, into, src=last)
        return output

    def swap(device: torch.device) -> torch.Tensor:
        output = torch.empty(n * 5, 3, device=device)
        dist.all_to_all_single(output, here(device, n * 5, 3))
        return output

    def ring(device: torch.device) -> torch.Tensor:
        got = torch.empty(500, device=device)
        works = [dist.isend(here(device, 500), (me + 1) % n), dist.irecv(got, (me - 1) % n)]
        for work in works:
            work.wait()
        return got

    found: dict[str, Callable[[torch.device], torch.Tensor]] = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64):
        found[f"all_reduce {dtype}"] = lambda d, t=dtype: reduce_all(d, t, dist.ReduceOp.SUM)
    found["mean"] = lambda d: reduce_all(d, torch.float32, dist.ReduceOp.AVG)
    found["largest"] = lambda d: reduce_all(d, torch.float32, dist.ReduceOp.MAX)
    several = [broadcast, reduce, all_gather, gather_into, reduce_scatter, gather_scatter]
    if "nccl" not in BACKEND:  # nccl takes contiguous tensors only
        several.append(turned)
    found |= {call.__name__: call for call in several}
    if n > 1:
        found |= {call.__name__: call for call in (swap, ring)}
    return found


@check
def collectives() -> None:
    """Collectives give the same results as with host memory, on any stream."""
    beside = contextlib.nullcontext
    for name, call in calls().items():
        wanted = call(torch.device("cpu"))
        for stream in (beside, other_stream):
            with stream():
                got = call(DEVICE)
            assert got.device == DEVICE and torch.equal(got.cpu(), wanted), (name, got, wanted)


@check
def large() -> None:
    """Several collectives are in flight, more than the allocators hold buffers for; all are freed
    at once."""
    works = [
        dist.all_reduce(torch.full((LARGE,), float(i), device=DEVICE), async_op=True)
        for i in range(4)
    ]
    for i, work in enumerate(works):
        work.wait()
        (tensor,) = work.result()
        assert torch.equal(tensor, torch.full((LARGE,), float(i * world()), device=DEVICE)), i


def batch(step: int, of: int) -> torch.Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(100 * step + of)).to(DEVICE)


def small_net() -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Linear(12, 300), nn.Tanh(), nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 3)]
    return nn.Sequential(*layers).to(DEVICE)


def train(model: nn.Module, rows: Callable[[int], torch.Tensor], **options: Any) -> list[float]:
    """Returns the losses of some steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)
    losses = []
    for step in range(6):
        optimizer.zero_grad()
        loss = (model(rows(step)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean.tolist()


def alone() -> list[float]:
    """Returns the losses of one process that trains with the whole batch."""
    return train(small_net(), lambda step: torch.cat([batch(step, r) for r in range(world())]))


def close(got: list[float], wanted: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(got), torch.tensor(wanted), rtol=1e-4, atol=1e-5)


@check
def ddp() -> None:
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        model = DDP(small_net(), bucket_cap_mb=0.1, **options)
        close(train(model, lambda step: batch(step, rank()), fused=True), alone())


@check
def fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(DEVICE.type, (world(),))
    model = small_net()
    for layer in [model[0], model[2], model]:
        fully_shard(layer, mesh=mesh)
    close(train(model, lambda step: batch(step, rank())), alone())


def moments(device: torch.device, make: Any) -> tuple[tuple[float, float], float, torch.Tensor]:
    """Trains an elastic job. Returns its norm and noise, its progress, and the weights."""
    model = net().to(device)
    optimizer = make(model.parameters())
    adapted = adaptive(model, optimizer)
    loader = el.AdaptiveDataLoader(data(), batch_size=BATCH, shuffle=False)
    before = adapted.progress  # the job counts progress over all models of this process
    for _ in epochs(12):
        for x, y in loader:
            optimizer.zero_grad()
            (adapted(x.to(device)) - y.to(device)).square().mean().backward()
            optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()
    return adapted.noise.moments(), adapted.progress - before, weights


def fused(parameters: Any) -> torch.optim.Optimizer:
    """Makes an optimizer that counts its steps on the device of its parameters."""
    return torch.optim.AdamW(parameters, lr=0.01, fused=True)


@check
def elastic() -> None:
    """Norms from a device, one step late, lead to the same moments as norms from the host."""
    for make in (sgd, adamw, fused):
        (square, noise), progress, weights = moments(torch.device("cpu"), make)
        (square2, noise2), progress2, weights2 = moments(DEVICE, make)
        print(make.__name__, square, square2, noise, noise2, progress, progress2, flush=True)
        assert square2 > 0 and abs(square2 - square) < 0.5 * square
        assert noise2 > 0 and abs(noise2 - noise) < 0.5 * noise
        assert abs(progress2 - progress) < 0.2 * progress
        torch.testing.assert_close(weights2, weights, rtol=0.1, atol=0.05)
        every = [torch.empty_like(weights2) for _ in range(world())]
        dist.all_gather(every, weights2)
        assert all(torch.equal(weights2, other) for other in every)


def main() -> None:
    share()
    if BACKEND == "pawl":
        el.init_process_group("pawl")
    else:
        dist.init_process_group(BACKEND, timeout=timedelta(seconds=60))
    run_checks()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
