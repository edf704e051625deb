"""Squared norms of a model's gradients, bucket by bucket, while those are reduced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pawl import _coll, _core

# (tensor, factor, eps) that a parameter's gradient is divided by; see _rules.second_moment
Whiten = Callable[[dict[str, Any], torch.Tensor], Any]


@dataclass
class Span:
    """Where a parameter's gradient is in its bucket."""

    group: int
    parameter: torch.Tensor
    first: int  # element
    n: int

    @property
    def lacks(self) -> bool:
        """Whether this rank's backward pass did not come by it."""
        return self.parameter.grad is None


class Norms:
    """Of one model and optimizer: for each group of parameters the sum of what was added."""

    def __init__(self, optimizer: torch.optim.Optimizer, whiten: Whiten) -> None:
        self._optimizer = optimizer
        self._whiten = whiten
        self._layouts: dict[tuple[int, int], list[Span]] = {}  # by bucket and its size
        self._lock = threading.Lock()
        self.known = True  # they are of host memory
        self.local: list[float] = []
        self.total: list[float] = []
        self.restart()

    @property
    def groups(self) -> int:
        """Of parameters."""
        return len(self._optimizer.param_groups)

    def restart(self) -> None:
        """Before a step."""
        self.local = [0.0] * self.groups
        self.total = [0.0] * self.groups

    def add_local(self, buffer: torch.Tensor, layout: list[Span]) -> None:
        """What this rank has, of a bucket."""
        self._add(self.local, buffer, layout, 0, buffer.numel())

    def add_total(self, buffer: torch.Tensor, layout: list[Span], share: int, shares: int) -> None:
        """What all have, of one of ``shares`` equal parts of a bucket: another rank has another."""
        n = buffer.numel()
        self._add(self.total, buffer, layout, n * share // shares, n * (share + 1) // shares)

    def of(self, parameters: Sequence[torch.Tensor], gradients: Sequence[Any]) -> list[float]:
        """Of gradients that are in no bucket, None for parameters that have none; they are added to
        nothing."""
        sums = [0.0] * self.groups
        if not self.known:
            return sums
        given = {id(p): g for p, g in zip(parameters, gradients, strict=True)}
        for span in self._spans(parameters):
            if (g := given[id(span.parameter)]) is not None:
                sums[span.group] += self._squares(g, g.data_ptr(), span, 0, span.n)
        return sums

    def layout(self, bucket: dist.GradBucket) -> list[Span]:
        """Which parameters' gradients a bucket holds, and where."""
        key = (bucket.index(), bucket.buffer().numel())
        if key not in self._layouts:
            self._layouts[key] = self._spans(bucket.parameters())
        return self._layouts[key]

    def _spans(self, parameters: Sequence[torch.Tensor]) -> list[Span]:
        groups = {
            id(p): g
            for g, group in enumerate(self._optimizer.param_groups)
            for p in group["params"]
        }
        spans, first = [], 0
        for p in parameters:
            if id(p) in groups:  # another optimizer's are not of its business
                spans.append(Span(groups[id(p)], p, first, p.numel()))
            first += p.numel()
        return spans

    def _add(
        self, sums: list[float], buffer: torch.Tensor, layout: list[Span], begin: int, end: int
    ) -> None:
        self.known = buffer.device.type == "cpu"
        if not self.known:
            return
        size = buffer.element_size()
        found = [0.0] * self.groups
        for span in layout:
            first, last = max(span.first, begin), min(span.first + span.n, end)
            if first < last:
                at = buffer.data_ptr() + first * size
                found[span.group] += self._squares(
                    buffer, at, span, first - span.first, last - first
                )
        with self._lock:  # buckets are reduced by several threads
            for group, value in enumerate(found):
                sums[group] += value

    def _squares(self, like: torch.Tensor, at: int, span: Span, first: int, n: int) -> float:
        """Of n elements at an address: a parameter's, from its first on."""
        by = self._whiten(self._optimizer.param_groups[span.group], span.parameter)
        second, factor, eps = 0, 0.0, 0.0
        if by is not None and by[0].dtype == like.dtype and by[0].numel() == span.n:
            second, factor, eps = by[0].data_ptr() + first * like.element_size(), by[1], by[2]
        return _core.squares(_coll.DTYPES[like.dtype], [(at, n, second, factor, eps)])


class Pair:
    """The gradients of two steps, one after the other: the noise of a rank that is alone and has
    but one gradient a step. Of some pairs only, since the first one has to be kept."""

    _EVERY = 8  # steps

    def __init__(self, norms: Norms, parameters: list[torch.Tensor]) -> None:
        self._norms = norms
        self._parameters = parameters
        self._step = 0
        self._kept: list[torch.Tensor | None] | None = None
        self._local: list[float] = []  # the first one's norms

    def next(self, own: list[float], square: float) -> tuple[list[float], list[float]] | None:
        """What a step's gradient, as it is in ``.grad``, and the one before it tell: norms of each,
        and of their mean. ``own``: its norms, which were multiplied by ``square``."""
        kept, self._kept = self._kept, None
        self._step += 1
        if kept is not None:
            means = [
                None if a is None or b.grad is None else torch.add(a, b.grad).div_(2)
                for a, b in zip(kept, self._parameters, strict=True)
            ]
            total = [norm * square for norm in self._norms.of(self._parameters, means)]
            return [(a + b) / 2 for a, b in zip(self._local, own, strict=True)], total
        if self._step % self._EVERY == 0:
            self._kept = [None if p.grad is None else p.grad.clone() for p in self._parameters]
            self._local = own
        return None
