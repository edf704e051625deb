"""``adaptdl.goodput``: throughput, efficiency and goodput, by libpawl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pawl import _core
from pawl.elastic import _hints


class PerfParams(NamedTuple):
    """What a step takes; see struct pawl_perf of pawl/adapt.h."""

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
    """``f(nodes, replicas, atomic_bsz, accum_steps)``: numbers, or arrays that broadcast."""

    def __init__(
        self, perf_params: Sequence[float], grad_params: Sequence[float], init_batch_size: int
    ) -> None:
        self._perf = _perf(PerfParams(*perf_params))
        self._noise = (float(grad_params[0]), float(grad_params[1]))
        self._init = int(init_batch_size)

    def __call__(self, *args: Any) -> Any:
        """The same as evaluate."""
        return self.evaluate(*args)

    def evaluate(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, accum_steps: Any = 0
    ) -> Any:
        """Samples a second, of as much worth as those of an initial batch."""
        return _each(self._goodput, num_nodes, num_replicas, atomic_bsz, accum_steps)

    def throughput(
        self, num_nodes: Any, num_replicas: Any, atomic_bsz: Any, accum_steps: Any = 0
    ) -> Any:
        """Samples a second."""
        return _each(self._throughput, num_nodes, num_replicas, atomic_bsz, accum_steps)

    def efficiency(self, batch_size: Any) -> Any:
        """What a sample of such a batch is worth, beside one of an initial batch."""
        return _each(self._efficiency, batch_size)

    def optimize(
        self,
        num_nodes: Any,
        num_replicas: Any,
        max_batch_size: int | None = None,
        atomic_bsz_range: tuple[int | None, int | None] | None = None,
        accumulation: bool = False,
    ) -> tuple[Any, Any, Any]:
        """(goodput, atomic_bsz, accum_steps) of the best batch; 0 where none is within bounds."""
        most = max_batch_size or self._init
        low, high = atomic_bsz_range or (None, None)
        bounds = (self._init, most, low or 1, high or most, accumulation)

        def best(nodes: int, replicas: int) -> tuple[float, int, int]:
            found = _core.batch_choose(self._perf, self._noise, bounds, (nodes, replicas, 0))
            return (found[2], found[0], found[1]) if found else (0.0, 0, 0)

        if np.isscalar(num_nodes) and np.isscalar(num_replicas):
            return best(int(num_nodes), int(num_replicas))  # type: ignore[call-overload]
        rows = [
            best(int(n), int(k))
            for n, k in np.broadcast(num_nodes, num_replicas)  # type: ignore[call-overload]
        ]
        shape = np.broadcast(num_nodes, num_replicas).shape
        goodput, atomic, accum = (
            np.array(column).reshape(shape) for column in zip(*rows, strict=True)
        )
        return goodput, atomic, accum

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
    """The model of step times that fits measured ones best."""
    columns = zip(
        num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time, strict=True
    )
    profiles = [
        ((int(n), int(k), 0), int(m), float(accum), float(optim))
        for n, k, m, accum, optim in columns
    ]
    return PerfParams(**_hints.adaptdl_perf(_core.perf_fit(None, profiles)))
