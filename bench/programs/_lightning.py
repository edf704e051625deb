"""What saves cost a Lightning Trainer: run by frameworks.py, a process for each way to save.

Blocks of 10 steps, every second one with a save behind its first step. Prints the seconds of the
blocks as JSON.

`python _lightning.py WAY DIR BLOCKS WIDTH PAIRS`; WAY: stock, async (its AsyncCheckpointIO) or
pawl. BLOCKS and WIDTH: of the model in _state.py.
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

import lightning
import torch
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from shared._state import Block

BLOCK_STEPS = 10
ROWS = 64  # rows in a batch: a step takes some 0.2 s
WARM_BLOCKS = 6  # three of them with a save


class Model(lightning.LightningModule):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        x = batch
        for block in self.blocks:
            x = x + block.proj(block.qkv(x).tensor_split(3, dim=1)[0])
            x = x + block.down(torch.relu(block.up(x)))
        return x.square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-6, fused=True)


class Batches(torch.utils.data.IterableDataset[torch.Tensor]):
    def __init__(self, width: int) -> None:
        self.batch = torch.randn(ROWS, width)

    def __iter__(self) -> Any:
        while True:
            yield self.batch


class Blocks(lightning.Callback):
    """Times blocks, saves, and lets all writes finish between two blocks."""

    def __init__(self, folder: Path, io: Any) -> None:
        self.seconds: list[float] = []
        self.folder = folder
        self.io = io
        self.begun = 0.0

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any) -> None:
        block, step = divmod(trainer.global_step, BLOCK_STEPS)
        if step == 1 and block % 2 == 1:
            trainer.save_checkpoint(self.folder / f"step={trainer.global_step}.ckpt")
        if step == 0:
            self.seconds.append(time.perf_counter() - self.begun)
            settle(self.io)
            for path in sorted(self.folder.glob("*.ckpt"), key=os.path.getmtime)[:-1]:
                trainer.strategy.remove_checkpoint(path)
            self.begun = time.perf_counter()


def settle(io: Any) -> None:
    """Waits until nothing is being written any more."""
    if isinstance(io, AsyncCheckpointIO):
        # None: it has not saved. Its one thread works in order, so this waits for all writes.
        if io._executor is not None:
            io._executor.submit(int).result()
    elif io is not None:
        for engine in io._engines.values():
            engine.flush()
    os.sync()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("stock", "async", "pawl"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("blocks", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("pairs", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    io: Any = None
    if args.way == "async":
        io = AsyncCheckpointIO()
    elif args.way == "pawl":
        from pawl.integrations.lightning import PawlCheckpointIO

        io = PawlCheckpointIO()
    folder = Path(tempfile.mkdtemp(dir=args.dir))
    (folder / "out").mkdir()
    torch.manual_seed(0)
    blocks = Blocks(folder / "out", io)
    trainer = lightning.Trainer(
        max_steps=BLOCK_STEPS * (WARM_BLOCKS + 2 * args.pairs),
        accelerator="cpu",
        plugins=[io] if io else [],
        callbacks=[blocks],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.utils.data.DataLoader(Batches(args.width), batch_size=None)
    trainer.fit(Model(args.blocks, args.width), data)
    seconds = blocks.seconds[WARM_BLOCKS:]
    size = sum(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())
    shutil.rmtree(folder, ignore_errors=True)  # the agent may still write its history
    print(json.dumps({"plain": seconds[0::2], "saved": seconds[1::2], "bytes": size}))


if __name__ == "__main__":
    main()
