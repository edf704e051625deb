"""A rank for test_departs.py. Usage: departs_rank.py ROOT STEPS. It saves every step, and leaves
once ckpt.stopping says so. ASKS=flag: all ranks agree on SIGTERM by a flag of their own, as where
Pawl cannot bring them together. ASKS=due: it saves only when ckpt.due() says so.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import pawl

SHARED, OWN = 50_000, 100_000  # numbers that all ranks have alike; numbers of each rank


def say(text: str) -> None:
    sys.stdout.write(f"> {text}\n")
    sys.stdout.flush()


def numbers(seed: int, count: int) -> torch.Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


def main() -> None:
    root, last = sys.argv[1], int(sys.argv[2])
    asks = os.environ.get("ASKS", "stopping")
    stop = torch.zeros(1)
    if asks == "flag":
        signal.signal(signal.SIGTERM, lambda *_: stop.fill_(1))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = {"same": {"w": torch.zeros(SHARED)}, "mine": {"w": torch.zeros(OWN)}}
    with pawl.Checkpointer(root, on_exit="warn") as ckpt:
        first = ckpt.restore(state) or 0
        if first:
            assert torch.equal(state["same"]["w"], numbers(first, SHARED))
            assert torch.equal(state["mine"]["w"], numbers(1000 * first + rank, OWN))
        say(f"{rank} from {first}")
        for step in range(first + 1, last + 1):
            state["same"]["w"].copy_(numbers(step, SHARED))
            state["mine"]["w"].copy_(numbers(1000 * step + rank, OWN))
            stops = asks != "flag" and ckpt.stopping
            if asks != "due" or ckpt.due():
                ckpt.save(step, state)
                say(f"{rank} at {step}")
            time.sleep(0.05 if asks == "due" else 0.2)  # pace
            stopping = stop.clone()
            dist.all_reduce(stopping, op=dist.ReduceOp.MAX)  # as training does
            if stops or stopping.item():
                break
    dist.destroy_process_group()
    say(f"{rank} ends")


if __name__ == "__main__":
    main()
