"""Divides a model in its first step: profile, plan, and what each rank is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pawl.errors import error
from pawl.pipeline import _state
from pawl.pipeline._divide._plan import Plan, Wishes, plan_model
from pawl.pipeline._layout import Layout, Placed
from pawl.pipeline._model import DistributedModel, Pipeline, check_alike

if TYPE_CHECKING:
    from pawl.pipeline._state import Setting


def divide(model: DistributedModel, split: Callable[[], list[Callable[[], Any]]]) -> Pipeline:
    """The pipeline of a model; ``split`` makes the step function for each microbatch, at rank 0."""
    world, setting = _state.world(), _state.setting()
    check_alike(world, model.module)
    if world.rank != 0:
        found = json.loads(world.broadcast(None))
        if "error" in found:
            raise error(
                "PAWL_EPEER", f"pipeline: rank 0 could not divide the model: {found['error']}"
            )
        plan = Plan.from_json(found["plan"])
    else:
        try:
            plan = _plan(model, split()[0], setting)
        except BaseException as raised:
            text = f"{type(raised).__name__}: {raised}"
            world.broadcast(json.dumps({"error": text}).encode())
            raise
        world.broadcast(json.dumps({"plan": plan.to_json()}).encode())
        plan.print()
    pipeline = Pipeline(world, model.module, lay_out(plan), setting.microbatches, setting.seed)
    pipeline.plan = plan
    return pipeline


def _plan(model: DistributedModel, part: Callable[[], Any], setting: Setting) -> Plan:
    partition = dict(setting.partition)
    for path, module in model.module.named_modules():
        stage = module.__dict__.get("_pawl_stage")
        if stage is not None and not any(path.startswith(f"{known}.") for known in partition):
            partition.setdefault(path, stage)
    wishes = Wishes(
        setting.stages,
        setting.microbatches,
        schedule=setting.schedule,
        memory=None if setting.memory is None else (setting.memory,) * setting.stages,
        memory_weight=setting.memory_weight,
        partition=partition,
        frame=setting.frame,
        units=setting.units,
        tied=setting.tied,
    )

    def sample(backward: Callable[..., None]) -> Any:
        model._profiled = backward
        try:
            with torch.enable_grad():
                return part()
        finally:
            model._profiled = None

    return plan_model(model.module, sample, wishes)


def lay_out(plan: Plan) -> Layout:
    """What the runtime needs of a plan."""
    reads = dict.fromkeys(plan.frame.params)
    return Layout(
        tuple(
            Placed(p.unit.path, p.stage, p.chunk, p.unit.draws, p.unit.changes, p.unit.updates)
            for p in plan.places
        ),
        tuple(stage.tasks for stage in plan.stage),
        tuple(reads),
        plan.stages if plan.schedule == "1f1b" else plan.microbatches,
    )
