"""A rank of elastic.py: trains a model of 100 MB, and notes when each of its steps was done.

Usage: _elastic.py MODE FOLDER SECONDS. MODE: elastic (pawl.elastic, in place), plain (DDP, as
torchrun restarts it; rank 0 saves what it needs to go on). Steps go into FOLDER/PID, a
line each, with the machine's monotonic clock.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

MODE, FOLDER, SECONDS = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
WIDTH, LAYERS, BATCH = 1024, 25, 8


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def train_in_place(note: object) -> None:
    import pawl.elastic as el

    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model = el.AdaptiveDataParallel(model, optimizer)
    data = TensorDataset(torch.randn(1 << 16, WIDTH))
    loader = el.AdaptiveDataLoader(data, batch_size=BATCH)
    for _ in el.remaining_epochs_until(1):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            note()  # type: ignore[operator]
    os._exit(0)


def train_plainly(note: object) -> None:
    # Not Gloo: after a restart its ranks request the dead rank's address until they time out.
    dist.init_process_group("pawl")
    model = make_model()
    saved = FOLDER / "model.pt"
    if saved.exists():
        model.load_state_dict(torch.load(saved))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH // dist.get_world_size(), WIDTH)
    if dist.get_rank() == 0 and not saved.exists():
        torch.save(model.module.state_dict(), saved)
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        note()  # type: ignore[operator]


def main() -> None:
    torch.set_num_threads(1)
    end = time.monotonic() + SECONDS
    with (FOLDER / f"{os.getpid()}.steps").open("w") as out:

        def note() -> None:
            now = time.monotonic()
            print(now, file=out, flush=True)
            if now > end:
                os._exit(0)

        {"elastic": train_in_place, "plain": train_plainly}[MODE](note)


if __name__ == "__main__":
    main()
