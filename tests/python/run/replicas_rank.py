"""A rank for test_replicas.py. Usage: replicas_rank.py ROOT STEPS HOLD GO. It trains, and saves
every step.

Ranks that start from nothing wait behind step HOLD, which is durable, until GO exists; then they
save two more steps, and wait to be killed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import pawl

SHARED, OWN = 300_000, 700_000  # numbers in the state


def say(text: str) -> None:
    sys.stdout.write(f"> {text}\n")


def numbers(seed: int, count: int) -> torch.Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


def main() -> None:
    root, last, hold, go = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = {"same": {"w": torch.zeros(SHARED)}, "mine": {"w": torch.zeros(OWN)}}
    parity = os.environ.get("PARITY") == "1"
    ckpt = pawl.Checkpointer(root, replicas=int(os.environ.get("REPLICAS", "1")), parity=parity)
    first = ckpt.restore(state) or 0
    if first:
        assert torch.equal(state["same"]["w"], numbers(first, SHARED))
        assert torch.equal(state["mine"]["w"], numbers(1000 * first + rank, OWN))
    say(f"{rank} from {first}")
    for step in range(first + 1, last + 1):
        state["same"]["w"].copy_(numbers(step, SHARED))
        state["mine"]["w"].copy_(numbers(1000 * step + rank, OWN))
        save = ckpt.save(step, state)
        level = "durable" if first or step <= hold else "replicated"
        done = save.wait(level, 60)
        say(f"{rank} at {step} {level} {done} {save.error}")
        dist.barrier()
        while first == 0 and ((step == hold and not go.exists()) or step == hold + 2):
            time.sleep(0.05)  # pace
    ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
