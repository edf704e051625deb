"""Gradients of this rank's parameters: added up by microbatch, over holders, and over replicas.

A holder of a parameter is a unit that has it, or FRAME: the driver's program, which reads it
outside of its unit. Gradients are kept apart for each holder, and added in the order of the
holders, so that the bits do not depend on which rank has which holder. Where holders are on several
ranks, each has a copy of the parameter, and they exchange their gradients after the step.

With replicas, a unit's gradients are averaged over them as soon as its last backward call is done,
while other units still compute. All replicas do so in one order of units.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from pawl.errors import error
from pawl.pipeline._device import to_host

FRAME: Final = -1


class Held(NamedTuple):
    """A parameter that this rank has."""

    parameter: nn.Parameter
    holders: tuple[int, ...]  # units in order of execution, FRAME last
    ranks: tuple[int, ...]  # rank of each holder


class _Bucket:
    """Gradients of one unit on their way through the replicas. Behind them is a number for each
    gradient that says whether there is one: a parameter that no replica used keeps none.
    """

    def __init__(self, names: list[str], tensors: list[Any], like: list[Any], group: Any) -> None:
        self.names = names
        self._like = like
        parts = [
            torch.zeros(p.numel(), dtype=p.dtype, device=p.device) if t is None else t.reshape(-1)
            for t, p in zip(tensors, like, strict=True)
        ]
        used = torch.tensor([t is not None for t in tensors], dtype=like[0].dtype)
        self.flat = to_host(torch.cat([*parts, used.to(like[0].device)]))
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG
        self._work = group.allreduce([self.flat], options)

    def wait(self) -> dict[str, torch.Tensor]:
        self._work.wait()
        sizes = [*[p.numel() for p in self._like], len(self._like)]
        *parts, used = self.flat.to(self._like[0].device).split(sizes)
        return {
            name: part.reshape(like.shape)
            for name, part, like, seen in zip(
                self.names, parts, self._like, used.tolist(), strict=True
            )
            if seen > 0
        }


class Gradients:
    """Of one rank. ``replicas``: process group of the ranks with the same stage; None: one only.
    ``pipeline``: process group of the ranks of this pipeline; None: one only.
    """

    def __init__(self, rank: int, microbatches: int, replicas: Any, pipeline: Any) -> None:
        self._rank = rank
        self._microbatches = microbatches
        self._replicas = replicas
        self._pipeline = pipeline
        self._held: dict[str, Held] = {}
        self._sums: dict[tuple[int, str], torch.Tensor] = {}
        self._added: dict[tuple[int, str], int] = {}
        self._done: dict[int, int] = {}  # backward calls carried out, by holder
        self._all: dict[int, int] | None = None  # how many there are, once the driver knows
        self._order: list[int] = []  # units of this rank, the last one first
        self._begun = 0  # units of _order whose gradients are on their way
        self._buckets: list[_Bucket] = []

    def hold(self, held: dict[str, Held], units: list[int]) -> None:
        """Says which parameters this rank has, in the model's order, and which units."""
        self._held = held
        self._order = sorted(units, reverse=True)

    def add(self, holder: int, name: str, grad: torch.Tensor) -> None:
        """Adds the gradient of one backward call."""
        if holder not in self._held[name].holders:
            raise error(
                "PAWL_ENOTSUP",
                f"pipeline: {name} is used outside of its module, which it was not while the model "
                'was profiled; pp.init(frame=["..."]) with the module that has it keeps it apart',
            )
        place = holder, name
        added = self._added.get(place, 0)
        self._added[place] = added + 1
        if added == 0:
            self._sums[place] = grad.detach()
        elif added == 1:  # the first one may be shared with others
            self._sums[place] = self._sums[place] + grad
        else:
            self._sums[place] += grad

    def count(self, holder: int) -> None:
        """Says that a backward call is done."""
        self._done[holder] = self._done.get(holder, 0) + 1
        self._advance()

    def finalise(self, counts: list[list[int]]) -> None:
        """Says how many backward calls there are in this step: pairs of holder and number."""
        self._all = dict(counts)
        self._advance()

    def _advance(self) -> None:
        """Sends gradients of units on their way through the replicas, in order."""
        if self._replicas is None or self._all is None:
            return
        while self._begun < len(self._order):
            unit = self._order[self._begun]
            if self._done.get(unit, 0) < self._all.get(unit, 0):
                return
            self._begun += 1
            self._send([n for n, h in self._held.items() if h.holders == (unit,)], unit)

    def _send(self, names: list[str], holder: int) -> None:
        by_type: dict[torch.dtype, list[str]] = {}
        for name in names:
            if self._held[name].parameter.requires_grad:
                by_type.setdefault(self._held[name].parameter.dtype, []).append(name)
        for group in by_type.values():
            tensors = [self._sums.pop((holder, n), None) for n in group]
            like = [self._held[n].parameter for n in group]
            self._buckets.append(_Bucket(group, tensors, like, self._replicas))

    def finish(self) -> None:
        """Writes the gradients of the step to the parameters, divided by the microbatches. Every
        rank calls it, even if a step had no backward pass.
        """
        whole: dict[str, torch.Tensor] = {}
        if self._all:
            whole = self._reduced() if self._replicas is not None else self._summed()
        for name, grad in whole.items():
            parameter = self._held[name].parameter
            grad = grad / self._microbatches
            parameter.grad = grad if parameter.grad is None else parameter.grad + grad
        self._sums.clear()
        self._added.clear()
        self._done.clear()
        self._buckets.clear()
        self._begun = 0
        self._all = None

    def _summed(self) -> dict[str, torch.Tensor]:
        whole = {}
        for name, held in self._held.items():
            found = self._over_holders(name, held)
            if found is not None:
                whole[name] = found
        return whole

    def _reduced(self) -> dict[str, torch.Tensor]:
        """Averages over replicas; what several holders have comes last."""
        self._advance()
        shared = [n for n, h in self._held.items() if not self._alone(h)]
        for name in shared:
            found = self._over_holders(name, self._held[name])
            if found is not None:
                self._sums[FRAME, name] = found
        self._send(shared, FRAME)
        whole: dict[str, torch.Tensor] = {}
        for bucket in self._buckets:
            whole |= bucket.wait()
        return whole

    @staticmethod
    def _alone(held: Held) -> bool:
        return len(held.holders) == 1 and held.holders[0] != FRAME

    def _over_holders(self, name: str, held: Held) -> torch.Tensor | None:
        """The sum over holders, in their order; those of other ranks send theirs."""
        if not held.parameter.requires_grad:
            return None
        total: torch.Tensor | None = None
        for holder, rank in zip(held.holders, held.ranks, strict=True):
            part = self._sums.pop((holder, name), None) if rank == self._rank else None
            if len(set(held.ranks)) > 1:
                part = self._exchange(part, held, rank)
            if part is not None:
                total = part if total is None else total + part
        return total

    def _exchange(self, part: Any, held: Held, source: int) -> torch.Tensor | None:
        """A holder's sum at all ranks that have the parameter. A flag says whether there is one."""
        others = sorted(set(held.ranks) - {source})
        flag = torch.tensor([part is not None], dtype=torch.uint8)
        if self._rank == source:
            for rank in others:
                self._pipeline.send([flag], rank, 0).wait()
                if part is not None:
                    self._pipeline.send([to_host(part.contiguous())], rank, 0).wait()
            return part
        self._pipeline.recv([flag], source, 0).wait()
        if not flag.item():
            return None
        received = torch.empty(held.parameter.shape, dtype=held.parameter.dtype)
        self._pipeline.recv([received], source, 0).wait()
        return received.to(held.parameter.device)
