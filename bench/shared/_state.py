"""The state that is saved, like a small GPT's with AdamW, and steps of training it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import nn

ROWS = 32  # rows that an emulated forward and backward pass multiplies by


class Block(nn.Module):
    """Six parameters: the four matrices of a transformer's block, two of them with a bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)


class Parts:
    """Named parts of a model and its optimizer, as they are saved."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def dicts(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def tensors(self) -> list[torch.Tensor]:
        moments = [entry.values() for entry in self.optimizer.state.values()]
        return [
            *(parameter.detach() for parameter in self.model.parameters()),
            *(tensor for values in moments for tensor in values),
        ]


class State(Parts):
    """Model and optimizer, their memory touched. filled: with values that are not all zero."""

    def __init__(self, blocks: int, width: int, filled: bool = True) -> None:
        with torch.device("meta"):
            model = nn.ModuleList(Block(width) for _ in range(blocks))
        self.model = model.to_empty(device="cpu")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)
        for parameter in self.model.parameters():
            with torch.no_grad():
                parameter.uniform_(-0.1, 0.1) if filled else parameter.zero_()
            self.optimizer.state[parameter] = {
                "step": torch.zeros(()),
                "exp_avg": torch.full_like(parameter, 1e-4 if filled else 0.0),
                "exp_avg_sq": torch.full_like(parameter, 1e-8 if filled else 0.0),
            }


class Training:
    """Steps over a State: a fixed number of matrix products over the parameters, then AdamW."""

    def __init__(self, state: State) -> None:
        self._state = state
        widths = {weight.shape[1] for weight in self._weights(state.model[0])}
        self._inputs = {width: torch.ones(ROWS, width) for width in widths}
        self._outputs = {
            weight.shape[0]: torch.empty(ROWS, weight.shape[0])
            for weight in self._weights(state.model[0])
        }
        self._blocks = [self._weights(block) for block in state.model]
        for parameter in state.model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        self.units = 1  # blocks that a forward and backward pass goes through

    @staticmethod
    def _weights(block: nn.Module) -> list[torch.Tensor]:
        return [weight.detach() for weight in block.parameters() if weight.dim() == 2]

    def unit(self, index: int) -> None:
        for weight in self._blocks[index % len(self._blocks)]:
            torch.mm(self._inputs[weight.shape[1]], weight.t(), out=self._outputs[weight.shape[0]])

    def calibrate(self, seconds: float) -> None:
        """Makes a forward and backward pass take about so long."""
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            for index in range(len(self._blocks)):
                self.unit(index)
            took.append((time.perf_counter() - begun) / len(self._blocks))
        self.units = max(1, round(seconds / statistics.median(took)))

    def compute(self) -> None:
        """Runs a forward and backward pass."""
        for index in range(self.units):
            self.unit(index)

    def step(self) -> float:
        """Runs a whole step; returns its seconds."""
        begun = time.perf_counter()
        self.compute()
        self._state.optimizer.step()
        return time.perf_counter() - begun
