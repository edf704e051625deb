"""Squared norms of a model's gradients, bucket by bucket, while the buckets are reduced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pawl import _core
from pawl._group import _coll

_SUM = torch.float64
# (tensor, factor, eps) that a parameter's gradient is divided by; see _rules.second_moment.
Whiten = Callable[[dict[str, Any], torch.Tensor], Any]


@dataclass
class Span:
    """The place of a parameter's gradient in its bucket."""

    group: int
    parameter: torch.Tensor
    first: int  # first element
    n: int

    @property
    def lacks(self) -> bool:
        """Whether this rank's backward pass gave the parameter no gradient."""
        return self.parameter.grad is None


Cut = tuple[Span, int, int]  # a part of a span: elements of the bucket, from and to


@dataclass(frozen=True)
class Step:
    """The step that norms belong to."""

    ranks: int
    count: float  # equivalent number of ranks' gradients: see Micro.gradients
    parts: int  # number of gradients of each rank
    scale: float  # number of initial batches
    even: bool  # True: it has as many samples as a step should have
    square: float  # factor of norms that undoes a loss scale
    generation: int  # generation of the ranks


class Norms:
    """Sums of squared norms for one model and optimizer, for each group of parameters.

    Norms of gradients in a device's memory are computed there, and available a step later, so that
    nothing waits for the device.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, whiten: Whiten) -> None:
        self._optimizer = optimizer
        self._whiten = whiten
        self.groups = len(optimizer.param_groups)  # number of groups of parameters
        self._layouts: dict[tuple[int, int], list[Span]] = {}  # by bucket and its size
        self._lock = threading.Lock()
        # Sums of each rank's own norms, then of those of all ranks' mean.
        self._sums = [0.0] * (2 * self.groups)
        self._there: list[torch.Tensor] = []  # sums computed on a device, still to be added up
        # The last step's device sums, on their way to the host.
        self._late: tuple[torch.Tensor, Any, Step] | None = None

    def regroup(self) -> bool:
        """Called between two steps: whether groups of parameters were added to the optimizer."""
        if self.groups == len(self._optimizer.param_groups):
            return False
        self.groups = len(self._optimizer.param_groups)
        self._layouts.clear()
        self._late = None
        self.restart()
        return True

    def restart(self) -> None:
        """Clears the sums before a step."""
        self._sums = [0.0] * (2 * self.groups)
        self._there = []

    def add_local(self, buffer: torch.Tensor, layout: list[Span]) -> None:
        """Adds the norms of this rank's gradients in a bucket."""
        self._add(0, buffer, layout, 0, buffer.numel())

    def add_total(self, buffer: torch.Tensor, layout: list[Span], share: int, shares: int) -> None:
        """Adds the norms of all ranks' mean gradient, for part ``share`` of ``shares`` equal parts
        of a bucket: each rank adds another part.
        """
        n = buffer.numel()
        first, last = n * share // shares, n * (share + 1) // shares
        self._add(self.groups, buffer, layout, first, last)

    def take(self, step: Step) -> tuple[list[float], Step | None]:
        """The sums, of each rank's own norms and then of the mean's, and the step they are of: the
        one before, where a device computes them. None: there are no sums.
        """
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
        """Squared norms of a bucket's elements in host memory, by group; they are
        added to no sum.
        """
        cuts = [(span, span.first, span.first + span.n) for span in layout]
        found = self._squares(flat, cuts)
        return [found.get(group, 0.0) for group in range(self.groups)]

    def layout(self, bucket: dist.GradBucket) -> list[Span]:
        """The parameters of a bucket, and the place of each gradient in it."""
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
            if id(p) in groups:  # parameters of another optimizer are left out
                spans.append(Span(groups[id(p)], p, first, p.numel()))
            first += p.numel()
        return spans

    def _add(
        self, where: int, buffer: torch.Tensor, layout: list[Span], begin: int, end: int
    ) -> None:
        """Adds the norms of elements [begin, end) of a bucket."""
        cuts = [
            (span, max(span.first, begin), min(span.first + span.n, end))
            for span in layout
            if span.first < end and begin < span.first + span.n
        ]
        if not is_host(buffer):
            self._there.append(self._add_there(where, buffer, cuts))
            return
        found = self._squares(buffer, cuts)
        with self._lock:  # several threads reduce buckets
            for group, value in found.items():
                self._sums[where + group] += value

    def _second(self, span: Span, dtype: torch.dtype) -> Any:
        """The divisor of a parameter's gradient, flat as that is; None: it is not
        divided, or the divisor does not match.
        """
        by = self._whiten(self._optimizer.param_groups[span.group], span.parameter)
        if by is None or by[0].dtype != dtype or by[0].shape != span.parameter.shape:
            return None
        return flatten(by[0], span.parameter), by[1], by[2]

    def _squares(self, flat: torch.Tensor, cuts: list[Cut]) -> dict[int, float]:
        """Squared norms of host memory, by group; neighbours without a divisor
        are handled as one.
        """
        size, start = flat.element_size(), flat.data_ptr()
        rows: dict[int, list[tuple[int, int, int, float, float]]] = {}
        keepalive = []  # keeps tensors alive: rows have only addresses
        for span, first, last in cuts:
            row = rows.setdefault(span.group, [])
            by = self._second(span, flat.dtype)
            at, n = start + first * size, last - first
            if by is not None:
                keepalive.append(by[0])
                row.append((at, n, by[0].data_ptr() + (first - span.first) * size, by[1], by[2]))
            elif row and row[-1][2] == 0 and row[-1][0] + row[-1][1] * size == at:
                row[-1] = (row[-1][0], row[-1][1] + n, 0, 0.0, 0.0)
            else:
                row.append((at, n, 0, 0.0, 0.0))
        dtype = _coll.DTYPES[flat.dtype]
        return {group: _core.squares(dtype, row) for group, row in rows.items()}

    def _add_there(self, where: int, buffer: torch.Tensor, cuts: list[Cut]) -> torch.Tensor:
        """Norms of a device's memory, computed there, added to the sums of all groups."""
        found = [torch.zeros((), dtype=_SUM, device=buffer.device) for _ in self._sums]
        for span, first, last in cuts:
            values = buffer[first:last].float()
            if (by := self._second(span, buffer.dtype)) is not None:
                part = by[0][first - span.first : last - span.first].float()
                values = values / ((part * by[1]).sqrt() + by[2]).sqrt()
            found[where + span.group] += values.square().sum(dtype=_SUM)
        return torch.stack(found)


def _dims(parameter: torch.Tensor) -> list[int] | None:
    """The parameter's dimensions in the order of its memory (channels_last has another order than
    the dimensions); None: the memory has gaps.
    """
    dims = sorted(range(parameter.dim()), key=lambda dim: -parameter.stride(dim))
    return dims if parameter.permute(dims).is_contiguous() else None


def flatten(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """tensor, flat, in the order in which DDP's buckets have a parameter's
    gradient: that of its memory.
    """
    dims = _dims(parameter)
    return (tensor if dims is None else tensor.permute(dims)).reshape(-1)


def unflatten(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """The inverse of flatten. ``flat``: memory of its own."""
    if _dims(parameter) is None:
        return flat.view(parameter.shape)
    return flat.as_strided(parameter.shape, parameter.stride())


def is_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _bring(sums: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Copies sums to host memory; the copy, and an event after it (None: they
    are there already).
    """
    if not sums.is_cuda:
        return sums.cpu(), None
    values = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=True, device="cpu")
    values.copy_(sums, non_blocking=True)
    return values, torch.cuda.current_stream(sums.device).record_event()


class Parts:
    """Sums of the gradients of a step's parts except the last one, bucket by bucket. They are kept
    out of ``.grad``, where a script would clip incomplete gradients.
    """

    def __init__(self, norms: Norms) -> None:
        self._norms = norms
        self._sums: dict[int, tuple[torch.Tensor, list[Span]]] = {}  # by bucket
        self.first: list[float] | None = None  # norms of the first part alone; []: not usable

    def put(self, index: int, buffer: torch.Tensor, layout: list[Span]) -> None:
        """Adds one part's bucket to the sums, and clears the bucket."""
        if index in self._sums:
            self._sums[index][0].add_(buffer)
        else:
            self._sums[index] = (buffer.clone(), layout)
        buffer.zero_()

    def take(self, index: int, buffer: torch.Tensor) -> None:
        """In the last part: adds the sums of the other parts to a bucket."""
        if index in self._sums:
            buffer.add_(self._sums.pop(index)[0])

    def end(self) -> None:
        """Called after a part: computes the norms of the first part, in host memory."""
        if self.first is None:
            rows = [self._norms.squares(*row) for row in self._sums.values()]
            self.first = [sum(row) for row in zip(*rows, strict=True)]

    def clear(self) -> None:
        """Called when the step is over, whether it was made or not."""
        self._sums.clear()
        self.first = None


class Pair:
    """The gradients of two successive steps: they show the noise of a single rank that has only one
    gradient a step. Used for some pairs only, since the first gradient has to be kept.
    """

    _EVERY = 8  # steps from one pair to the next
    _FIRST = 64  # steps in which every second one begins a pair, so that an estimate is there soon

    def __init__(self, norms: Norms) -> None:
        self._norms = norms
        self._step = 0
        self._seen: dict[int, torch.Tensor] = {}  # buckets of the current step, to be kept
        self._kept: dict[int, torch.Tensor] = {}  # buckets of the step before, if it begins a pair
        self._scale = 0.0  # initial batches in the step before
        self._local: list[float] = []  # norms of the step before
        self._total: list[float] = []  # norms of the mean of both steps

    def see(self, index: int, buffer: torch.Tensor, layout: list[Span]) -> None:
        """Takes a bucket of the current step, before the script can change it."""
        if index == 0:
            self._seen, self._total = {}, [0.0] * self._norms.groups
        if self._kept:
            mean = torch.add(self._kept[index], buffer).div_(2)
            norms = self._norms.squares(mean, layout)
            self._total = [a + b for a, b in zip(self._total, norms, strict=True)]
        elif self._begins(self._step + 1):
            self._seen[index] = buffer.clone()

    def forget(self) -> None:
        """Drops the first step of a pair: the next one does not follow it."""
        self._seen, self._kept = {}, {}

    def next(
        self, own: list[float], square: float, scale: float
    ) -> tuple[list[float], list[float]] | None:
        """The result of a pair once it is complete: mean norms of both gradients,
        and norms of their mean; else None.

        ``own``: norms of this step, which were multiplied by ``square``. ``scale``: initial batches
        in it; the step before must have as many.
        """
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
