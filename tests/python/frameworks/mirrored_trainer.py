"""A Trainer as its users write it, without a word of Pawl: it keeps two checkpoints and the best
one, and goes on from the newest that it finds.

`python mirrored_trainer.py OUTPUT SECONDS` rests so long after each step, and prints the SHA-256 of
the weights at the end.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

import small_trainer


class Rest(TrainerCallback):
    """Pretends that a step takes longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(self.seconds)  # pace


def main() -> None:
    output = Path(sys.argv[1])
    one = small_trainer.trainer(
        output,
        Rest(float(sys.argv[2])),
        save_steps=3,
        eval_steps=3,
        eval_strategy="steps",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
    )
    newest = get_last_checkpoint(output) if output.is_dir() else None
    print(f"begin {newest}", flush=True)
    one.train(resume_from_checkpoint=newest)
    one.save_model()
    print(f"weights {small_trainer.sha256(one.model)}", flush=True)


if __name__ == "__main__":
    main()
