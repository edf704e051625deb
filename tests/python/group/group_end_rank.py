"""A rank of the backend "pawl" in a group that ends badly. Usage: group_end_rank.py HOW

Rank 1 does what HOW says after a few steps; every other one prints "> ERROR-TYPE: MESSAGE" of the
error that it gets, and the seconds until then as "> SECONDS".
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from group_checks import all_gather_single, reduce_scatter_single
from pawl import distributed

HOW = sys.argv[1]
BACKWARD = ("backward", "compressed")  # cases in which the other ranks wait in DDP
LATE_S = 6  # seconds that ranks wait for a late one; all must also have joined by then


def end_badly() -> None:
    if HOW in ("kill", *BACKWARD):
        os.kill(os.getpid(), signal.SIGKILL)
    elif HOW == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif HOW == "leave":
        dist.destroy_process_group()
        sys.exit(0)
    elif HOW == "exit":
        sys.exit(0)  # without destroying the process group
    elif HOW == "shape":
        dist.all_reduce(torch.ones(1001))
    elif HOW == "order":
        dist.broadcast(torch.ones(1000), 0)
    elif HOW == "skip":
        dist.barrier()
    elif HOW == "late":
        print("late", flush=True)
        time.sleep(LATE_S + 20)  # pace


def differ(odd: bool) -> None:
    """Makes a call that all ranks make; the odd rank passes something else."""
    rank, world = dist.get_rank(), dist.get_world_size()
    n = 0 if odd else 1000
    if HOW == "empty":
        dist.all_reduce(torch.ones(n))
    elif HOW == "gathered":
        all_gather_single(torch.ones(n * world), torch.ones(n))
    elif HOW == "scattered":
        reduce_scatter_single(torch.ones(n), torch.ones(n * world))
    elif HOW == "received":
        dist.broadcast(torch.ones(n), 0)
    elif HOW == "roots":
        dist.broadcast(torch.ones(1000), rank)
    elif HOW == "rows":  # rank 1 sends as many rows as the others, and expects none of rank 0
        rows = [0 if odd and r == 0 else 2 for r in range(world)]
        dist.all_to_all_single(torch.ones(sum(rows)), torch.ones(2 * world), rows, [2] * world)


def main() -> None:
    torch.set_num_threads(1)
    limit = int(os.environ.get("LIMIT") or (LATE_S if HOW == "late" else 600))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # All ranks wait here for the last one to start, however long it takes.
    store = dist.TCPStore(address, port, world, rank == 0, timedelta(minutes=2))
    dist.init_process_group(
        "pawl", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=limit)
    )
    model = DDP(nn.Linear(2000, 500))
    if HOW == "compressed":
        model.register_comm_hook(*distributed.powersgd(model, start_iter=0))
    start = time.monotonic()
    try:
        for step in range(200):
            if step == 5 and dist.get_rank() == 1 and HOW not in BACKWARD:
                end_badly()
            if step == 5:
                start = time.monotonic()
                differ(dist.get_rank() == 1)
            if HOW not in BACKWARD:
                dist.all_reduce(torch.ones(1000))
            loss = model(torch.ones(4, 2000)).sum()
            if step == 5 and dist.get_rank() == 1:
                end_badly()  # the others are in the backward pass
            loss.backward()
    except RuntimeError as error:
        print(f"> {type(error).__name__}: {error}", flush=True)
        print(f"> {time.monotonic() - start:.2f}", flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
