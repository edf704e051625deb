"""A rank of a pipeline whose stages only sleep: _naps.py ROUNDS MICROBATCHES...

Every stage sleeps FORWARD_S in its forward pass and BACKWARD_S in its backward pass, so that time
lost between stages is all that there is to see. Prints, as the first rank, a JSON object:
{microbatches: {"1f1b", "simple": {"ours", "torch": [seconds of a step, ...]}}}. With fewer
microbatches than stages there is no "torch" of 1f1b, which torch refuses.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from programs._stages import Ours, Theirs, join, race
from torch import nn

FORWARD_S, BACKWARD_S = 0.02, 0.04
WIDTH = 256
ROWS = 2  # rows of a microbatch
SCHEDULES = {"1f1b": "Schedule1F1B", "simple": "ScheduleGPipe"}  # ours -> torch's


class Nap(torch.autograd.Function):
    """Sleeps, both times once its input is there: else it would begin before the data comes."""

    @staticmethod
    def forward(_: Any, tensor: torch.Tensor) -> torch.Tensor:
        made = tensor * 1.0
        time.sleep(FORWARD_S)
        return made

    @staticmethod
    def backward(_: Any, *grads: torch.Tensor) -> torch.Tensor:
        made = grads[0] * 1.0
        time.sleep(BACKWARD_S)
        return made


class Stage(nn.Module):
    """One stage. Its weight is its own, not that of a module in it, so that it stays one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return Nap.apply(nn.functional.linear(tensor, self.weight))


def measure(ranks: int, microbatches: int, rounds: int) -> dict[str, Any]:
    batch = torch.randn(microbatches * ROWS, WIDTH)
    target = torch.zeros(len(batch))
    found = {}
    for schedule, name in SCHEDULES.items():
        stages = [Stage() for _ in range(ranks)]
        ours = Ours(
            nn.Sequential(*stages),
            microbatches,
            lambda model, rows: model(rows).sum(),
            schedule,
            partition={str(stage): stage for stage in range(ranks)},
        )
        ways: dict[str, Any] = {"ours": lambda ours=ours: ours.step(batch)}
        if schedule != "1f1b" or microbatches >= ranks:  # torch refuses fewer
            theirs = Theirs(Stage(), microbatches, lambda out, _: out.sum(), name)
            ways["torch"] = lambda theirs=theirs: theirs.step(batch, target)
        found[schedule] = race(ways, rounds)
        ours.close()
    return found


def main() -> None:
    rounds, *each = (int(word) for word in sys.argv[1:])
    rank, ranks = join()
    torch.manual_seed(0)
    found = {microbatches: measure(ranks, microbatches, rounds) for microbatches in each}
    if rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
