"""A rank of a DDP job that saves every third step. Usage: resumed_rank.py ROOT [RANK@STEP]

The rank RANK kills itself at STEP, once. Rank 0 prints "> DIGEST" of all weights and the
optimizer's state at the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import pawl

STEPS, EVERY = 14, 3
ROOT = Path(sys.argv[1])
VICTIM = tuple(map(int, sys.argv[2].split("@"))) if len(sys.argv) > 2 else None


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("pawl")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 100), nn.Linear(100, 1))
    model = DDP(net, bucket_cap_mb=0.1)  # several buckets, which DDP makes anew after a step
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ckpt = pawl.Checkpointer(str(ROOT / "root"), persist_every=0)
    state = {"model": model, "optimizer": optimizer}
    for step in range(ckpt.restore(state) or 0, STEPS):
        if (rank, step) == VICTIM and not (ROOT / "killed").exists():
            (ROOT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        data = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(16, 300, generator=data)).square().mean().backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            ckpt.save(step + 1, state)
    if rank == 0:
        tensors = [*net.state_dict().values()]
        tensors += [t for p in net.parameters() for t in optimizer.state[p].values()]
        data = b"".join(t.numpy().tobytes() for t in tensors)
        print(">", hashlib.sha256(data).hexdigest(), flush=True)
    ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
