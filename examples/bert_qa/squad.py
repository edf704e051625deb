"""SQuAD: from examples to features, from logits to answers, and the score of the answers.

The score is that of the SQuAD 1.1 paper (Rajpurkar et al., 2016, section 6.1): exact match and F1
over words, after lower case, without punctuation and articles; the best over the given answers.
"""

from __future__ import annotations

import collections
import json
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

Example = dict[str, Any]
Feature = dict[str, Any]


def read(name: str, split: str, local: Path) -> list[Example]:
    """The examples of a file, of a data set in `local`, or of one that `datasets` knows by name."""
    for path in (Path(name), local / name / f"{split}.json"):
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))["data"]
    import datasets

    return list(datasets.load_dataset(name, split=split))


def features(
    examples: list[Example], tokenizer: PreTrainedTokenizerBase, length: int, stride: int
) -> list[Feature]:
    """Windows of at most `length` tokens over question and context, overlapping by `stride`.

    A window in which the answer does not lie whole points at its first token. `example` (index) and
    `offsets` (of each token in the context, else None) are for `answers`.
    """
    encoded = tokenizer(
        [example["question"].lstrip() for example in examples],
        [example["context"] for example in examples],
        truncation="only_second",
        max_length=length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    found = []
    for window, index in enumerate(encoded["overflow_to_sample_mapping"]):
        inside = encoded.sequence_ids(window)
        offsets = [
            span if where == 1 else None
            for span, where in zip(encoded["offset_mapping"][window], inside, strict=True)
        ]
        start, end = _span(examples[index]["answers"], offsets)
        names = ("input_ids", "token_type_ids", "attention_mask")
        feature = {name: encoded[name][window] for name in names if name in encoded}
        feature |= {"start_positions": start, "end_positions": end}
        found.append(feature | {"example": index, "offsets": offsets})
    return found


def _span(answers: dict[str, Any], offsets: list[tuple[int, int] | None]) -> tuple[int, int]:
    """Tokens in which the first answer begins and ends; (0, 0) if it is not whole in there."""
    begins = answers["answer_start"][0]
    ends = begins + len(answers["text"][0])
    start = [i for i, span in enumerate(offsets) if span and span[0] <= begins < span[1]]
    end = [i for i, span in enumerate(offsets) if span and span[0] < ends <= span[1]]
    return (start[0], end[0]) if start and end else (0, 0)


def answers(
    examples: list[Example],
    windows: list[Feature],
    logits: tuple[np.ndarray, np.ndarray],
    best: int,
    tokens_max: int,
) -> list[str]:
    """The likeliest span of each example: among the `best` starts and ends of all its windows."""
    scores = [(-np.inf, "")] * len(examples)
    for window, starts, ends in zip(windows, *logits, strict=True):
        offsets = window["offsets"]
        context = examples[window["example"]]["context"]
        for start in np.argsort(-starts[: len(offsets)], kind="stable")[:best]:
            for end in np.argsort(-ends[: len(offsets)], kind="stable")[:best]:
                if not offsets[start] or not offsets[end] or not 0 <= end - start < tokens_max:
                    continue
                score = starts[start] + ends[end]
                if score > scores[window["example"]][0]:
                    text = context[offsets[start][0] : offsets[end][1]]
                    scores[window["example"]] = (score, text)
    return [text for _, text in scores]


def _words(text: str) -> list[str]:
    text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def _f1(given: list[str], wanted: list[str]) -> float:
    same = sum((collections.Counter(given) & collections.Counter(wanted)).values())
    if not same:
        return float(given == wanted)
    return 2 * same / (len(given) + len(wanted))


def score(given: list[str], examples: list[Example]) -> dict[str, float]:
    """Exact match and F1 in percent."""
    exact, f1 = [], []
    for text, example in zip(given, examples, strict=True):
        wanted = [_words(answer) for answer in example["answers"]["text"]]
        words = _words(text)
        exact.append(float(words in wanted))
        f1.append(max(_f1(words, answer) for answer in wanted))
    return {"exact_match": 100 * float(np.mean(exact)), "f1": 100 * float(np.mean(f1))}
