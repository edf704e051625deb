"""A plan as text for people, as JSON for other ranks, and as the file that ``pawl pipe`` reads."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pawl.errors import error

if TYPE_CHECKING:
    from pawl.pipeline._divide._plan import Option, Plan

VERSION: Final = 1  # version of the plan's JSON
NAME_BYTES_MAX: Final = 200  # bytes of a name in the model's file
SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


# ---- for people ----


def time_text(seconds: float) -> str:
    """A time with four digits: "12.34 ms"."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} µs"


def size_text(size: float) -> str:
    """A size with one digit behind the point: "1.5 GiB"."""
    at = 0
    while size >= 1024 and at < len(SIZES) - 1:
        size /= 1024
        at += 1
    return f"{size:.1f} {SIZES[at]}" if at > 0 else f"{size:.0f} B"


def reason(others: Sequence[Option]) -> str:
    """Why a schedule was chosen, in view of others."""
    fits: dict[str, float] = {}  # least time by schedule
    refused: dict[str, str] = {}
    for other in others:
        if other.refused is not None:
            refused.setdefault(other.schedule, other.refused)
        else:
            fits[other.schedule] = min(other.step_s, fits.get(other.schedule, other.step_s))
    said = [f"{name} would take {time_text(took_s)}" for name, took_s in fits.items()]
    said += [f"{name}: {why}" for name, why in refused.items() if name not in fits][:1]
    return ", ".join(said) or "alone"


def text(plan: Plan) -> str:
    """The text of Plan.text."""
    lines = ["Partition assignments:"]
    for place in plan.places:
        calls = f", {place.unit.calls} calls" if place.unit.calls > 1 else ""
        chunk = f", chunk {place.chunk}" if plan.each > 1 else ""
        lines.append(f"  {place.unit.path}: {place.stage}{chunk}{calls}")
    lines += [f"  {path}: 0 (its parameters are used outside of it)" for path in _local(plan)]
    lines += _stage_lines(plan)
    lines += [f"  {line}" for line in _facts(plan)]
    return "\n".join(lines)


def _local(plan: Plan) -> list[str]:
    """Modules of the frame that have parameters."""
    names = plan.frame.params
    return [p for p in plan.frame.local if any(name.startswith(f"{p}.") for name in names)]


def _stage_lines(plan: Plan) -> list[str]:
    lines = ["  stage  units    forward   backward       busy      state       peak"]
    for number, stage in enumerate(plan.stage):
        mine = [chunk for chunk in plan.chunks if chunk.stage == number]
        cap = f" of {size_text(stage.cap_bytes)}" if stage.cap_bytes is not None else ""
        lines.append(
            f"  {number:5} {sum(chunk.units for chunk in mine):6} "
            f"{time_text(sum(chunk.forward_s for chunk in mine)):>10} "
            f"{time_text(sum(chunk.backward_s for chunk in mine)):>10} "
            f"{time_text(stage.busy_s):>10} {size_text(stage.state_bytes):>10} "
            f"{size_text(stage.peak_bytes):>10}{cap}"
        )
    return lines


def _schedule(plan: Plan) -> str:
    return plan.schedule if plan.each == 1 else f"{plan.schedule}, {plan.each} chunks a stage"


def _facts(plan: Plan) -> list[str]:
    frame = plan.frame
    facts = [
        f"schedule {_schedule(plan)} ({plan.why}), {plan.microbatches} microbatches: a step takes "
        f"{time_text(plan.step_s)}, bubble {plan.bubble:.4f}; no order of these chunks takes less "
        f"than {time_text(plan.bound_s)}",
        f"largest stage {time_text(plan.largest_s)} a microbatch; no cut has a value below "
        f"{plan.bound:.6g} (proven), this one has {plan.value:.6g}",
        f"outside of units, on stage 0: {time_text(frame.forward_s)} forward, "
        f"{time_text(frame.backward_s)} backward, {size_text(frame.param_bytes)} of parameters",
    ]
    if len(plan.considered) > 1:
        tried = ", ".join(f"{n} ({time_text(s)})" for n, s in plan.considered)
        facts.append(f"numbers of units considered, with their steps: {tried}")
    for shared in plan.shared:
        stages = ", ".join(str(stage) for stage in shared.stages)
        facts.append(
            f"shared by {' and '.join(shared.tied.units)}, on stages {stages}: "
            f"{', '.join(shared.tied.params)} ({size_text(shared.tied.len_bytes)})"
        )
    if plan.never_called:
        facts.append(f"never called: {', '.join(plan.never_called)}")
    idle = [name for place in plan.places for name in place.unit.no_gradient]
    if idle:
        more = f" and {len(idle) - 8} more" if len(idle) > 8 else ""
        facts.append(f"no gradient reaches {', '.join(idle[:8])}{more}")
    return facts


# ---- JSON ----


def encode(plan: Plan) -> str:
    """The text of Plan.to_json."""
    return json.dumps({"pawl_pipeline": VERSION, "plan": dataclasses.asdict(plan)})


def decode(kind: type[Plan], text: str) -> Plan:
    """The plan of Plan.from_json."""
    try:
        document = json.loads(text)
        if document["pawl_pipeline"] != VERSION:
            raise ValueError(f"version {document['pawl_pipeline']}, not {VERSION}")
        return _build(kind, document["plan"])
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        raise error("PAWL_ECORRUPT", f"not the plan of a pipeline: {why}") from None


def _build(kind: Any, value: Any) -> Any:
    """A value of an annotated type, from what JSON has made of it."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _build(args[0], value)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return tuple(_build(args[0], item) for item in value)
    if origin is tuple:
        return tuple(_build(one, item) for one, item in zip(args, value, strict=True))
    if origin is dict:
        return {key: _build(args[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        old = {f.name for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING}
        given = [name for name in names if name in value or name not in old]
        return kind(**{name: _build(hints[name], value[name]) for name in given})
    if isinstance(kind, type) and issubclass(kind, tuple):
        hints = typing.get_type_hints(kind)
        return kind(*(_build(hints[n], v) for n, v in zip(kind._fields, value, strict=True)))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


# ---- the file of pawl pipe ----


def _short(name: str) -> str:
    """A name with as many bytes as the file allows: its end says more than its beginning."""
    raw = name.encode()
    return name if len(raw) <= NAME_BYTES_MAX else raw[-NAME_BYTES_MAX:].decode(errors="ignore")


def model_document(plan: Plan) -> str:
    """The text of Plan.save_model."""
    link = plan.wishes.link._asdict()
    units = []
    for row in plan.rows():
        unit = {**row._asdict(), "name": _short(row.name)}
        del unit["tied"], unit["tied_bytes"], unit["stage"]
        if row.tied:
            unit |= {"tied": f"set {row.tied}", "tied_bytes": row.tied_bytes}
        if row.stage >= 0:
            unit["stage"] = row.stage
        units.append(unit)
    document = {
        "pipe_model": 1,
        "name": _short(plan.model),
        "state_factor": plan.wishes.state_factor,
        "link": link,
        "units": units,
    }
    return json.dumps(document, indent=1) + "\n"
