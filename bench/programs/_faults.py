"""A rank of faults.py: reduces until it fails, then goes on without the lost rank, or ends.

Usage: _faults.py BACKEND FILE SECONDS. Writes a JSON line into FILE for each event, with the
machine's monotonic clock; after SECONDS, all ranks end together.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist

BACKEND, FILE, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
NUMBERS = 250_000


def say(what: str, **more: object) -> None:
    with open(FILE, "a") as out:
        out.write(json.dumps({"what": what, "t": time.monotonic(), **more}) + "\n")


def reduce_until(end: float) -> tuple[int, float]:
    """Reduces until a time; returns the number of sums, and the seconds of the slowest."""
    done, slowest = 0, 0.0
    over = torch.zeros(NUMBERS)
    while True:
        begun = time.monotonic()
        over[:] = 1.0
        over[-1] = float(begun > end)
        dist.all_reduce(over)
        done += 1
        slowest = max(slowest, time.monotonic() - begun)
        if over[-1] == dist.get_world_size():
            return done, slowest


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND)
    dist.barrier()
    say("begins")
    try:
        done, slowest = reduce_until(time.monotonic() + SECONDS)
    except RuntimeError as error:
        say("named", text=str(error))
        if BACKEND == "pawl":
            assert dist.group.WORLD is not None
            group = dist.group.WORLD.shrink(least=1)  # type: ignore[attr-defined]
            ones = torch.ones(NUMBERS)
            dist.all_reduce(ones, group=group)
            assert ones[0] == dist.get_world_size(group)
            say("next", ranks=dist.get_world_size(group))
            group.shutdown()
        os._exit(0)
    say("ends", done=done, slowest=slowest)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
