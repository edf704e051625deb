"""A user's script: trains for some steps, and prints "> LOSS" of the last one at each rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import pawl.pipeline as pp


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pp.init(stages=2, microbatches=4)
    layers = [m for _ in range(4) for m in (nn.Linear(16, 16), nn.Tanh())]
    model = pp.DistributedModel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    @pp.step
    def train_step(x: Tensor) -> Any:
        loss = model(x).square().mean()
        model.backward(loss)
        return loss

    for _ in range(5):
        optimizer.zero_grad()
        loss = train_step(torch.ones(16, 16)).reduce_mean()
        optimizer.step()
    print(f"> {float(loss).hex()}", flush=True)


if __name__ == "__main__":
    main()
