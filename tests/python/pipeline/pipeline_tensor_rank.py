"""A rank of pipelines between whose stages all kinds of tensors pass, and of what users do beside.

Usage: pipeline_tensor_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held.
"""

from __future__ import annotations

import copy
import functools
import io
import os
import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pawl.pipeline as pp
from group_checks import check, run_checks
from pawl.errors import PawlError
from pipeline_checks import (
    DEVICE,
    ROWS,
    WORLD,
    DividedModel,
    compare,
    numbers,
    pick,
    pipeline,
    same,
    seeded,
    spread,
)

WIDTH = 6


class Says(nn.Module):
    """A linear layer, and what a function makes of its result."""

    def __init__(self, function: Callable[..., Any], width: int = WIDTH) -> None:
        super().__init__()
        self.a = nn.Linear(width, width)
        self.function = function

    def forward(self, x: Tensor, *more: Any) -> Any:
        return self.function(self.a(x), *more)


class Ends(nn.Module):
    """Takes what the part before it returns, and makes rows of it."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, *args: Any) -> Tensor:
        return self.function(*args) * self.scale


PARTS = "parts.0 parts.1 parts.2 parts.3"


class Pairs(nn.Module):
    """Two pairs of modules, each on two stages: one makes something, the other one takes it."""

    def __init__(self, make: Callable[..., Any], take: Callable[..., Tensor]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Says(make), Ends(take), Says(make), Ends(take)])

    def forward(self, x: Tensor) -> Tensor:
        for i in (0, 2):
            made = self.parts[i](x)
            x = self.parts[i + 1](*made) if isinstance(made, tuple) else self.parts[i + 1](made)
        return x


def is_first() -> bool:
    return int(os.environ.get("RANK", "0")) % WORLD == 0


def train(model: Any, x: Tensor) -> Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


def rows(microbatches: int = 4) -> Callable[[int, int], Any]:
    return lambda at, replica: (numbers(ROWS * microbatches, WIDTH, seed=1000 * at + replica + 1),)


def passes(make: Callable[..., Any], take: Callable[..., Tensor], **more: Any) -> DividedModel:
    return compare(lambda: Pairs(make, take), train, rows(), parts=PARTS, microbatches=4, **more)


@check
def tensors_without_gradients() -> None:
    """Integers, flags, bytes and halves pass between stages beside those that train."""

    def make(x: Tensor) -> Any:
        return (
            x, x.argmax(1), x > 0, (x * 10).to(torch.int8), (x > 0).to(torch.uint8),
            x.bfloat16().detach(), x.half().detach(), x.argmax(1).to(torch.int16),
        )  # fmt: skip

    def take(x: Tensor, top: Tensor, flags: Tensor, *others: Tensor) -> Tensor:
        x = x * flags + F.one_hot(top, WIDTH)
        for other in others:
            x = x + (other.to(x.dtype) if other.dim() == 2 else other[:, None].to(x.dtype))
        return x

    passes(make, take)


@check
def shapes_of_all_kinds() -> None:
    """No dimension, no element, ten dimensions; transposed, sliced, expanded, channels last."""
    passes(lambda x: (x, x.sum(), x.max()), lambda x, s, m: x * s.tanh() + m)
    passes(lambda x: (x, x[:0], x[:, :0]), lambda x, e, f: x + e.sum() + f.sum())
    passes(lambda x: x.t(), lambda t: t.t() * 2)
    passes(lambda x: (x[::2], x[1::2, 1:5]), lambda a, b: torch.cat([a, F.pad(b, (1, 1))]))
    passes(lambda x: (x[:1].expand(ROWS, WIDTH), x), lambda e, x: e + x)
    passes(lambda x: (x.sum().expand(3), x), lambda e, x: e.sum() + x)
    passes(
        lambda x: x.reshape(2, 4, 2, 3).contiguous(memory_format=torch.channels_last),
        lambda x: (x * 2).reshape(ROWS, WIDTH),
    )
    passes(lambda x: x.reshape(2, 1, 2, 1, 2, 1, 1, 2, 3, 1), lambda x: x.reshape(ROWS, WIDTH) * 2)
    passes(
        lambda x: x.flip(0).diagonal(), lambda d: d[:, None] + torch.zeros(WIDTH, WIDTH).double()
    )
    passes(lambda x: x.unfold(1, 3, 1), lambda x: x.sum(1).repeat(1, 2))


@check
def complex_numbers() -> None:
    def make(x: Tensor) -> Any:
        z = torch.complex(x, x.roll(1, 0))
        return z, z.conj(), torch.fft.rfft(x), z.imag

    def take(z: Tensor, c: Tensor, f: Tensor, i: Tensor) -> Tensor:
        return (z * c).real + torch.fft.irfft(f, n=WIDTH) + i + z.abs()

    passes(make, take)


@check
def complex_numbers_of_the_frame() -> None:
    """Operators on complex numbers that the model's own forward function uses."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Says(lambda x: x) for _ in range(4)])

        def forward(self, x: Tensor) -> Tensor:
            x = self.parts[1](self.parts[0](x))
            z = torch.view_as_complex(x.reshape(-1, 3, 2))
            z = z * torch.polar(torch.ones(3).double(), torch.arange(3.0).double())
            x = torch.view_as_real(z).flatten(1)
            return self.parts[3](self.parts[2](x)) + z.conj().real.sum()

    compare(Model, train, rows(), parts=PARTS)


@check
def no_numbers() -> None:
    """NaN and infinity pass, forward and backward."""
    passes(lambda x: torch.where(x > 0.5, torch.nan, x), lambda x: torch.nan_to_num(x))
    passes(lambda x: torch.where(x > 0.5, torch.inf, x), lambda x: x.clamp(-1, 1))
    passes(lambda x: x / 0, lambda x: x)


@check
def inputs_that_require_gradients() -> None:
    def step(model: Any, x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = (2 * x).relu()
        loss = model(y + x).square().mean()
        model.backward(loss)
        return loss, x.grad.clone()

    compare(lambda: Pairs(lambda x: x, torch.tanh), step, rows(), parts=PARTS)


class Branches(nn.Module):
    """Four parts; the second one takes what the program uses, too."""

    def __init__(self, second: nn.Module, use: Callable[..., Tensor]) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Says(lambda x: x * 1.0) for _ in range(4)])
        self.parts[1] = second
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        return self.parts[3](self.parts[2](self.use(self.parts[0](x), self.parts[1])))


def branches(second: Callable[[], nn.Module], use: Callable[..., Tensor], error: str = "") -> None:
    """Compares such a model; with an error, it must be refused."""
    where = {f"parts.{i}": i * WORLD // 4 for i in range(4)}
    try:
        compare(lambda: Branches(second(), use), train, rows(), partition=where)
    except PawlError as raised:
        assert error and error in str(raised), raised
        assert "x.clone()" in str(raised) or not is_first(), raised
    else:
        assert not error, f"not refused: {error}"


@check
def a_relu_in_place_that_is_a_unit() -> None:
    """It changes what another branch has, as it does in one process; views would not see it."""

    def relu() -> nn.Module:
        return nn.ReLU(inplace=True)

    branches(relu, lambda x, part: part(x) + x)
    branches(relu, lambda x, part: [part(x), x * 2][1])
    branches(relu, lambda x, part: part(x[:, :2].repeat(1, 3)) + x)

    def view(x: Tensor, part: nn.Module) -> Tensor:
        first = x[:, :2]
        return part(x) + first.sum()

    branches(relu, view, "parts.1 changes its argument in place")

    def twice(x: Tensor, part: nn.Module) -> Tensor:
        y = part(x)
        y.add_(1)
        return x + y

    branches(relu, twice, "in place, a tensor of shape (8, 6) which parts.1 has returned or taken")


@check
def results_that_share_memory() -> None:
    """A module that returns its argument, or a view of it, of which the program changes one."""
    error = "which parts.1 has returned or taken"
    for middle in (lambda x: x, lambda x: x.view(-1), lambda x: x[:, 1:]):

        def make(middle: Callable[[Tensor], Tensor] = middle) -> nn.Module:
            return Passes(middle)

        def result(x: Tensor, part: nn.Module) -> Tensor:
            y = part(x)
            y.mul_(3)
            return x + y.sum()

        def argument(x: Tensor, part: nn.Module) -> Tensor:
            y = part(x)
            x.mul_(3)
            return x + y.sum()

        def dropped(x: Tensor, part: nn.Module) -> Tensor:
            x = part(x)
            x.mul_(3)
            return x.sum() * torch.ones(ROWS, WIDTH).double()

        branches(make, result, error)
        branches(make, argument, error)
        branches(make, lambda x, part: x + part(x).sum())
        branches(make, dropped)
    pair = lambda x: (x * 2,) * 2  # noqa: E731

    def both(x: Tensor, part: nn.Module) -> Tensor:
        a, b = part(x)
        a.add_(1)
        return a + b

    branches(lambda: Passes(pair), both, error)

    def own(x: Tensor, part: nn.Module) -> Tensor:
        mine = torch.ones(3, 6)
        y = part(mine)
        y.mul_(3)
        return x + mine.sum()

    branches(lambda: Passes(lambda x: x), own, error)


@check
def a_buffer_that_is_returned() -> None:
    """Its numbers are those of the call, although later calls change it."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(1, WIDTH).double())

        def forward(self, x: Tensor) -> Any:
            self.n += 1
            return x, self.n, self.n[:, :1]

    def use(x: Tensor, part: nn.Module) -> Tensor:
        x, n, first = part(x)
        return x * n + first

    branches(Counts, use)


class Passes(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@check
def what_a_module_keeps() -> None:
    """A loss that a module keeps as its attribute, as mixtures of experts do."""

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            x = F.linear(x, self.weight)
            self.loss = x.square().mean()
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Keeps() for _ in range(4)])

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = part(x)
            return x + sum(part.loss for part in self.parts)

    try:
        compare(Model, train, rows(), parts=PARTS)
    except PawlError as raised:
        assert "depends on a tensor that parts." in str(raised) and "return it" in str(raised)
    else:
        raise AssertionError("not refused")


@check
def hooks() -> None:
    """Hooks of modules and of parameters run as they do in one process."""

    class Model(Pairs):
        def __init__(self) -> None:
            super().__init__(lambda x: x, torch.tanh)
            self.seen: list[Any] = []
            self.parts[0].register_forward_hook(lambda _, __, out: out * 2)
            self.parts[1].register_forward_pre_hook(lambda _, args: (args[0] + 1,))
            self.parts[2].a.register_forward_hook(lambda _, __, out: out + 0.5)
            self.parts[2].a.weight.register_hook(lambda g: g * 3)
            self.parts[3].register_full_backward_hook(lambda _, gi, go: (gi[0] * 2,))

    compare(Model, train, rows(), parts=PARTS, steps=2)


@check
def tensor_hooks() -> None:
    """Hooks of tensors in the step function, and gradients that are kept there."""

    def step(model: Any, x: Tensor) -> Any:
        y = model(x)
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        loss = y.square().mean()
        model.backward(loss)
        return loss, y.grad.norm()

    compare(lambda: Pairs(lambda x: x, torch.tanh), step, rows(), parts=PARTS)


@check
def gradients_of_gradients_are_refused_or_right() -> None:
    def step(model: Any, x: Tensor) -> Any:
        y = model(x)
        (g,) = torch.autograd.grad(y.sum(), y)
        loss = (y * g).sum()
        model.backward(loss)
        return loss

    compare(lambda: Pairs(lambda x: x, torch.tanh), step, rows(), parts=PARTS)


@check
def a_compiled_module() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Says(lambda x: x.tanh()) for _ in range(4)])
            self.parts[3] = torch.compile(self.parts[3], backend="eager")
            self.parts[1].compile(backend="eager")

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = part(x)
            return x

    compare(Model, train, rows(), parts=PARTS)


@check
def evaluation() -> None:
    """A step without gradients, in eval mode, beside one that trains, and numbers that change."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Says(lambda x: x.tanh()) for _ in range(4)])
            self.drop = nn.Dropout(0.5)
            self.norm = nn.BatchNorm1d(WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = part(x)
            return self.drop(self.norm(x))

    for grad in (torch.no_grad, torch.inference_mode):
        plain = seeded(Model).eval()
        with pipeline(microbatches=4, partition=spread(PARTS, WORLD)):
            model = pp.DistributedModel(seeded(Model))

            @pp.step
            def train_step(x: Tensor, scale: float, model: Any = model) -> Any:
                loss = model(x).square().mean() * scale
                model.backward(loss)
                return loss

            @pp.step
            def evaluate(x: Tensor, model: Any = model) -> Any:
                y = model(x)
                return {"y": y, "n": int((y > 0).sum()), "grad": y.requires_grad}

            x = rows()(0, 0)[0]
            model.eval()
            train_step(x, 0.5)
            before = {n: p.grad.clone() for n, p in model.local_named_parameters()}
            with grad():
                found = evaluate(x)
            for i, part in enumerate(x.split(ROWS)):
                wanted = plain(part).detach()
                same(pick(found, i)["y"], wanted, "y", 1e-10)
                assert pick(found, i)["n"] == int((wanted > 0).sum())
                assert pick(found, i)["grad"] is False
            for name, p in model.local_named_parameters():
                same(p.grad, before[name], name)
            for i in range(3):
                train_step(x, 0.25 + i)
            model.train()
            train_step(x, 1.0)


@check
def copies() -> None:
    """deepcopy, pickle and torch.save of tensors in the step; the model's state after it."""

    def step(model: Any, x: Tensor) -> Any:
        y = model(x)
        loss = y.square().mean()
        d = y.detach()
        file = io.BytesIO()
        torch.save({"y": d}, file)
        file.seek(0)
        found = [
            copy.deepcopy(d), pickle.loads(pickle.dumps(d)), torch.load(file)["y"],
            d.clone(), torch.tensor(d.tolist()).double(), torch.from_numpy(d.numpy().copy()),
        ]  # fmt: skip
        model.backward(loss)
        return found

    compare(lambda: Pairs(lambda x: x, torch.tanh), step, rows(), parts=PARTS)


@check
def clipping() -> None:
    def make() -> nn.Module:
        return Pairs(lambda x: x, torch.tanh)

    for kind in (2.0, 1.0, float("inf")):
        plain = seeded(make)
        x = rows()(0, 0)[0]
        loss = sum(plain(part).square().mean() for part in x.split(ROWS)) / 4
        loss.backward()
        wanted = nn.utils.clip_grad_norm_(plain.parameters(), 0.01, kind)
        with pipeline(microbatches=4, partition=spread(PARTS, WORLD)):
            model = pp.DistributedModel(seeded(make))
            run = pp.step(lambda x, model=model: model.backward(model(x).square().mean()))
            run(x)
            same(pp.clip_grad_norm_(0.01, kind), wanted, f"the norm {kind}", 1e-12)
            for name, p in model.local_named_parameters():
                same(p.grad, plain.get_parameter(name).grad, name, 1e-12)


@check
def scaled_losses() -> None:
    """As torch's scaler in one process; at first the scale is too large."""

    def loss_of(model: Any, x: Tensor) -> Tensor:
        with torch.autocast(DEVICE, dtype=torch.float16):
            return model(x.float()).float().square().mean()

    def steps(run: Any, model: Any, optimizer: Any, scaler: Any, clip: Any) -> list[Any]:
        seen = []
        for n in range(6):
            optimizer.zero_grad()
            found = run(rows()(n, 0)[0])
            if n % 2:
                scaler.unscale_(optimizer)
                clip()
            scaler.step(optimizer)
            scaler.update()
            seen.append((float(found), scaler.get_scale()))
        return seen

    def make() -> nn.Module:
        return Pairs(lambda x: x, torch.tanh).float()

    arguments = {"init_scale": 2.0**22, "growth_interval": 2}
    plain = seeded(make).float()
    torchs = torch.amp.GradScaler("cpu", **arguments)

    def run_plain(x: Tensor) -> Tensor:
        losses = [loss_of(plain, part) for part in x.split(ROWS)]
        for loss in losses:
            torchs.scale(loss).backward()
        for p in plain.parameters():
            p.grad /= len(losses)
        return torch.stack(losses).mean()

    of_plain = torch.optim.SGD(plain.parameters(), lr=0.1)
    clip = functools.partial(nn.utils.clip_grad_norm_, list(plain.parameters()), 0.01)
    wanted = steps(run_plain, plain, of_plain, torchs, clip)
    assert len({scale for _, scale in wanted}) > 2
    with pipeline(microbatches=4, partition=spread(PARTS, WORLD)):
        model = pp.DistributedModel(seeded(make).float())
        scaler = pp.GradScaler(**arguments)

        @pp.step
        def train(x: Tensor) -> Tensor:
            loss = loss_of(model, x)
            model.backward(scaler.scale(loss))
            return loss

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        clip = functools.partial(pp.clip_grad_norm_, 0.01)
        found = steps(lambda x: train(x).reduce_mean(), model, optimizer, scaler, clip)
        assert [scale for _, scale in found] == [scale for _, scale in wanted]
        for (a, _), (b, _) in zip(found, wanted, strict=True):
            assert abs(a - b) <= 1e-3 * abs(b)
        for name, p in model.local_named_parameters():
            same(p.detach(), plain.get_parameter(name).detach(), name, 1e-3)


@check
def arguments_of_all_kinds() -> None:
    """Tensors are divided; flags, texts, numbers and None pass as they are."""

    def step(model: Any, batch: Any, flag: bool, nothing: None, scale: float) -> Any:
        assert flag is True and nothing is None and batch["name"] == "a"
        y = model(batch["x"]) + batch["more"][0] * batch["whole"]
        loss = (y * scale).square().mean()
        model.backward(loss)
        return loss

    def batch(at: int, replica: int) -> Any:
        x = rows()(at, replica)[0]
        whole = torch.tensor(0.5).double()
        return {"x": x, "more": [x * 2, 3], "whole": whole, "name": "a"}, True, None, 0.5

    compare(lambda: Pairs(lambda x: x, torch.tanh), step, batch, parts=PARTS)


def main() -> None:
    torch.set_num_threads(1)
    run_checks()


if __name__ == "__main__":
    main()
