"""The script that restart.py kills: DistributedDataParallel over gloo, saved every few steps.

Writes a JSON line for every completed step: pid, rank, step, and the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pawl

STEPS_MAX = 100_000  # never reached: the script is killed long before
SAVE_STEPS = 5
ROWS = 8  # rows in a batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--steps", type=Path, required=True, help="the log")
    parser.add_argument("--width", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [nn.Linear(args.width, args.width), nn.ReLU(), nn.Linear(args.width, args.width)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    state = {"model": model, "optimizer": optimizer}
    checkpointer = pawl.Checkpointer(args.root, keep=2)
    first = checkpointer.restore(state) or 0
    log = os.open(args.steps, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for step in range(first + 1, STEPS_MAX):
        loss = model(torch.ones(ROWS, args.width)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        line = {"pid": os.getpid(), "rank": rank, "step": step, "time_s": time.monotonic()}
        os.write(log, json.dumps(line).encode() + b"\n")
        if step % SAVE_STEPS == 0:
            checkpointer.save(step, state)


if __name__ == "__main__":
    main()
