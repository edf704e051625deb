"""Plans of pipelines in Python: the binding, wishes that cannot be met, text, JSON, model files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import program
from pawl import _core
from pawl.errors import PawlError
from pawl.pipeline._cut import link_of
from pawl.pipeline._divide import _plan, _rows
from pawl.pipeline._divide._plan import Link, Plan, Wishes, make_plan
from pawl.pipeline._divide._profile import Costs, Frame, Tied, Unit

if not hasattr(_core, "pipe_choose"):
    pytest.skip("pawl._core is not built here", allow_module_level=True)

MIB = 1 << 20


def make_unit(path: str, forward_s: float = 0.01, backward_s: float = 0.02, **more: Any) -> Unit:
    values: dict[str, Any] = {
        "names": (path,),
        "calls": 1,
        "param_bytes": MIB,
        "saved_bytes": MIB,
        "cut_bytes": 1024,
        "params": (f"{path}.weight",),
        "trains": True,
        "no_gradient": (),
        "draws": (),
        "changes": (),
        "updates": False,
        "repeated": False,
    }
    return Unit(path, forward_s=forward_s, backward_s=backward_s, **(values | more))


def make_costs(n: int = 8, units: list[Unit] | None = None, **more: Any) -> Costs:
    frame = Frame(0.0, 0.0, 0, 0, (), False, (), ())
    values: dict[str, Any] = {
        "frame": frame,
        "tied": (),
        "never_called": (),
        "measured": True,
        "clock": "cpu",
    }
    chain = units if units is not None else [make_unit(f"h.{i}") for i in range(n)]
    return Costs("Model", tuple(chain), **(values | more))


def stages_of(plan: Plan) -> list[int]:
    return [place.stage for place in plan.places]


# ---- the binding ----


def test_the_binding_gives_all_of_plan_and_report() -> None:
    units = [(f"u{i}", 1.0, 2.0, 0.0, 10, 5, 1, 0, 0, -1) for i in range(4)]
    setting = (2, 4, None, None, (0.0, 0.0, False), "1f1b", 0, 0, 0, 0.0, 4.0)
    made = _core.pipe_choose(units, setting)
    assert made["schedule"] == "1f1b" and not made["visits"] and made["copies"] == []
    assert [(c["stage"], c["first"], c["units"]) for c in made["chunks"]] == [(0, 0, 2), (1, 2, 2)]
    assert made["chunks"][0]["forward_s"] == 2.0 and made["chunks"][1]["in_bytes"] == 1
    assert made["largest_s"] == 6.0 == made["bound"] == made["value"]
    assert made["step_s"] == made["finish_s"] == made["bound_s"] == pytest.approx(30.0)
    assert made["bubble"] == pytest.approx(0.25)
    first, last = made["stages"]
    assert last["tasks"] == [(kind, 1, m) for m in range(4) for kind in (0, 1)]
    assert sorted(first["tasks"]) == [(kind, 0, m) for kind in (0, 1) for m in range(4)]
    assert (first["peak_live"], last["peak_live"]) == (2, 1)
    assert first["state_bytes"] == 80 and first["peak_bytes"] == 100 and first["cap_bytes"] is None
    assert first["busy_s"] == pytest.approx(24.0)
    assert made["options"][made["chosen"]]["refused"] is None


def test_the_binding_gives_copies_and_visits() -> None:
    units = [("a", 1.0, 1.0, 0.0, 10, 0, 0, 1, 8, -1), ("b", 1.0, 1.0, 0.0, 10, 0, 0, 1, 8, -1)]
    setting = [2, 2, None, None, (0.0, 0.0, False), "1f1b", 0, 0, 1, 0.0, 4.0]
    made = _core.pipe_choose(units, tuple(setting))
    assert made["copies"] == [{"tied": 1, "bytes": 8, "stages": [0, 1]}]
    units.insert(1, ("mid", 3.0, 3.0, 0.0, 10, 0, 0, 0, 0, -1))
    setting[8] = 2
    made = _core.pipe_choose(units, tuple(setting))
    assert made["visits"] and [c["stage"] for c in made["chunks"]] == [0, 1, 0]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({0: 0}, PawlError, "0 stages"),
        ({5: "fast"}, ValueError, "no schedule fast"),
        ({2: (1.0,)}, ValueError, "speeds: a tuple with an entry for each stage"),
        ({3: [1, 2]}, ValueError, "caps: a tuple with an entry for each stage"),
        ({3: (1, -5)}, OverflowError, "negative"),
        ({2: (1.0, "x")}, TypeError, "real number"),
        ({3: (1, 1)}, PawlError, "unit u0 alone needs"),
        ({10: 0.5}, PawlError, "state_factor is out of range"),
    ],
)
def test_the_binding_refuses(change: dict[int, Any], kind: type, message: str) -> None:
    units = [(f"u{i}", 1.0, 2.0, 0.0, 10, 5, 1, 0, 0, -1) for i in range(4)]
    setting: list[Any] = [2, 4, None, None, (0.0, 0.0, False), "1f1b", 0, 0, 0, 0.0, 4.0]
    for index, value in change.items():
        setting[index] = value
    with pytest.raises(kind, match=message):
        _core.pipe_choose(units, tuple(setting))


@pytest.mark.parametrize("units", [None, [1], [("a", 1.0)], ["abcdefghij"]])
def test_the_binding_refuses_what_are_no_units(units: Any) -> None:
    setting = (2, 4, None, None, (0.0, 0.0, False), "1f1b", 0, 0, 0, 0.0, 4.0)
    with pytest.raises(TypeError):
        _core.pipe_choose(units, setting)


# ---- plans ----


def test_equal_units_are_cut_evenly() -> None:
    plan = make_plan(make_costs(8), Wishes(4, 8, schedule="1f1b"))
    assert stages_of(plan) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert plan.value >= plan.bound and plan.bubble > 0.3
    assert plan.stage[3].peak_live == 1 and plan.stage[0].peak_live == 4
    assert {task[0] for stage in plan.stage for task in stage.tasks} == {0, 1}


@pytest.mark.parametrize(("small_s", "large_s"), [(1e-5, 2e-3), (3e-3, 2e-3), (2e-3, 2e-3)])
def test_a_link_is_one_whatever_was_measured(small_s: float, large_s: float) -> None:
    link = link_of(small_s, large_s)
    assert 2e9 < link.bytes_per_s < 9e9 and link.latency_s <= large_s
    make_plan(make_costs(8), Wishes(4, 8, link=link))


def test_several_chunks_a_stage_are_chosen_where_they_pay() -> None:
    plan = make_plan(make_costs(8), Wishes(4, 8))
    assert (plan.schedule, plan.each) == ("interleaved", 2)
    assert stages_of(plan) == [0, 1, 2, 3] * 2 and "1f1b would take" in plan.why
    assert [place.chunk for place in plan.places] == list(range(8))
    text = plan.text()
    assert "schedule interleaved, 2 chunks a stage (" in text and "h.5: 1, chunk 5" in text
    # Where transfers take longer than what is gained, or hardly anything is gained, they are not.
    slow = make_plan(make_costs(8), Wishes(4, 8, link=Link(0, 0.05)))
    many = make_plan(make_costs(8), Wishes(4, 512))
    assert slow.each == many.each == 1 and many.schedule == "1f1b"


def halved(n: int, inputs_s: float = 0.01, params_s: float = 0.01) -> Costs:
    """Units with backward passes that can be divided."""
    return make_costs(
        units=[make_unit(f"h.{i}", inputs_s=inputs_s, params_s=params_s) for i in range(n)]
    )


def test_backward_passes_are_divided_where_that_pays() -> None:
    wishes = Wishes(4, 8)
    plan = make_plan(halved(8), wishes)
    assert plan.schedule == "zbv" and plan.bubble < 0.05
    whole = make_plan(halved(8, 0.02, 0.01), wishes)  # divided, it takes half as long again
    assert whole.schedule == "interleaved"
    wanted = make_plan(halved(8), dataclasses.replace(wishes, schedule="zero-bubble"))
    assert {task[0] for stage in wanted.stage for task in stage.tasks} == {0, 2, 3}
    rows = {row.name: row for row in wanted.rows()}
    assert rows["h.1"].weight_s > 0.01 and rows["h.1"].backward_s > 0.02
    assert all(row.weight_s == 0 for row in whole.rows())


def test_a_plan_of_before_there_were_chunks_is_read() -> None:
    made = json.loads(make_plan(make_costs(4), Wishes(2, 4, schedule="1f1b")).to_json())
    plan = made["plan"]
    del plan["each"], plan["wishes"]["chunks"]
    for option in plan["options"]:
        del option["each"]
    for place in plan["places"]:
        del place["unit"]["inputs_s"], place["unit"]["params_s"]
    assert Plan.from_json(json.dumps(made)).each == 1


def test_simple_can_be_wanted() -> None:
    plan = make_plan(make_costs(4), Wishes(2, 4, schedule="simple"))
    assert plan.schedule == "simple" and plan.why == "as wanted"
    assert [task[0] for task in plan.stage[1].tasks] == [0] * 4 + [1] * 4


def test_calls_cost_the_driver_and_their_stage() -> None:
    costs = make_costs(units=[make_unit("a"), make_unit("b", calls=10)])
    costs = dataclasses.replace(costs, frame=dataclasses.replace(costs.frame, operators=4))
    rows = make_plan(costs, Wishes(2, 1)).rows()
    assert rows[0].forward_s == pytest.approx(15 * _rows.CALL_S) == rows[0].backward_s
    assert rows[1].forward_s == pytest.approx(0.01 + _rows.SERVE_S)
    assert rows[2].forward_s == pytest.approx(0.01 + 10 * _rows.SERVE_S)


def test_what_is_outside_of_units_is_on_stage_0() -> None:
    frame = Frame(0.03, 0.06, 5, 2 * MIB, ("scale",), True, (), ())
    plan = make_plan(make_costs(3, frame=frame), Wishes(2, 4))
    assert stages_of(plan) == [1, 1, 1] and plan.chunks[0].units == 0
    assert plan.params_of(0) == ("scale",) and plan.stage[0].state_bytes == 8 * MIB


def test_partition_binds_units_and_what_is_inside() -> None:
    plan = make_plan(make_costs(8), Wishes(2, 4, "1f1b", partition={"h.1": 0, "h.2": 1}))
    assert stages_of(plan) == [0, 0] + [1] * 6
    plan = make_plan(make_costs(4), Wishes(2, 4, partition={"h": 0, "h.3": 1}))
    assert stages_of(plan) == [0, 0, 0, 1]
    wishes = Wishes(2, 4, "interleaved", chunks=2, partition={"h.1": 1, "h.2": 0, "h.6": 0})
    assert stages_of(make_plan(make_costs(8), wishes)) == [0, 1, 0, 0, 0, 0, 0, 1]


def test_tied_units_are_copied_or_visited() -> None:
    units = [make_unit("emb", 0.001, 0.001), *make_costs(6).units, make_unit("head")]
    tied = (Tied(("emb.weight",), MIB, ("emb", "head"), ()),)
    costs = make_costs(units=units, tied=tied)
    copied = make_plan(costs, Wishes(2, 4, tied="replicate"))
    assert not copied.visits and copied.shared[0].stages == (0, 1)
    assert "emb.weight" in copied.params_of(1)
    visited = make_plan(costs, Wishes(2, 4, tied="visit"))
    assert visited.visits and visited.shared[0].stages == (0,)
    assert visited.stage_of("head") == 0 and len(visited.chunks) == 3


def test_sets_that_have_a_unit_in_common_are_planned_as_one() -> None:
    units = [make_unit(name) for name in "abc"]
    tied = (Tied(("x",), 100, ("a", "b"), ()), Tied(("y",), 50, ("b", "c"), ()))
    rows = make_plan(make_costs(units=units, tied=tied), Wishes(1, 1)).rows()
    assert {(row.tied, row.tied_bytes) for row in rows[1:]} == {(1, 50)}


def test_a_module_is_on_the_stage_of_its_unit() -> None:
    units = [make_unit("h.1", names=("h.1", "again")), make_unit("h.10")]
    plan = make_plan(make_costs(units=units), Wishes(2, 2))
    assert plan.stage_of("h.1.mlp") == 0 == plan.stage_of("again.mlp")
    assert plan.stage_of("h.10") == 1 == plan.stage_of("h.10.mlp")
    assert plan.stage_of("elsewhere") == 0


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (Wishes(5, 4), "5 stages, but Model has 4 units .*h.0, h.1.*use 4 stages at most"),
        (Wishes(2, 4, memory=(MIB, MIB)), "unit h.. alone needs .* times the memory .* would do"),
        (Wishes(2, 4, memory=(1,)), "memory has 1 entries for 2 stages"),
        (Wishes(2, 4, speeds=(1.0,) * 3), "speeds has 3 entries"),
        (Wishes(2, 4, partition={"h.9": 0}), "partition: h.9 is no unit"),
        (Wishes(2, 4, partition={"h.1": 2}), "h.1 is wanted on stage 2, but the last stage is 1"),
        (Wishes(2, 4, partition={"h.0": 1, "h.1": 0}), "h.[01]"),
        (Wishes(2, 4, schedule="zbv"), "schedule zbv divides backward passes in two, which was"),
        (Wishes(4, 4, schedule="interleaved"), "5 units cannot fill 8 chunks"),
        (Wishes(2, 4, chunks=1), "chunks=1: must be from 2 to 8"),
        (Wishes(2, 4, schedule="zig"), "there is no schedule 'zig'; use auto, 1f1b, simple, .* or"),
        (Wishes(2, 4, tied="knot"), "tied is one of auto, replicate, visit, not 'knot'"),
        (Wishes(0, 4), "at least one stage"),
        (Wishes(2, 4, memory_weight=2.0), "memory_weight is out of range"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_by_name(wishes: Wishes, message: str) -> None:
    with pytest.raises(PawlError, match=message) as caught:
        make_plan(make_costs(4), wishes)
    assert caught.value.name == "PAWL_EINVAL"


def test_a_stage_that_would_train_nothing_is_refused() -> None:
    units = [make_unit("frozen", trains=False), make_unit("head")]
    with pytest.raises(PawlError, match="stage 0 would train nothing: no parameter of frozen"):
        make_plan(make_costs(units=units), Wishes(2, 2))
    assert make_plan(make_costs(units=units), Wishes(1, 2)).stages == 1


# ---- forms ----


def test_a_plan_travels_as_json() -> None:
    frame = Frame(0.001, 0.002, 5, 10, ("scale",), True, ("emb",), ("bn.mean",))
    tied = (Tied(("h.0.weight",), 100, ("h.0", "h.3"), ("h.3",)),)
    costs = make_costs(4, frame=frame, tied=tied, never_called=("dead",))
    wishes = Wishes(
        2, 4, memory=(None, 1 << 40), partition={"h.0": 0}, speeds=(1, 2), link=Link(1e9, 1e-4)
    )
    plan = make_plan(costs, wishes)
    again = Plan.from_json(plan.to_json())
    assert again == dataclasses.replace(plan, wishes=dataclasses.replace(wishes, speeds=(1.0, 2.0)))
    assert isinstance(again.wishes.link, Link) and again.text() == plan.text()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"pawl_pipeline": 2}', '{"pawl_pipeline": 1, "plan": {}}', "null"]
)
def test_text_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PawlError, match="not the plan of a pipeline") as caught:
        Plan.from_json(text)
    assert caught.value.name == "PAWL_ECORRUPT"


def test_a_value_of_another_type_in_a_plan_is_refused() -> None:
    document = json.loads(make_plan(make_costs(4), Wishes(2, 4)).to_json())
    document["plan"]["stages"] = "2"
    with pytest.raises(PawlError, match="'2' is no int"):
        Plan.from_json(json.dumps(document))


def test_the_text_says_who_is_where_and_why(capfd: pytest.CaptureFixture[str]) -> None:
    frame = Frame(0.001, 0.002, 5, 10, ("emb.weight",), True, ("emb", "act"), ())
    units = [*make_costs(3).units, make_unit("h.3", no_gradient=("h.3.weight",), calls=2)]
    tied = (Tied(("h.0.weight",), MIB, ("h.0", "h.3"), ()),)
    costs = make_costs(units=units, frame=frame, tied=tied, never_called=("dead",))
    plan = make_plan(costs, Wishes(2, 4, memory=(1 << 30, None)))
    text = plan.text()
    assert text.startswith("Partition assignments:\n  h.0: 0\n  h.1: ")
    assert ", 2 calls" in text and "emb: 0 (its parameters are used outside of it)" in text
    assert "act" not in text  # a module without parameters
    assert "of 1.0 GiB" in text and "(proven)" in text and "bubble" in text
    assert "never called: dead" in text and "no gradient reaches h.3.weight" in text
    assert "shared by h.0 and h.3" in text
    plan.print()
    assert "pawl: Partition assignments:" in capfd.readouterr().err


def test_the_models_file_gives_pawl_pipe_the_same_plan(tmp_path: Path) -> None:
    tied = (Tied(("h.0.weight",), MIB, ("h.0", "h.5"), ()),)
    units = [make_unit(f"h.{i}", 0.01 + 0.001 * i) for i in range(6)]
    link = Link(1e9, 1e-4, True)
    wishes = Wishes(2, 8, "1f1b", tied="replicate", link=link, partition={"h.1": 0})
    plan = make_plan(make_costs(units=units, tied=tied), wishes)
    plan.save_model(tmp_path / "model.json")
    done = program.run(
        *("pipe", "show", tmp_path / "model.json", "--stages", "2", "--microbatches", "8"),
        *("--schedule", "1f1b", "--tied", "replicate", "--json"),
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["report"]["step_s"] == pytest.approx(plan.step_s)
    assert [chunk["units"] for chunk in shown["chunks"]][1] == plan.chunks[1].units
    assert shown["copies"][0]["stages"] == [0, 1]


# ---- from a model to a plan ----


def test_a_model_is_planned_from_a_step() -> None:
    body = [nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32)) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(50, 32), *body, nn.Linear(32, 50))
    x = torch.arange(50).repeat(4)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(backward: Any) -> None:
        backward(nn.functional.cross_entropy(model(x), x))

    plan = _plan.plan_model(model, step, Wishes(2, 4))
    assert sorted(set(stages_of(plan))) == [0, 1]
    assert set(plan.params_of(0)) | set(plan.params_of(1)) == set(before)
    assert set(plan.params_of(0)).isdisjoint(plan.params_of(1))
    assert len(plan.places) in {n for n, _ in plan.considered}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(PawlError, match="60 stages, but Sequential has"):
        _plan.plan_model(model, step, Wishes(60, 4))
