"""Which modules of a model are its units: what is opened, what stays whole, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pawl.errors import PawlError
from pawl.pipeline._divide import _profile, _units
from pawl.pipeline._divide._profile import Survey
from pawl.pipeline._divide._tree import Node

Backward = Callable[[Tensor], None]


def step_of(model: nn.Module, *inputs: Tensor) -> Callable[[Backward], None]:
    def step(backward: Backward) -> None:
        backward(model(*inputs).float().sum())

    return step


def seen(model: nn.Module, *inputs: Tensor) -> Survey:
    return _profile.survey(model, step_of(model, *(inputs or (torch.rand(4, 8),))))


def paths(units: list[Node]) -> list[str]:
    return [node.path for node in units]


def coarsest(model: nn.Module, *inputs: Tensor, stages: int = 2, **partition: int) -> list[str]:
    wanted = {path.replace("__", "."): stage for path, stage in partition.items()}
    return paths(_units.candidates(seen(model, *inputs), stages, wanted)[0])


class Block(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(torch.relu(self.a(x)))


class Stack(nn.Module):
    def __init__(self, n: int = 4, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(n)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def make_times(survey: Survey, **times: float) -> None:
    """Gives modules times, by path; all others take none."""
    for scope in survey.scopes:
        name = (scope.node.path if scope.node else "").replace(".", "_")
        scope.forward_s, scope.backward_s = times.get(name, 0.0), 0.0
    survey.total_s = sum(scope.forward_s for scope in survey.scopes)


def test_containers_that_nobody_calls_are_looked_through() -> None:
    survey = seen(Stack())
    make_times(survey, **{f"layers_{i}_a": 1.0 for i in range(4)})
    choices = [paths(choice) for choice in _units.candidates(survey, 2, {})]
    assert choices[0] == ["layers.0", "layers.1", "layers.2", "layers.3"]


def test_finer_choices_open_modules_and_none_lies_in_another() -> None:
    survey = seen(Stack())
    make_times(survey, **{f"layers_{i}_{c}": 1.0 for i in range(4) for c in "ab"})
    choices = [paths(choice) for choice in _units.candidates(survey, 2, {})]
    assert choices[-1] == [f"layers.{i}.{c}" for i in range(4) for c in "ab"]
    assert len(choices) == 2


def test_modules_that_look_alike_are_opened_together_or_not_at_all() -> None:
    survey = seen(Stack())
    make_times(survey, layers_0_a=1.0, layers_1_a=1.0, layers_2_a=9.0, layers_3_a=1.0)
    for choice in _units.candidates(survey, 2, {}):
        inner = [path for path in paths(choice) if path.endswith(".a")]
        assert len(inner) in (0, 4)


def test_a_module_that_does_the_work_itself_can_stay_whole() -> None:
    survey = seen(Stack())
    make_times(survey, layers_0=5.0, layers_1=7.0, layers_2=9.0, layers_3=9.0, layers_0_a=0.1)
    choices = [paths(choice) for choice in _units.candidates(survey, 2, {})]
    assert choices[0] == ["layers.0", "layers.1", "layers.2", "layers.3"]
    assert len(choices) == 2 and len(choices[1]) == 8  # the second one is left to the prediction


def test_a_module_used_twice_is_one_unit() -> None:
    shared = nn.Linear(8, 8)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    assert coarsest(model) == ["0", "1"]
    survey = seen(model)
    costs = _profile.estimate(survey, _units.candidates(survey, 2, {})[0])
    assert costs.units[0].calls == 2 and costs.units[0].names == ("0", "2")


class Twice(nn.Module):
    """A module that is called by the model, and again inside of another module."""

    def __init__(self, close: bool = False) -> None:
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.outer = nn.Sequential(self.shared, nn.Linear(8, 8))
        if close:
            self.outer = torch.compile(self.outer, backend="eager")

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.shared(x))


def test_a_unit_that_contains_another_is_opened() -> None:
    assert coarsest(Twice()) == ["shared", "outer.1"]


def test_what_a_compiled_module_shares_with_the_model_runs_at_the_driver() -> None:
    assert coarsest(Twice(close=True)) == []


def test_a_module_whose_part_is_called_by_others_is_tied_to_it() -> None:
    class Holds(nn.Module):
        def __init__(self, part: nn.Linear) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.part.weight)

    part = nn.Linear(8, 8)
    model = nn.Sequential(part, Holds(part))
    survey = seen(model)
    choice = _units.candidates(survey, 2, {})[0]
    assert paths(choice) == ["0", "1"]
    assert _profile.estimate(survey, choice).tied[0].units == ("0", "1")


def test_a_compiled_module_stays_whole() -> None:
    model = Stack()
    model.layers[1] = torch.compile(model.layers[1], backend="eager")
    survey = seen(model)
    make_times(survey, **{f"layers_{i}_a": 1.0 for i in (0, 2, 3)}, layers_1=9.0)
    finest = paths(_units.candidates(survey, 2, {})[-1])
    assert "layers.1" in finest and "layers.0.a" in finest
    assert not any(path.startswith("layers.1.") for path in finest)
    assert "_compiled_call_impl" not in model.layers[1].__dict__


def test_a_module_compiled_in_place_stays_whole_and_is_still_compiled() -> None:
    model = Stack()
    model.layers[0].compile(backend="eager")
    compiled = model.layers[0]._compiled_call_impl
    survey = seen(model)
    make_times(survey, layers_0=9.0, layers_1_a=1.0)
    assert "layers.0" in paths(_units.candidates(survey, 2, {})[-1])
    assert model.layers[0]._compiled_call_impl is compiled


class FrameReads(nn.Module):
    """Uses the weight of an embedding for its outputs, as tied models do by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"emb": nn.Embedding(9, 8)})
        self.block = Block()
        self.wide = Stack(2)

    def forward(self, x: Tensor) -> Tensor:
        assert self.wide.layers[0].a.weight.dtype is torch.float32  # reads no element
        h = self.wide(self.block(self.inner["emb"](x)))
        return F.linear(h, self.inner["emb"].weight)


def test_a_module_whose_parameter_the_model_reads_runs_at_the_driver() -> None:
    survey = seen(FrameReads(), torch.arange(9))
    for choice in _units.candidates(survey, 2, {}):
        assert "inner.emb" not in paths(choice)
    costs = _profile.estimate(survey, _units.candidates(survey, 2, {})[0])
    assert costs.frame.params == ("inner.emb.weight",) and costs.frame.local == ("inner.emb",)


def test_a_pinned_module_is_a_border() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Stack(3)
            self.head = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x))

    survey = seen(Deep())
    make_times(survey, head=1.0)
    assert paths(_units.candidates(survey, 2, {})[0]) == ["body", "head"]
    pinned = _units.candidates(survey, 2, {"body.layers.1": 0})[0]
    assert paths(pinned) == ["body.layers.0", "body.layers.1", "body.layers.2", "head"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("layers.7", "there is no module 'layers.7'; layers contains 0, 1, 2, 3"),
        ("lairs", "there is no module 'lairs'; the model contains layers"),
    ],
)
def test_a_path_that_is_no_module_is_refused_with_what_there_is(path: str, message: str) -> None:
    with pytest.raises(PawlError, match=message):
        _units.candidates(seen(Stack()), 2, {path: 0})


def test_a_pin_of_a_module_that_nothing_calls_is_refused() -> None:
    model = nn.MultiheadAttention(8, 2)
    x = torch.rand(3, 1, 8)
    survey = _profile.survey(model, lambda backward: backward(model(x, x, x)[0].sum()))
    with pytest.raises(PawlError, match="out_proj is never called"):
        _units.candidates(survey, 2, {"out_proj": 1})


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_that_calls_nothing_is_one_unit_and_cannot_be_cut(compiled: bool) -> None:
    model: Any = nn.Linear(8, 8)
    if compiled:
        model = torch.compile(nn.Sequential(model), backend="eager")
    survey = seen(model)
    assert paths(_units.candidates(survey, 1, {})[0]) == [""]
    why = "it is compiled as a whole; compile its parts" if compiled else "it calls no module"
    with pytest.raises(PawlError, match=f"cannot be cut into 2 stages: {why}"):
        _units.candidates(survey, 2, {})


def test_the_coarser_of_two_choices_is_taken_unless_the_finer_is_clearly_better() -> None:
    coarse, fine = [Node(nn.ReLU(), "c", ("c",), False, frozenset())], []
    assert _units.best([coarse, fine], lambda c: 1.0 if c else 0.95) == (coarse, 1.0)
    assert _units.best([coarse, fine], lambda c: 1.0 if c else 0.85) == (fine, 0.85)
