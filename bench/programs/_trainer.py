"""How much saves cost a Trainer: run by frameworks.py, a process for each way to save.

Blocks of 10 steps, every second one with a save behind its first step, so that a save and the delay
of the steps after it fall into the same block. Prints the seconds of the blocks as JSON.

`python _trainer.py WAY DIR LAYERS WIDTH PAIRS`; WAY: stock, thread (state cloned,
written by a thread), pawl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

BLOCK_STEPS = 10
TOKENS, ROWS = 64, 2
WARM_BLOCKS = 6  # three of them with a save


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.arange(index, index + TOKENS) % 1000
        return {"input_ids": ids, "start_positions": 1, "end_positions": 2}


class Blocks(TrainerCallback):
    """Times blocks, requests the saves, and lets all writes finish between two blocks."""

    def __init__(self, way: str) -> None:
        self.seconds: list[float] = []
        self.way = way
        self.begun = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        block, step = divmod(state.global_step, BLOCK_STEPS)
        control.should_save = step == 1 and block % 2 == 1
        if step == 0:
            self.seconds.append(time.perf_counter() - self.begun)
            settle(self.way)
            self.begun = time.perf_counter()


class Threaded:
    """The usual plug-in: the state is cloned, and a thread writes it. Not synced, not atomic."""

    thread: threading.Thread | None = None

    @classmethod
    def enable(cls) -> None:
        import safetensors.torch
        from transformers import modeling_utils

        kept = torch.save, safetensors.torch.save_file

        def later(write: Any, obj: Any, path: Any, **kwargs: Any) -> None:
            copied = clone(obj)
            previous = cls.thread

            def run() -> None:
                if previous is not None:
                    previous.join()
                write(copied, path, **kwargs)

            cls.thread = threading.Thread(target=run)
            cls.thread.start()

        def save(obj: Any, f: Any, **kwargs: Any) -> None:
            later(kept[0], obj, f, **kwargs)

        def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
            later(kept[1], tensors, filename, metadata=metadata)

        torch.save = save
        modeling_utils.safe_save_file = save_file


def clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: clone(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(clone(one) for one in value)
    return value


def settle(way: str) -> None:
    """Waits until nothing is being written any more."""
    if way == "thread" and Threaded.thread is not None:
        Threaded.thread.join()
    if way == "pawl" and TRAINER._pawl_saver is not None:
        TRAINER._pawl_saver.finish()
    os.sync()


def main() -> None:
    global TRAINER
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("stock", "thread", "pawl"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("layers", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("pairs", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.way == "pawl":
        import pawl.integrations.transformers as pawl_trainer

        pawl_trainer.enable()
    elif args.way == "thread":
        Threaded.enable()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30522,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=4,
        intermediate_size=4 * args.width,
    )
    model = BertForQuestionAnswering(config)
    folder = Path(tempfile.mkdtemp(dir=args.dir))
    blocks = Blocks(args.way)
    options = TrainingArguments(
        str(folder / "out"),
        max_steps=BLOCK_STEPS * (WARM_BLOCKS + 2 * args.pairs) + 1,
        per_device_train_batch_size=ROWS,
        save_strategy="no",
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
    )
    TRAINER = Trainer(model, options, train_dataset=Rows(), callbacks=[blocks])
    TRAINER.train()
    seconds = blocks.seconds[WARM_BLOCKS:]
    newest = max((folder / "out").glob("checkpoint-*"), key=os.path.getmtime)
    size = sum(path.stat().st_size for path in newest.rglob("*"))
    shutil.rmtree(folder)
    print(json.dumps({"plain": seconds[0::2], "saved": seconds[1::2], "bytes": size}))


if __name__ == "__main__":
    main()
