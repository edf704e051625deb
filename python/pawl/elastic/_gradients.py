"""Squared norms of a model's gradients, bucket by bucket, while those are reduced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pawl import _coll, _core

_SUM = torch.float64
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


Cut = tuple[Span, int, int]  # a part of it: elements of the bucket


@dataclass(frozen=True)
class Step:
    """What norms are of."""

    ranks: int
    count: float  # of their gradients: see Micro.gradients
    parts: int  # gradients of each rank
    scale: float  # initial batches
    even: bool  # it is of as many samples as a step should be
    square: float  # what norms are to be multiplied by, for a loss that was scaled
    generation: int  # of the ranks


class Norms:
    """Of one model and optimizer: for each group of parameters the sum of what was added.

    Those of a device's memory are computed there, and told a step late: nobody waits for it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, whiten: Whiten) -> None:
        self._optimizer = optimizer
        self._whiten = whiten
        self.groups = len(optimizer.param_groups)  # of parameters
        self._layouts: dict[tuple[int, int], list[Span]] = {}  # by bucket and its size
        self._lock = threading.Lock()
        self._sums = [0.0] * (2 * self.groups)  # of each rank's own, then of all ranks' mean
        self._there: list[torch.Tensor] = []  # the same, a device's, to be added up
        self._late: tuple[torch.Tensor, Any, Step] | None = None  # the last step's, on their way

    def regroup(self) -> bool:
        """Between two steps: whether the optimizer has more groups of parameters than it had."""
        if self.groups == len(self._optimizer.param_groups):
            return False
        self.groups = len(self._optimizer.param_groups)
        self._layouts.clear()
        self._late = None
        self.restart()
        return True

    def restart(self) -> None:
        """Before a step."""
        self._sums = [0.0] * (2 * self.groups)
        self._there = []

    def add_local(self, buffer: torch.Tensor, layout: list[Span]) -> None:
        """What this rank has, of a bucket."""
        self._add(0, buffer, layout, 0, buffer.numel())

    def add_total(self, buffer: torch.Tensor, layout: list[Span], share: int, shares: int) -> None:
        """What all have, of one of ``shares`` equal parts of a bucket: another rank has another."""
        n = buffer.numel()
        first, last = n * share // shares, n * (share + 1) // shares
        self._add(self.groups, buffer, layout, first, last)

    def take(self, step: Step) -> tuple[list[float], Step | None]:
        """The sums, of each rank's own and then of the mean, and the step that they are of, which
        is the one before where a device computes them. None: there are none."""
        if not self._there:
            self._late = None
            return self._sums, step
        late, self._late = self._late, (*_bring(torch.stack(self._there).sum(0)), step)
        if late is None or late[2].generation != step.generation:
            return [0.0] * len(self._sums), None
        values, event, of = late
        if event is not None:
            event.synchronize()
        return values.tolist(), of

    def squares(self, flat: torch.Tensor, layout: list[Span]) -> list[float]:
        """Of a bucket's elements in host memory, by group; they are added to nothing."""
        cuts = [(span, span.first, span.first + span.n) for span in layout]
        found = self._squares(flat, cuts)
        return [found.get(group, 0.0) for group in range(self.groups)]

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
        self, where: int, buffer: torch.Tensor, layout: list[Span], begin: int, end: int
    ) -> None:
        """Elements [begin, end) of a bucket."""
        cuts = [
            (span, max(span.first, begin), min(span.first + span.n, end))
            for span in layout
            if span.first < end and begin < span.first + span.n
        ]
        if not is_host(buffer):
            self._there.append(self._add_there(where, buffer, cuts))
            return
        found = self._squares(buffer, cuts)
        with self._lock:  # buckets are reduced by several threads
            for group, value in found.items():
                self._sums[where + group] += value

    def _second(self, span: Span, dtype: torch.dtype) -> Any:
        """What a parameter's gradient is divided by, flat as that is; None: by nothing, or it does
        not match."""
        by = self._whiten(self._optimizer.param_groups[span.group], span.parameter)
        if by is None or by[0].dtype != dtype or by[0].shape != span.parameter.shape:
            return None
        return flatten(by[0], span.parameter), by[1], by[2]

    def _squares(self, flat: torch.Tensor, cuts: list[Cut]) -> dict[int, float]:
        """Of host memory, by group; neighbours that are divided by nothing go as one."""
        size, start = flat.element_size(), flat.data_ptr()
        rows: dict[int, list[tuple[int, int, int, float, float]]] = {}
        held = []  # rows have addresses only
        for span, first, last in cuts:
            row = rows.setdefault(span.group, [])
            by = self._second(span, flat.dtype)
            at, n = start + first * size, last - first
            if by is not None:
                held.append(by[0])
                row.append((at, n, by[0].data_ptr() + (first - span.first) * size, by[1], by[2]))
            elif row and row[-1][2] == 0 and row[-1][0] + row[-1][1] * size == at:
                row[-1] = (row[-1][0], row[-1][1] + n, 0, 0.0, 0.0)
            else:
                row.append((at, n, 0, 0.0, 0.0))
        dtype = _coll.DTYPES[flat.dtype]
        return {group: _core.squares(dtype, row) for group, row in rows.items()}

    def _add_there(self, where: int, buffer: torch.Tensor, cuts: list[Cut]) -> torch.Tensor:
        """Of a device's memory, computed there: for each group of both kinds."""
        found = [torch.zeros((), dtype=_SUM, device=buffer.device) for _ in self._sums]
        for span, first, last in cuts:
            values = buffer[first:last].float()
            if (by := self._second(span, buffer.dtype)) is not None:
                part = by[0][first - span.first : last - span.first].float()
                values = values / ((part * by[1]).sqrt() + by[2]).sqrt()
            found[where + span.group] += values.square().sum(dtype=_SUM)
        return torch.stack(found)


def _dims(parameter: torch.Tensor) -> list[int] | None:
    """Its dimensions in the order of its memory (channels_last has another one than their own);
    None: that has gaps."""
    dims = sorted(range(parameter.dim()), key=lambda dim: -parameter.stride(dim))
    return dims if parameter.permute(dims).is_contiguous() else None


def flatten(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Flat, in the order in which DDP's buckets have a parameter's gradient: its memory's."""
    dims = _dims(parameter)
    return (tensor if dims is None else tensor.permute(dims)).reshape(-1)


def unflatten(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """The other way round. ``flat``: memory of its own."""
    if _dims(parameter) is None:
        return flat.view(parameter.shape)
    return flat.as_strided(parameter.shape, parameter.stride())


def is_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _bring(sums: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """To host memory, and an event behind that; None: they are there."""
    if not sums.is_cuda:
        return sums.cpu(), None
    values = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True, device="cpu")
    values.copy_(sums, non_blocking=True)
    return values, torch.cuda.current_stream(sums.device).record_event()


class Parts:
    """Sums of gradients of a step's parts but the last one, bucket by bucket. They are kept out of
    ``.grad``, where a script would clip what is not whole."""

    def __init__(self, norms: Norms) -> None:
        self._norms = norms
        self._sums: dict[int, tuple[torch.Tensor, list[Span]]] = {}  # by bucket
        self.first: list[float] | None = None  # norms of the first part alone; []: of no use

    def put(self, index: int, buffer: torch.Tensor, layout: list[Span]) -> None:
        """Of one part: what is in a bucket, and 0 there after it."""
        if index in self._sums:
            self._sums[index][0].add_(buffer)
        else:
            self._sums[index] = (buffer.clone(), layout)
        buffer.zero_()

    def take(self, index: int, buffer: torch.Tensor) -> None:
        """In the last one: adds to a bucket what the others had."""
        if index in self._sums:
            buffer.add_(self._sums.pop(index)[0])

    def end(self) -> None:
        """Of a part, in host memory."""
        if self.first is None:
            rows = [self._norms.squares(*row) for row in self._sums.values()]
            self.first = [sum(row) for row in zip(*rows, strict=True)]

    def clear(self) -> None:
        """The step is over, whether it was made or not."""
        self._sums.clear()
        self.first = None


class Pair:
    """The gradients of two steps, one after the other: the noise of a rank that is alone and has
    but one gradient a step. Of some pairs only, since the first one has to be kept."""

    _EVERY = 8  # steps
    _FIRST = 64  # steps in which each second one begins a pair: something is known soon

    def __init__(self, norms: Norms) -> None:
        self._norms = norms
        self._step = 0
        self._seen: dict[int, torch.Tensor] = {}  # buckets of the step under way, to be kept
        self._kept: dict[int, torch.Tensor] = {}  # of the one before, if it is one of a pair
        self._scale = 0.0  # initial batches in it
        self._local: list[float] = []  # its norms
        self._total: list[float] = []  # norms of the mean of both

    def see(self, index: int, buffer: torch.Tensor, layout: list[Span]) -> None:
        """A bucket of the step under way, before the script can change it."""
        if index == 0:
            self._seen, self._total = {}, [0.0] * self._norms.groups
        if self._kept:
            mean = torch.add(self._kept[index], buffer).div_(2)
            norms = self._norms.squares(mean, layout)
            self._total = [a + b for a, b in zip(self._total, norms, strict=True)]
        elif self._begins(self._step + 1):
            self._seen[index] = buffer.clone()

    def forget(self) -> None:
        """The first one: what comes does not follow it."""
        self._seen, self._kept = {}, {}

    def next(
        self, own: list[float], square: float, scale: float
    ) -> tuple[list[float], list[float]] | None:
        """What a step's gradient and the one before it tell: norms of each, and of their mean.
        ``own``: its norms, which were multiplied by ``square``; ``scale``: initial batches in it,
        of which the other one must have as many."""
        kept, self._kept = self._kept, {}
        self._step += 1
        if kept and scale == self._scale:
            total = [norm * square for norm in self._total]
            return [(a + b) / 2 for a, b in zip(self._local, own, strict=True)], total
        if self._begins(self._step):
            self._kept, self._seen = self._seen, {}
            self._local, self._scale = own, scale
        return None

    def _begins(self, step: int) -> bool:
        return step % (2 if step < self._FIRST else self._EVERY) == 0
