"""The job of test_lightning.py. Usage: lightning_job.py PACKAGE HOW ROOT DEVICES [CKPT]

PACKAGE: lightning or pytorch_lightning. HOW: "pawl", "nebula" or "stock". Trains two epochs (three
with CKPT, which it resumes from) and prints the step and the sum of all weights.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import torch


def main() -> None:
    package, how, root, devices = *sys.argv[1:4], int(sys.argv[4])
    ckpt = sys.argv[5] if len(sys.argv) > 5 else None
    pl = importlib.import_module("lightning.pytorch" if package == "lightning" else package)

    class Module(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
            )

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.layers(batch).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    pl.seed_everything(1)
    data = torch.utils.data.DataLoader(torch.randn(64, 32), batch_size=8)
    plugins, callbacks = _plugins(pl, package, how, root)
    trainer = pl.Trainer(
        max_epochs=3 if ckpt else 2,
        accelerator=os.environ.get("ACCELERATOR", "cpu"),
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        callbacks=callbacks,
        plugins=plugins,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, data, ckpt_path=ckpt)
    total = sum(p.detach().double().abs().sum().item() for p in module.parameters())
    if trainer.global_rank == 0:
        print(f"> {trainer.global_step} {total:.9f}", flush=True)
    if how == "nebula" and trainer.global_rank == 0:
        import nebulaml as nm

        trainer.save_checkpoint("example.ckpt", storage_options={"is_best": True})
        assert nm.flush_persistence()
        print(f"> {nm.get_latest_checkpoint_path('checkpoint', root)}", flush=True)


def _plugins(pl: Any, package: str, how: str, root: str) -> tuple[list[Any], list[Any]]:
    every = {"every_n_train_steps": 4, "monitor": "step", "mode": "max"}
    if how == "nebula":
        import nebulaml as nm

        config_params = {}
        config_params["persistent_storage_path"] = (root,)  # as the documentation has it
        config_params["persistent_time_interval"] = 0
        callback = nm.NebulaCallback(
            dirpath=f"{root}-files", save_top_k=2, config_params=config_params, **every
        )
        return [nm.NebulaCheckpointIO()], [callback]
    callback = pl.callbacks.ModelCheckpoint(dirpath=root, save_top_k=2, **every)
    if how == "stock":
        return [], [callback]
    module = importlib.import_module(f"pawl.integrations.{package}")
    return [module.PawlCheckpointIO()], [callback]


if __name__ == "__main__":
    main()
