"""A rank for test_replicas_lost.py. Usage: replicas_paced.py ROOT STEPS PACE_S LIMIT. It saves
every step, and waits for none of them.

It says which saves are replicated, or durable, as soon as it knows. LIMIT is a file with the last
step that may be saved for now; without the file all may be.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

import pawl

SHARED = 50_000  # numbers that all ranks have alike
OWN = int(os.environ.get("OWN", "100000"))  # numbers of each rank


def say(text: str) -> None:
    sys.stdout.write(f"> {text}\n")
    sys.stdout.flush()


def numbers(seed: int, count: int) -> torch.Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


def may_save(step: int, limit: Path) -> bool:
    try:
        return step <= int(limit.read_text() or 0)
    except FileNotFoundError:
        return True


def main() -> None:
    root, last, pace_s, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    state = {"same": {"w": torch.zeros(SHARED)}, "mine": {"w": torch.zeros(OWN)}}
    ckpt = pawl.Checkpointer(root, replicas=int(os.environ.get("REPLICAS", "1")))
    first = ckpt.restore(state) or 0
    if first:
        assert torch.equal(state["same"]["w"], numbers(first, SHARED))
        assert torch.equal(state["mine"]["w"], numbers(1000 * first + rank, OWN))
    say(f"{rank} is {os.getpid()}")
    say(f"{rank} from {first}")
    pending: list[tuple[str, str, pawl.Save]] = []

    def look() -> None:
        time.sleep(pace_s)  # pace
        for entry in list(pending):
            level, word, save = entry
            if save.wait(level, 0):
                pending.remove(entry)
                say(f"{rank} {word} {save.step}")

    for step in range(first + 1, last + 1):
        while not may_save(step, limit):
            look()
        state["same"]["w"].copy_(numbers(step, SHARED))
        state["mine"]["w"].copy_(numbers(1000 * step + rank, OWN))
        save = ckpt.save(step, state)
        pending += [("replicated", "safe", save), ("durable", "stored", save)]
        say(f"{rank} at {step}")
        look()
    ckpt.close()
    say(f"{rank} ends")


if __name__ == "__main__":
    main()
