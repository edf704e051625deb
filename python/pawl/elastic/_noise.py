"""The gradient's noise, told from squared norms of what each rank and all ranks together have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pawl import _core

Moments = tuple[float, float]


class NoiseScale:
    """Averages over steps, one for each group of parameters. See include/pawl/adapt.h."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._differences = False  # they are of successive gradients, of a rank alone
        self._restart()

    def _restart(self) -> None:
        self._averages = [_core.Noise() for _ in range(self._groups)]
        self._whole = _core.Noise()

    def grow(self, groups: int) -> None:
        """Groups of parameters were added: nothing is known of those."""
        self._groups = groups
        self._averages += [_core.Noise() for _ in range(groups - len(self._averages))]

    def add(
        self,
        local: Sequence[float],
        total: Sequence[float],
        count: int,
        scale: float,
        differences: bool = False,
    ) -> bool:
        """What a step tells, of each group of parameters: see struct pawl_gns_step.

        ``differences``: of the gradients of two steps, which is biased, and forgotten once there is
        better. False: a norm is not finite, and nothing is added.
        """
        if self._differences and not differences:
            self._restart()
        if not self._whole.add(sum(local), sum(total), count, scale):
            return False
        self._differences = differences
        for noise, one, all_ in zip(self._averages, local, total, strict=True):
            noise.add(one, all_, count, scale)
        return True

    @property
    def biased(self) -> bool:
        """Whether it is told from successive gradients only."""
        return self._differences

    def of_groups(self) -> list[Moments]:
        """(squared norm, variance of an initial batch), of each group of parameters."""
        return [noise.moments() for noise in self._averages]

    def moments(self) -> Moments:
        """The same of all together."""
        return self._whole.moments()

    def interval(self) -> tuple[float, float] | None:
        """Where the noise scale lies with 95 %, in initial batches; None: it is too early."""
        return self._whole.interval()

    def state_dict(self) -> dict[str, Any]:
        return {
            "averages": [noise.state() for noise in [*self._averages, self._whole]],
            "differences": self._differences,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        *self._averages, self._whole = [_core.Noise(tuple(row)) for row in state["averages"]]
        self._differences = state["differences"]
