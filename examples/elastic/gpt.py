"""A small GPT that learns to write like Python's own library, byte by byte."""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import pawl.elastic as el


class Text(Dataset[torch.Tensor]):
    """Windows of the library's source files, each of ``length`` + 1 bytes."""

    def __init__(self, length: int, windows: int) -> None:
        text = bytearray()
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
            text += path.read_bytes()
            if len(text) > windows * length:
                break
        self.bytes = torch.frombuffer(text, dtype=torch.uint8)
        self.length = length
        self.windows = min(windows, (len(text) - 1) // length)

    def __len__(self) -> int:
        return self.windows

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.bytes[i * self.length : (i + 1) * self.length + 1].long()


class Gpt(nn.Module):
    """Maps bytes to logits of the next byte: pre-norm decoder blocks as in GPT-2."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, functional.gelu, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        h = self.bytes(x) + self.places(torch.arange(length))
        return self.head(self.blocks(h, mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16, help="windows of all ranks, at first")
    parser.add_argument("--max-batch", type=int, default=256, help="0: it stays as it is")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--windows", type=int, default=4096, help="of 64 bytes, in an epoch")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3, help="for --batch")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    el.init_process_group()

    data = Text(64, args.windows)
    loader = el.AdaptiveDataLoader(data, args.batch, shuffle=True)
    if args.max_batch:
        loader.autoscale_batch_size(args.max_batch, (2, 64), gradient_accumulation=True)
    model: nn.Module = Gpt(args.width, args.layers, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model = el.AdaptiveDataParallel(model, optimizer)  # the learning rate follows AdamScale

    for epoch in el.remaining_epochs_until(args.epochs):
        stats = el.Accumulator()
        for x in loader:
            optimizer.zero_grad()
            logits = model(x[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            stats["loss"] += loss.item() * len(x)
            stats["seen"] += len(x)
        with stats.synchronized():
            loss = stats["loss"] / stats["seen"]
        if torch.distributed.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.3f} nats a byte", flush=True)


if __name__ == "__main__":
    main()
