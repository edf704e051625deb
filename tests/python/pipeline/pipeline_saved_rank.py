"""A rank of a pipeline, or a plain process, that goes on from a checkpoint, trains and saves.

Usage: pipeline_saved_rank.py ROOT STAGES FIRST LAST [local] [kill]

Trains steps FIRST to LAST, from the checkpoint of step FIRST - 1 if FIRST is over 1, and saves the
last one. STAGES 0: a plain module. local: the optimizer has this rank's parameters only. kill: one
rank ends itself in the step after the save. Prints "> loss N HEX" of each step, and "> NAME HASH"
of each parameter and buffer that this rank has at the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pawl
import pawl.pipeline as pp
from pawl.errors import PawlError
from pipeline_bits_rank import Layer
from pipeline_checks import pipeline

WIDTH, WORDS, MICROBATCHES = 16, 29, 4


class Model(nn.Module):
    """Tied embeddings, dropout, a batch norm with its counter, a frozen parameter, one that is a
    single number, and one whose elements are in another order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(4)])
        self.norm = nn.BatchNorm1d(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.mix.weight = nn.Parameter(torch.randn(WIDTH, WIDTH).t() * 0.2)
        self.mix.bias.requires_grad_(False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.emb.weight
        self.scale = Scale()
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.scale(self.mix(x)))


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


def batch(step: int, replica: int) -> Tensor:
    made = torch.Generator().manual_seed(100 * step + replica)
    return torch.randint(0, WORDS, (2 * MICROBATCHES, 7), generator=made)


def make_optimizer(model: Any, local: bool) -> torch.optim.Optimizer:
    """Two groups, in an order that is not the model's."""
    named = dict(model.local_named_parameters() if local else model.named_parameters())
    plain = [p for n, p in named.items() if p.dim() < 2 and p.requires_grad]
    heavy = [p for n, p in named.items() if p.dim() >= 2 and p.requires_grad]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": heavy, "weight_decay": 0.1}]
    return torch.optim.AdamW(groups, lr=0.01)


def train(root: str, stages: int, first: int, last: int, flags: list[str]) -> None:
    torch.manual_seed(3 if first == 1 else 4)  # a restored model begins with other numbers
    model: Any = Model() if stages == 0 else pp.DistributedModel(Model())
    local, replica = "local" in flags, 0 if stages == 0 else pp.replica()
    optimizer = None if local else make_optimizer(model, False)

    @pp.step
    def step(ids: Tensor) -> Any:
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        model.backward(loss)
        return loss

    with pawl.Checkpointer(root, persist_every=0) as ckpt:
        state: dict[str, Any] = {"model": model, "lr": 0.25}
        if optimizer is not None:
            state["optimizer"] = optimizer
        if first > 1:
            assert ckpt.restore(state) == first - 1
        for n in range(first, last + 1 if stages else first):
            ids = batch(n, replica)
            if optimizer is not None:
                optimizer.zero_grad()
            out = step(ids)
            if optimizer is None:
                optimizer = state["optimizer"] = make_optimizer(model, True)
            pp.clip_grad_norm_(0.5)
            optimizer.step()
            print(f"> loss{n}/{replica} {out.reduce_mean().item().hex()}", flush=True)
        if stages:
            ckpt.save(last, state)
        if "kill" in flags:
            ckpt.flush()
            if os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                while True:
                    step(batch(last + 1, replica))
            except PawlError as why:
                print(f"> error {why}", flush=True)
                os._exit(3)
    say(model, stages)


def say(model: Any, stages: int) -> None:
    tensors = dict(model.state_dict() if stages == 0 else model.local_state_dict())
    for name, tensor in tensors.items():
        digest = hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
        shown = name if "norm." not in name or stages == 0 else f"{name}/{pp.replica()}"
        print(f"> {shown} {digest[:16]}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    root, stages, first, last, *flags = sys.argv[1:]
    if stages == "0":
        train(root, 0, int(first), int(last), flags)
        return
    units = ["emb", *[f"layers.{i}" for i in range(4)], "norm", "mix", "scale", "head"]
    with pipeline(stages=int(stages), microbatches=MICROBATCHES, seed=11, units=units):
        train(root, int(stages), int(first), int(last), flags)


if __name__ == "__main__":
    main()
