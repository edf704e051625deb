"""A rank of a pipeline that computes on a device of its own.

Usage: pipeline_device_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any

import torch
from torch import Tensor, nn

import pawl.pipeline as pp
from group_checks import check, run_checks
from pawl import PawlError
from pawl.pipeline import _device
from pipeline_checks import DEVICE, WIDTH, WORLD, compare, numbers, pipeline, rows, seeded, train

MICROBATCHES = 4


class Unit(nn.Module):
    """Notes on which devices its forward pass finds what it takes and has."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)
        self.shift = nn.Buffer(torch.ones(WIDTH))
        self.devices: set[str] = set()
        self.kept: list[weakref.ref[Tensor]] = []  # activations of forward passes
        self.most = 0  # most of these that were there when another forward pass began

    def forward(self, x: Tensor) -> Tensor:
        self.most = max(self.most, sum(kept() is not None for kept in self.kept))
        self.devices |= {t.device.type for t in (x, self.a.weight, self.shift)}
        middle = torch.tanh(self.a(x))
        self.kept.append(weakref.ref(middle))
        return self.b(middle) + self.shift


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units = nn.ModuleList([Unit() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x)
        return x


UNITS = [f"units.{i}" for i in range(4)]


def mine(model: Any) -> list[Unit]:
    """The units that this rank has."""
    units = zip(UNITS, model.module.units, strict=True)
    return [unit for name, unit in units if model.plan.stage_of(name) == pp.rank()]


def trained(**setting: Any) -> tuple[Any, Any]:
    """A model and the losses, after one step."""
    model = pp.DistributedModel(seeded(Chain))

    step = pp.step(functools.partial(train, model))
    return model, step(numbers(8 * MICROBATCHES, WIDTH, seed=1)).reduce_mean()


@check
def all_is_on_the_device() -> None:
    with pipeline(microbatches=MICROBATCHES, units=UNITS):
        model, loss = trained()
        assert loss.device.type == "cpu"
        units = mine(model)
        for unit in units:
            unit.devices.clear()
        pp.step(functools.partial(train, model))(numbers(8 * MICROBATCHES, WIDTH, seed=2))
        assert units and all(unit.devices == {DEVICE} for unit in units)
        for _, p in model.local_named_parameters():
            assert (p.device.type, p.grad.device.type) == (DEVICE, DEVICE)
        others = [unit for unit in model.module.units if unit not in units]
        assert all(p.numel() == 0 for unit in others for p in unit.parameters())


@check
def only_what_others_want_comes_to_the_host() -> None:
    with pipeline(microbatches=MICROBATCHES, units=UNITS):
        model, _ = trained()
        copies: list[int] = []
        plain = _device.to_host

        def noted(tensor: Tensor) -> Tensor:
            copies.append(tensor.numel() if tensor.device.type == DEVICE else 0)
            return plain(tensor)

        _device.to_host = noted
        pp.step(functools.partial(train, model))(numbers(8 * MICROBATCHES, WIDTH, seed=2))
        _device.to_host = plain
        # Activations to the next stage, gradients to the one before; where the loss is made, it.
        stages = [model.plan.stage_of(name) for name in UNITS]
        ends = sum(
            (a == pp.rank()) + (b == pp.rank()) for a, b in itertools.pairwise(stages) if a != b
        )
        large = [n for n in copies if n > 1]
        assert large == [8 * WIDTH] * (ends * MICROBATCHES), (copies, stages)


@check
def offloaded_activations() -> None:
    for offload in (False, True):
        with pipeline(microbatches=MICROBATCHES, units=UNITS, schedule="simple", offload=offload):
            model, _ = trained()
            units = mine(model)
            for unit in units:
                unit.kept.clear()
                unit.most = 0
            pp.step(functools.partial(train, model))(numbers(8 * MICROBATCHES, WIDTH, seed=2))
            # Stage 0 has a microbatch's activations while stage 1 computes.
            assert (units[0].most == 0) == offload or pp.rank() > 0
    compare(Chain, train, rows(), units=UNITS, offload=True)


@check
def a_batch_on_the_device() -> None:
    def step(model: Any, x: Tensor) -> Tensor:
        scale = torch.full((1,), 2.0, dtype=x.dtype, device=x.device)
        return train(model, x * scale)

    for where in ("cpu", DEVICE):
        with pipeline(microbatches=MICROBATCHES, units=UNITS):
            model = pp.DistributedModel(seeded(Chain))
            run = pp.step(lambda x, model=model: step(model, x))
            found = [
                run(numbers(8 * MICROBATCHES, WIDTH, seed=i).to(where)).reduce_mean().item()
                for i in range(2)
            ]
        plain = seeded(Chain)
        for i in range(2):
            wanted = plain(2 * numbers(8 * MICROBATCHES, WIDTH, seed=i)).square().mean()
            assert abs(found[i] - wanted.item()) < 1e-12


@check
def devices_are_refused_by_name() -> None:
    for device in ("xpu", f"{DEVICE}:64"):
        try:
            pp.init(stages=WORLD, device=device)
        except PawlError as refused:
            assert f"device='{device}': torch" in str(refused), refused
        else:
            raise AssertionError(device)
    with pipeline(microbatches=MICROBATCHES):
        try:
            pp.DistributedModel(seeded(Chain).to(DEVICE))
        except PawlError as refused:
            assert f'use pp.init(device="{DEVICE}")' in str(refused), refused
        else:
            raise AssertionError("a model on the device")


def main() -> None:
    torch.set_num_threads(1)
    run_checks()


if __name__ == "__main__":
    main()
