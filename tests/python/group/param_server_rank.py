"""A rank of a parameter server: a worker, or one of the servers.

Usage: param_server_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held. param_server_rank.py end SIGNAL RANK STALENESS: see end.
"""

from __future__ import annotations

import copy
import itertools
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import program
import waits
from group_checks import check, rank, refused, run_checks, world
from pawl._group import _param_server
from pawl.distributed import ParameterServer

LR = 0.05


class Net(nn.Module):
    """Parameters large and small, of odd sizes, another memory order, another type, unused, not
    trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(rank())  # all ranks begin with rank 0's parameters
        self.first = nn.Linear(205, 123)
        self.convolution = nn.Conv2d(64, 64, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm1d(123)
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(2))
        self.none = nn.Parameter(torch.ones(0))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.wide = nn.Linear(123, 171)
        self.last = nn.Linear(171, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.wide(self.norm(torch.tanh(self.first(x)))))
        bias = self.convolution(torch.ones(1, 64, 4, 4)).mean()
        return (self.last(x) + bias) * self.scale


def batch(step: int, of: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(1000 * step + of)
    return torch.randn(16, 205, generator=made)


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x[:, :3].cumsum(1)).square().mean()


def make(kind: type[torch.optim.Optimizer] = torch.optim.SGD, **options: object) -> tuple:
    """Returns a model, and an optimizer of two groups of its parameters."""
    model = Net()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": others, "lr": LR / 2}]
    return model, kind(groups, lr=LR, **options)


def serve(server: ParameterServer) -> None:
    """Serves to the end, and prints which ranks were lost."""
    server.serve()
    for text in server.lost.values():
        print(f"> {text}", flush=True)


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().double().reshape(-1) for p in model.parameters()])


def synchronous(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: object, workers: int, steps: int
) -> nn.Module:
    """Trains in one process on all workers' batches, added in the order of the workers."""
    replicas = [copy.deepcopy(model) for _ in range(workers)]  # each replica has buffers of its own
    for step in range(steps):
        for of, replica in enumerate(replicas):
            for mine, theirs in zip(replica.parameters(), model.parameters(), strict=True):
                mine.data.copy_(theirs.data)
            replica.zero_grad()
            loss_of(replica, batch(step, of)).backward()
        for p, *grads in zip(*(m.parameters() for m in (model, *replicas)), strict=True):
            total = torch.zeros_like(p)
            for replica in grads:
                total += replica.grad if replica.grad is not None else 0
            p.grad = total / workers if p.requires_grad else None
        optimizer.step()
        scheduler.step()
    return model


OPTIMIZERS = {
    torch.optim.SGD: {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
    torch.optim.Adam: {"amsgrad": True, "betas": (0.8, 0.95)},
    torch.optim.AdamW: {"weight_decay": 0.1, "fused": True},
    torch.optim.Adamax: {},
    torch.optim.NAdam: {},
    torch.optim.RAdam: {},
    torch.optim.RMSprop: {"centered": True},
    torch.optim.Adagrad: {},
    torch.optim.Adadelta: {},
}


@check
def like_synchronous() -> None:
    """With staleness 0, each optimizer and a scheduler give the parameters that one process
    gets."""
    assert set(OPTIMIZERS) == set(_param_server.ELEMENTWISE)
    for kind, options in OPTIMIZERS.items():
        for servers in (1, 2):
            model, optimizer = make(kind, **options)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            server = ParameterServer(model, optimizer, servers=servers)
            if server.serving:
                serve(server)
                continue
            alone = copy.deepcopy(model)
            pair = dict(zip(model.parameters(), alone.parameters(), strict=True))
            groups = [
                {"params": [pair[p] for p in g["params"]], "lr": g["lr"]}
                for g in optimizer.param_groups
            ]
            other = kind(groups, **options)
            for step in range(5):
                optimizer.zero_grad()
                loss_of(model, batch(step, rank())).backward()
                server.step()
                scheduler.step()
            server.leave()
            like = torch.optim.lr_scheduler.ExponentialLR(other, 0.9)
            synchronous(alone, other, like, server.workers, 5)
            for (name, mine), wanted in zip(
                model.named_parameters(), alone.parameters(), strict=True
            ):
                torch.testing.assert_close(
                    mine, wanted, msg=lambda m, n=name, k=kind: f"{k} {n} {m}"
                )


def train(
    server: ParameterServer, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int
) -> Iterator[int]:
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(step, rank())).backward()
        server.step()
        yield step


@check
def same_bits() -> None:
    """With staleness 0, two runs and all workers give the same bits."""
    ends = []
    for turn in range(2):
        model, optimizer = make(torch.optim.AdamW)
        server = ParameterServer(model, optimizer)
        if server.serving:
            serve(server)
        else:
            for step in train(server, model, optimizer, 10):
                # Delays gradients, so that they arrive in another order.
                waits.pretend_to_work(0.003 * ((step + rank() + turn) % 3))
            server.leave()
        ends.append(flat(model))
    every = [torch.empty_like(ends[0]) for _ in range(world())]
    for end in ends:
        dist.all_gather(every, end)
        assert all(torch.equal(end, every[0]) for end in every[: server.workers])
    dist.broadcast(ends[0], 0)
    assert server.serving or torch.equal(ends[0], ends[1])


@check
def rate() -> None:
    """Gradients one by one move the parameters as far as their mean would."""
    workers = dist.new_group(list(range(world() - 2)))
    model = nn.Linear(300, 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    server = ParameterServer(model, optimizer, servers=2, staleness=3)
    if server.serving:
        serve(server)
        return
    before = flat(model)
    for _ in range(5):
        optimizer.zero_grad()
        (sum(p.sum() for p in model.parameters()) * (rank() + 1)).backward()
        server.step()
    dist.barrier(group=workers)
    if rank() == 0:
        optimizer.zero_grad()
        server.step()  # a step with zero gradients
        mean = (server.workers + 1) / 2
        torch.testing.assert_close(flat(model), before - 5 * 0.1 * mean)
    dist.barrier(group=workers)
    server.leave()


@check
def announced() -> None:
    """A hook before the optimizer's steps is called before parameters change."""
    model, optimizer = make()
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(flat(model)))
    server = ParameterServer(model, optimizer)
    if server.serving:
        serve(server)
        return
    wanted = [flat(model)]
    for _ in train(server, model, optimizer, 3):
        assert model.last.weight.grad is not None
        wanted.append(flat(model))
    server.leave()
    assert len(seen) == 3 and all(map(torch.equal, seen, wanted)), len(seen)
    assert not torch.equal(wanted[0], wanted[1])


@check
def converges() -> None:
    for staleness in (0, 1, 5):
        model, optimizer = make(momentum=0.5)
        server = ParameterServer(model, optimizer, servers=2, staleness=staleness)
        if server.serving:
            serve(server)
            continue
        before = loss_of(model, batch(0, 99)).item()
        for _ in train(server, model, optimizer, 150):
            pass
        server.leave()
        after = loss_of(model.eval(), batch(0, 99)).item()
        assert after < before / 5, (staleness, before, after)


@check
def balanced() -> None:
    """Servers' cuts of the parameters of one kind are balanced, whatever the sizes."""
    for servers in (1, 2, 3, 7):
        for vector in _param_server.lay_out(make()[1]):
            size = vector.entries[0].parameters[0].itemsize
            cuts = [vector.cut(i, servers) for i in range(servers)]
            sizes = [(high - low) * size for low, high in cuts]
            assert max(sizes) - min(sizes) <= 64, sizes
            assert sum(sizes) == vector.numel * size and cuts[0][0] == 0
            assert all(low * size % 64 == 0 for low, _ in cuts)
            pieces = [p for i in range(servers) for p in vector.pieces(i, servers)]
            for index, entry in enumerate(vector.entries):
                spans = [(start, end) for i, start, end in pieces if i == index]
                assert spans[0][0] == 0 and spans[-1][1] == entry.numel
                assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))


def shared_folder() -> Path:
    """Makes a new folder, which all ranks use."""
    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    return Path(folder[0])


@check
def bound() -> None:
    """A worker goes `staleness` steps ahead of one that waits, and no step further."""
    staleness = 2
    folder = shared_folder()
    model, optimizer = make()
    server = ParameterServer(model, optimizer, staleness=staleness)
    if server.serving:
        serve(server)
        return
    others = [folder / str(of) for of in range(1, server.workers)]
    mine = folder / str(rank())
    done = 0
    for done in train(server, model, optimizer, 3 + staleness):
        if rank() > 0:
            with open(mine, "a") as file:
                file.write(f"{done}\n")
        if rank() == 0:
            hold(others, done + 1 + staleness)
    assert done == 2 + staleness
    server.leave()


def hold(others: list[Path], wanted: int) -> None:
    """Waits until all others have done that many steps, and checks for a while that they do no
    more."""
    wanted = min(wanted, 5)

    def counts() -> list[int]:
        return [len(path.read_text().splitlines()) if path.exists() else 0 for path in others]

    program.wait_until(lambda: min(counts()) >= wanted, f"the others have done {wanted} steps")
    waits.stays(lambda: counts() == [wanted] * len(others), f"all have done {wanted}", 0.3)


@check
def uneven() -> None:
    """A worker with fewer batches leaves, and counts no longer."""
    for staleness in (0, 1):
        model, optimizer = make()
        server = ParameterServer(model, optimizer, staleness=staleness)
        if server.serving:
            serve(server)
            continue
        for _ in train(server, model, optimizer, 3 + 4 * rank()):
            pass
        server.leave()
        refused(server.step, "has left")


@check
def checkpoint() -> None:
    """A worker saves while it trains: the checkpoint has the model as it was then, not later
    updates."""
    import pawl

    torch.manual_seed(rank())
    model = nn.Sequential(nn.Linear(1000, 600), nn.Tanh(), nn.Linear(600, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    server = ParameterServer(model, optimizer, servers=2)
    if server.serving:
        serve(server)
        return
    root = tempfile.mkdtemp()
    state = {"model": model, "optimizer": optimizer}
    with pawl.Checkpointer(root, rank=0, world_size=1) as ckpt:
        wanted = {}
        for step in range(8):
            optimizer.zero_grad()
            model(torch.randn(4, 1000)).square().mean().backward()
            server.step()
            wanted[step] = flat(model)
            save = ckpt.save(step, state)
        server.leave()
        ckpt.flush()
        assert save.error is None, save.error
        for parameter in model.parameters():
            parameter.data.zero_()
        last = ckpt.restore(state)
        assert torch.equal(flat(model), wanted[last]) and last == 7, last


@check
def wrong() -> None:
    """Each wrong argument is refused at all ranks, with an error that names it."""
    model, optimizer = make()
    for arguments in ({"servers": 0}, {"servers": world()}, {"staleness": -1}):
        refused(
            lambda arguments=arguments: ParameterServer(model, optimizer, **arguments), "at least"
        )
    lbfgs = torch.optim.LBFGS(model.parameters())
    refused(lambda: ParameterServer(model, lbfgs), "LBFGS may need more")
    own = type("Own", (torch.optim.SGD,), {})(model.parameters())
    refused(lambda: ParameterServer(model, own), "Own may need more")
    refused(lambda: ParameterServer(nn.Linear(2, 2), optimizer), "of another model")
    refused(lambda: ParameterServer(model, optimizer, staleness=rank()), "rank 1 has other")
    small = nn.Linear(3, 2 + (rank() == 1))
    refused(lambda: ParameterServer(small, torch.optim.SGD(small.parameters())), "rank 1 has other")
    whole = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    sgd = torch.optim.SGD(whole.parameters())
    refused(lambda: ParameterServer(whole, sgd), "DistributedDataParallel")
    loss_of(model, batch(0, 0)).backward()
    momentum = torch.optim.SGD(model.parameters(), momentum=0.9)
    momentum.step()
    refused(lambda: ParameterServer(model, momentum), "has stepped")
    table = nn.Embedding(9, 3, sparse=True)
    server = ParameterServer(table, torch.optim.SGD(table.parameters()))
    if server.serving:
        refused(server.step, "is a server")
        serve(server)
    else:
        refused(server.serve, "is a worker")
        table(torch.tensor([1])).sum().backward()
        refused(server.step, "sparse")
        server.leave()


def die_once(there: list[Path], how: str) -> None:
    """Kills this process in the middle of training, whatever its other threads do."""
    program.wait_until(lambda: all(path.exists() for path in there), "all are there")
    os.kill(os.getpid(), getattr(signal, how))


def end(how: str, of: int, staleness: int) -> None:
    """Rank ``of`` ends badly after a few steps; workers print their number of steps, or the
    error."""
    folder = shared_folder()
    model, optimizer = make()
    server = ParameterServer(model, optimizer, servers=2, staleness=staleness)
    if server.serving and rank() != of:
        serve(server)
    elif server.serving:
        trains = [folder / str(worker) for worker in range(server.workers)]
        threading.Thread(target=die_once, args=(trains, how), daemon=True).start()
        server.serve()
    else:
        steps = 0
        most = 40 if of < server.workers else 1_000_000
        try:
            for steps in train(server, model, optimizer, most):
                if steps == 5:
                    (folder / str(rank())).touch()
                if steps == 5 and rank() == of:
                    os.kill(os.getpid(), getattr(signal, how))
            server.leave()
            print(f"> {steps + 1} steps")
        except RuntimeError as error:
            print(f"> {type(error).__name__}: {error}", flush=True)
            os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("BACKEND", "pawl"), timeout=timedelta(seconds=60))
    if sys.argv[1:2] == ["end"]:
        end(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        run_checks()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
