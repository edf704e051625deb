"""Which rank runs which unit, and who has which parameter: what all ranks agree on."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from pawl.pipeline import _codec, _tables
from pawl.pipeline._gradients import FRAME, Held
from pawl.pipeline._notes import BACKWARD, FORWARD, INPUTS, PARAMETERS
from pawl.pipeline._owner import Unit


@dataclasses.dataclass(frozen=True)
class Placed:
    """A unit: path of its module, its stage and chunk; what its profile has shown."""

    name: str
    stage: int
    chunk: int
    draws: tuple[str, ...]  # modules in it that draw random numbers themselves
    changes: tuple[str, ...]  # arguments that it changes in place, as "args[0]"
    updates: bool  # the unit changes its buffers
    repeated: bool  # the program computes its activations again, instead of keeping them
    divides: bool  # gradients of parameters can be computed later than others


@dataclasses.dataclass(frozen=True)
class Layout:
    """A plan as the runtime needs it. ``tasks``: of each stage, (kind, chunk, microbatch) in order.
    ``reads``: parameters that the step function reads outside of their units. ``busy_s``: how long
    each stage is to compute in a step.
    """

    units: tuple[Placed, ...]
    tasks: tuple[tuple[tuple[int, int, int], ...], ...]
    reads: tuple[str, ...]
    busy_s: tuple[float, ...]

    @property
    def ahead(self) -> int:
        """Most microbatches that the first stage's list has between forward and backward pass."""
        most = live = 0
        first = self.tasks[0][0][1] if self.tasks[0] else 0
        for kind, chunk, _ in self.tasks[0]:
            if chunk == first:
                live += {FORWARD: 1, BACKWARD: -1, INPUTS: -1}.get(kind, 0)
                most = max(most, live)
        return max(most, 1)

    @property
    def divides(self) -> bool:
        """Whether gradients of parameters have tasks of their own."""
        return any(kind == PARAMETERS for kind, _, _ in self.tasks[0])


def make_units(model: nn.Module, layout: Layout) -> list[Unit]:
    """The units, with their modules and parameters."""
    names = {id(value): name for _, _, name, value in _tables.entries(model, "parameter")}
    units = []
    for i, placed in enumerate(layout.units):
        unit = Unit(i, placed.name, model.get_submodule(placed.name), placed.stage, placed.chunk)
        unit.draws, unit.changes, unit.updates = placed.draws, placed.changes, placed.updates
        unit.repeated, unit.divides = placed.repeated, placed.divides
        unit.parameters = [(names[id(p)], p) for p in unit.module.parameters()]
        units.append(unit)
    return units


class Places:
    """Where parameters and buffers are. ``parameter``, ``buffer``: rank and chunk by name in the
    model; ``held``: holders of each parameter, in the model's order; ``metas`` of all.
    """

    def __init__(self, model: nn.Module, units: list[Unit], layout: Layout) -> None:
        self.parameter: dict[str, tuple[int, int]] = {}
        self.buffer: dict[str, tuple[int, int]] = {}
        self.held: dict[str, Held] = {}
        self.metas: dict[str, Any] = {}
        holders: dict[str, list[Unit]] = {}
        for unit in units:
            for name, _ in unit.parameters:
                holders.setdefault(name, []).append(unit)
        frame_chunk = next((t[1] for t in layout.tasks[0]), 0)
        for _, _, name, value in _tables.entries(model, "parameter"):
            if name in self.held:
                continue
            of = holders.get(name, [])
            numbers, ranks = [u.index for u in of], [u.rank for u in of]
            self.parameter[name] = (of[0].rank, of[0].chunk) if of else (0, frame_chunk)
            if not of or name in layout.reads:  # the first stage has what the program reads
                numbers.append(FRAME)
                ranks.append(0)
                self.parameter[name] = (0, frame_chunk)
            self.held[name] = Held(value, tuple(numbers), tuple(ranks))
            self.metas[name] = _codec.kept_meta(value)
        inside = {
            id(buffer): (unit.rank, unit.chunk)
            for unit in units
            for buffer in unit.module.buffers()
        }
        for _, _, name, value in _tables.entries(model, "buffer"):
            if id(value) in inside:
                self.buffer[name] = inside[id(value)]
                self.metas[name] = _codec.kept_meta(value)
