"""Trains with a DeepSpeed strategy. Usage: strategy_job.py HOW ROOT FILES STAGE [CKPT]

HOW: "nebula" (NebulaDeepspeedStrategy, whose nebula block names ROOT) or "stock" (Lightning's own).
Trains two epochs in 16 bits with ZeRO and saves to FILES/first.ckpt and FILES/second.ckpt; with
CKPT, trains the second epoch only, from that checkpoint. Prints the losses of the second epoch.

Lightning's strategy wants a CUDA device. Where there is none, a stand-in has it take the CPU.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import deepspeed
import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from lightning.pytorch.strategies import deepspeed as strategy_module

NAMES = ("first.ckpt", "second.ckpt")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu", 0)


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
        )

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = self.layers(batch).pow(2).mean()
        if self.current_epoch == 1:
            print(f"> {self.global_step} {loss.item():.9f}", flush=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class SaveEach(pl.Callback):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(os.path.join(self.folder, NAMES[trainer.current_epoch]))


def take_cpu() -> None:
    """Has DeepSpeedStrategy run on the CPU, which it refuses."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # DeepSpeed compiles nothing
    DeepSpeedStrategy.setup_environment = DDPStrategy.setup_environment
    DeepSpeedStrategy.root_device = DEVICE
    strategy_module._validate_device_index_selection = lambda devices: None
    torch.cuda.stream = contextlib.nullcontext
    torch.cuda.Stream = torch.cuda.current_stream = lambda *_: None


def main() -> None:
    how, root, files, stage = *sys.argv[1:4], int(sys.argv[4])
    ckpt = sys.argv[5] if len(sys.argv) > 5 else None
    if DEVICE.type == "cpu":
        take_cpu()
    config: dict[str, Any] = {
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage},
    }
    if how == "nebula":
        import nebulaml as nm

        config["nebula"] = {
            "enabled": True,
            "persistent_storage_path": root,
            "persistent_time_interval": 0,
        }
        strategy = nm.NebulaDeepspeedStrategy(config=config)
    else:
        strategy = DeepSpeedStrategy(config=config)
    pl.seed_everything(1)
    data = torch.utils.data.DataLoader(torch.randn(64, 32), batch_size=8)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator=DEVICE.type,
        devices=1,
        strategy=strategy,
        precision="bf16-mixed",
        callbacks=[SaveEach(files)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), data, ckpt_path=ckpt)


if __name__ == "__main__":
    main()
