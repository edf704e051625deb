"""``adaptdl.goodput``: throughput, efficiency and goodput, by libpawl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pawl import _core
from pawl.elastic import _hints

_ROUNDING = 1e-8  # rounding error allowed in a quotient that should be whole
_BATCHES = 50  # number of batches that are compared


class PerfParams(NamedTuple):
    """Parameters of the time of a step; see struct pawl_perf of pawl/adapt.h."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float


class GradParams(NamedTuple):
    """The gradient's squared norm, and its variance in an initial batch."""

    sqr: float
    var: float


def _perf(params: PerfParams) -> _core.Perf:
    return tuple(getattr(params, name, 0.0) for name in _hints.PERF)


class GoodputFunction:
    """Called as ``f(nodes, replicas, atomic_bsz, accum_steps)``: numbers, or
    arrays that broadcast.
    """

    def __init__(
        self, perf_params: Sequence[float], grad_params: Sequence[float], init_batch_size: int
    ) -> None:
        self._perf = _perf(PerfParams(*perf_params))
        self._noise = (float(grad_params[0]), float(grad_params[1]))
        self._init = int(init_batch_size)

    def __call__(self, *args: Any) -> Any:
        """Does the same as evaluate."""
        return self.evaluate(*args)

    def evaluate(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, accum_steps: Any = 0
    ) -> Any:
        """Samples a second, weighted by their worth in an initial batch."""
        return _each(self._goodput, num_nodes, num_replicas, atomic_bsz, accum_steps)

    def throughput(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, accum_steps: Any = 0
    ) -> Any:
        """Samples a second."""
        return _each(self._throughput, num_nodes, num_replicas, atomic_bsz, accum_steps)

    def efficiency(self, batch_size: Any) -> Any:
        """The worth of a sample of such a batch, relative to one of an initial batch."""
        return _each(self._efficiency, batch_size)

    def optimize(
        self,
        num_nodes: Any,
        num_replicas: Any,
        max_batch_size: int | None = None,
        atomic_bsz_range: tuple[int | None, int | None] | None = None,
        accumulation: bool = False,
    ) -> tuple[Any, Any, Any]:
        """(goodput, atomic_bsz, accum_steps) of the best of 50 batches.

        The batches go from the initial one to ``max_batch_size`` (default the initial one) in equal
        ratios. They are rounded as by AdaptDL: up, so that a batch may exceed the maximum by a
        sample for each replica, and to the nearer bound where an atomic batch is not within
        ``atomic_bsz_range``. One replica has the initial batch unless it may accumulate.
        """
        most = self._init if max_batch_size is None else int(max_batch_size)
        low, high = atomic_bsz_range or (None, None)
        low, high = low or 1, high or most
        if not 1 <= self._init <= most:
            raise ValueError(
                f"max_batch_size={most}: must be at least the initial one, {self._init}"
            )
        nodes, replicas = np.broadcast_arrays(num_nodes, num_replicas)
        each = np.geomspace(np.maximum(self._init, low * replicas), most, _BATCHES) / replicas
        accum = np.zeros(each.shape, dtype=int)
        atomic = np.where(replicas == 1, self._init, np.ceil(each - _ROUNDING))
        if accumulation:
            parts = np.ceil(each / high - _ROUNDING)
            # The noise could not be measured otherwise.
            alone = (replicas == 1) & (each > self._init + _ROUNDING)
            parts = np.maximum(parts, np.where(alone, 2, 1))
            atomic, accum = np.ceil(each / parts - _ROUNDING), (parts - 1).astype(int)
        atomic = np.clip(atomic, low, high).astype(int)
        worth = np.asarray(self.evaluate(nodes, replicas, atomic, accum))
        best = worth.argmax(0)[None]
        found = [np.take_along_axis(rows, best, 0)[0] for rows in (worth, atomic, accum)]
        if nodes.ndim == 0:
            return float(found[0]), int(found[1]), int(found[2])
        return found[0], found[1], found[2]

    def _goodput(self, nodes: float, replicas: float, atomic: float, accum: float) -> float:
        place = (int(nodes), int(replicas), 0)
        return _core.goodput(self._perf, self._noise, self._init, place, (int(atomic), int(accum)))

    def _throughput(self, nodes: float, replicas: float, atomic: float, accum: float) -> float:
        place, batch = (int(nodes), int(replicas), 0), (int(atomic), int(accum))
        samples = place[1] * batch[0] * (batch[1] + 1)
        return samples / _core.step_s(self._perf, place, batch)

    def _efficiency(self, batch_size: float) -> float:
        scale = float(batch_size) / self._init
        return _core.gain(self._noise, scale) / scale


def _each(function: Any, *args: Any) -> Any:
    found = np.vectorize(function, otypes=[float])(*args)
    return float(found) if found.ndim == 0 else found


def fit_perf_params(
    num_nodes: Sequence[int],
    num_replicas: Sequence[int],
    atomic_bsz: Sequence[int],
    accum_step_time: Sequence[float],
    optim_step_time: Sequence[float],
) -> PerfParams:
    """The model of step times that fits the measured ones best."""
    columns = zip(
        num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time, strict=True
    )
    profiles = [
        ((int(n), int(k), 0), int(m), float(accum), float(optim))
        for n, k, m, accum, optim in columns
    ]
    return PerfParams(**_hints.adaptdl_perf(_core.perf_fit(None, profiles)))
