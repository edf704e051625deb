"""Divides a model in its first step: profile, plan, and what each rank is told."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from pawl.errors import error
from pawl.pipeline import _state
from pawl.pipeline._device import CPU, to_host
from pawl.pipeline._divide import _leaves
from pawl.pipeline._divide._plan import Link, Plan, Wishes, plan_anew, plan_model
from pawl.pipeline._layout import Layout, Placed
from pawl.pipeline._model import Pipeline, check_alike
from pawl.pipeline._world import World

if TYPE_CHECKING:
    from pawl.pipeline._model import DistributedModel

_SMALL_BYTES: Final = 8  # what is sent to measure a link
_LARGE_BYTES: Final = 4 << 20
_TIMES: Final = 5  # transfers of each size; the fastest counts


def divide(model: DistributedModel, split: Callable[[], list[functools.partial[Any]]]) -> Pipeline:
    """The pipeline of a model; ``split`` makes the step function for each microbatch, at rank 0."""
    world, setting = _state.world(), _state.setting()
    check_alike(world, model.module)
    link = _measure_link(world, setting.device)
    if world.rank != 0:
        found = json.loads(world.broadcast(None))
        if "error" in found:
            raise error(
                "PAWL_EPEER", f"pipeline: rank 0 could not divide the model: {found['error']}"
            )
        plan = Plan.from_json(found["plan"])
        if model.plan is not None and model.plan != plan:
            raise error(
                "PAWL_EMISMATCH",
                f"pipeline: rank {world.rank} has restored what another plan gives it than that of "
                "rank 0: were all ranks' arguments of pp.init the same?",
            )
    else:
        try:
            wanted = dataclasses.replace(wishes(model), link=link)
            plan = model.plan or plan_model(
                model.module,
                _sampled(model, split, CPU),
                wanted,
                delayed=model.delayed,
                there=(setting.device, _sampled(model, split, setting.device)),
            )
        except BaseException as raised:
            text = f"{type(raised).__name__}: {raised}"
            world.broadcast(json.dumps({"error": text}).encode())
            raise
        world.broadcast(json.dumps({"plan": plan.to_json()}).encode())
        plan.print()
    model.plan = plan
    return Pipeline(world, model.module, lay_out(plan), setting, model.delayed)


def _measure_link(world: World, device: torch.device) -> Link:
    """What a transfer between the first two stages takes, from one's device to the other's. All
    ranks call it; rank 0 gets an answer that means something.
    """
    if world.pipeline is None or world.replica != 0 or world.stage > 1:
        return Link()
    least_s = []
    for size in (_SMALL_BYTES, _LARGE_BYTES):
        data = torch.zeros(size, dtype=torch.uint8)
        there = data.to(device)
        took_s = []
        for _ in range(_TIMES):
            begin = time.perf_counter()
            if world.stage == 0:
                world.pipeline.send([to_host(there)], 1, 3).wait()
                world.pipeline.recv([data], 1, 3).wait()
                there = data.to(device)
            else:
                world.pipeline.recv([data], 0, 3).wait()
                there = data.to(device)
                world.pipeline.send([to_host(there)], 0, 3).wait()
            took_s.append((time.perf_counter() - begin) / 2)
        least_s.append(min(took_s))
    return link_of(*least_s)


def link_of(small_s: float, large_s: float) -> Link:
    """The link whose transfers took that long. On a busy machine, a small one may take as long as a
    large one.
    """
    bytes_s = max(large_s - small_s, large_s / 4)
    return Link((_LARGE_BYTES - _SMALL_BYTES) / bytes_s, min(small_s, large_s))


def _sampled(
    model: DistributedModel, split: Callable[[], list[functools.partial[Any]]], device: torch.device
) -> Any:
    """Runs the first microbatch with another backward pass, with its tensors on a device."""
    part = split()[0]

    def put(_: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device)

    def sample(backward: Callable[..., None]) -> Any:
        args, kwargs = _leaves.swap((part.args, part.keywords), put)
        model._profiled = backward
        try:
            with torch.enable_grad():
                return part.func(*args, **kwargs)
        finally:
            model._profiled = None

    return sample


def wishes(model: DistributedModel) -> Wishes:
    """What the user wants of the plan."""
    setting = _state.setting()
    partition = dict(setting.partition)
    for path, module in model.module.named_modules():
        stage = module.__dict__.get("_pawl_stage")
        if stage is not None and not any(path.startswith(f"{known}.") for known in partition):
            partition.setdefault(path, stage)
    return Wishes(
        setting.stages,
        setting.microbatches,
        schedule=setting.schedule,
        memory=None if setting.memory is None else (setting.memory,) * setting.stages,
        memory_weight=setting.memory_weight,
        partition=partition,
        frame=setting.frame,
        units=setting.units,
        tied=setting.tied,
        chunks=setting.chunks,
    )


def plan_again(model: DistributedModel, plan: Plan) -> Plan:
    """A plan for this world of what another one was made of.

    Raises PawlError if the wishes cannot be met with its units.
    """
    wanted = dataclasses.replace(wishes(model), link=plan.wishes.link)
    if wanted.units and wanted.units != plan.units:
        raise error("PAWL_EINVAL", "pp.init(units=...) wants other units")
    if wanted.frame != plan.wishes.frame:
        raise error("PAWL_EINVAL", "pp.init(frame=...) wants other units")
    for path in plan.units:
        model.module.get_submodule(path)
    return plan_anew(plan, wanted)


def lay_out(plan: Plan) -> Layout:
    """What the runtime needs of a plan."""
    reads = dict.fromkeys(plan.frame.params)
    return Layout(
        tuple(
            Placed(
                p.unit.path,
                p.stage,
                p.chunk,
                p.unit.draws,
                p.unit.changes,
                p.unit.updates,
                p.unit.repeated,
                p.unit.params_s > 0,
            )
            for p in plan.places
        ),
        tuple(stage.tasks for stage in plan.stage),
        tuple(reads),
        tuple(stage.busy_s for stage in plan.stage),
    )
