"""What scripts do to a model of an elastic job: named checks, each prints "> NAME" if it held. The
test names the checks that it wants; elastic_checks.py has others."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import pawl.elastic as el
from elastic_checks import (
    N,
    Point,
    adaptive,
    epochs,
    loader_of,
    main,
    net,
    parted,
    same_everywhere,
    sgd,
    train_both,
    train_scaled,
    train_with,
    weights,
)
from group_checks import check, rank, refused, world


class Images(nn.Module):
    """Convolutions, with channels_last weights if asked for; a rank uses only one of two."""

    def __init__(self, memory: torch.memory_format, branches: int = 2) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.layers = nn.ModuleList(nn.Conv2d(3, 8, 2) for _ in range(branches))
        self.last = nn.Linear(8, 1)
        self.calls = 0
        self.double().to(memory_format=memory)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        layer = self.layers[(rank() + self.calls) % len(self.layers)]
        images = torch.stack([x, x.square(), x.sin()], 1).reshape(len(x), 3, 2, 3)
        return self.last(layer(images.to(self.last.weight.dtype)).tanh().mean((2, 3)))


@check
def channels_last() -> None:
    """Gradients that only some ranks have are laid out in the order of a weight's memory."""
    ours, theirs = train_both(lambda: Images(torch.channels_last), sgd, find_unused_parameters=True)
    assert weights(ours).equal(weights(theirs))
    same_everywhere(ours)


@check
def noise_of_channels_last() -> None:
    """Adam's second moments and gradients match: the noise does not depend on the order of
    weights."""
    for accum in (0, 1):
        found = []
        for memory in (torch.contiguous_format, torch.channels_last):
            model = Images(memory, branches=1)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            adapted = adaptive(model, optimizer)
            loader = parted(4, accum, torch.float64)
            for _ in epochs(1):
                train_with(adapted, optimizer, loader)
            found.append(adapted.noise.moments())
        for a, b in zip(*found, strict=True):
            assert a != 0 and abs(a / b - 1) < 1e-9, found


@check
def noise_of_unequal_ranks() -> None:
    """A batch that does not divide by the ranks gives the same results as any other."""
    if world() == 1:
        return
    z = torch.randn(3000, 20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    batch = 2 * world() - 1
    sqr = (0.3 - z.mean(0)).square().sum().item()
    var = (z - z.mean(0)).square().sum(1).mean().item() / batch
    model = Point()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    adapted = adaptive(model, optimizer)
    for _ in epochs(1):
        for (x,) in el.AdaptiveDataLoader(TensorDataset(z), batch_size=batch, shuffle=True):
            optimizer.zero_grad()
            adapted(x).backward()
            optimizer.step()
    told = adapted.noise.moments()
    assert abs(told[0] / sqr - 1) < 0.3 and abs(told[1] / var - 1) < 0.1, (told, sqr, var)


def clipped(adapted: Any, optimizer: torch.optim.Optimizer, loader: Any) -> None:
    """Trains for one loop of a script that clips gradients, in each part, too."""
    for x, y in loader:
        optimizer.zero_grad()
        (adapted(x) - y).square().mean().backward()
        nn.utils.clip_grad_norm_(adapted.parameters(), 0.5)
        optimizer.step()


@check
def clipping() -> None:
    """With accumulated gradients the sum is clipped, as if there were one part; the noise is that
    of the unclipped gradients."""
    found = []
    for accum in (0, 3):
        model = net(torch.float64)
        optimizer = sgd(model.parameters())
        adapted = adaptive(model, optimizer)
        loader = parted(8, accum, torch.float64)
        for _ in epochs(1):
            clipped(adapted, optimizer, loader)
        found.append(weights(model))
        same_everywhere(adapted)
    assert (found[0] - found[1]).abs().max() < 1e-12


@check
def noise_of_clipped() -> None:
    """The noise is that of gradients before a script clips them, also on a single rank."""
    for accum in (0, 3):
        found = []
        for loop in (train_with, clipped):
            model = net(torch.float64)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            adapted = adaptive(model, optimizer)
            loader = parted(4, accum, torch.float64)
            for _ in epochs(1):
                loop(adapted, optimizer, loader)
            found.append(adapted.noise.moments())
        assert found[0] == found[1] != (1.0, 0.0), found


@check
def left_in_a_part() -> None:
    """A loop that is left between two parts of a step forgets the parts it had."""
    model = net(torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    adapted = adaptive(model, optimizer)
    loader = parted(4, 3, torch.float64)
    found = []
    for _ in epochs(2):
        for part, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            (adapted(x) - y).square().mean().backward()
            optimizer.step()
            if part == 3:
                found.append([p.grad.clone() for p in model.parameters()])
            elif part == 5:
                break
    for a, b in zip(*found, strict=True):
        assert a.equal(b)


@check
def unscaled() -> None:
    """A script that unscales gradients itself, to clip them, skips the infinite step, too."""

    def clip(adapted: Any, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(adapted.parameters(), 1.0)

    train_scaled(clip)


@check
def a_group_is_added() -> None:
    """A parameter group may be added between two steps, between parts of one, and after a backward
    pass."""
    for accum, before_backward in ((0, True), (0, False), (1, True), (1, False)):
        model = net()
        optimizer = sgd(model[0].parameters())
        adapted = adaptive(model, optimizer, scaling_rule=el.LinearScale())
        loader = parted(4, accum)
        before, number = weights(model[2]), 0
        for _ in epochs(2):
            for x, y in loader:
                number += 1
                loss = (adapted(x) - y).square().mean()
                if number == 9 and before_backward:
                    optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.01})
                optimizer.zero_grad()
                loss.backward()
                if number == 9 and not before_backward:
                    optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.01})
                optimizer.step()
        assert len(adapted.noise.of_groups()) == 2 and not weights(model[2]).equal(before)
        same_everywhere(adapted)


@check
def closures() -> None:
    """A script that steps with a closure gets the same weights as one without, also where gradients
    are accumulated."""
    for accum in (0, 1):
        found = []
        for with_closure in (False, True):
            model = net()
            optimizer = sgd(model.parameters())
            adapted = adaptive(model, optimizer)
            loader = parted(4, accum)
            for _ in epochs(1):
                if not with_closure:
                    train_with(adapted, optimizer, loader)
                    continue
                for x, y in loader:

                    def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                        optimizer.zero_grad()  # noqa: B023
                        loss = (adapted(x) - y).square().mean()  # noqa: B023
                        loss.backward()
                        return loss

                    assert optimizer.step(closure) > 0
            found.append((weights(model), adapted.noise.moments()))
        assert found[0][0].equal(found[1][0]) and found[0][1] == found[1][1], found


class Rows(nn.Module):
    """A model with an embedding that has a sparse gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(8, 4, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(x.long().abs() % 8).sum((1, 2))[:, None]


@check
def sparse() -> None:
    model = Rows()
    optimizer = sgd(model.parameters())
    adapted = adaptive(model, optimizer)
    for _ in epochs(1):
        for x, _y in loader_of():
            refused(lambda x=x: adapted(x).mean().backward(), "rows.weight is sparse", ValueError)
            break


@check
def a_short_step() -> None:
    """The last step of a pass counts, and learns, in proportion to its samples, but at least as an
    initial batch."""
    for initial in (9, 3):
        model = net()
        optimizer = sgd(model.parameters())
        adapted = adaptive(model, optimizer, scaling_rule=el.LinearScale())
        loader = loader_of(initial * world())
        loader.autoscale_batch_size(9 * world(), (1, 9 * world()))
        loader._elastic._chosen = (9, 0, world())
        rates: list[float] = []
        record(adapted, rates)
        adapted.noise.moments = lambda: (0.0, 1.0)  # a step counts as much as its samples
        before = adapted.progress
        for _ in epochs(1):
            train_with(adapted, optimizer, loader)
        steps, rest = divmod(N, 9 * world())
        short = max(rest / (initial * world()), 1.0)
        assert len(rates) == steps + 1 and math.isclose(rates[0], 0.05 * 9 / initial)
        assert math.isclose(rates[-1], 0.05 * short), rates
        assert math.isclose(adapted.progress - before, N / (initial * world()))


def record(adapted: Any, rates: list[float]) -> None:
    """Returns the learning rate of each step."""
    plain, groups = adapted._plain_step, adapted.optimizer.param_groups
    adapted._plain_step = lambda: (rates.append(groups[0]["lr"]), plain())


class Written(dict[str, float]):
    """Stands in for a SummaryWriter."""

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self[name] = value


@check
def what_is_written() -> None:
    """After a loop, the values of the last step are written."""
    model = net()
    optimizer = sgd(model.parameters())
    adapted = adaptive(model, optimizer, scaling_rule=el.SqrtScale())
    loader = loader_of(world() * 2)
    loader.autoscale_batch_size(world() * 8, (1, 16), True)
    loader._elastic._chosen = (4, 1, world())
    for _ in epochs(1):
        for x, y in loader:
            optimizer.zero_grad()
            (adapted(x) - y).square().mean().backward()
            optimizer.step()
            inside = adapted.gain
        written = Written()
        adapted.to_tensorboard(written, 1, "AdaptDL/Model/")
        loader.to_tensorboard(written, 1, "AdaptDL/Data")
    assert adapted.scale == 4.0 and adapted.initial_batch == world() * 2
    told = {name.removeprefix("AdaptDL/Model/"): value for name, value in written.items()}
    assert told["Gain"] == adapted.gain == inside > 1.0
    assert told["Learning_Rate_Factor"] == 2.0
    assert told["Accum_Scale"] == 2.0 and told["Accum_Count"] == 2
    assert "AdaptDL/Data/Total_Batch_Size" in told and not any("//" in name for name in written)


if __name__ == "__main__":
    main()
