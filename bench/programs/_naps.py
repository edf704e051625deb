"""A rank of a pipeline whose stages only sleep: _naps.py ROUNDS MICROBATCHES...

A stage sleeps FORWARD_S in its forward pass, INPUTS_S for the gradient of its input, and WEIGHTS_S
for that of its weight, so that time lost between stages is all that there is to see. With several
chunks a stage, each of them sleeps that part of it. Prints, as the first rank, a JSON object:
{microbatches: {schedule: {"ours", "torch": [seconds of a step, ...], "predicted_s", "bound_s"}}}.
There is no "torch" where torch refuses that number of microbatches.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from typing import Any, NamedTuple
from unittest import mock

import torch
from programs._stages import Ours, Theirs, join, race
from torch import nn

from pawl.pipeline import _cut

FORWARD_S, INPUTS_S, WEIGHTS_S = 0.02, 0.02, 0.02
BACKWARD_S = INPUTS_S + WEIGHTS_S
WIDTH = 256
ROWS = 2  # rows of a microbatch


class Kind(NamedTuple):
    """A schedule."""

    bubble_s: float  # a step takes this more with each stage beside the first
    theirs: str = ""  # torch's name; torch has none like it
    chunks: int = 1  # chunks of a stage
    least: int = 0  # microbatches of a stage, at least, that torch wants
    back: bool = False  # the second chunks lie in reverse order


SCHEDULES = {
    "1f1b": Kind(FORWARD_S + BACKWARD_S, "Schedule1F1B", least=1),
    "simple": Kind(FORWARD_S + BACKWARD_S, "ScheduleGPipe"),
    "interleaved": Kind((FORWARD_S + BACKWARD_S) / 2, "ScheduleInterleaved1F1B", chunks=2),
    "zero-bubble": Kind(FORWARD_S),
    "zbv": Kind(FORWARD_S / 2, "ScheduleZBVZeroBubble", chunks=2, least=2, back=True),
}


def nap(tensor: torch.Tensor, seconds: float) -> torch.Tensor:
    """Sleeps once a tensor is there: else it would begin before the data comes."""
    made = tensor * 1.0
    time.sleep(seconds)
    return made


class Nap(torch.autograd.Function):
    """Sleeps in both passes."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, forward_s: float, backward_s: float) -> Any:
        ctx.backward_s = backward_s
        return nap(tensor, forward_s) if forward_s else tensor * 1.0

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return nap(grads[0], ctx.backward_s), None, None


class Chunk(nn.Module):
    """A part of a stage. Its weight is its own, not that of a module in it, so that it stays one
    unit.
    """

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)
        self.chunks = chunks

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        weight = Nap.apply(self.weight, 0.0, WEIGHTS_S / self.chunks)
        made = nn.functional.linear(tensor, weight)
        return Nap.apply(made, FORWARD_S / self.chunks, INPUTS_S / self.chunks)


def stage_of(chunk: int, ranks: int, kind: Kind) -> int:
    return 2 * ranks - 1 - chunk if kind.back and chunk >= ranks else chunk % ranks


def measure(rank: int, ranks: int, microbatches: int, rounds: int) -> dict[str, Any]:
    batch = torch.randn(microbatches * ROWS, WIDTH)
    target = torch.zeros(len(batch))
    found: dict[str, Any] = {}
    for schedule, kind in SCHEDULES.items():
        parts = range(ranks * kind.chunks)
        ours = Ours(
            nn.Sequential(*[Chunk(kind.chunks) for _ in parts]),
            microbatches,
            lambda model, rows: model(rows).sum(),
            schedule,
            partition={str(chunk): stage_of(chunk, ranks, kind) for chunk in parts},
            chunks=kind.chunks if kind.chunks > 1 else None,
        )
        ways: dict[str, Any] = {"ours": lambda ours=ours: ours.step(batch)}
        if kind.theirs and microbatches >= kind.least * ranks:
            mine = [c for c in parts if stage_of(c, ranks, kind) == rank]
            modules: Any = {chunk: Chunk(kind.chunks) for chunk in mine}
            theirs = Theirs(
                modules if kind.chunks > 1 else modules[rank],
                microbatches,
                lambda out, _: out.sum(),
                kind.theirs,
            )
            ways["torch"] = lambda theirs=theirs: theirs.step(batch, target)
        found[schedule] = race(ways, rounds)
        found[schedule]["predicted_s"] = ours.model.plan.step_s
        work_s = microbatches * (FORWARD_S + BACKWARD_S)
        found[schedule]["bound_s"] = work_s + (ranks - 1) * kind.bubble_s
        ours.close()
    return found


def main() -> None:
    rounds, *each = (int(word) for word in sys.argv[1:])
    rank, ranks = join()
    torch.manual_seed(0)
    # Sleep is no CPU time.
    planned = functools.partial(_cut.plan_model, clock="wall")
    with mock.patch.object(_cut, "plan_model", planned):
        found = {count: measure(rank, ranks, count, rounds) for count in each}
    if rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
