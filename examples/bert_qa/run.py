"""Fine-tunes BERT to answer questions: the job of SkyPilot's guide, with the guide's flags.

It takes what transformers' own example of the name run_qa.py takes, and behaves like it at the
start: it goes on from the newest checkpoint in --output_dir, and refuses an output directory that
has other things in it but no checkpoint. The two lines marked below are Pawl's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import squad
from torch.utils.data import Dataset
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

import pawl.integrations.transformers as pawl_trainer  # Pawl

pawl_trainer.enable()  # Pawl


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "a folder, or a name"})
    config_name: str | None = field(default=None, metadata={"help": "default: the model's"})
    tokenizer_name: str | None = field(default=None, metadata={"help": "default: the model's"})


@dataclass
class DataArguments:
    dataset_name: str = field(default="squad", metadata={"help": "a folder in --local, or a name"})
    train_file: str | None = field(default=None, metadata={"help": "JSON, instead of a name"})
    validation_file: str | None = field(default=None, metadata={"help": "JSON, instead of a name"})
    local: str = field(
        default=str(Path(__file__).with_name("local")),
        metadata={"help": "where models and data sets are looked for first; prepare.py fills it"},
    )
    max_seq_length: int = field(default=384, metadata={"help": "tokens of a window"})
    doc_stride: int = field(default=128, metadata={"help": "tokens by which windows overlap"})
    n_best_size: int = field(default=20, metadata={"help": "starts and ends that are tried"})
    max_answer_length: int = field(default=30, metadata={"help": "tokens"})
    max_train_samples: int | None = field(default=None, metadata={"help": "default: all"})
    max_eval_samples: int | None = field(default=None, metadata={"help": "default: all"})


class Windows(Dataset[dict[str, Any]]):
    """The features as the model takes them."""

    def __init__(self, features: list[squad.Feature]) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> dict[str, Any]:
        feature = self.features[index]
        return {
            name: value for name, value in feature.items() if name not in ("example", "offsets")
        }


def find_checkpoint(args: TrainingArguments) -> str | None:
    """The newest checkpoint in the output directory, which must have one or be empty."""
    if not args.do_train or not os.path.isdir(args.output_dir):
        return None
    if getattr(args, "overwrite_output_dir", False):  # an option of transformers before version 5
        return None
    newest = get_last_checkpoint(args.output_dir)
    if newest is None and os.listdir(args.output_dir):
        raise ValueError(f"Output directory ({args.output_dir}) already exists and is not empty.")
    return newest


def main() -> None:
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, args = parser.parse_args_into_dataclasses()
    newest = find_checkpoint(args)
    set_seed(args.seed)

    local = Path(data_args.local)
    name = model_args.model_name_or_path
    source = str(local / name) if (local / name).is_dir() else name
    config = AutoConfig.from_pretrained(model_args.config_name or source)
    tokenizer = AutoTokenizer.from_pretrained(model_args.tokenizer_name or source)
    model = AutoModelForQuestionAnswering.from_pretrained(source, config=config)

    def prepare(split: str, file: str | None, most: int | None) -> Any:
        examples = squad.read(file or data_args.dataset_name, split, local)[:most]
        length, stride = data_args.max_seq_length, data_args.doc_stride
        length = min(length, tokenizer.model_max_length)
        return examples, Windows(squad.features(examples, tokenizer, length, stride))

    train: Windows | None = None
    examples, validation = [], None
    if args.do_train:
        _, train = prepare("train", data_args.train_file, data_args.max_train_samples)
    if args.do_eval:
        most = data_args.max_eval_samples
        examples, validation = prepare("validation", data_args.validation_file, most)

    def score(found: EvalPrediction) -> dict[str, float]:
        best, tokens_max = data_args.n_best_size, data_args.max_answer_length
        logits = found.predictions
        given = squad.answers(examples, validation.features, logits, best, tokens_max)
        return squad.score(given, examples)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=score,
    )
    if args.do_train:
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint or newest)
        trainer.save_model()
        metrics = result.metrics | {"train_samples": len(train)}
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
        trainer.save_state()
    if args.do_eval:
        metrics = trainer.evaluate() | {"eval_samples": len(validation)}
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
