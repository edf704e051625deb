"""A Trainer whose 24 steps take a second, and helpers for the tests of its checkpoints.

`python small_trainer.py OUTPUT` trains to the end, from the newest checkpoint if there is one, and
prints the SHA-256 of the weights; with `--pawl`, it saves through Pawl; ranks come from the
launcher.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable
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
from transformers.trainer_utils import get_last_checkpoint

STEPS, SAVE_STEPS = 24, 6
VOCABULARY, TOKENS, ROWS = 50, 8, 48


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Random questions, the same in every process."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(VOCABULARY, (ROWS, TOKENS), generator=generator)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.ids[index]
        return {"input_ids": ids, "start_positions": int(ids[0]) % TOKENS, "end_positions": 3}


class AtStep(TrainerCallback):
    """Calls a function after a step, before the step is saved."""

    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self.step = step
        self.do = do

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.do()


def model() -> BertForQuestionAnswering:
    """Returns a model with dropout, so that the random generators' states matter."""
    torch.manual_seed(0)
    return BertForQuestionAnswering(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
        )
    )


def trainer(output: Path, *callbacks: TrainerCallback, **options: Any) -> Trainer:
    options = {
        "max_steps": STEPS,
        "save_steps": SAVE_STEPS,
        "per_device_train_batch_size": 4,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        **options,
    }
    args = TrainingArguments(str(output), **options)
    return Trainer(
        model(), args, train_dataset=Rows(), eval_dataset=Rows(), callbacks=list(callbacks)
    )


def sha256(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--pawl", action="store_true")
    parser.add_argument("--device", action="store_true", help="of torch's choice, not the CPU")
    parser.add_argument("--die-at", type=int, default=0, help="SIGKILL to itself after this step")
    args = parser.parse_args()
    if args.pawl:
        import pawl.integrations.transformers as pawl_trainer

        pawl_trainer.enable()

    def die() -> None:
        """Kills this process, once earlier saves survive that."""
        for save in one._pawl_saver._pending if args.pawl else ():
            save.wait("committed", 60)
        os.kill(os.getpid(), 9)

    one = trainer(args.output, AtStep(args.die_at, die), use_cpu=not args.device)
    newest = get_last_checkpoint(args.output) if args.output.is_dir() else None
    one.train(resume_from_checkpoint=newest)
    if one.args.process_index == 0:
        print(f"weights {sha256(one.model)}", flush=True)


if __name__ == "__main__":
    main()
