"""A rank for test_replicas.py. Usage: replicas_rank.py ROOT STEPS HOLD GO. It trains, and saves
every step.

Ranks that start from nothing wait behind step HOLD, which is durable, until GO exists; then they
save MORE steps (environment, 2), and wait for GO.2, or to be killed. Steps after that are durable.

Environment: REPLICAS, PERSIST_EVERY and MEMORY are the options of Checkpointer. AGAIN: a step
behind which all ranks restore. WAITS: the only rank that waits for its saves; it waits for each
until that is durable. EXTRA: a host, of two ranks, that saves once more than the others.
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
    root, last, hold, go = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    second = hold + int(os.environ.get("MORE", "2"))
    gates = {hold: Path(go), second: Path(go + ".2")}
    waits = int(os.environ.get("WAITS", "-1"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = {"same": {"w": torch.zeros(SHARED)}, "mine": {"w": torch.zeros(OWN)}}
    ckpt = pawl.Checkpointer(
        root,
        memory=int(os.environ["MEMORY"]) if "MEMORY" in os.environ else None,
        persist_every=float(os.environ.get("PERSIST_EVERY", "60")),
        replicas=int(os.environ.get("REPLICAS", "1")),
        parity=os.environ.get("PARITY") == "1",
        on_exit="warn" if "EXTRA" in os.environ else "raise",
    )
    first = ckpt.restore(state) or 0
    if first:
        assert torch.equal(state["same"]["w"], numbers(first, SHARED))
        assert torch.equal(state["mine"]["w"], numbers(1000 * first + rank, OWN))
    say(f"{rank} from {first}")
    for step in range(first + 1, last + 1):
        state["same"]["w"].copy_(numbers(step, SHARED))
        state["mine"]["w"].copy_(numbers(1000 * step + rank, OWN))
        save = ckpt.save(step, state)
        held = not first and hold < step <= second
        level = "replicated" if held else "durable"
        if waits in (-1, rank):
            done = save.wait(level, 60)
            say(f"{rank} at {step} {level} {done} {save.error}")
        if step == int(os.environ.get("AGAIN", "0")):
            save.wait("committed", 60)
            say(f"{rank} again from {ckpt.restore(state)}")
            assert torch.equal(state["mine"]["w"], numbers(1000 * step + rank, OWN))
        dist.barrier()
        while not first and step in gates and not gates[step].exists():
            time.sleep(0.05)  # pace
    if rank // 2 == int(os.environ.get("EXTRA", "-1")):
        ckpt.save(last + 1, state).wait("committed", 60)
    ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
