"""Makes what the job needs and a machine without network lacks: a tiny BERT and a tiny SQuAD.

    python prepare.py [DIR]

DIR (default: local, beside this file) gets `bert-base-uncased/`, a BERT of 2 layers with random
weights and a WordPiece vocabulary, and `squad/`, questions about texts of this machine in SQuAD's
form. They have the names of the real ones, so that the guide's command line works as it stands.
What is there is kept: training a vocabulary twice gives two different ones.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LOCAL = Path(__file__).with_name("local")
SEED = 2022
WORDS_MIN, WORDS_MAX = 40, 90  # words in a context
VOCABULARY = 3000
BEFORE = 3  # words of the context that a question quotes
ANSWER_WORDS_MAX = 3


def texts() -> Iterator[str]:
    """Prose of this machine, in an order that does not change."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield ast.get_docstring(node) or ""


def contexts() -> list[str]:
    """Paragraphs of WORDS_MIN to WORDS_MAX words, each once."""
    found = {}
    for text in texts():
        for paragraph in re.split(r"\n\s*\n", text):
            words = re.findall(r"[A-Za-z][A-Za-z'-]*[.,;:]?", paragraph)
            if WORDS_MIN <= len(words) <= WORDS_MAX:
                found[" ".join(words)] = None
    return list(found)


def question(context: str, name: str, rng: random.Random) -> dict[str, object]:
    """An example of SQuAD: what stands behind three words of the context."""
    words = context.split(" ")
    at = rng.randrange(BEFORE, len(words) - ANSWER_WORDS_MAX)
    quoted = " ".join(words[at - BEFORE : at])
    answer = " ".join(words[at : at + rng.randint(1, ANSWER_WORDS_MAX)]).rstrip(".,;:")
    start = len(" ".join(words[:at])) + 1
    assert context[start : start + len(answer)] == answer
    return {
        "id": name,
        "title": words[0],
        "context": context,
        "question": f"What follows {quoted} ?",
        "answers": {"text": [answer], "answer_start": [start]},
    }


def write_squad(folder: Path, train: int, validation: int) -> None:
    rng = random.Random(SEED)
    paragraphs = contexts()
    rng.shuffle(paragraphs)
    folder.mkdir(parents=True)
    at = 0
    for split, count in (("train", train), ("validation", validation)):
        rows = []
        for number in range(count):
            paragraph = paragraphs[at % len(paragraphs)]
            rows.append(question(paragraph, f"{split}-{number}", rng))
            at += 1
        text = json.dumps({"version": "local", "data": rows}, indent=1)
        (folder / f"{split}.json").write_text(text, encoding="utf-8")


def write_bert(folder: Path, hidden: int, layers: int, length: int) -> None:
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForPreTraining, BertTokenizerFast

    wordpiece = BertWordPieceTokenizer(lowercase=True)
    wordpiece.train_from_iterator(contexts(), vocab_size=VOCABULARY, show_progress=False)
    folder.mkdir(parents=True)
    (vocabulary,) = wordpiece.save_model(str(folder))
    tokenizer = BertTokenizerFast(vocabulary, do_lower_case=True, model_max_length=length)
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=wordpiece.get_vocab_size(),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=layers,
        intermediate_size=4 * hidden,
        max_position_embeddings=512,
    )
    torch.manual_seed(SEED)
    BertForPreTraining(config).save_pretrained(folder)


def prepare(
    folder: Path,
    train: int = 720,
    validation: int = 60,
    hidden: int = 64,
    layers: int = 2,
    length: int = 512,
) -> None:
    """Fills folder; what is there already is kept as it is. layers: of the model, and heads of
    each; length: how many tokens it takes."""
    for name, write in (
        ("squad", lambda path: write_squad(path, train, validation)),
        ("bert-base-uncased", lambda path: write_bert(path, hidden, layers, length)),
    ):
        if (folder / name).exists():
            continue
        new = folder / f".{name}.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        write(new)
        new.rename(folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dir", type=Path, nargs="?", default=LOCAL)
    parser.add_argument("--train", type=int, default=720, help="questions to train with")
    parser.add_argument("--validation", type=int, default=60, help="questions to be asked then")
    parser.add_argument("--hidden", type=int, default=64, help="width of the model")
    args = parser.parse_args()
    prepare(args.dir, args.train, args.validation, args.hidden)
    print(f"prepared: {args.dir}")


if __name__ == "__main__":
    main()
