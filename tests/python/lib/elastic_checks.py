"""Ranks of an elastic job compared with plain DDP: named checks, each prints "> NAME" if it
held."""

from __future__ import annotations

import io
import math
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import pawl.elastic as el
from group_checks import check, rank, refused, run_checks, world
from pawl.elastic import _gradients, _states

BACKEND = os.environ.get("BACKEND", "pawl")
N, BATCH = 96, 24
_made = 0


def data(dtype: torch.dtype = torch.float32) -> TensorDataset:
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(N, 6, generator=generator, dtype=dtype)
    noise = torch.randn(N, 1, generator=generator, dtype=dtype)
    return TensorDataset(x, x.sum(1, keepdim=True) + noise)


def net(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1)).to(dtype)


def adaptive(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Any:
    global _made
    _made += 1
    return el.AdaptiveDataParallel(
        model, optimizer, name=f"model{_made}", bucket_cap_mb=0.0005, **options
    )


def loader_of(
    batch: int = BATCH, dtype: torch.dtype = torch.float32, shuffle: bool = True
) -> el.AdaptiveDataLoader:
    """Returns the loader that the job trains with, as in a program that has no other one."""
    from pawl.elastic import _data

    loader = el.AdaptiveDataLoader(data(dtype), batch_size=batch, shuffle=shuffle)
    _data._training = loader._elastic
    return loader


def parted(each: int, accum: int, dtype: torch.dtype = torch.float32) -> el.AdaptiveDataLoader:
    """Returns a loader that gives each rank a fixed number of samples a step, in
    accumulated parts."""
    loader = loader_of(world() * each, dtype, shuffle=False)
    loader.autoscale_batch_size(world() * each, (1, world() * each), True)
    loader._elastic._chosen = (each // (accum + 1), accum, world())
    return loader


def epochs(n: int = 2) -> Iterator[int]:
    """Yields the next n epochs of this process, which has one job for all checks."""
    yield from el.remaining_epochs_until(el.finished_epochs() + n)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same_everywhere(model: nn.Module) -> None:
    mine = weights(model)
    every = [torch.empty_like(mine) for _ in range(world())]
    dist.all_gather(every, mine)
    assert all(other.equal(mine) for other in every)


def train_both(
    make: Callable[[], nn.Module],
    make_optimizer: Callable[[Any], torch.optim.Optimizer],
    forward: Callable[[nn.Module, torch.Tensor], torch.Tensor] = lambda model, x: model(x),
    **options: Any,
) -> tuple[Any, DDP]:
    """Trains one model with Pawl, and another with DDP on the batches that Pawl chose."""
    ours, theirs = make(), DDP(make(), bucket_cap_mb=0.0005, **options)
    mine, other = make_optimizer(ours.parameters()), make_optimizer(theirs.parameters())
    adapted = adaptive(ours, mine)
    loader = loader_of()
    for _ in epochs():
        for x, y in loader:
            for model, optimizer in ((adapted, mine), (theirs, other)):
                optimizer.zero_grad()
                (forward(model, x) - y).square().mean().backward()
                optimizer.step()
    return adapted, theirs


def train_with(adapted: Any, optimizer: torch.optim.Optimizer, loader: Any) -> None:
    """Trains for one loop over the loader."""
    for x, y in loader:
        optimizer.zero_grad()
        (adapted(x) - y).square().mean().backward()
        optimizer.step()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


@check
def like_ddp() -> None:
    """The weights are those of DDP, to the bit."""
    for make in (sgd, adamw):
        ours, theirs = train_both(net, make)
        assert weights(ours).equal(weights(theirs))
        same_everywhere(ours)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


@check
def buffers() -> None:
    """Running averages are rank 0's, as in DDP."""
    ours, theirs = train_both(Normed, sgd)
    assert weights(ours).equal(weights(theirs))
    for a, b in zip(ours.module.buffers(), theirs.module.buffers(), strict=True):
        assert a.equal(b)


class Branches(nn.Module):
    """A model of which a rank uses one of two layers in turn; no rank uses the third one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.ModuleList(nn.Linear(6, 1) for _ in range(3))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers[(rank() + self.calls) % 2](x)


@check
def unused() -> None:
    ours, theirs = train_both(Branches, adamw, find_unused_parameters=True)
    assert weights(ours).equal(weights(theirs))
    assert all(p.grad is None for p in ours.module.layers[2].parameters())
    same_everywhere(ours)


@check
def accumulated() -> None:
    """Steps of four accumulated parts equal steps of one part, but for rounding."""
    found = []
    for accum in (0, 3):
        model = net(torch.float64)
        optimizer = sgd(model.parameters())
        adapted = adaptive(model, optimizer)
        loader = parted(8, accum, torch.float64)
        seen = 0
        for _ in epochs(1):
            for x, y in loader:
                assert len(x) <= 8 // (accum + 1)
                seen += len(x)
                optimizer.zero_grad()
                (adapted(x) - y).square().mean().backward()
                optimizer.step()
        assert seen == N / world()
        found.append(weights(model))
        same_everywhere(adapted)
    assert (found[0] - found[1]).abs().max() < 1e-12


def noise_by_step(dtype: torch.dtype = torch.float64) -> list[tuple[float, ...]]:
    model = net(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    adapted = adaptive(model, optimizer)
    found = []
    for _ in epochs(2):
        for x, y in loader_of(dtype=dtype, shuffle=False):
            optimizer.zero_grad()
            (adapted(x) - y).square().mean().backward()
            optimizer.step()
            found.append(adapted.noise.moments())
    return found


@check
def late() -> None:
    """Norms that a device computes give the same noise, one step later."""
    at_once = noise_by_step()
    plain, _gradients.is_host = _gradients.is_host, lambda tensor: False
    try:
        later = noise_by_step()
    finally:
        _gradients.is_host = plain
    if world() > 1:
        assert later[0] == (1.0, 0.0)
        for a, b in zip(at_once, later[1:], strict=False):
            assert abs(a[0] / b[0] - 1) < 1e-5 and abs(a[1] / b[1] - 1) < 1e-5, (a, b)


class Point(nn.Module):
    """A model whose gradient at a sample is the vector from the sample to the parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.full((20,), 0.3, dtype=torch.float64))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return (self.at - z).square().sum(1).mean() / 2


@check
def noise_is_known() -> None:
    """The noise is right for all ranks' gradients, for accumulated ones, and, on one rank, for
    successive ones."""
    from pawl.elastic import _data

    z = torch.randn(4096, 20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    z *= torch.linspace(0.5, 2, 20)
    batch = 8 * world()
    sqr = (0.3 - z.mean(0)).square().sum().item()
    var = (z - z.mean(0)).square().sum(1).mean().item() / batch
    for accum in (0, 3):
        model = Point()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        adapted = adaptive(model, optimizer)
        loader = el.AdaptiveDataLoader(TensorDataset(z), batch_size=batch, shuffle=True)
        loader.autoscale_batch_size(batch, (1, batch), True)
        loader._elastic._chosen = (8 // (accum + 1), accum, world())
        _data._training = loader._elastic
        for _ in epochs(5 if world() > 1 or accum else 20):
            for (x,) in loader:
                optimizer.zero_grad()
                adapted(x).backward()
                optimizer.step()
        told = adapted.noise.moments()
        low, high = adapted.noise.interval()
        assert abs(told[0] / sqr - 1) < 0.25 and abs(told[1] / var - 1) < 0.15, (told, sqr, var)
        assert low < var / sqr < high and high < 2 * low, (low, var / sqr, high)
        assert adapted.noise.biased == (world() == 1 and accum == 0)


def train_scaled(meanwhile: Callable[[Any, Any, torch.optim.Optimizer], None]) -> None:
    """Trains with a GradScaler. ``meanwhile``: a call of the script between backward and step."""
    model = net()
    optimizer = sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    adapted = adaptive(model, optimizer, mp_scaler=scaler)
    loader = loader_of(world() * 8)
    loader.autoscale_batch_size(world() * 8, (1, world() * 8), True)
    loader._elastic._chosen = (4, 1, world())
    number, changed = 0, []
    for _ in epochs(1):
        for x, y in loader:
            number += 1
            before = weights(model)
            optimizer.zero_grad()
            loss = (adapted(x) - y).square().mean()
            if number == 4 and rank() == world() - 1:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            meanwhile(adapted, scaler, optimizer)
            scaler.step(optimizer)
            scaler.update()
            changed.append(not weights(model).equal(before))
    full = N // (world() * 8)
    assert changed[: 2 * full] == [i % 2 == 1 and i != 3 for i in range(2 * full)]
    assert scaler.get_scale() == 512.0
    same_everywhere(adapted)
    sqr, _ = adapted.noise.moments()
    assert sqr < 1e4  # the norm is that of unscaled gradients


@check
def scaled() -> None:
    """With a GradScaler, a step in which one rank has an infinite gradient is skipped, also when
    gradients are accumulated."""
    train_scaled(lambda adapted, scaler, optimizer: None)


@check
def two_models() -> None:
    """Two models, each with an optimizer, train in one loop, as in a GAN."""
    maker, judge = net(), net()
    optimizers = [sgd(maker.parameters()), adamw(judge.parameters())]
    makes, judges = (adaptive(m, o) for m, o in zip((maker, judge), optimizers, strict=True))
    for _ in epochs():
        for x, _y in loader_of():
            optimizers[1].zero_grad()
            judges(x).square().mean().backward()
            judges(x + makes(x).detach()).mean().backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            (makes(x) - judges(x)).square().mean().backward()
            optimizers[0].step()
    same_everywhere(makes)
    same_everywhere(judges)


class Slices(el.AdaptiveDataLoaderMixin):
    """A loader as users write them."""

    def __init__(self, x: torch.Tensor, batch_size: int) -> None:
        super().__init__(batch_size)
        self.x = x

    def __iter__(self) -> Iterator[torch.Tensor]:
        helper = self._elastic
        with helper.context():
            if helper.skipdone():
                return
            while helper.current_index < len(self.x):
                each = helper.current_local_bsz
                first = helper.current_index + rank() * each
                with helper.profile(self.training):
                    yield self.x[first : first + each]
                    helper.current_index += world() * each


@check
def loaders_of_users() -> None:
    model = net()
    optimizer = sgd(model.parameters())
    adapted = adaptive(model, optimizer)
    loader = Slices(data()[:][0], world() * 4)
    loader.autoscale_batch_size(world() * 8, (1, 48), True)
    loader._elastic._chosen = (4, 1, world())
    loader._elastic.train()
    from pawl.elastic import _data

    _data._training = loader._elastic
    changed = []
    for _ in epochs(1):
        for x in loader:
            before = weights(model)
            optimizer.zero_grad()
            adapted(x).square().mean().backward()
            optimizer.step()
            changed.append(not weights(model).equal(before))
    assert changed == [False, True] * (N // world() // 8)
    same_everywhere(adapted)


@check
def validation() -> None:
    """Loops without a step show each sample once, also to a model that is not wrapped."""
    seen = el.Accumulator()
    model = net()
    for _ in epochs(2):
        for x, _y in el.AdaptiveDataLoader(data(), batch_size=world() * 7):
            with torch.no_grad():
                model(x)
            seen["n"] += len(x)
    with seen.synchronized():
        assert seen["n"] >= 2 * N  # a rank without a sample of its own sees another rank's


@check
def schedules() -> None:
    """A scheduler sees the learning rates that it has set; steps use scaled ones."""
    model = net()
    optimizer = sgd(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    adapted = adaptive(model, optimizer, lr_scheduler=schedule, scaling_rule=el.LinearScale())
    loader = loader_of(world() * 4)
    loader.autoscale_batch_size(world() * 8, (1, 48))
    loader._elastic._chosen = (8, 0, world())
    rates = []
    plain = adapted._plain_step
    adapted._plain_step = lambda: (rates.append(optimizer.param_groups[0]["lr"]), plain())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in epochs(2):
            for x, y in loader:
                optimizer.zero_grad()
                (adapted(x) - y).square().mean().backward()
                optimizer.step()
                assert optimizer.param_groups[0]["lr"] == schedule.get_last_lr()[0]
            schedule.step()
    assert set(rates) == {0.1, 0.05}


def all_schedules(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Makes one scheduler of each kind that torch has."""
    of = torch.optim.lr_scheduler
    made = {
        "LambdaLR": lambda: of.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        "MultiplicativeLR": lambda: of.MultiplicativeLR(optimizer, lambda epoch: 0.9),
        "StepLR": lambda: of.StepLR(optimizer, 1),
        "MultiStepLR": lambda: of.MultiStepLR(optimizer, [1, 2]),
        "ConstantLR": lambda: of.ConstantLR(optimizer),
        "LinearLR": lambda: of.LinearLR(optimizer),
        "ExponentialLR": lambda: of.ExponentialLR(optimizer, 0.9),
        "PolynomialLR": lambda: of.PolynomialLR(optimizer, 10),
        "CosineAnnealingLR": lambda: of.CosineAnnealingLR(optimizer, 10),
        "CosineAnnealingWarmRestarts": lambda: of.CosineAnnealingWarmRestarts(optimizer, 2),
        "CyclicLR": lambda: of.CyclicLR(optimizer, 0.01, 0.1),
        "OneCycleLR": lambda: of.OneCycleLR(optimizer, 0.1, 50),
        "ReduceLROnPlateau": lambda: of.ReduceLROnPlateau(optimizer, patience=0),
        "SequentialLR": lambda: of.SequentialLR(
            optimizer, [of.ConstantLR(optimizer), of.ExponentialLR(optimizer, 0.9)], [1]
        ),
        "ChainedScheduler": lambda: of.ChainedScheduler(
            [of.ConstantLR(optimizer), of.ExponentialLR(optimizer, 0.9)]
        ),
    }
    kinds = {name for name, kind in vars(of).items() if isinstance(kind, type)}
    known = {name for name in kinds if issubclass(getattr(of, name), of.LRScheduler)}
    assert known - {"LRScheduler", "_LRScheduler"} <= made.keys(), known - made.keys()
    return made


@check
def every_schedule() -> None:
    """A scheduler of any kind sets the same rates as without Pawl, and goes on from what is
    saved."""
    for name in all_schedules(sgd(net().parameters())):
        bare = sgd(net().parameters())
        schedules = [all_schedules(bare)[name]()]
        model = net()
        optimizer = sgd(model.parameters())
        schedules.append(all_schedules(optimizer)[name]())
        adapted = adaptive(
            model, optimizer, lr_scheduler=schedules[1], scaling_rule=el.LinearScale()
        )
        for _ in epochs(3):
            for x, y in loader_of(world() * 24):
                optimizer.zero_grad()
                (adapted(x) - y).square().mean().backward()
                optimizer.step()
                bare.step()
            for schedule in schedules:
                schedule.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            rates = [of.param_groups[0]["lr"] for of in (bare, optimizer)]
            assert rates[0] == rates[1], (name, rates)
        saved = _states.bytes_of(adapted._state)
        before = optimizer.param_groups[0]["lr"]
        optimizer.param_groups[0]["lr"] = 7.0
        adapted._state.load(io.BytesIO(saved))
        assert optimizer.param_groups[0]["lr"] == before, name


@check
def gradients_of_nothing() -> None:
    """With gradients of zero, NaN and infinity, noise and progress stay finite, and equal on all
    ranks."""
    for factor in (0.0, float("nan"), float("inf")):
        model = net()
        optimizer = sgd(model.parameters())
        adapted = adaptive(model, optimizer)
        loader = loader_of()
        loader.autoscale_batch_size(2 * BATCH, (1, 2 * BATCH), True)
        before = adapted.progress
        for number, _ in enumerate(epochs(2)):
            for x, y in loader:
                optimizer.zero_grad()
                loss = (adapted(x) - y).square().mean()
                (loss * (factor if number == 0 else 1.0)).backward()
                optimizer.step()
        sqr, var = adapted.noise.moments()
        gain = adapted.progress - before
        assert math.isfinite(sqr + var + gain) and gain > 2 * N / BATCH - 1e-9, (
            factor,
            sqr,
            var,
            gain,
        )
        if factor == 0.0:
            same_everywhere(adapted)


@check
def fewer_samples_than_ranks() -> None:
    """Ranks without a sample see another rank's sample, which counts nothing."""
    few = TensorDataset(*(t[:1] for t in data(torch.float64)[:]))
    model = net(torch.float64)
    optimizer = sgd(model.parameters())
    adapted = adaptive(model, optimizer)
    alone = net(torch.float64)
    beside = sgd(alone.parameters())
    loader = el.AdaptiveDataLoader(few, batch_size=world())
    loader._elastic.train()
    from pawl.elastic import _data

    _data._training = loader._elastic
    for _ in epochs(3):
        for x, y in loader:
            optimizer.zero_grad()
            (adapted(x) - y).square().mean().backward()
            optimizer.step()
        beside.zero_grad()
        (alone(few[:][0]) - few[:][1]).square().mean().backward()
        beside.step()
    torch.testing.assert_close(weights(model), weights(alone), rtol=1e-12, atol=1e-14)
    same_everywhere(adapted)


@check
def any_loop_trains() -> None:
    """Each epoch makes two loaders, and one model is in eval mode; the loader that is autoscaled
    chooses the batch where it trains."""
    model = net(torch.float64).eval()
    optimizer = sgd(model.parameters())
    adapted = adaptive(model, optimizer)
    kept = el.AdaptiveDataLoader(data(torch.float64), BATCH)
    kept.autoscale_batch_size(2 * BATCH, (1, 2 * BATCH))
    kept._elastic._chosen = (2 * BATCH // world(), 0, world())
    totals: list[int] = []
    for number, _ in enumerate(epochs(3)):
        adapted.train(number == 1)
        for loader in (el.AdaptiveDataLoader(data(torch.float64), BATCH), kept):
            for x, y in loader:
                optimizer.zero_grad()
                before = weights(model)
                (adapted(x) - y).square().mean().backward()
                optimizer.step()
                assert loader.training and not before.equal(weights(model))
                totals.append(loader._elastic._micro.size)
        with torch.no_grad():
            for x, _y in el.AdaptiveDataLoader(data(torch.float64), BATCH):
                adapted(x)
        assert kept.training
    assert totals.count(2 * BATCH) > 3, totals
    same_everywhere(adapted)


@check
def sums_go_on() -> None:
    """After a restart, blocks that are shown again leave the sums of later loops as they are."""
    sums = el.Accumulator()
    for _ in epochs(1):
        sums += [("a", 1), ("b", 2)]
        sums -= {"b": 1}
        with sums.synchronized():
            sums.update(a=10)
            with sums.synchronized():
                assert dict(sums) == {"a": world() + 10, "b": world()}
            assert sums["a"] == world() + 10
            sums.clear()
        sums["a"] += 5
        sums._history.sync()
        saved = _states.bytes_of(sums._history)
        sums._results, sums._replayed = {}, {}
        sums._history.load(io.BytesIO(saved))
        with sums.synchronized():  # as after a restart, whose script comes to this block again
            assert dict(sums) == {"a": world(), "b": world()}
            sums.clear()
        with sums.synchronized():
            assert dict(sums) == {"a": 5 * world()}


class Drawn(Dataset[Any]):
    """A dataset that shows what its workers draw, and its state when they began."""

    def __init__(self) -> None:
        self.version = 0

    def __len__(self) -> int:
        return 4 * world()

    def __getitem__(self, i: int) -> Any:
        numbers = [random.random(), numpy.random.random(), torch.rand(1).item()]
        return os.getpid(), self.version, torch.tensor(numbers, dtype=torch.float64)


@check
def workers() -> None:
    """Workers have other seeds at each rank, and in each loop, unless they are persistent."""
    for stays in (False, True):
        dataset = Drawn()
        loader = el.AdaptiveDataLoader(
            dataset, world() * 2, num_workers=1, persistent_workers=stays
        )
        seen = []
        for _ in epochs(2):
            seen += list(loader)
            dataset.version += 1
        pids, versions = ([batch[i][0].item() for batch in seen] for i in range(2))
        drawn = seen[-1][2]
        every = [torch.empty_like(drawn) for _ in range(world())]
        dist.all_gather(every, drawn)
        assert len({row.item() for of in every for row in of.flatten()}) == 6 * world()
        assert (len(set(pids)), set(versions)) == ((1, {0}) if stays else (2, {0, 1}))


@check
def states_of_past_epochs_go() -> None:
    """The job has no more states after the last epoch than after the first."""
    begun, kept = el.finished_epochs(), el.Accumulator()
    counts = []
    _states.promise({f"adaptdl-accumulator-epoch{begun}-999": torch.empty(0)})
    for _ in epochs(3):
        sums = el.Accumulator()
        for x, _y in el.AdaptiveDataLoader(data(), BATCH):
            sums["n"] += len(x)
            kept["n"] += len(x)
        for of in (sums, kept):
            with of.synchronized():
                assert of["n"] > 0
        counts.append(len(_states.every()))
    assert counts[0] == counts[-1] == len(_states.every()) + 2, counts
    assert list(kept._history.results) == [begun + 2]
    assert not any(f"epoch{begun}-" in name for name in _states._pending)


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def wrong(call: Callable[[Any], object], values: Sequence[Any], why: str = "") -> None:
    """Each wrong value is refused with an error that names it."""
    for value in values:
        try:
            call(value)
        except (ValueError, TypeError) as told:
            assert (why or f"{value!r}") in str(told), told
            continue
        raise AssertionError(f"not refused: {value!r}")


@check
def what_is_refused() -> None:
    model = net()
    optimizer = sgd(model.parameters())
    adapted = adaptive(model, optimizer)
    x, _ = data()[:4]
    refused(lambda: adapted(x).mean().backward(), "outside AdaptiveDataLoader")
    refused(lambda: list(loader_of()), "inside remaining_epochs_until")
    loader, other = loader_of(), loader_of()
    for _ in epochs(1):
        refused(lambda: list(epochs(1)), "overlapping epoch loops")
        for _x in loader:
            refused(lambda: list(other), "overlapping dataloader iterations")
            refused(loader_of, "a loader may not be made inside of a loop")
            refused(el.Accumulator, "an Accumulator may not be made inside of a loop")
            break
    searches = torch.optim.LBFGS(net().parameters())
    refused(lambda: adaptive(net(), searches), "LBFGS", ValueError)
    wrong(loader.autoscale_batch_size, (BATCH - 1, 24.5, "48", True, 1 << 40))
    bounds = ((-3, 24), (0, 24), (25, 30), (1, 23), (8.5, 30.5), (8,), 8, (1, 1 << 40), (True, 24))
    wrong(lambda bad: loader.autoscale_batch_size(2 * BATCH, bad), bounds)
    wrong(loader_of, (0, -1, 2.5, "8", True, None, 1 << 31))
    loader.autoscale_batch_size(numpy.int64(2 * BATCH), (None, BATCH))
    assert loader._elastic._bounds() == (BATCH, 2 * BATCH, 1, BATCH, False)
    wrong(lambda bad: el.AdaptiveDataLoader(bad, BATCH), ([],), "at least 1 sample")
    endless = (Endless(), iter([1]))
    wrong(lambda bad: el.AdaptiveDataLoader(bad, BATCH), endless, "AdaptiveDataLoaderHelper")
    try:
        _states.State(adapted.key)
    except ValueError as why:
        assert "already exists" in str(why)
    else:
        raise AssertionError("not refused")


def main() -> None:
    torch.set_num_threads(1)
    el.init_process_group(BACKEND)
    run_checks()
    dist.destroy_process_group()
    if BACKEND == "gloo":  # DDP keeps its group, and gloo aborts now and then as Python ends
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
