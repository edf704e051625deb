"""A small GPT that reads bytes: decoder blocks as in GPT-2, sized for two CPU cores."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # bytes
# Bytes read at most: enough for a demonstration, and the same on every start.
CORPUS_BYTES = 8 << 20


class Block(nn.Module):
    """Attention and feed-forward, each with its layer norm before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (batch, time, width) to the same shape."""
        batch, time, width = x.shape
        q, k, v = (
            t.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for t in self.qkv(self.ln_1(x)).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(functional.gelu(self.up(self.ln_2(x))))


class Gpt(nn.Module):
    """Maps bytes to the logits of the next byte."""

    def __init__(
        self, width: int = 256, layers: int = 4, heads: int = 4, context: int = 128
    ) -> None:
        super().__init__()
        self.context = context
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (batch, time) int64 to (batch, time, VOCABULARY) float32."""
        h = self.bytes(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.ln(h))


def corpus() -> torch.Tensor:
    """The standard library's own source files on this machine, as one tensor of uint8."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= CORPUS_BYTES:
            break
    return torch.frombuffer(text[:CORPUS_BYTES], dtype=torch.uint8)


def batch(data: torch.Tensor, step: int, rank: int, size: int, context: int) -> torch.Tensor:
    """The (size, context + 1) int64 bytes of a rank at a step: the same after a restart."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    starts = torch.randint(len(data) - context - 1, (size,), generator=generator)
    return torch.stack([data[s : s + context + 1] for s in starts.tolist()]).long()


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next byte, in nats, over a batch of `batch`."""
    logits = model(x[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
