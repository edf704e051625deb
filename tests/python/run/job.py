"""A DDP job of two ranks for test_job.py: trains a little model slowly, saving every step.

`pawl run -n 2 job.py ROOT STEPS SLEEP LOG` appends "rank step attempt job" lines to LOG as it goes.
A slow job that starts from nothing waits at half of its steps until the test disturbs it.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pawl


def main() -> None:
    root, steps, pause, log = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(400, 400))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer, "note": rank}
    ckpt = pawl.Checkpointer(root, persist_every=3600)
    first = ckpt.restore(state) or 0
    words = (os.environ["PAWL_ATTEMPT"], os.environ["PAWL_JOB_ID"], os.getpid())
    with open(log, "a", buffering=1) as file:
        print(rank, "start", first, *words, file=file)
        for step in range(first + 1, steps + 1):
            x = torch.randn(8, 400, generator=torch.Generator().manual_seed(2 * step + rank))
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            save = ckpt.save(step, state)
            if step % 5 == 0 and save.wait("committed", timeout=20):
                print(rank, "committed", step, *words, file=file)
            stops = ckpt.stopping
            slept_s = 0.0
            while pause and first == 0 and step == steps // 2 and not stops:
                assert (slept_s := slept_s + pause) < 240, "nobody disturbs this job"
                time.sleep(pause)  # pace
                stops = ckpt.stopping
            if stops:
                print(rank, "stopping", step, *words, file=file)
                break
            time.sleep(pause)  # pace
    ckpt.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
