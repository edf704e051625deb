"""The plan of a pipeline: which units are on which stage, and in which order each stage works.

`plan_model` makes one of a model and a step; `make_plan` of costs that are known. The cut and the
order are pawl_pipe_choose's (include/pawl/pipe.h), which proves that no cut has a smaller largest
stage, and simulates the order. What is outside of units is a row of its own, bound to stage 0.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from pawl import _core, _lines
from pawl.errors import PawlError, error
from pawl.pipeline._delayed import Delayed
from pawl.pipeline._device import CPU
from pawl.pipeline._divide import _plan_text, _profile, _rows, _units
from pawl.pipeline._divide._profile import Clock, Costs, Tied, Unit
from pawl.pipeline._divide._rows import Link, Wishes
from pawl.pipeline._divide._trace import Sample
from pawl.pipeline._divide._tree import Node

# Schedules, the preferred one first.
SCHEDULES: Final = ("1f1b", "simple", "interleaved", "zero-bubble", "zbv", "listed")
HALVES: Final = ("zero-bubble", "zbv")  # schedules that divide backward passes in two
SEVERAL: Final = ("interleaved", "zbv")  # schedules with several chunks a stage
CHUNKS_MAX: Final = 8  # chunks of a stage
FASTER: Final = 0.97  # a schedule that is considered later takes at most so much of a step
TIED: Final = {"auto": 0, "replicate": 1, "visit": 2}

__all__ = ["Link", "Plan", "Wishes", "make_plan", "plan_anew", "plan_model"]

log = logging.getLogger("pawl.pipeline")

Task = tuple[int, int, int]  # kind (see _notes.py), chunk, microbatch


@dataclasses.dataclass(frozen=True)
class Place:
    """A unit in a plan."""

    unit: Unit
    stage: int
    chunk: int


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive units on one stage, in order of execution."""

    stage: int
    first: int  # index of its first unit
    units: int  # number of units; 0: what is outside of units alone
    forward_s: float
    backward_s: float
    saved_bytes: int
    in_bytes: int  # from the chunk before, if that is on another stage


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a stage does in a step."""

    tasks: tuple[Task, ...]  # in this order
    busy_s: float
    peak_live: int  # most pairs of chunk and microbatch with activations at once
    peak_bytes: int
    state_bytes: int  # parameters and their state
    cap_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Shared:
    """Parameters that units share, and the stages that have a copy."""

    tied: Tied
    stages: tuple[int, ...]  # one stage: no copies, nothing to sum


@dataclasses.dataclass(frozen=True)
class Option:
    """A schedule that was considered."""

    schedule: str
    visits: bool
    step_s: float
    bubble: float
    peak_bytes: int
    refused: str | None
    each: int = 1  # chunks a stage


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which units are on which stage, in which order each stage works, and what that takes."""

    model: str
    stages: int
    microbatches: int
    schedule: str
    why: str  # why this schedule
    visits: bool  # units that share parameters run on one stage
    places: tuple[Place, ...]  # units, in order of execution
    frame: _profile.Frame
    chunks: tuple[Chunk, ...]
    stage: tuple[Stage, ...]
    shared: tuple[Shared, ...]
    never_called: tuple[str, ...]
    largest_s: float  # time of the largest stage for one microbatch
    value: float  # seconds, or a share with memory_weight, that the cut minimised
    bound: float  # proven: no cut has less
    step_s: float
    finish_s: float
    bound_s: float  # no order of the same tasks finishes earlier
    bubble: float
    options: tuple[Option, ...]
    wishes: Wishes
    clock: str
    considered: tuple[tuple[int, float], ...] = ()  # choices of units: how many, s of a step
    each: int = 1  # chunks a stage

    @property
    def units(self) -> tuple[str, ...]:
        """Paths of the units. Another pipeline of the same model can be given them."""
        return tuple(place.unit.path for place in self.places)

    def stage_of(self, path: str) -> int:
        """The stage of a module: its unit's; 0 for what is outside of units. Takes any path."""
        best = (-1, 0)
        for place in self.places:
            for name in place.unit.names:
                if (path == name or path.startswith(f"{name}.")) and len(name) > best[0]:
                    best = (len(name), place.stage)
        return best[1]

    def params_of(self, stage: int) -> tuple[str, ...]:
        """Names of the parameters that a stage needs: its units', and those that they read."""
        names = dict.fromkeys(self.frame.params if stage == 0 else ())
        for place in self.places:
            if place.stage == stage:
                names.update(dict.fromkeys(place.unit.params))
        for shared in self.shared:
            if stage in shared.stages:
                names.update(dict.fromkeys(shared.tied.params))
        return tuple(names)

    def text(self) -> str:
        """The plan for people: assignments, stages, memory, bubble, bounds."""
        return _plan_text.text(self)

    def print(self) -> None:
        """Prints the plan through the log; for rank 0."""
        _lines.emit(log, logging.INFO, "%s", self.text())

    def to_json(self) -> str:
        """The plan as one line of JSON, for the other ranks."""
        return _plan_text.encode(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """A plan from to_json. Raises PawlError (PAWL_ECORRUPT) if it is none."""
        return _plan_text.decode(Plan, text)

    def save_model(self, path: str | Path) -> None:
        """Writes the model's costs as the file that ``pawl pipe show`` reads."""
        Path(path).write_text(_plan_text.model_document(self), encoding="utf-8")

    def rows(self) -> list[_rows.Row]:
        """The rows that the plan was made of; the first is what is outside of units."""
        return _rows.rows(_costs_of(self), self.wishes, halves=self.schedule in HALVES)


# ---- entries ----


def plan_model(
    model: nn.Module,
    sample: Sample,
    wishes: Wishes,
    clock: Clock = "auto",
    delayed: Delayed | None = None,
    there: tuple[torch.device, Sample] | None = None,
) -> Plan:
    """Chooses units by prediction, measures them, and plans. See _profile.survey for ``sample`` and
    ``delayed``. ``there``: a device to measure on, and a sample with its tensors there.

    Runs the step at least twice: for the survey, and with the chosen units. Raises PawlError
    (PAWL_EINVAL) if the wishes cannot be met; the message says what would do.
    """
    _check(wishes)
    seen = _profile.survey(model, sample, clock, delayed)
    if wishes.units:
        choices = [_units.chosen(seen, wishes.units)]
    else:
        choices = _units.candidates(seen, wishes.stages, wishes.partition, wishes.frame)
    steps: list[tuple[int, float]] = []
    failed: list[PawlError] = []

    def predict(choice: list[Node]) -> float:
        try:
            plan = make_plan(_profile.estimate(seen, choice), wishes)
        except PawlError as why:
            failed.append(why)
            return float("inf")
        steps.append((len(choice), plan.step_s))
        return plan.step_s

    units, step_s = _units.best(choices, predict)
    if step_s == float("inf"):
        raise failed[-1]  # the error of the finest units
    device, sample = there or (CPU, sample)
    costs = _profile.measure(seen, units, sample, _may_halve(wishes), device)
    return dataclasses.replace(make_plan(costs, wishes), considered=tuple(steps))


def plan_anew(plan: Plan, wishes: Wishes) -> Plan:
    """A plan of the units, and of what was measured for, another plan. Raises as make_plan."""
    return make_plan(_costs_of(plan), wishes)


def make_plan(costs: Costs, wishes: Wishes) -> Plan:
    """Cuts units that are known, and orders the tasks of the stages.

    Raises PawlError (PAWL_EINVAL): more stages than there are units with parameters; the memory
    does not suffice; a stage would train nothing; partition names no unit; the schedule needs more
    units or stages, or backward passes that can be divided.
    """
    _check(wishes)
    pins = _rows.find_pins(costs, wishes)
    _check_count(costs, wishes)
    schedule, why, made, options = _choose(costs, wishes, pins)
    plan = _build(costs, wishes, made, (schedule, why, options))
    _check_training(plan)
    return plan


# ---- checks ----


def _check(wishes: Wishes) -> None:
    if wishes.schedule != "auto" and wishes.schedule not in SCHEDULES:
        raise error(
            "PAWL_EINVAL",
            f"there is no schedule {wishes.schedule!r}; use auto, {', '.join(SCHEDULES[:-1])} or "
            f"{SCHEDULES[-1]}",
        )
    if wishes.chunks < 0 or wishes.chunks == 1 or wishes.chunks > CHUNKS_MAX:
        raise error("PAWL_EINVAL", f"chunks={wishes.chunks}: must be from 2 to {CHUNKS_MAX}")
    if wishes.tied not in TIED:
        raise error("PAWL_EINVAL", f"tied is one of {', '.join(TIED)}, not {wishes.tied!r}")
    if wishes.stages < 1 or wishes.microbatches < 1:
        raise error("PAWL_EINVAL", "at least one stage and one microbatch are needed")
    for what, each in (("memory", wishes.memory), ("speeds", wishes.speeds)):
        if each is not None and len(each) != wishes.stages:
            raise error("PAWL_EINVAL", f"{what} has {len(each)} entries for {wishes.stages} stages")
    for path, stage in wishes.partition.items():
        if not 0 <= stage < wishes.stages:
            raise error(
                "PAWL_EINVAL",
                f"partition: {path} is wanted on stage {stage}, but the last stage is "
                f"{wishes.stages - 1}",
            )


def _check_count(costs: Costs, wishes: Wishes) -> None:
    having = [unit.path for unit in costs.units if unit.param_bytes > 0]
    n = len(having) + (costs.frame.param_bytes > 0)
    if wishes.stages > max(n, 1):
        names = ", ".join(having[:8]) + (", …" if len(having) > 8 else "")
        rest = " and what is outside of them" if costs.frame.param_bytes > 0 else ""
        raise error(
            "PAWL_EINVAL",
            f"{wishes.stages} stages, but {costs.model} has {len(having)} units with parameters"
            f"{rest} ({names or 'none'}); use {max(n, 1)} stages at most, or divide its modules",
        )


def _check_training(plan: Plan) -> None:
    trains = [False] * plan.stages
    trains[0] = plan.frame.trains
    for place in plan.places:
        trains[place.stage] |= place.unit.trains
    for stage, does in enumerate(trains):
        if not does and any(trains):
            names = [place.unit.path for place in plan.places if place.stage == stage]
            raise error(
                "PAWL_EINVAL",
                f"stage {stage} would train nothing: no parameter of {', '.join(names[:8])} "
                "requires a gradient; use fewer stages, or put a unit that trains on it "
                "(partition)",
            )


# ---- the search ----


def _wanted(wishes: Wishes, halves: bool) -> tuple[str, ...]:
    """The schedules to choose from. ``halves``: some unit's backward pass can be divided."""
    if wishes.schedule != "auto":
        return (wishes.schedule,)
    if wishes.stages == 1:
        return ("1f1b", "simple")
    several = wishes.tied != "visit"
    return tuple(
        schedule
        for schedule in SCHEDULES
        if (several or schedule in ("1f1b", "listed")) and (halves or schedule not in HALVES)
    )


def _may_halve(wishes: Wishes) -> bool:
    """Whether a schedule may be chosen that divides backward passes in two."""
    return not {*HALVES}.isdisjoint(_wanted(wishes, halves=True))


def _choose(
    costs: Costs, wishes: Wishes, pins: Mapping[str, int]
) -> tuple[str, str, dict[str, Any], tuple[Option, ...]]:
    """The best schedule of those wanted, why, its plan, and all that was considered."""
    whole = _rows.rows(costs, wishes, pins)
    halves = _rows.rows(costs, wishes, pins, halves=True)
    divides = any(row.weight_s > 0 for row in halves)
    if wishes.schedule in HALVES and not divides:
        raise error(
            "PAWL_EINVAL",
            f"schedule {wishes.schedule} divides backward passes in two, which was measured for no "
            "unit; use another schedule",
        )
    wanted = _wanted(wishes, divides)
    best: tuple[str, dict[str, Any]] | None = None
    options: list[Option] = []
    refused: PawlError | None = None
    for schedule in wanted:
        try:
            rows = halves if schedule in HALVES else whole
            made = _core.pipe_choose(rows, _setting(wishes, schedule))
        except PawlError as why:
            refused = refused or why
            options.append(Option(schedule, False, 0.0, 0.0, 0, str(why)))
            continue
        options += [
            Option(
                o["schedule"],
                o["visits"],
                o["step_s"],
                o["bubble"],
                o["peak_bytes"],
                o["refused"],
                o["each"],
            )
            for o in made["options"]
        ]
        if best is None or made["step_s"] < FASTER * best[1]["step_s"]:
            best = (schedule, made)
    if best is None:
        assert refused is not None
        raise refused
    why = "as wanted"
    if wishes.schedule == "auto":
        other = [o for o in options if o.schedule != best[0]]
        why = _plan_text.reason(other)
    return best[0], why, best[1], tuple(options)


def _setting(wishes: Wishes, schedule: str) -> tuple[Any, ...]:
    """A struct pawl_pipe_setting."""
    return (
        wishes.stages,
        wishes.microbatches,
        wishes.speeds,
        wishes.memory,
        tuple(wishes.link),
        schedule,
        wishes.chunks if schedule in SEVERAL else 0,
        0,
        TIED[wishes.tied],
        wishes.memory_weight,
        wishes.state_factor,
    )


# ---- the plan ----


def _build(
    costs: Costs,
    wishes: Wishes,
    made: dict[str, Any],
    found: tuple[str, str, tuple[Option, ...]],
) -> Plan:
    chunks = []
    places: dict[int, Place] = {}
    for number, c in enumerate(made["chunks"]):
        first = max(c["first"] - 1, 0)
        n = c["first"] + c["units"] - 1 - first
        chunks.append(
            Chunk(
                c["stage"],
                first,
                n,
                c["forward_s"],
                c["backward_s"],
                c["saved_bytes"],
                c["in_bytes"],
            )
        )
        for i in range(first, first + n):
            places[i] = Place(costs.units[i], c["stage"], number)
    ordered = tuple(places[i] for i in range(len(costs.units)))
    stage_of = {place.unit.path: place.stage for place in ordered}
    return Plan(
        model=costs.model,
        stages=wishes.stages,
        microbatches=wishes.microbatches,
        schedule=found[0],
        why=found[1],
        visits=made["visits"],
        places=ordered,
        frame=costs.frame,
        chunks=tuple(chunks),
        stage=tuple(
            Stage(
                tuple(tuple(task) for task in s["tasks"]),
                s["busy_s"],
                s["peak_live"],
                s["peak_bytes"],
                s["state_bytes"],
                s["cap_bytes"],
            )
            for s in made["stages"]
        ),
        shared=tuple(_share(tied, stage_of) for tied in costs.tied),
        never_called=costs.never_called,
        options=found[2],
        wishes=wishes,
        clock=costs.clock,
        each=made["each"],
        **{
            key: made[key]
            for key in (
                "largest_s",
                "value",
                "bound",
                "step_s",
                "finish_s",
                "bound_s",
                "bubble",
            )
        },
    )


def _share(tied: Tied, stage_of: Mapping[str, int]) -> Shared:
    return Shared(tied, tuple(sorted({stage_of[path] for path in tied.units})))


def _costs_of(plan: Plan) -> Costs:
    units: Sequence[Unit] = [place.unit for place in plan.places]
    tied = tuple(shared.tied for shared in plan.shared)
    return Costs(plan.model, tuple(units), plan.frame, tied, plan.never_called, True, plan.clock)
