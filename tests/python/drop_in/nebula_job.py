"""Ranks for test_nebula.py. Usage: nebula_job.py WHAT ROOT. They call Nebula as DeepSpeed's engine
does."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import nebulaml as nm
import torch
import torch.distributed as dist

import program
import waits

MEETINGS = 60  # while a tag that became durable could be missed, one failed in half of the runs


def save(tag: str, value: float, rank: int) -> bool:
    ck = nm.Checkpoint(tag, -2)
    if rank == 0:
        ck.save("model", {"w": torch.full((1000,), value)})
    if rank != 1:  # rank 1 has no partition
        ck.save(f"optim-{rank}", {"m": torch.full((5000,), value + rank)})
    return bool(ck.commit())


def whole(root: str, rank: int) -> None:
    """Every rank commits; each can read what any other saved, also in a job of another number of
    ranks."""
    nm.init(root, persistent_time_interval=0)
    for step in (9, 10):
        dist.barrier()
        assert save(f"global_step{step}", step, rank)
    dist.barrier()
    found = nm.get_latest_checkpoint(persist_path=root)
    assert found is not None
    values = [found.load(f"optim-{r}", map_location="cpu")["m"][0].item() for r in (0, 2, 3)]
    print(f"> {found.tag} {values}", flush=True)
    assert save("global_step10", 10, rank) if rank != 3 else nm.Checkpoint("global_step10").commit()
    dist.barrier()
    assert nm.flush_persistence()
    dist.barrier()


def dead(root: str, rank: int) -> None:
    """Rank 2 dies before it commits the second tag."""
    nm.init(root, persistent_time_interval=0)
    dist.barrier()
    assert save("global_step1", 1, rank)
    dist.barrier()
    assert nm.flush_persistence("global_step1")
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    save("global_step2", 2, rank)
    there = lambda: nm.get_checkpoint(tag="global_step2", persist_path=root)  # noqa: E731
    waits.stays(lambda: there() is None, "it is not whole", 1)
    seen = [nm.get_checkpoint(tag="global_step2", persist_path=root), nm.get_latest_checkpoint()]
    print(f"> {seen}", flush=True)
    dist.barrier()  # fails, and an exception ends the process


def met(root: str, rank: int) -> None:
    """Once all ranks have committed a tag, every rank finds it."""
    nm.init(root, persistent_time_interval=0)
    for step in range(MEETINGS):
        assert save(f"global_step{step}", step, rank)
        dist.barrier()
        found = nm.get_latest_checkpoint()
        assert found is not None and found.tag == f"global_step{step}", f"{step}: {found}"
        assert f"global_step{step}" in nm.list_checkpoints()
        dist.barrier()
    print("> met", flush=True)


def overtaken(root: str, rank: int) -> None:
    """An agent that was held up reads rank 0's messages, a request among them, before rank 1's."""
    nm.init(root, persistent_time_interval=0)
    assert save("global_step1", 1, rank)
    dist.barrier()
    assert nm.flush_persistence("global_step1")
    ck = nm.Checkpoint("global_step2", 2)
    ck.save(f"part-{rank}", {"w": torch.ones(1000)})
    dist.barrier()
    agent = program.agent_pid(Path(root))
    assert agent is not None
    if rank == 0:
        os.kill(agent, signal.SIGSTOP)
        assert ck.commit()
    dist.barrier()
    if rank == 1:
        assert ck.commit()
    dist.barrier()
    if rank == 0:
        threading.Timer(0.5, os.kill, (agent, signal.SIGCONT)).start()
    print(f"> {nm.get_latest_checkpoint()}", flush=True)
    dist.barrier()


def alone(root: str, rank: int) -> None:
    """Only rank 0 saves, as in many scripts."""
    nm.init(root, persistent_time_interval=0)
    dist.barrier()
    if rank == 0:
        for step in (1, 2):
            ck = nm.Checkpoint(f"global_step{step}", 1)
            ck.save("checkpoint", {"step": step})
    dist.barrier()
    if rank == 0:
        assert nm.flush_persistence()
    dist.barrier()
    print(f"> {nm.get_latest_checkpoint()}", flush=True)


def read(root: str, rank: int) -> None:
    """A job with another number of ranks than the one that saved reads the checkpoint."""
    nm.init(root)
    found = nm.get_latest_checkpoint()
    assert found is not None
    values = [found.load(f"optim-{r}")["m"][0].item() for r in (0, 2, 3)]
    print(f"> {found.tag} {values}", flush=True)


def main() -> None:
    what, root = sys.argv[1:]
    dist.init_process_group("gloo")
    {
        "whole": whole,
        "dead": dead,
        "met": met,
        "overtaken": overtaken,
        "alone": alone,
        "read": read,
    }[what](root, dist.get_rank())
    dist.destroy_process_group()  # otherwise gloo's threads may abort a process that ends


if __name__ == "__main__":
    main()
