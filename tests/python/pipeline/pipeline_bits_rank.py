"""A rank of a pipeline that trains; prints "> NAME HASH" of each parameter that it has at the end.

Usage: pipeline_bits_rank.py [SCHEDULE]
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pawl.pipeline as pp
from pipeline_checks import pipeline

WIDTH, WORDS, MICROBATCHES = 16, 29, 4


class Layer(nn.Module):
    """Calls no module, so that it is a unit whatever the times are: its random numbers are drawn
    where it runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(2 * WIDTH, WIDTH) * 0.2)
        self.down = nn.Parameter(torch.randn(WIDTH, 2 * WIDTH) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(F.layer_norm(x, (WIDTH,)), self.up)
        return x + F.dropout(F.linear(F.dropout(F.gelu(y), 0.1), self.down), 0.2)


class Model(nn.Module):
    """Embeddings that are the output layer as well, and dropout in units and between them."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(WORDS, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList([Layer() for _ in range(5)])
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.emb(ids))
        for layer in self.layers:
            x = F.dropout(layer(x), 0.1)
        return self.head(x + torch.randn_like(x) * 0.01)


def train() -> None:
    torch.manual_seed(3)
    model = pp.DistributedModel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    @pp.step
    def step(ids: Tensor) -> Any:
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        model.backward(loss)
        return loss

    losses = []
    for n in range(3):
        made = torch.Generator().manual_seed(n)
        optimizer.zero_grad()
        out = step(torch.randint(0, WORDS, (2 * MICROBATCHES, 7), generator=made))
        pp.clip_grad_norm_(0.5)
        optimizer.step()
        losses.append(out.reduce_mean().item())
    print(f"> loss {' '.join(map(float.hex, losses))}", flush=True)
    for name, p in model.local_named_parameters():
        digest = hashlib.sha256(p.detach().cpu().numpy().tobytes()).hexdigest()
        print(f"> {name} {digest}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    schedule = sys.argv[1] if len(sys.argv) > 1 else "1f1b"
    units = ["emb", "drop", *[f"layers.{i}" for i in range(5)], "head"]
    with pipeline(microbatches=MICROBATCHES, seed=11, schedule=schedule, units=units):
        train()


if __name__ == "__main__":
    main()
