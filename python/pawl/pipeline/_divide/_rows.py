"""What a plan is made for, and the rows that pawl_pipe_choose takes of it.

What is outside of units, the frame, is the first row, and bound to stage 0. Each call of a unit,
and each operator between units, costs the driver some time more; a unit's call its stage, too. A
backward pass in two parts is two calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, NamedTuple

from pawl.errors import error
from pawl.pipeline._divide._profile import Costs

CALL_S: Final = 50e-6  # driver's time for a call of one pass, in seconds
SERVE_S: Final = 40e-6  # time of the stage that carries it out, beside the pass itself
ANY_STAGE: Final = -1
SETS_MAX: Final = 64  # tied sets, as PAWL_PIPE_TIED_MAX
FRAME_NAME: Final = "(frame)"


class Link(NamedTuple):
    """Transfers between two stages."""

    bytes_per_s: float = 0.0  # 0: they take no time
    latency_s: float = 0.0
    busy: bool = False  # both stages compute nothing meanwhile


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What a plan is made for."""

    stages: int
    microbatches: int
    schedule: str = "auto"  # or one of _plan.SCHEDULES
    memory: tuple[int | None, ...] | None = None  # bytes of each stage; None: no limit
    memory_weight: float = 0.0  # 0: least time; to 1: SMP's objective, see pawl/pipe.h
    partition: dict[str, int] = dataclasses.field(default_factory=dict)  # module path -> stage
    frame: tuple[str, ...] = ()  # modules that are no units
    units: tuple[str, ...] = ()  # modules that are the units; none: chosen by prediction
    tied: str = "auto"  # or "replicate", "visit"
    speeds: tuple[float, ...] | None = None  # speed of each stage, relative to 1
    link: Link = Link()  # noqa: RUF009
    state_factor: float = 4.0  # bytes of state per byte of parameters
    chunks: int = 0  # chunks of a stage, if the schedule is interleaved; 0: the best number


class Row(NamedTuple):
    """A struct pawl_pipe_unit."""

    name: str
    forward_s: float
    backward_s: float
    weight_s: float
    param_bytes: int
    saved_bytes: int
    cut_bytes: int
    tied: int
    tied_bytes: int
    stage: int


def find_pins(costs: Costs, wishes: Wishes) -> dict[str, int]:
    """The stage that partition wants, by path of a unit."""
    pins: dict[str, int] = {}
    for path in sorted(wishes.partition, key=len):
        stage = wishes.partition[path]
        inside = [
            unit.path
            for unit in costs.units
            if any(n == path or n.startswith(f"{path}.") or path == "" for n in unit.names)
        ]
        if not inside and not _is_local(costs, path):
            raise error(
                "PAWL_EINVAL", f"partition: {path} is no unit, and there is none inside of it"
            )
        if not inside and stage != 0:
            raise error(
                "PAWL_EINVAL",
                f"partition: {path} is wanted on stage {stage}, but its parameters are read "
                "outside of it, so that it runs on stage 0",
            )
        pins |= dict.fromkeys(inside, stage)
    return pins


def _is_local(costs: Costs, path: str) -> bool:
    return any(n == path or n.startswith(f"{path}.") for n in costs.frame.local)


def rows(
    costs: Costs, wishes: Wishes, pins: Mapping[str, int] | None = None, halves: bool = False
) -> list[Row]:
    """The frame, then the units. ``halves``: with backward passes in two parts."""
    pins = find_pins(costs, wishes) if pins is None else pins
    sets = _tied_sets(costs)
    frame = costs.frame
    calls = frame.operators + sum(unit.calls for unit in costs.units)
    more = sum(unit.calls for unit in costs.units if halves and unit.params_s > 0)
    made = [
        Row(
            FRAME_NAME,
            frame.forward_s + CALL_S * calls,
            frame.backward_s + CALL_S * (calls + more),
            0.0,
            frame.param_bytes,
            frame.saved_bytes,
            0,
            0,
            0,
            0,
        )
    ]
    for unit in costs.units:
        serve_s = SERVE_S * unit.calls
        backward_s, weight_s = unit.backward_s + serve_s, 0.0
        if halves and unit.params_s > 0:
            weight_s = unit.params_s + serve_s
            backward_s = weight_s + (unit.inputs_s + serve_s if unit.inputs_s > 0 else 0.0)
        tied, tied_bytes = sets.get(unit.path, (0, 0))
        made.append(
            Row(
                unit.path,
                unit.forward_s + serve_s,
                backward_s,
                weight_s,
                unit.param_bytes,
                unit.saved_bytes,
                unit.cut_bytes,
                tied,
                min(tied_bytes, unit.param_bytes),
                pins.get(unit.path, ANY_STAGE),
            )
        )
    return made


def _tied_sets(costs: Costs) -> dict[str, tuple[int, int]]:
    """Number and shared bytes of each unit's tied set: sets with a unit in common are one."""
    group: dict[str, str] = {}

    def find(path: str) -> str:
        while group.setdefault(path, path) != path:
            path = group[path]
        return path

    for tied in costs.tied:
        holders = [path for path in tied.units if path not in tied.readers]
        for path in holders[1:]:
            group[find(path)] = find(holders[0])
    least: dict[str, int] = {}
    for tied in costs.tied:
        for path in tied.units:
            if path not in tied.readers:
                root = find(path)
                least[root] = min(least.get(root, tied.len_bytes), tied.len_bytes)
    numbers = {root: i for i, root in enumerate(list(least)[:SETS_MAX], 1)}
    return {
        path: (numbers[find(path)], least[find(path)]) for path in group if find(path) in numbers
    }
