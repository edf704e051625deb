"""A rank of a pipeline between whose stages tensors of over 64 MiB pass, and beside them results of
over 1 MiB.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import pawl.pipeline as pp
from pawl.errors import PawlError
from pipeline_checks import pipeline, seeded

ROWS, WIDTH = 9, 1 << 20  # 72 MiB of doubles


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Scale(), Scale()])

    def forward(self, x: Tensor) -> Tensor:
        return self.parts[1](self.parts[0](x))


def main() -> None:
    torch.set_num_threads(1)
    with pipeline(stages=2, microbatches=2, partition={"parts.0": 0, "parts.1": 1}):
        model = pp.DistributedModel(seeded(Model))

        @pp.step
        def step(x: Tensor) -> Any:
            y = model(x)
            loss = y.sum()
            model.backward(loss)
            return loss, y[:1]

        for _ in range(2):
            loss, y = step(torch.full((2 * ROWS, WIDTH), 0.5, dtype=torch.float64))
        assert loss.reduce_sum().item() == ROWS * WIDTH
        for _, p in model.local_named_parameters():
            assert bool((p.grad == 2 * ROWS * 0.5).all())
        if pp.rank() == 0:
            assert y.concat().shape == (2, WIDTH)
        else:
            try:
                y.concat()
            except PawlError as error:
                assert "is at the first stage only" in str(error)
        print("> passed", flush=True)


if __name__ == "__main__":
    main()
