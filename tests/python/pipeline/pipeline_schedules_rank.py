"""A rank of pipelines whose schedule is each but 1f1b and simple.

Usage: pipeline_schedules_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for
each that held.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pawl.pipeline as pp
from group_checks import check, run_checks
from pipeline_checks import (
    WIDTH,
    WORLD,
    Block,
    Skips,
    compare,
    pipeline,
    rows,
    seeded,
    train,
)

EIGHT = [f"blocks.{i}" for i in range(8)]


@check
def schedules() -> None:
    for schedule in ("interleaved", "zero-bubble", "zbv", "listed"):
        several = schedule in ("interleaved", "zbv")
        if several and not 1 < WORLD <= 4:
            continue
        for microbatches in (1, 3, 4, 9):
            made = compare(
                lambda: Skips(8), train, rows(microbatches), microbatches=microbatches,
                schedule=schedule, units=EIGHT, steps=2,
            )  # fmt: skip
            plan = made.model.plan
            assert plan.schedule == schedule and (plan.each > 1) == several
            kinds = {kind for stage in plan.stage for kind, _, _ in stage.tasks}
            assert kinds == ({0, 2, 3} if schedule in ("zero-bubble", "zbv") else {0, 1})


class Nap(nn.Module):
    """A linear layer for which all others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.02)  # pace
        return self.linear(x)


@check
def no_more_is_kept_than_planned() -> None:
    """The first stage's only unit takes nothing that has a gradient. So no part of its backward
    pass comes before what the stage behind does; its forward passes must wait all the same.
    """
    units = [str(i) for i in range(WORLD)]
    where = {name: i for i, name in enumerate(units)}
    setting = {"schedule": "zero-bubble", "units": units, "partition": where}
    with tempfile.TemporaryDirectory() as folder, pipeline(microbatches=8, **setting):
        blocks = [Block() for _ in range(WORLD - 1)]
        model: Any = pp.DistributedModel(seeded(lambda: nn.Sequential(*blocks, Nap())))
        step = pp.step(lambda x: model.backward(model(x).square().mean()))
        for at in range(3):
            if at == 2:
                pp.trace(f"{folder}/step.json")
            step(*rows(8)(at, 0))
        if pp.rank() > 0:
            return
        events = json.loads(Path(f"{folder}/step.json").read_text())["traceEvents"]
        for number, stage in enumerate(model.plan.stage):
            bars = [e for e in events if e["ph"] == "X" and e["tid"] == number]
            kept = {}  # microbatch -> from its first forward call to its last backward call
            for bar in bars:
                begin, end = kept.get(bar["args"]["microbatch"], (bar["ts"], 0))
                kept[bar["args"]["microbatch"]] = begin, max(end, bar["ts"] + bar["dur"])
            most = max(sum(b <= begin < e for b, e in kept.values()) for begin, _ in kept.values())
            assert len(kept) == 8 and most <= stage.peak_live, (number, most, stage.peak_live)


@check
def a_schedule_and_replicas() -> None:
    if WORLD == 4:
        for schedule in ("interleaved", "zbv"):
            compare(
                lambda: Skips(8), train, rows(5), stages=2, microbatches=5, schedule=schedule,
                units=EIGHT, steps=2, optimizer=lambda params: torch.optim.SGD(params, 0.1),
            )  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_checks()
