"""A rank for test_run_nodes.py. Usage: nodes_rank.py ROOT STEPS [PAUSE_S]. It trains, and saves
every step.

With PAUSE_S, a rank that starts from nothing waits at half of its steps to be killed.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pawl

BACKEND = os.environ.get("BACKEND", "gloo")


def say(text: str) -> None:
    sys.stdout.write(f"> {text}\n")


def main() -> None:
    root, last = sys.argv[1], int(sys.argv[2])
    pause_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(512, 512))
    optimizer = torch.optim.AdamW(model.parameters())
    mine = {"value": torch.zeros(3)}
    state = {"model": model, "optimizer": optimizer, "mine": mine}
    ckpt = pawl.Checkpointer(root)
    first = ckpt.restore(state) or 0
    assert mine["value"][0] == (100 * first + rank if first else 0)
    say(f"{rank} from {first}")
    for step in range(first + 1, last + 1):
        model(torch.ones(4, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        mine["value"].fill_(100 * step + rank)
        save = ckpt.save(step, state)
        if pause_s:
            time.sleep(pause_s)  # pace
            say(f"{rank} at {step}")
        while pause_s and first == 0 and step == last // 2:
            time.sleep(pause_s)  # pace
    done = save.wait("durable", 60)
    say(f"{rank} step {save.step} durable {done} {save.error}")
    dist.barrier()
    ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
