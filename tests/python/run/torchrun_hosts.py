"""Ranks for test_torchrun_hosts.py: `torchrun … torchrun_hosts.py ROOT [dies]`."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pawl

STEPS = 3  # steps in each start


def say(text: str) -> None:
    sys.stdout.write(f"> {text}\n")  # in one write, since ranks share a pipe


def main() -> None:
    root, dies = sys.argv[1], len(sys.argv) > 2
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    mine = {"value": torch.zeros(3)}
    state = {"model": model, "optimizer": optimizer, "mine": mine}
    ckpt = pawl.Checkpointer(root)
    first = ckpt.restore(state) or 0
    say(f"{rank} {os.uname().nodename} from {first} with {mine['value'][0]:g}")
    for step in range(first + 1, first + 1 + STEPS):
        model(torch.ones(4, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        mine["value"].fill_(100 * step + rank)
        save = ckpt.save(step, state)
    done = save.wait("durable", 60)
    say(f"{rank} step {save.step} durable {done} {save.error}")
    dist.barrier()
    if dies:
        os._exit(3)
    ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
