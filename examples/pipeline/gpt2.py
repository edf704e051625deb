"""Trains GPT-2 of transformers, as it is, over several stages; see README.md beside this file.

pawl run -n 4 gpt2.py TEXT [--stages 4] [--steps 100] [--from NAME] ...
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import pawl
import pawl.pipeline as pp


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains GPT-2 over several stages.")
    parser.add_argument("text", type=Path, help="file to learn from; each byte is a token")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="rows of a step, in each replica")
    parser.add_argument("--context", type=int, default=128, help="tokens of a row")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--from", dest="start", help="a pretrained model, such as gpt2")
    parser.add_argument("--root", default="gpt2-run", help="where checkpoints go")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--device", help="where stages compute, such as cuda; the CPU if left out")
    return parser.parse_args()


def make_model(args: argparse.Namespace) -> GPT2LMHeadModel:
    if args.start:
        return GPT2LMHeadModel.from_pretrained(args.start, use_cache=False)
    config = GPT2Config(
        vocab_size=256,
        n_positions=args.context,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=max(1, args.width // 64),
        use_cache=False,  # a key-value cache cannot go to another stage
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def batches(args: argparse.Namespace, first: int, replica: int) -> Iterator[torch.Tensor]:
    """Rows of the text, at random; those of a step are always the same."""
    tokens = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8).long()
    for step in range(first, args.steps + 1):
        generator = torch.Generator().manual_seed(1000 * step + replica)
        starts = torch.randint(0, len(tokens) - args.context, (args.batch,), generator=generator)
        yield torch.stack([tokens[s : s + args.context] for s in starts])


def main() -> None:
    args = arguments()
    pp.init(stages=args.stages, microbatches=args.microbatches, device=args.device)
    torch.manual_seed(0)
    model = pp.DistributedModel(make_model(args))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    @pp.step
    def train_step(ids: torch.Tensor) -> Any:
        loss = model(input_ids=ids, labels=ids).loss
        model.backward(loss)
        return loss

    state = {"model": model, "optimizer": optimizer}
    with pawl.Checkpointer(args.root) as ckpt:
        done = ckpt.restore(state) or 0
        for step, ids in enumerate(batches(args, done + 1, pp.replica()), done + 1):
            optimizer.zero_grad()
            loss = train_step(ids).reduce_mean()
            pp.clip_grad_norm_(1.0)
            optimizer.step()
            if step % args.every == 0 or step == args.steps:
                ckpt.save(step, state)
            if pp.rank() == 0 and pp.replica() == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
