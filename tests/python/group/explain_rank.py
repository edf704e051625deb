"""A rank whose steps are two all-reduces and a barrier; rank 1 sleeps before every second step.

Usage: explain_rank.py STEPS [FOLDER]. With FOLDER, each rank kills itself at the end, once all have
come there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

SLEEP_S = 0.2


def main() -> None:
    dist.init_process_group("pawl")
    group = dist.group.WORLD
    small, large = torch.ones(1000), torch.ones(1_000_000)
    before = group.stats()
    for _ in range(int(sys.argv[1])):
        dist.all_reduce(small)
        if dist.get_rank() == 1:
            time.sleep(SLEEP_S)  # pace
        dist.all_reduce(large)
        dist.barrier()
    stats = group.stats() - before
    reduced = stats.kinds["all_reduce"]
    late = stats.peers[1]
    if sys.argv[2:]:
        (Path(sys.argv[2]) / f"over{dist.get_rank()}").touch()
        while len(list(Path(sys.argv[2]).glob("over*"))) < dist.get_world_size():
            time.sleep(0.02)  # pace
        os.kill(os.getpid(), signal.SIGKILL)
    print(
        "> counts", reduced.count, reduced.bytes, stats.kinds["barrier"].count, sorted(stats.kinds)
    )
    phases = reduced.queued + reduced.idle + reduced.late + reduced.network + reduced.memory
    print("> whole", abs(phases + reduced.adding - reduced.seconds) < 1e-6, stats.clock > 0)
    print("> late", late.last, late.late, sum(peer.sent for peer in stats.peers))
    dist.destroy_process_group()


main()
