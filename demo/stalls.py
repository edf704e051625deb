"""How long a save stalls training: Pawl, torch.save with fsync, and DCP's async_save, in turns.

Prints one JSON object: for each way the seconds of each save call, and the seconds that each save
held up training: the call, and the next step beyond the time of an undisturbed step.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gpt import Gpt, batch, corpus, loss_of

import pawl

ROUNDS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29519")
    dist.init_process_group("gloo", rank=0, world_size=1)
    data = corpus()
    model = Gpt(width=512, layers=6, heads=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}

    def train(step: int) -> float:
        begun = time.perf_counter()
        loss = loss_of(model, batch(data, step, 0, 2, model.context))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - begun

    def by_torch(step: int) -> None:
        with (args.dir / f"torch-{step % 2}").open("wb") as file:
            torch.save({name: part.state_dict() for name, part in state.items()}, file)
            file.flush()
            os.fsync(file.fileno())

    pending: list[Any] = []

    def by_dcp(step: int) -> None:
        path = args.dir / f"dcp-{step % 2}"
        shutil.rmtree(path, ignore_errors=True)
        pending.append(
            dcp.async_save({k: v.state_dict() for k, v in state.items()}, checkpoint_id=path)
        )

    with pawl.Checkpointer(args.dir / "pawl", keep=2, persist_every=0, job="demo-stalls") as ckpt:

        def by_pawl(step: int) -> None:
            pending.append(ckpt.save(step, state))

        ways: dict[str, Callable[[int], None]] = {
            "pawl": by_pawl, "torch.save + fsync": by_torch, "DCP async_save": by_dcp,
        }  # fmt: skip
        call: dict[str, list[float]] = {name: [] for name in ways}
        stall: dict[str, list[float]] = {name: [] for name in ways}
        step = 0
        for round_ in range(ROUNDS + 1):  # the first warms up
            for name, save in list(ways.items())[:: 1 if round_ % 2 else -1]:
                plain = statistics.median(train(step + i) for i in range(3))
                begun = time.perf_counter()
                save(step := step + 10)
                took = time.perf_counter() - begun
                after = train(step + 1)
                if round_:
                    call[name].append(took)
                    stall[name].append(took + max(0.0, after - plain))
                while pending:
                    one = pending.pop()
                    one.wait("durable", timeout=60) if isinstance(one, pawl.Save) else one.result()
    size = sum(p.numel() * p.element_size() for p in model.parameters()) * 3
    print(json.dumps({"bytes": size, "call": call, "stall": stall}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
