"""A GPT in training on a device, and how fast its link with the host is.

With the device "cpu", which only shows that a program works, a copy over the link
is a copy in host memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from shared._state import Parts

HEAD = 64  # columns of an attention head
WARM_STEPS = 3
LINK_COPIES = 7


@dataclass(frozen=True)
class Shape:
    blocks: int
    width: int
    rows: int  # samples in a batch
    tokens: int  # tokens in a row
    vocabulary: int = 50304


SHAPES = {
    "tiny": Shape(2, 64, 2, 32, 512),
    "1.5": Shape(12, 768, 16, 1024),  # GB of parameters and AdamW's moments; 124 million parameters
    "4": Shape(24, 1024, 16, 1024),  # 354 million parameters
    "9": Shape(36, 1280, 12, 1024),  # 774 million parameters
}


def synchronize(device: str) -> None:
    """Waits until the device has done all that was queued."""
    if device == "cuda":
        torch.cuda.synchronize()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        heads = self.qkv(self.before(x)).view(rows, tokens, 3, width // HEAD, HEAD)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    """Returns the loss of predicting each next token; the last layer shares the
    embedding's weights.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.place = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width) for _ in range(shape.blocks))
        self.last = nn.LayerNorm(shape.width)
        for embedding in (self.token, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids[:, :-1]) + self.place.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.last(x), self.token.weight)
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def make_batch(shape: Shape, device: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (shape.rows, shape.tokens + 1)
    return torch.randint(shape.vocabulary, size, generator=generator).to(device)


def make_model(shape: Shape, device: str) -> Gpt:
    torch.manual_seed(0)
    with torch.device(device):
        return Gpt(shape)


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """The loss, in bfloat16 except where 32 bits are needed; parameters have 32 bits."""
    with torch.autocast(batch.device.type, torch.bfloat16):
        loss: torch.Tensor = model(batch)
    return loss


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


class Training(Parts):
    """Model and optimizer with all their state, and training steps on one batch."""

    def __init__(self, shape: Shape, device: str) -> None:
        self.device = device
        self.model = make_model(shape, device)
        self.optimizer = make_optimizer(self.model)
        self._batch = make_batch(shape, device)
        for _ in range(WARM_STEPS):
            self.step()
        synchronize(device)

    def step(self, before_update: Callable[[], object] | None = None) -> None:
        """Queues a step; before_update is called once the backward pass is queued."""
        self.optimizer.zero_grad()
        loss_of(self.model, self._batch).backward()
        if before_update is not None:
            before_update()
        self.optimizer.step()

    def time_steps(self, steps: int) -> float:
        """Seconds that so many steps take, from an idle device to an idle one."""
        synchronize(self.device)
        begun = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.device)
        return time.perf_counter() - begun


class Link:
    """One large copy between the device and page-locked host memory: the fastest there is."""

    def __init__(self, device: str, size_bytes: int) -> None:
        self._name = device
        self._host = torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=device == "cuda")
        self._device = torch.zeros(size_bytes, dtype=torch.uint8, device=device)

    def down(self) -> float:
        """Bytes a second to the host, the median of some copies."""
        return self._rate(self._host, self._device)

    def up(self) -> float:
        """Bytes a second to the device, the median of some copies."""
        return self._rate(self._device, self._host)

    def _rate(self, to: torch.Tensor, of: torch.Tensor) -> float:
        took = []
        for _ in range(LINK_COPIES):
            synchronize(self._name)
            begun = time.perf_counter()
            to.copy_(of, non_blocking=True)
            synchronize(self._name)
            took.append(time.perf_counter() - begun)
        return to.nbytes / statistics.median(took)
