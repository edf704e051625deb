"""Activation checkpointing inside of units: what is computed again draws the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pawl.pipeline as pp
from pawl.errors import PawlError

Runs = Callable[..., Tensor]  # runs a function on a tensor, with or without a checkpoint


def plain(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)


class Square(nn.Module):
    """Keeps x times a mask for its backward pass; the mask is drawn in a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x * x) + x


class Block(nn.Module):
    """One module in two regions, whose backward passes come in the other order."""

    def __init__(self, run: Runs) -> None:
        super().__init__()
        self.run = run
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 64))
        self.square = Square()

    def forward(self, x: Tensor) -> Tensor:
        x = self.run(self.square, x * self.weight)
        x = self.run(self.square, x.tanh())
        return self.run(lambda y: self.square(self.square(y)), x.tanh())


def gradients(run: Runs) -> list[Tensor]:
    """Of two steps, with draws of the program's own between."""
    pp.init(stages=1, microbatches=3, units=["0", "1"], seed=4)
    try:
        torch.manual_seed(2)
        model = pp.DistributedModel(nn.Sequential(Block(run), Block(run)))

        @pp.step
        def step(x: Tensor) -> Tensor:
            loss = model(x).square().sum()
            model.backward(loss)
            return loss

        for _ in range(2):
            step(torch.ones(3, 64))
            torch.rand(5)
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]
    finally:
        pp.shutdown()


def test_what_is_computed_again_draws_the_same() -> None:
    kept = gradients(plain)
    again = gradients(partial(checkpoint, use_reentrant=False))
    assert len(kept) == len(again) == 2
    for one, other in zip(kept, again, strict=True):
        assert torch.equal(one, other)


def test_steps_and_units_draw_differently() -> None:
    first, second = gradients(plain)
    assert not torch.equal(first, second)


def test_a_checkpoint_that_draws_anew_is_refused() -> None:
    with pytest.raises(PawlError, match=r"1\.square\.drop draws .*preserve_rng_state=True"):
        gradients(partial(checkpoint, use_reentrant=False, preserve_rng_state=False))


class Around(nn.Module):
    """Has a checkpoint around each block, which is a unit."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList([Block(plain), Block(plain)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x


def around(again: bool) -> tuple[list[Tensor], int]:
    """Gradients of a step, and how often the program's blocks ran in it."""
    pp.init(stages=1, microbatches=3, units=["blocks.0", "blocks.1"])
    try:
        torch.manual_seed(2)
        model = pp.DistributedModel(Around(again))

        @pp.step
        def step(x: Tensor) -> Tensor:
            loss = model(x).square().sum()
            model.backward(loss)
            return loss

        step(torch.ones(3, 64))
        model.zero_grad()
        runs: list[int] = []
        model.module.blocks[0].square.register_forward_pre_hook(lambda *_: runs.append(1))
        step(torch.ones(3, 64))
        return [p.grad.clone() for p in model.parameters() if p.grad is not None], len(runs)
    finally:
        pp.shutdown()


def test_a_checkpoint_around_a_unit_is_carried_out_by_its_owner() -> None:
    (kept, runs), (again, runs_again) = around(False), around(True)
    assert (runs, runs_again) == (3 * 4, 2 * 3 * 4)  # microbatches, calls in a block
    for one, other in zip(kept, again, strict=True):
        assert torch.equal(one, other)
