"""A rank of a pipeline that trains until another one is lost.

Usage: pipeline_kill_rank.py SEED: chooses a schedule by it. Prints "> step N" at each step, and at
the end "> ERROR-TYPE: MESSAGE" of the error that it got.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import pawl.pipeline as pp
from pipeline_checks import WORLD, numbers, pipeline, seeded

MICROBATCHES = 6
SCHEDULES = ("1f1b", "interleaved", "zero-bubble", "zbv", "listed")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(2 * WORLD)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x if x.sum().item() > 0 else x * 2


def main() -> None:
    torch.set_num_threads(1)
    schedule = SCHEDULES[int(sys.argv[1]) % len(SCHEDULES)]
    units = [f"layers.{i}" for i in range(2 * WORLD)]
    several = schedule in ("interleaved", "zbv")
    where = {} if several else {name: i // 2 for i, name in enumerate(units)}
    with pipeline(microbatches=MICROBATCHES, schedule=schedule, partition=where, units=units):
        model = pp.DistributedModel(seeded(Model))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        @pp.step
        def step(x: Tensor) -> Any:
            loss = model(x).square().mean()
            model.backward(loss)
            return loss

        x = numbers(16 * MICROBATCHES, 64, seed=int(sys.argv[1]))
        n = 0
        try:
            while True:
                optimizer.zero_grad()
                step(x)
                pp.clip_grad_norm_(1.0)
                optimizer.step()
                n += 1
                print(f"> step {n}", flush=True)
        except Exception as error:
            print(f"> {type(error).__name__}: {error}", flush=True)
            raise SystemExit from None


if __name__ == "__main__":
    main()
