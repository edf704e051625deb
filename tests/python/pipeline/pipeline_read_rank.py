"""Saves or restores a pipelined model, and prints "> BYTES READ": the size of the checkpoint's
model, and what this rank has read of it.

Usage: pipeline_read_rank.py ROOT save|restore
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pawl
import pawl.pipeline as pp
from pipeline_checks import WORLD, pipeline

WIDTH, LAYERS = 1024, 8  # 4 MiB each


def read_bytes() -> int:
    """Bytes that this process has read from files so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def main() -> None:
    torch.set_num_threads(1)
    root, what = sys.argv[1:]
    with pipeline(stages=WORLD, microbatches=4):
        torch.manual_seed(1)
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        model: Any = pp.DistributedModel(nn.Sequential(*layers))

        @pp.step
        def step(x: torch.Tensor) -> Any:
            loss = model(x).square().mean()
            model.backward(loss)
            return loss

        with pawl.Checkpointer(root, persist_every=0) as ckpt:
            if what == "save":
                step(torch.ones(8, WIDTH))
                ckpt.save(1, {"model": model})
                return
            before = read_bytes()
            assert ckpt.restore({"model": model}) == 1
            took = read_bytes() - before
        assert model.plan is not None and model.steps == 1
        size = sum(path.stat().st_size for path in Path(root).glob("global_step1/model*"))
        print(f"> {size} {took}", flush=True)


if __name__ == "__main__":
    main()
