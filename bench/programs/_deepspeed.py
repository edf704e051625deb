"""How long a save stalls DeepSpeed with ZeRO-1: run by frameworks.py, two ranks for
each way to save.

Prints the seconds of each save_checkpoint (the slower rank) as JSON.

`torchrun --nproc-per-node=2 _deepspeed.py WAY DIR BLOCKS WIDTH SAVES`; WAY: torch, pawl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from shared._state import Block

WARM_SAVES = 3
ROWS = 8  # rows in a batch

# Otherwise DeepSpeed compiles this module at first use, with whatever compiler it finds.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Model(torch.nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block.proj(block.qkv(x).tensor_split(3, dim=1)[0])
            x = x + block.down(torch.relu(block.up(x)))
        return x.square().mean()


def settle(ours: Any, folder: Path, tag: str) -> None:
    """Waits until the save is durable."""
    if ours is not None:
        ours.engine(str(folder)).flush(tag=tag)
    dist.barrier()
    os.sync()
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("torch", "pawl"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("blocks", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("saves", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Model(args.blocks, args.width)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-6),
        config={
            "train_micro_batch_size_per_gpu": ROWS,
            "zero_optimization": {"stage": 1},
            "steps_per_print": 1 << 30,
        },
    )
    ours = None
    if args.way == "pawl":
        from pawl.integrations.deepspeed import install

        ours = install(engine)
    name = [tempfile.mkdtemp(dir=args.dir) if rank == 0 else ""]
    dist.broadcast_object_list(name)
    folder = Path(name[0]) / "out"
    seconds = []
    for number in range(1, WARM_SAVES + args.saves + 1):
        engine.backward(engine(torch.randn(ROWS, args.width)))
        engine.step()
        dist.barrier()
        begun = time.perf_counter()
        engine.save_checkpoint(str(folder), tag=f"step{number}")
        took = torch.tensor(time.perf_counter() - begun)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        settle(ours, folder, f"step{number}")
        if number > WARM_SAVES:
            seconds.append(took.item())
        if rank == 0:
            size = sum(p.stat().st_size for p in (folder / f"step{number}").rglob("*"))
            shutil.rmtree(folder / f"step{number - 1}", ignore_errors=True)
        dist.barrier()
    if rank == 0:
        print(json.dumps({"stall": seconds, "bytes": size}), flush=True)
    del ours
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        shutil.rmtree(name[0], ignore_errors=True)


if __name__ == "__main__":
    main()
