"""Backward passes in two parts: gradients of inputs, then of parameters, with the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pawl.pipeline as pp
from pawl.errors import PawlError
from pawl.pipeline import _split
from pawl.pipeline._divide import _profile

WIDTH = 16


class Attention(nn.Module):
    """A block whose heads come from one product, with a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Outs(nn.Module):
    """Results that need an input and a parameter, a parameter alone, and an input alone."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.alone = nn.Parameter(torch.randn(WIDTH))
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x * self.scale.exp(), self.alone.tanh(), x.sin()


class Twice(nn.Module):
    """A weight that is used at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.linear(x).tanh())


def attached(module: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Results of a module with a graph, gradients for them, and its trained parameters."""
    made = module(x)
    outs = [t for t in (made if isinstance(made, tuple) else (made,)) if t.requires_grad]
    given = torch.Generator().manual_seed(1)
    grads = [torch.randn(t.shape, generator=given) for t in outs]
    return outs, grads, [p for p in module.parameters() if p.requires_grad]


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Conv1d(4, 2, 3)
    )


def frozen() -> nn.Module:
    made = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    made[0].requires_grad_(False)
    return made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(Attention(), nn.GELU(), Attention()), (2, 5, WIDTH)),
        (Outs, (3, WIDTH)),
        (conv, (3, 1, WIDTH)),
        (frozen, (3, WIDTH)),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, 4)), (3, WIDTH)),
    ],
)
def test_both_parts_give_the_bits_of_the_whole(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    module = make()
    x = torch.randn(shape, requires_grad=True)
    outs, grads, params = attached(module, x)
    whole = torch.autograd.grad(
        outs, [x, *params], grads, allow_unused=True, retain_graph=True, materialize_grads=False
    )
    divided = _split.divide(outs, [x], params)
    assert divided is not None
    found = [*divided.inputs(outs, grads), *divided.parameters()]
    assert [g is None for g in found] == [g is None for g in whole]
    assert all(torch.equal(a, b) for a, b in zip(found, whole, strict=True) if a is not None)


def test_the_first_part_leaves_parameters_alone() -> None:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    computed: list[str] = []
    x = torch.randn(3, WIDTH, requires_grad=True)
    weight = second.weight * 1.0
    weight.register_hook(lambda _: computed.append("weight"))
    outs = [nn.functional.linear(first(x), weight)]
    divided = _split.divide(outs, [x], [*first.parameters(), second.weight])
    assert divided is not None
    divided.inputs(outs, [torch.ones_like(outs[0])])
    assert computed == []
    assert all(g is not None for g in divided.parameters())
    assert computed == ["weight"]


def test_what_cannot_be_divided_stays_whole() -> None:
    x = torch.randn(3, WIDTH, requires_grad=True)
    outs, _, params = attached(Twice(), x)
    assert _split.divide(outs, [x], params) is None  # gradients would be added in another order
    outs, _, params = attached(nn.Linear(WIDTH, 2), x.detach())
    assert _split.divide(outs, [], params) is None  # nobody waits for a gradient
    outs, _, _ = attached(nn.Tanh(), x)
    assert _split.divide(outs, [x], []) is None


# ---- in a profile, and in a step ----


class Model(nn.Module):
    def __init__(self, remember: bool = False) -> None:
        super().__init__()
        self.emb = nn.Embedding(20, WIDTH)
        self.block = nn.Sequential(Attention(), nn.Dropout(0.2))
        self.twice = Twice()
        self.head = nn.Linear(WIDTH, 20)
        self.remember = remember

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        x = checkpoint(self.block, x, use_reentrant=False) if self.remember else self.block(x)
        return self.head(self.twice(x))


UNITS = ["emb", "block", "twice", "head"]
IDS = torch.arange(20).reshape(4, 5)


def loss_of(logits: Tensor) -> Tensor:
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), IDS.flatten()[: logits[..., 0].numel()]
    )


def halves_of(model: Model) -> dict[str, tuple[bool, bool]]:
    """Of each unit, whether each part of its backward pass takes time."""
    seen = _profile.survey(model, lambda backward: backward(loss_of(model(IDS))))
    units = [seen.tree.by_path[path] for path in UNITS]
    costs = _profile.measure(
        seen, units, lambda backward: backward(loss_of(model(IDS))), halves=True
    )
    return {u.path: (u.inputs_s > 0, u.params_s > 0) for u in costs.units}


def test_a_profile_measures_both_parts() -> None:
    both, whole = (True, True), (False, False)
    assert halves_of(Model()) == {
        "emb": (False, True),  # nobody waits for its gradients
        "block": both,
        "twice": whole,
        "head": both,
    }
    assert halves_of(Model(remember=True))["block"] == whole


def train(schedule: str, trace: Path | None = None) -> list[Tensor]:
    """Gradients of a step in this process."""
    pp.init(stages=1, microbatches=2, schedule=schedule, units=UNITS, seed=4)
    try:
        torch.manual_seed(2)
        model = pp.DistributedModel(Model())

        @pp.step
        def step(ids: Tensor) -> Tensor:
            loss = loss_of(model(ids))
            model.backward(loss)
            return loss

        step(IDS)
        if trace:
            pp.trace(trace)
        step(IDS)
        assert model.plan is not None and model.plan.schedule == schedule
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]
    finally:
        pp.shutdown()


def test_a_step_in_two_parts_has_the_same_bits(tmp_path: Path) -> None:
    whole, halves = train("1f1b"), train("zero-bubble", tmp_path / "step.json")
    assert len(whole) == len(halves) == 11
    assert all(torch.equal(a, b) for a, b in zip(whole, halves, strict=True))
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    kinds = {event["cat"] for event in events if event["ph"] == "X"}
    assert kinds == {"forward", "backward, inputs", "backward, parameters"}


def test_a_model_that_cannot_be_divided_is_refused() -> None:
    pp.init(stages=1, microbatches=2, schedule="zero-bubble", units=["twice"])
    try:
        model = pp.DistributedModel(nn.ModuleDict({"twice": Twice()}))

        @pp.step
        def step(x: Tensor) -> None:
            model.backward(model.module["twice"](x.clone().requires_grad_()).sum())

        with pytest.raises(PawlError, match="schedule zero-bubble divides backward passes in two"):
            step(torch.randn(2, WIDTH))
    finally:
        pp.shutdown()
