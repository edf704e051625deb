"""Trains the byte GPT with DistributedDataParallel: an ordinary script, with three lines of Pawl.

Started by `pawl run -n 2 demo/train.py`. It may be killed at any instant and started again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from gpt import Gpt, batch, corpus, loss_of
from torch.nn.parallel import DistributedDataParallel

import pawl


class Log:
    """A JSON line an event, each written with one call: a killed process leaves whole lines."""

    def __init__(self, path: Path, rank: int) -> None:
        self._file = path.with_suffix(f".rank{rank}").open("ab", buffering=0)

    def write(self, **event: object) -> None:
        event |= {
            "time": time.time(),
            "pid": os.getpid(),
            "attempt": os.environ.get("PAWL_ATTEMPT"),
        }
        self._file.write(json.dumps(event).encode() + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--log", type=Path, required=True, help="events, a file a rank")
    parser.add_argument("--out", type=Path, required=True, help="final weights")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--save-every", type=int, default=4, help="steps")
    parser.add_argument("--batch", type=int, default=6, help="sequences a rank")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log = Log(args.log, rank)
    torch.manual_seed(0)
    data = corpus()
    plain = Gpt()
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}

    ckpt = pawl.Checkpointer(args.root, keep=3, persist_every=10)
    first = ckpt.restore(state) or 0
    log.write(event="start", step=first)
    saves: dict[int, pawl.Save] = {}
    told: dict[int, str] = {}
    for step in range(first, args.steps):
        loss = loss_of(model, batch(data, step, rank, args.batch, plain.context))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(event="step", step=step + 1, loss=loss.item())
        if (step + 1) % args.save_every == 0:
            begun = time.perf_counter()
            saves[step + 1] = ckpt.save(step + 1, state)
            log.write(event="save", step=step + 1, stall=time.perf_counter() - begun)
        for saved, save in saves.items():
            if told.get(saved) != save.level:
                told[saved] = save.level
                log.write(event=save.level, step=saved)
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1:4d}   loss {loss.item():.4f}", flush=True)
        if ckpt.stopping:
            ckpt.save(step + 1, state)
            break
    ckpt.close()
    if rank == 0:
        torch.save(plain.state_dict(), args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
