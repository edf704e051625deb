"""A job of real.py: trains a small real model by pawl.elastic, in steps that an accelerator paces.

Usage: _real_job.py KIND EPOCHS DATA FOLDER; with REAL_FIXED=1 the batch stays as it is.

The gradient, its reduction and the statistics are real. The time that an accelerator would take for
a rank's samples at once is slept, before the gradient is reduced. Each rank writes a line a step
into FOLDER/PID, which real.py evaluates. Rank 0 ends with a line of JSON, the mean losses of the
first and the last epoch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import pawl.elastic as el
from pawl.elastic import _metrics

WINDOW, STRIDE = 32, 8  # bytes of text


@dataclass(frozen=True)
class Kind:
    like: str  # model published with Pollux whose profile this kind follows in all but its size
    batch: int  # initial batch, samples of all ranks: the learning rate is meant for it
    local: tuple[int, int]  # least and most samples of a rank at once
    fixed: float  # part of an initial batch's time, on one slot, that any step takes

    @property
    def step_s(self) -> float:
        """Seconds that the accelerator takes for any step."""
        return STEP_S * self.fixed

    @property
    def sample_s(self) -> float:
        """Seconds that it takes for each sample, in addition."""
        return STEP_S * (1 - self.fixed) / self.batch

    @property
    def most(self) -> int:
        """The largest batch, in samples."""
        return GROWTH * self.batch


STEP_S = 0.16  # time of an initial batch, on one slot
GROWTH = 32  # largest batch, in initial batches
SAMPLES = 600  # samples in a pass
KINDS = {
    "mlp": Kind("cifar10", 8, (2, 64), 0.16),
    "cnn": Kind("imagenet", 8, (1, 8), 0.07),
    "coder": Kind("deepspeech2", 8, (4, 32), 0.39),
    "gpt": Kind("bert", 6, (2, 6), 0.20),
}


class Numbered(Dataset[Any]):
    """Samples, each with its number."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return index, *(tensor[index] for tensor in self.tensors)


class Gpt(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, width))
        self.block = nn.TransformerEncoderLayer(
            width, 2, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW), False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.block(self.bytes(x) + self.places, self.mask, is_causal=True)
        return self.head(found).flatten(0, 1)


def make(kind: str, data: Path) -> tuple[Dataset[Any], nn.Module, torch.optim.Optimizer]:
    """The data set, the model and its optimizer. ``data``: see real.py."""
    told = torch.load(data)
    x, y = told["digits"][:SAMPLES], told["classes"][:SAMPLES]
    if kind == "gpt":
        windows = told["text"].unfold(0, WINDOW + 1, STRIDE)[:SAMPLES].long()
        model: nn.Module = Gpt()
        return Numbered(windows[:, :-1], windows[:, 1:]), model, torch.optim.AdamW(
            model.parameters(), lr=1e-3
        )  # fmt: skip
    if kind == "coder":
        model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 64))
        return Numbered(x, x), model, torch.optim.Adam(model.parameters(), lr=1e-3)
    if kind == "mlp":
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    else:
        model = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(),
            nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip
    return Numbered(x, y), model, torch.optim.SGD(model.parameters(), lr=0.02)


def main() -> None:
    name, epochs, data, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    kind = KINDS[name]
    samples, model, optimizer = make(name, data)
    loss_of = functional.mse_loss if name == "coder" else functional.cross_entropy
    loader = el.AdaptiveDataLoader(samples, batch_size=kind.batch, shuffle=True)
    if os.environ.get("REAL_FIXED") != "1":
        loader.autoscale_batch_size(kind.most, kind.local, gradient_accumulation=True)
    model = el.AdaptiveDataParallel(model, optimizer)
    helper, losses = loader._elastic, []
    with (folder / str(os.getpid())).open("w", buffering=1) as out:
        for epoch in el.remaining_epochs_until(epochs):
            stats = el.Accumulator()
            begun = time.monotonic()
            for indices, *inputs, targets in loader:
                optimizer.zero_grad()
                found = model(*inputs)
                loss = loss_of(found, targets.view(-1) if name == "gpt" else targets)
                took = time.monotonic() - begun
                time.sleep(max(0.0, kind.step_s + kind.sample_s * len(indices) - took))
                line = [
                    epoch,
                    helper.current_index // len(samples),
                    helper.share > 0,
                    *indices.tolist(),
                ]
                helper.tell_after(lambda made, line=line: note(out, made, line))
                loss.backward()
                optimizer.step()
                stats["loss"] += loss.item() * len(indices)
                stats["seen"] += len(indices)
                begun = time.monotonic()
            with stats.synchronized():
                losses.append(stats["loss"] / stats["seen"])
    if torch.distributed.get_rank() == 0:
        print(json.dumps({"first": losses[0], "last": losses[-1]}), flush=True)


def note(out: Any, made: bool, line: list[int]) -> None:
    """Writes a step's line: time, steps before it, ranks, and the samples that it was made of."""
    if made and line[2]:
        now = [time.monotonic(), _metrics.current().steps, torch.distributed.get_world_size()]
        print(json.dumps([*now, *line[:2], *line[3:]]), file=out)


if __name__ == "__main__":
    main()
