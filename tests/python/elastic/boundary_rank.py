"""A plain DDP script that calls pawl.elastic.step_boundary(). Usage: boundary_rank.py
[OPTION=VALUE...]

`steps=N`: the number of steps. `pause=SECONDS` in each step. `waits=RANKS@STEP`: from that step on
each rank pauses for SLOW_S until the job has had that many ranks. `kill=RANK@STEP`: the rank ends
itself in that step, after its backward pass. `keeps=rank`: the script asks torch for its rank only
once; `keeps=sampler`: it has a DistributedSampler. `plain=1`: DDP without Pawl. `parts=N`:
gradients accumulated in a step, by no_sync(). `scaler=1`: with a GradScaler. `logs=DIR`: each
process writes its output to a file there, too.

Every rank prints "> STEP N RANK of RANKS" in each step, and at the end "> END: " and its result.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import pawl.elastic as el

OPTIONS = dict(word.split("=", 1) for word in sys.argv[1:])
STEPS, PARTS = int(OPTIONS.get("steps", "40")), int(OPTIONS.get("parts", "1"))
KEEPS, BATCH, SAMPLES = OPTIONS.get("keeps"), 24, 4096
VICTIM, WHEN = map(int, OPTIONS.get("kill", "-1@-1").split("@"))
WANTED, SLOW_FROM = map(int, OPTIONS.get("waits", "0@0").split("@"))
SLOW_S = 3.0  # processes start slowly while others use the CPU
AGAIN = "PAWL_ELASTIC_JOIN" in os.environ or os.environ.get("PAWL_ATTEMPT", "0") != "0"
BEGUN = time.monotonic_ns()


def say(text: str) -> None:
    print(f"> {text}", flush=True)
    if "logs" in OPTIONS:
        with (Path(OPTIONS["logs"]) / f"{BEGUN}-{os.getpid()}").open("a") as out:
            print(text, file=out)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()[:12]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("pawl")
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 1)).double()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled="scaler" in OPTIONS)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 8, generator=generator, dtype=torch.float64)
    y = x.sum(1, keepdim=True)
    kept = dist.get_rank(), dist.get_world_size()
    sampler = DistributedSampler(range(SAMPLES)) if KEEPS == "sampler" else None
    step, waits = -1, WANTED > 0
    while (step := step + 1 if "plain" in OPTIONS else el.step_boundary()) < STEPS:
        rank, ranks = kept if KEEPS else (dist.get_rank(), dist.get_world_size())
        say(f"STEP {step} {rank} of {ranks}")
        samples = torch.arange(step * BATCH, (step + 1) * BATCH)[rank::ranks] % SAMPLES
        model.zero_grad()
        for part, chosen in enumerate(samples.chunk(PARTS)):
            last = part == PARTS - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = (model(x[chosen]) - y[chosen]).square().mean() / PARTS
                scaler.scale(loss).backward()
        if (kept[0], step) == (VICTIM, WHEN) and not AGAIN:
            os.kill(os.getpid(), signal.SIGKILL)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        waits = waits and not (step >= SLOW_FROM and ranks == WANTED)
        slow = waits and step >= SLOW_FROM
        time.sleep(SLOW_S if slow else float(OPTIONS.get("pause", "0")))  # pace
    del sampler
    weights = torch.cat([p.flatten() for p in net.parameters()])
    say(f"END: {step} steps, {digest(weights)} {optimizer.param_groups[0]['lr']:.6f}")
    say(f"NORM: {float(weights.detach().norm()):.9f}")


if __name__ == "__main__":
    main()
