"""A rank of a pipeline whose last stage sleeps, which no CPU time shows when it is measured.

Usage: pipeline_slow_rank.py
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

import pawl.pipeline as pp
from pipeline_checks import pipeline

WIDTH = 64
NAP_S = 0.05


class Part(nn.Module):
    def __init__(self, nap_s: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)
        self.nap_s = nap_s

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.nap_s)  # pace
        return (x @ self.weight).tanh()


def main() -> None:
    torch.set_num_threads(1)
    with pipeline(microbatches=4, schedule="1f1b", partition={"0": 0, "1": 1}):
        torch.manual_seed(0)
        model = pp.DistributedModel(nn.Sequential(Part(0), Part(NAP_S)))

        @pp.step
        def step(x: Tensor) -> None:
            model.backward(model(x).square().mean())

        for _ in range(5):
            step(torch.ones(8, WIDTH))


if __name__ == "__main__":
    main()
