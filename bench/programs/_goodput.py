"""A rank of goodput.py: trains digits or a GPT, and reports each pass's time and loss.

Usage: _goodput.py TASK BATCH SEED PASSES. BATCH: samples of all ranks, with the learning rate that
the scaling rule sets for it; 0: pawl.elastic chooses. Rank 0 prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import pawl.elastic as el

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "elastic"))

from digits import load
from gpt import Gpt, Text

INITIAL, MOST = 32, 1024  # samples of all ranks: initial batch, largest batch
# Bytes in a window; windows in a pass; windows for validation.
LENGTH, WINDOWS, CHECKED = 32, 2048, 1024
WIDTH, NOISE = 512, 0.3  # width of the digits' layers; noise added to pixels from 0 to 1
Kind = tuple[int, int]  # samples of all ranks, number of gradients


class Fresh(Dataset[torch.Tensor]):
    """The text's windows, other ones in each pass."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.order = torch.randperm(len(text), generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return WINDOWS

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.window(CHECKED + (el.current_epoch() or 0) * WINDOWS + i)

    def window(self, i: int) -> torch.Tensor:
        return self.text[self.order[i % len(self.order)]]


Loss = Callable[[nn.Module, Any], torch.Tensor]


def gpt() -> tuple[nn.Module, Any, Dataset[Any], Loss, Callable[[nn.Module], dict[str, float]]]:
    model = Gpt(128, 2, LENGTH)
    data = Fresh(Text(LENGTH, 1 << 16))
    checked = torch.stack([data.window(i) for i in range(CHECKED)])

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    def check(model: nn.Module) -> dict[str, float]:
        return {"loss": float(loss(model, checked))}

    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), data, loss, check


def digits() -> tuple[nn.Module, Any, Dataset[Any], Loss, Callable[[nn.Module], dict[str, float]]]:
    model = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU()),
        *(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)),
    )
    train, (images, of) = load()

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        # Without noise the model learns the images by heart.
        images = batch[0] + NOISE * torch.randn_like(batch[0])
        return functional.cross_entropy(model(images), batch[1])

    def check(model: nn.Module) -> dict[str, float]:
        out = model(images)
        right = (out.argmax(1) == of).float().mean()
        return {"loss": float(functional.cross_entropy(out, of)), "right": float(right)}

    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, TensorDataset(*train), loss, check


def main() -> None:
    task, batch, seed, passes = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    el.init_process_group()
    ranks = dist.get_world_size()
    model, optimizer, data, loss, check = {"gpt": gpt, "digits": digits}[task]()
    loader = el.AdaptiveDataLoader(data, INITIAL, shuffle=True)
    loader.autoscale_batch_size(MOST, (4, MOST // ranks), gradient_accumulation=False)
    if batch:  # PAWL_ELASTIC_REFIT is long then, so this batch stays
        loader._elastic._chosen = (batch // ranks, 0, ranks)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, passes)
    model = el.AdaptiveDataParallel(model, optimizer, schedule)
    took: dict[Kind, list[float]] = {}
    said: list[dict[str, Any]] = []
    for _ in el.remaining_epochs_until(passes):
        made: Counter[Kind] = Counter()
        model.train()
        begin = time.monotonic()
        for x in loader:
            optimizer.zero_grad()
            loss(model, x).backward()
            optimizer.step()
            if el.current_dataloader().is_optim_step():
                kind = (loader.current_batch_size or 0, loader.accumulation_steps + 1)
                now = time.monotonic()
                took.setdefault(kind, []).append(now - begin)
                made[kind] += 1
                begin = now
        schedule.step()
        model.eval()
        with torch.no_grad():
            said.append({**check(model.module), "made": made})
    if dist.get_rank() == 0:
        step = {kind: statistics.median(times) for kind, times in took.items()}
        for one in said:
            one["seconds"] = sum(step[kind] * n for kind, n in one["made"].items())
            one["made"] = [[*kind, n] for kind, n in one["made"].items()]
        rows = [[*kind, value] for kind, value in sorted(step.items())]
        print(json.dumps({"passes": said, "step": rows}), flush=True)


if __name__ == "__main__":
    main()
