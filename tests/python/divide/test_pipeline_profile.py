"""What a measured run says about units, and that it leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import waits
from pawl.errors import PawlError
from pawl.pipeline._divide import _leaves, _profile, _trace, _units
from pawl.pipeline._divide._profile import Costs, Unit

Backward = Callable[[Tensor], None]


def measured(model: nn.Module, step: Callable[[Backward], Any], *paths: str, **how: Any) -> Costs:
    survey = _profile.survey(model, step, **how)
    names = paths or tuple(name for name, _ in model.named_children())
    return _profile.measure(survey, [survey.tree.by_path[path] for path in names], step)


def by_path(costs: Costs) -> dict[str, Unit]:
    return {unit.path: unit for unit in costs.units}


class Net(nn.Module):
    """Skips, dropout, buffers, an operator in between, a parameter of its own, a dead branch."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(8)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.mid = nn.Linear(8, 8)
        self.dead = nn.Linear(8, 8)
        self.idle = nn.Linear(2, 2)
        self.head = nn.Linear(8, 10)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.emb(x) * self.scale
        skip = h
        h = self.act(self.norm(h))
        h = self.mid(self.drop(h)) + skip
        self.dead(h)
        return self.head(h)


UNITS = ("emb", "norm", "act", "drop", "mid", "dead", "head")
X = torch.arange(10)


def net_step(model: nn.Module) -> Callable[[Backward], None]:
    return lambda backward: backward(F.cross_entropy(model(X), X))


def test_everything_is_as_it_was() -> None:
    model = Net()
    model.dead.eval()
    model.emb.weight.grad = torch.ones_like(model.emb.weight)
    grad = model.emb.weight.grad
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attributes = {id(m): set(m.__dict__) for m in model.modules()}

    def draws() -> list[Any]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    def step(backward: Backward) -> None:
        draws()
        model.train()
        net_step(model)(backward)

    states = [random.getstate(), np.random.get_state(), torch.get_rng_state()]
    expected = draws()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    measured(model, step, *UNITS)
    assert draws() == expected
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert model.emb.weight.grad is grad and torch.equal(grad, torch.ones_like(grad))
    assert all(p.grad is None for n, p in model.named_parameters() if n != "emb.weight")
    assert not model.dead.training and model.training
    assert all(set(m.__dict__) == attributes[id(m)] for m in model.modules())


def test_hooks_are_gone_after_an_error_too() -> None:
    model = Net()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(backward: Backward) -> None:
        model(X)
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        _profile.survey(model, step)
    assert all("_compiled_call_impl" not in m.__dict__ for m in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    out = model(X)
    out.sum().backward()  # the graph is whole
    assert model.emb.weight.grad is not None


def test_an_error_inside_of_a_unit_is_the_users() -> None:
    class Bad(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no good")

    model = nn.Sequential(nn.Linear(2, 2), Bad())
    with pytest.raises(ValueError, match="no good"):
        _profile.survey(model, lambda backward: backward(model(torch.rand(1, 2))))


def test_a_step_that_asks_for_no_backward_pass_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(PawlError, match=r"never called model\.backward"):
        _profile.survey(model, lambda backward: model(torch.rand(1, 2)))


def test_what_is_said_of_each_unit() -> None:
    model = Net()
    costs = measured(model, net_step(model), *UNITS)
    units = by_path(costs)
    assert [unit.path for unit in costs.units] == list(UNITS)  # in order of execution
    assert {path for path, unit in units.items() if unit.draws} == {"drop"}
    assert {path for path, unit in units.items() if unit.changes} == {"act"}
    assert units["act"].changes == ("args[0]",)
    assert units["dead"].no_gradient == ("dead.weight", "dead.bias")
    assert not any(unit.no_gradient for path, unit in units.items() if path != "dead")
    assert units["mid"].param_bytes == (64 + 8) * 4
    assert all(unit.backward_s > 0 and unit.forward_s > 0 for unit in costs.units)
    assert set(costs.frame.params) == {"idle.weight", "idle.bias", "scale"}
    assert costs.never_called == ("idle",)
    assert costs.frame.forward_s > 0 and costs.frame.backward_s > 0
    assert costs.measured and costs.clock == "cpu"


def test_units_that_change_their_buffers_are_found() -> None:
    class Assigns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + 1
            return x

    class Reads(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.register_buffer("mask", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.mask

    model = nn.Sequential(Reads(), nn.BatchNorm1d(4), Assigns(), nn.BatchNorm1d(4).eval())
    costs = measured(model, lambda backward: backward(model(torch.rand(3, 4)).sum()))
    assert [unit.path for unit in costs.units if unit.updates] == ["1", "2"]


def test_saved_bytes_are_those_that_autograd_keeps() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.ReLU())
    x = torch.rand(16, 8)
    costs = measured(model, lambda backward: backward(model(x).sum()))
    row = 16 * 8 * 4
    assert [unit.saved_bytes for unit in costs.units] == [row, 2 * row, row]


def test_a_chain_sends_activations_and_skips_count_until_they_are_used() -> None:
    model = Net()
    units = by_path(measured(model, net_step(model), *UNITS))
    row = 10 * 8 * 4
    ids, logits = 10 * 8, 10 * 10 * 4
    assert units["mid"].cut_bytes == row + row + row + logits  # in, mid's result back, sum, logits
    assert units["head"].cut_bytes == row + logits
    assert units["emb"].cut_bytes == ids + row + row + row + row + logits


def test_calls_with_other_arguments_count() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = Pair()
            self.two = Pair()

        def forward(self, x: Tensor) -> Tensor:
            a = self.one(x, flag=True)
            b = self.one(x[:2], flag=True)
            return a["sum"].sum() + b["sum"].sum() + self.two(x, flag=False)["sum"].sum()

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x: Tensor, flag: bool) -> dict[str, Any]:
            return {"sum": self.lin(x), "n": (len(x), flag), "mask": x.detach() > 0}

    model = Two()
    x = torch.rand(4, 3)
    costs = measured(model, lambda backward: backward(model(x)))
    assert by_path(costs)["one"].calls == 2


def test_tied_parameters_are_found() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(10, 8)
            self.head = nn.Linear(8, 10, bias=False)
            self.head.weight = self.emb.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.emb(x))

    model = Tied()
    (tied,) = measured(model, net_step(model)).tied
    assert tied.params == ("emb.weight",) and tied.units == ("emb", "head")
    assert tied.len_bytes == 320 and tied.readers == ()


def test_a_unit_that_reads_anothers_parameter_is_tied_to_it() -> None:
    class Reader(nn.Module):
        def __init__(self, other: nn.Module) -> None:
            super().__init__()
            self.lin = nn.Linear(8, 8)
            self.hidden = [other]

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.lin(x), self.hidden[0].weight)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(10, 8)
            self.head = Reader(self.emb)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.emb(x))

    model = Both()
    (tied,) = measured(model, net_step(model)).tied
    assert tied.units == ("emb", "head") and tied.readers == ("head",)


def test_buffers_that_the_model_reads_are_named() -> None:
    class Reads(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self[0].running_mean

    model = Reads(nn.BatchNorm1d(4))
    x = torch.rand(5, 4)
    costs = measured(model, lambda backward: backward(model(x).sum()))
    assert costs.frame.buffer_reads == ("0.running_mean",)


def test_calls_where_activations_are_computed_again_are_marked() -> None:
    class Ckpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            self.b = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(checkpoint(self.a, x, use_reentrant=False))

    model = Ckpt()
    x = torch.rand(4, 8)
    units = by_path(measured(model, lambda backward: backward(model(x).sum())))
    assert units["a"].repeated and not units["b"].repeated
    assert units["a"].backward_s > 0


def test_a_checkpoint_that_cannot_be_measured_is_refused_with_a_remedy() -> None:
    class Ckpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.a, x, use_reentrant=True)

    model = Ckpt()
    x = torch.rand(4, 8, requires_grad=True)
    with pytest.raises(PawlError, match="use_reentrant=False"):
        _profile.survey(model, lambda backward: backward(model(x).sum()))


def test_autocast_and_parts_without_gradients() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Linear(8, 8)
            self.lin = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                x = self.frozen(x)
            with torch.autocast("cpu", torch.bfloat16):
                return self.lin(self.lin(x)).float()

    model = Mixed()
    x = torch.rand(4, 8)
    costs = measured(model, lambda backward: backward(model(x).sum()))
    units = by_path(costs)
    assert units["frozen"].backward_s == 0 and units["lin"].backward_s > 0
    assert units["frozen"].no_gradient == ("frozen.weight", "frozen.bias")
    assert units["lin"].no_gradient == ()


def test_gradients_that_share_memory_with_others_are_left_alone() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight.sum()  # the gradient of weight is one number, expanded

    model = nn.Sequential(Sums(), nn.Embedding(4, 3, sparse=True))
    x = torch.rand(2, 3)

    def step(backward: Backward) -> None:
        backward(model[0](x).sum() + model[1](torch.tensor([1])).sum())

    costs = measured(model, step)
    assert not any(unit.no_gradient for unit in costs.units)


def test_a_wall_clock_counts_what_waits() -> None:
    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            waits.let_pass(0.02)
            return self.lin(x)

    model = nn.Sequential(Waits(), nn.Linear(8, 8))
    x = torch.rand(4, 8)
    costs = measured(model, lambda backward: backward(model(x).sum()), clock="wall")
    assert costs.clock == "wall" and costs.units[0].forward_s >= 0.02


def test_units_add_up_to_the_whole() -> None:
    """Each second of the run is charged to exactly one scope."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    x = torch.rand(64, 64)
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    tree = _trace.Tree(model)
    recorder = _trace.Recorder(tree, [tree.by_path[str(i)] for i in range(4)], clock, False)
    trace = recorder.run(lambda backward: backward(model(x).sum()))
    scopes = trace.scopes
    assert [scope.forward_s for scope in scopes] == [6.0, 1.0, 1.0, 1.0, 1.0]
    assert [scope.backward_s for scope in scopes] == [1.0] * 5


def test_structures_are_rebuilt_with_their_types() -> None:
    class Sub(dict[str, Any]):
        pass

    value = [(torch.ones(1), 2), Sub(a=torch.zeros(2), b="c"), torch.Size([1])]
    other = _leaves.swap(value, lambda name, tensor: tensor + 1)
    assert type(other[1]) is Sub and other[1]["b"] == "c" and other[2] is value[2]
    assert torch.equal(other[1]["a"], torch.ones(2)) and torch.equal(value[1]["a"], torch.zeros(2))
    names: list[str] = []
    assert _leaves.swap(value, lambda name, t: names.append(name) or t) is value
    assert names == ["[0][0]", "[1]['a']"]


@pytest.mark.slow
def test_gpt2_is_measured_as_it_is() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=4, n_embd=32, n_head=2, vocab_size=100, n_positions=16, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    ids = torch.randint(0, 100, (2, 16))

    def step(backward: Backward) -> Any:
        out = model(input_ids=ids, labels=ids)
        assert type(out).__name__ == "CausalLMOutputWithCrossAttentions"
        backward(out.loss)
        return out

    survey = _profile.survey(model, step)
    choice = _units.candidates(survey, 2, {"transformer.h": 0, "transformer.h.3": 1})[0]
    costs = _profile.measure(survey, choice, step)
    units = by_path(costs)
    assert "transformer.h.0" in units or "transformer.h.0.attn" in units
    assert costs.tied[0].units == ("transformer.wte", "lm_head")
    assert costs.frame.params == () and costs.never_called == ()
    assert not any(unit.no_gradient for unit in costs.units)
