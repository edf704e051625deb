"""The job of test_deepspeed.py. Usage: deepspeed_job.py HOW ROOT STAGE ACTION

HOW: "nebula" (a nebula block in the configuration), "install" (pawl's line) or "stock". ACTION:
"save" trains 5 steps, saves and trains 3 more; "load" loads and trains 3; "die" saves twice and is
killed. Prints the sum of the weights where it saves or loads, and after the last step (not with
ZeRO-3, whose weights on CPUs differ from run to run even without Pawl).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import deepspeed.ops
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # DeepSpeed compiles nothing


def main() -> None:
    how, root, stage, action = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "steps_per_print": 10**9,
    }
    if how == "nebula":
        config["nebula"] = {
            "enabled": True,
            "persistent_storage_path": root,
            "persistent_time_interval": 1,
            "num_of_version_in_retention": 2,
            "enable_nebula_load": True,
        }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if how == "install":
        import pawl.integrations.deepspeed

        pawl.integrations.deepspeed.install(engine)
    directory = f"{root}-dir" if how == "nebula" else root
    if action == "load":
        path, client = engine.load_checkpoint(directory)
        print(f"> loaded {os.path.basename(os.path.dirname(path))} {client['note']}", flush=True)
        print(f"> weights {weights(engine, stage):.9f}", flush=True)
        train(engine, engine.global_steps, engine.global_steps + 3)
    else:
        train(engine, 0, 5)
        print(f"> weights {weights(engine, stage):.9f}", flush=True)
        assert engine.save_checkpoint(directory, client_state={"note": 5})
        if stage < 3:
            engine.save_16bit_model(f"{root}-16bit", "weights.bin")
        train(engine, 5, 8)
        if action == "die":
            assert engine.save_checkpoint(directory, client_state={"note": 8})
            os.kill(os.getpid(), signal.SIGKILL)
    if stage < 3:
        print(f"> weights {weights(engine, stage):.9f}", flush=True)


def train(engine: Any, first: int, last: int) -> None:
    for step in range(first, last):
        source = torch.Generator().manual_seed(1000 + step * 10 + engine.global_rank)
        loss = engine(torch.randn(4, 64, generator=source)).pow(2).mean()
        engine.backward(loss)
        engine.step()


def weights(engine: Any, stage: int) -> float:
    """Returns the sum of the weights; with ZeRO-3, of this rank's part of the 32-bit weights. On
    CPUs, what ZeRO-3 gathers of other ranks is now and then memory that nobody has written yet."""
    if stage == 3:
        parts = engine.optimizer.fp32_partitioned_groups_flat
    else:
        parts = engine.module.parameters()
    return sum(part.detach().double().abs().sum().item() for part in parts)


if __name__ == "__main__":
    main()
