"""Gradients of a pipeline's parameters: their order, holders, and replicas (_gradients.py)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from pawl import PawlError
from pawl.pipeline._gradients import FRAME, Gradients, Held


class Replicas:
    """Two replicas, of which the other has the same gradients, or none."""

    def __init__(self, other: float) -> None:
        self.other = other
        self.reduced: list[int] = []  # elements of each all-reduce, in order
        self.waited = 0

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Replicas:
        self.reduced.append(tensors[0].numel())
        tensors[0].mul_((1 + self.other) / 2)
        return self

    def wait(self) -> None:
        self.waited += 1


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=torch.float64))


def full(held: Held, value: float) -> torch.Tensor:
    return torch.full_like(held.parameter, value).detach()


def grad(held: Held) -> float:
    assert held.parameter.grad is not None
    return float(held.parameter.grad.flatten()[0])


def test_microbatches_are_averaged_and_steps_added() -> None:
    held = {"w": Held(parameter(2, 2), (0,), (0,))}
    gradients = Gradients(0, 2, None, None)
    gradients.hold(held, [0])
    for step in (1, 2):
        for value in (1.0, 3.0):
            gradients.add(0, "w", full(held["w"], value))
            gradients.count(0)
        gradients.finalise([[0, 2]])
        gradients.finish()
        assert grad(held["w"]) == 2.0 * step


def test_a_gradient_that_autograd_shares_is_not_changed() -> None:
    held = {"a": Held(parameter(3), (0,), (0,)), "b": Held(parameter(3), (0,), (0,))}
    gradients = Gradients(0, 3, None, None)
    gradients.hold(held, [0])
    shared = full(held["a"], 1.0)
    for _ in range(3):
        gradients.add(0, "a", shared)
        gradients.add(0, "b", shared)
    gradients.finalise([[0, 3]])
    gradients.finish()
    assert grad(held["a"]) == grad(held["b"]) == 1.0
    assert float(shared[0]) == 1.0


def test_holders_are_added_in_their_order() -> None:
    """Numbers whose sum depends on the order: only (1e16 - 1e16) + 1 is 1."""
    held = {"w": Held(parameter(1), (0, 4, FRAME), (0, 0, 0))}
    gradients = Gradients(0, 1, None, None)
    gradients.hold(held, [0, 4])
    for holder, value in ((FRAME, 1.0), (4, -1e16), (0, 1e16)):
        gradients.add(holder, "w", full(held["w"], value))
    gradients.finalise([[0, 1], [4, 1], [FRAME, 1]])
    gradients.finish()
    assert grad(held["w"]) == 1.0


def test_what_gets_no_gradient_keeps_none() -> None:
    held = {"w": Held(parameter(1), (0,), (0,)), "unused": Held(parameter(1), (0,), (0,))}
    for group in (None, Replicas(1.0)):
        gradients = Gradients(0, 1, group, None)
        gradients.hold(held, [0])
        gradients.add(0, "w", full(held["w"], 1.0))
        gradients.count(0)
        gradients.finalise([[0, 1]])
        gradients.finish()
        assert held["unused"].parameter.grad is None
    gradients.finish()  # a step without a backward pass
    assert held["unused"].parameter.grad is None


def test_replicas_average_each_unit_once_it_is_done() -> None:
    held = {
        "first": Held(parameter(5), (0,), (0,)),
        "last": Held(parameter(7), (1,), (0,)),
        "tied": Held(parameter(3), (0, 1), (0, 0)),
        "frozen": Held(parameter(9).requires_grad_(False), (1,), (0,)),
    }
    group = Replicas(3.0)
    gradients = Gradients(0, 2, group, None)
    gradients.hold(held, [0, 1])
    for microbatch in range(2):
        if microbatch == 1:
            gradients.finalise([[0, 2], [1, 2]])
        for unit, names in ((1, ("last", "tied")), (0, ("first", "tied"))):
            for name in names:
                gradients.add(unit, name, full(held[name], 1.0))
            assert group.reduced == ([] if microbatch == 0 or unit == 1 else [7 + 1])
            gradients.count(unit)
    assert group.reduced == [
        7 + 1,
        5 + 1,
    ]  # before the step has ended; one number says what is used
    assert group.waited == 0
    gradients.finish()
    assert group.reduced == [7 + 1, 5 + 1, 3 + 1]
    assert [grad(held[n]) for n in ("first", "last", "tied")] == [2.0, 2.0, 4.0]


def test_a_unit_waits_for_those_behind_it() -> None:
    """All replicas reduce in one order, whatever order their units end in."""
    held = {"first": Held(parameter(5), (0,), (0,)), "last": Held(parameter(7), (1,), (0,))}
    group = Replicas(1.0)
    gradients = Gradients(0, 1, group, None)
    gradients.hold(held, [0, 1])
    gradients.finalise([[0, 1], [1, 1]])
    gradients.add(0, "first", full(held["first"], 1.0))
    gradients.count(0)
    assert group.reduced == []
    gradients.add(1, "last", full(held["last"], 1.0))
    gradients.count(1)
    assert group.reduced == [8, 6]


def test_a_use_that_the_profile_did_not_see_is_refused() -> None:
    held = {"w": Held(parameter(1), (0,), (0,))}
    gradients = Gradients(0, 1, None, None)
    gradients.hold(held, [0])
    with pytest.raises(PawlError, match="w is used outside of its module"):
        gradients.add(FRAME, "w", full(held["w"], 1.0))
