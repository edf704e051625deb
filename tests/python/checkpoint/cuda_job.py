"""Trains on a device and saves in each step. Usage: cuda_job.py ROOT HOW [KILL]

HOW: "fused", "foreach", "bfloat16", "scaled" (half precision with a GradScaler) or "streamed" (more
than the memory tier may hold). KILL: the step in which it kills itself while the save is copied.
Prints "> FROM STEP" with the step that it restored, "> STEP LOSS" with the loss's bits, and "> END"
with a digest of all tensors.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

import pawl
from on_device import DEVICE

CUDA = DEVICE.type == "cuda"
WIDTH = 4096 if CUDA else 256  # 64 MiB a weight: many segments, if the allocator extends them
STEPS = 8
ROOT, HOW = Path(sys.argv[1]), sys.argv[2]
KILL = int(sys.argv[3]) if len(sys.argv) > 3 else 0
SLEEP = 500_000_000  # cycles: about 0.3 s, in which the copy has to wait


def make() -> tuple[nn.Module, torch.optim.Optimizer, torch.amp.GradScaler]:
    torch.manual_seed(3)
    layers = [nn.Linear(64, WIDTH), nn.Dropout(0.3), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)]
    model = nn.Sequential(*layers).to(DEVICE)
    if HOW == "bfloat16":
        model.to(torch.bfloat16)
    fused = {"fused": False, "foreach": True} if HOW == "foreach" else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **fused)
    return model, optimizer, torch.amp.GradScaler(DEVICE.type, enabled=HOW == "scaled")


def one_step(step: int, model: nn.Module, optimizer: Any, scaler: Any) -> torch.Tensor:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(step)).to(DEVICE)
    optimizer.zero_grad()
    with torch.autocast(DEVICE.type, torch.float16, enabled=HOW == "scaled"):
        out = model(x.to(torch.bfloat16) if HOW == "bfloat16" else x)
    loss = (out.float() - 1).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    tensors = [*model.state_dict().values()]
    tensors += [t for p in model.parameters() for t in optimizer.state[p].values()]
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model, optimizer, scaler = make()
    state = {"model": model, "optimizer": optimizer, "scaler": scaler}
    memory = 1 << 20 if HOW == "streamed" else None
    with pawl.Checkpointer(ROOT, persist_every=0, memory=memory) as ckpt:
        begin = ckpt.restore(state) or 0
        print("> FROM", begin, flush=True)
        save = None
        for step in range(begin + 1, STEPS + 1):
            loss = one_step(step, model, optimizer, scaler)
            print(">", step, loss.cpu().view(torch.int32).item(), flush=True)
            if step == KILL:
                assert save is not None and save.wait("committed", 60), save
                if CUDA:
                    torch.cuda._sleep(SLEEP)
            save = ckpt.save(step, state)
            if step == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            if CUDA and HOW != "streamed":
                assert save.proof == "fenced", save.proof
        print("> END", digest(model, optimizer), flush=True)


if __name__ == "__main__":
    main()
