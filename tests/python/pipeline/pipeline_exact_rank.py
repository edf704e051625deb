"""A rank of pipelines that must compute what one process computes.

Usage: pipeline_exact_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import pawl.pipeline as pp
from group_checks import check, run_checks
from pawl import PawlError
from pawl.pipeline import _driver, _stubs
from pipeline_checks import (
    WIDTH,
    WORLD,
    Block,
    Skips,
    compare,
    pipeline,
    rows,
    seeded,
    spread,
    train,
)

BLOCKS = " ".join(f"blocks.{i}" for i in range(6))


@check
def skips() -> None:
    for microbatches in (1, 2, 3, 5, 8):
        for schedule in ("simple", "1f1b"):
            compare(
                Skips, train, rows(microbatches),
                microbatches=microbatches, schedule=schedule, parts=BLOCKS,
            )  # fmt: skip


@check
def replicas() -> None:
    for stages in [s for s in (1, 2) if WORLD % s == 0]:
        compare(Skips, train, rows(3), stages=stages, microbatches=3, parts=BLOCKS, steps=2)


class Tail(nn.Module):
    """Blocks, with something of one's own between them."""

    blocks: nn.ModuleList

    def __init__(self, n: int = 4, **more: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(n)])
        for name, module in more.items():
            self.add_module(name, module)


FOUR = " ".join(f"blocks.{i}" for i in range(4))


def body(function: Callable[[Any, Tensor], Tensor], **more: Callable[[], nn.Module]) -> Any:
    """A model of four blocks with this forward function."""

    class Made(Tail):
        def __init__(self) -> None:
            super().__init__(**{name: make() for name, make in more.items()})

        def forward(self, x: Tensor) -> Tensor:
            return function(self, x)

    return Made


def exact(
    function: Callable[[Any, Tensor], Tensor], step: Any = train, microbatches: int = 4, **more: Any
) -> Any:
    """Compares a model of four blocks with this forward function."""
    modules = more.pop("modules", {})
    return compare(
        body(function, **modules), step, rows(microbatches),
        microbatches=microbatches, parts=FOUR, **more,
    )  # fmt: skip


def chain(model: Any, x: Tensor) -> Tensor:
    for block in model.blocks:
        x = block(x)
    return x


@check
def branches_on_numbers() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        b = model.blocks
        x = b[0](x)
        if x[:, 0].sum() > 0:
            x = b[1](x)
        if (x > 0.1).any():
            x = b[1](x) + x
        y = b[2](x)
        return b[3](y) if y.mean().item() > -10 else y

    exact(forward, microbatches=6)


@check
def a_module_called_by_numbers() -> None:
    """The second block is called 0, 1 or 2 times."""

    def forward(model: Any, x: Tensor) -> Tensor:
        b = model.blocks
        times = int(x[0, 0].abs() * 10) % 3
        x = b[0](x)
        for _ in range(times):
            x = b[1](x)
        return b[3](b[2](x))

    def first(n: int) -> Callable[[int, int], Any]:
        """A batch whose first microbatch, which is profiled, calls the block n times."""

        def batch(at: int, replica: int) -> Any:
            x = rows(8)(at, replica)[0]
            x[0, 0] = n / 10 + 0.05
            return (x,)

        return batch

    compare(body(forward), train, first(1), microbatches=8, parts=FOUR, steps=2)
    compare(body(forward), train, first(2), microbatches=8, parts=FOUR)
    parts = "blocks.0 blocks.2 blocks.3"
    if WORLD <= 3:  # the second block is no unit then
        compare(body(forward), train, first(0), microbatches=8, parts=parts, steps=2)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(WIDTH, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(chain(self, self.emb(ids)))


def ids(microbatches: int = 4) -> Callable[[int, int], Any]:
    def batch(at: int, replica: int) -> Any:
        made = torch.Generator().manual_seed(77 + 100 * at + replica)
        return (torch.randint(0, 11, (3 * microbatches, 5), generator=made),)

    return batch


def predict(model: Any, x: Tensor) -> Tensor:
    logits = model(x)
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, 11), x[:, 1:].reshape(-1))
    model.backward(loss)
    return loss


@check
def tied_weights() -> None:
    parts = "emb blocks.0 blocks.1 blocks.2 blocks.3 head"
    visit = "emb blocks.0 blocks.1 blocks.2 blocks.3"
    for microbatches in (2, 4):
        for tied, where in (("replicate", parts), ("visit", visit), ("auto", "")):
            compare(
                Tied, predict, ids(microbatches),
                microbatches=microbatches, tied=tied, parts=where, steps=2,
                optimizer=lambda p: torch.optim.SGD(p, 0.1),
            )  # fmt: skip


@check
def a_weight_read_elsewhere() -> None:
    class Read(Tied):
        def __init__(self) -> None:
            super().__init__()
            del self.head

        def forward(self, ids: Tensor) -> Tensor:
            return F.linear(chain(self, self.emb(ids)), self.emb.weight)

    compare(Read, predict, ids(), steps=2, parts=FOUR, optimizer=lambda p: torch.optim.SGD(p, 0.1))

    def forward(model: Any, x: Tensor) -> Tensor:
        x = chain(model, x)
        return F.linear(x, model.blocks[1].a.weight + model.blocks[2].b.weight.t())

    exact(forward)


@check
def in_place() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        b = model.blocks
        x = b[0](x)
        x += x.mean()
        y = b[1](x)
        y[:, 0] = x[:, 1]
        y[0].mul_(2)
        z = b[2](y)
        z = z.relu_() * 1.5
        view = z[:, 2:]
        inner = view[:, 1]
        inner.add_(3 * x[:, 0])
        view.mul_(0.5)
        z[:, 0].clamp_(min=0.1)
        half, rest = z.chunk(2, 1)
        out = b[3](half.repeat(1, 2) * 2)
        out.add_(half.sum()).sub_(rest.sum())
        return out

    exact(forward)


@check
def in_place_of_flags() -> None:
    """masked_fill_, index_put_, scatter_, zero_ and copy_ on what other ranks have."""

    def forward(model: Any, x: Tensor) -> Tensor:
        b = model.blocks
        x = b[0](x)
        x = x.masked_fill_(x > 0.3, 0.3)
        y = b[1](x)
        y[y < -0.2] = 0.5
        y[torch.tensor([0, 2])] *= 3
        out = torch.zeros_like(y)
        out[1:] = b[2](y)[1:]
        out.scatter_add_(1, torch.zeros(out.shape[0], 1, dtype=torch.long), y[:, :1])
        buf = torch.zeros(out.shape[0], WIDTH, dtype=x.dtype)
        buf = buf + out
        buf[:, 1].copy_(x[:, 0])
        return b[3](buf)

    exact(forward)


@check
def batch_norm() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        b = model.blocks
        return b[3](model.norm(b[2](b[1](b[0](x)))))

    modules = {"norm": lambda: nn.BatchNorm1d(WIDTH)}
    for microbatches in (1, 3):
        exact(forward, modules=modules, microbatches=microbatches, steps=2)

    turns = itertools.count()

    def waiting(model: Any, x: Tensor) -> Tensor:
        """Every other microbatch waits, and its norm would run behind that of the next one."""
        b = model.blocks
        x = b[2](b[1](b[0](x)))
        if next(turns) % 2 == 0:
            x.sum().item()
        return b[3](model.norm(x))

    exact(waiting, modules=modules, microbatches=6, steps=2, schedule="simple")


@check
def frozen_and_unused() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        b = model.blocks
        x = b[0](x)
        y = b[1](x)
        model.spare(x)  # computed, and not used
        with torch.no_grad():
            y = y + model.still(x)
        return b[3](b[2](y))

    modules = {
        "spare": lambda: nn.Linear(WIDTH, WIDTH),
        "still": lambda: nn.Linear(WIDTH, WIDTH),
        "never": lambda: nn.Linear(WIDTH, WIDTH),
    }
    frozen = ("blocks.0.a.weight", "blocks.0.a.bias", "blocks.0.b.weight", "blocks.2.a.weight")
    if WORLD < 4:
        frozen += ("blocks.0.b.bias",) if WORLD == 1 else ()
    exact(forward, modules=modules, frozen=frozen, steps=2)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor | None


@dataclasses.dataclass
class Record:
    x: Tensor
    more: dict[str, Any]
    name: str = "record"


class Splits(nn.Module):
    """Returns what the wanted kind of container is."""

    def __init__(self, kind: str = "tuple") -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.kind = kind

    def forward(self, x: Tensor, *, scale: float = 1.0, rest: Any = None) -> Any:
        x = self.a(x) * scale
        if rest is not None:
            x = x + rest["x"]
        match self.kind:
            case "tuple":
                return x, None, x * 2
            case "dict":
                return {"x": x, "none": None, "y": [x + 1, "text", 3]}
            case "pair":
                return Pair(x, None)
            case "record":
                return Record(x, {"n": 5, "y": x.relu()})
        return x


@check
def kinds_of_results() -> None:
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Splits(k) for k in ("tuple", "dict", "pair", "record")])

        def forward(self, x: Tensor) -> Any:
            t, n, u = self.parts[0](x)
            assert n is None
            d = self.parts[1](t + u, scale=0.5, rest={"x": x, "n": 3})
            assert d["none"] is None and d["y"][1:] == ["text", 3]
            p = self.parts[2](d["x"] + d["y"][0])
            assert isinstance(p, Pair) and p.y is None
            r = self.parts[3](p.x, scale=2.0)
            assert isinstance(r, Record) and r.more["n"] == 5 and r.name == "record"
            return r.x + r.more["y"]

    parts = " ".join(f"parts.{i}" for i in range(4))
    compare(Kinds, train, rows(), parts=parts)


@check
def kinds_of_step_results() -> None:
    def step(model: Any, x: Tensor) -> Any:
        y = model(x)
        loss = y.square().mean()
        model.backward(loss)
        return {
            "loss": loss,
            "number": loss.item(),
            "text": f"{loss:.6f}",
            "nested": [(y.sum(), 3), {"a": None, "y": y[:, :2]}],
            "flag": bool((y > 0).any()),
            "list": y[0].tolist(),
            "numpy": float(y.detach().numpy().sum()),
        }

    exact(chain, step, steps=2)


@check
def numbers_inside_of_the_step() -> None:
    """item(), print and format of a loss, in the middle and after the backward pass."""

    def step(model: Any, x: Tensor) -> Any:
        y = model(x)
        loss = y.square().mean()
        before = loss.item()
        print(loss.item(), end="\n", flush=True)
        if before > 1e9:
            loss = loss * 0
        model.backward(loss)
        return before, float(loss), int(loss * 100), loss.detach().numpy().item()

    exact(chain, step)


@check
def two_losses() -> None:
    def step(model: Any, x: Tensor) -> Any:
        y = model(x)
        first, second = y.square().mean(), y.abs().sum()
        model.backward(first + 0.1 * second)
        return first, second

    exact(chain, step)

    def twice(model: Any, x: Tensor) -> Any:
        first = model(x).square().mean()
        model.backward(first)
        second = model(x * 2).abs().mean()
        model.backward(second)
        return first, second

    exact(chain, twice)


@check
def gradients_for_a_tensor() -> None:
    def weighted(model: Any, x: Tensor) -> Any:
        y = model(x)
        model.backward(y, torch.ones_like(y) * 0.25)
        return y.sum()

    exact(chain, weighted)


@check
def gradients_are_added() -> None:
    """Two steps without zero_grad."""
    exact(chain, steps=3)


class Keeps(nn.Module):
    """Keeps a result on itself while it waits for a number, a list, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Block() for _ in range(4)])
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.kept = self.parts[0](x)
        self.all = [self.kept]
        y = self.parts[1](self.kept)
        if y.sum() > 1e9:
            y = y + 1
        self.all.append(y)
        y = self.parts[2](y)
        if y.sum() > 1e9:
            y = y + 1
        return self.parts[3](y) + self.kept.detach() + sum(self.all)


@check
def what_the_program_keeps_on_its_modules() -> None:
    compare(Keeps, train, rows(), parts=" ".join(f"parts.{i}" for i in range(4)), steps=2)


@check
def states_of_ranks_make_the_whole() -> None:
    with pipeline(stages=WORLD, microbatches=2, partition=spread(BLOCKS, WORLD)):
        plain = seeded(Skips)
        whole = {name: value.clone() for name, value in plain.state_dict().items()}
        model = pp.DistributedModel(plain)
        assert dict(model.local_state_dict()).keys() == whole.keys()
        pp.step(lambda x: train(model, x))(rows(2)(0, 0)[0])
        mine = model.local_state_dict()
        assert all(value.shape == whole[name].shape for name, value in mine.items())
        if WORLD == 1:
            assert mine.keys() == whole.keys() == plain.state_dict().keys()
            return
        found: list[Any] = [None] * WORLD
        dist.all_gather_object(found, list(mine))
        assert sorted(name for names in found for name in names) == sorted(whole)
        try:
            model.state_dict()
        except PawlError as refused:
            assert "local_state_dict" in str(refused)
        else:
            raise AssertionError("a state with empty tensors")


@check
def operators_with_new_numbers() -> None:
    """Each step issues operators that no step before has; what is known of old ones goes."""

    def step(model: Any, x: Tensor, at: int) -> Tensor:
        loss = (model(x) * (1.0 / (at + 1))).square().mean()
        model.backward(loss)
        return loss

    with mock.patch.object(_driver, "_KEPT_MAX", 3), mock.patch.object(_stubs, "TEMPLATES_MAX", 0):
        compare(Skips, step, lambda at, r: (*rows()(at, r), at), parts=BLOCKS, steps=4)


@check
def autocast() -> None:
    def step(model: Any, x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x.float())
            loss = y.float().square().mean()
        model.backward(loss)
        return loss, y

    class Single(body(chain)):  # type: ignore[misc]
        def double(self) -> nn.Module:
            return self

    compare(Single, step, rows(), parts=FOUR, tolerance=1e-6)


def main() -> None:
    torch.set_num_threads(1)
    run_checks()


if __name__ == "__main__":
    main()
