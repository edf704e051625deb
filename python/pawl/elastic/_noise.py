"""The gradient's noise, estimated from squared norms of each rank's gradients and of their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from pawl import _core

Moments = tuple[float, float]
_FIELDS: Final = 8  # number of fields of struct pawl_gns


def _with_age(row: Sequence[float]) -> tuple[float, ...]:
    """Converts a row saved before averages had an age: all steps had the weight 0.999."""
    return (-1000 * math.log1p(-min(row[0], 1 - 1e-9)), *row)


class NoiseScale:
    """Averages over steps, one for each group of parameters. See include/pawl/adapt.h.

    The estimates do not depend on the number of ranks, so they continue when it changes.
    """

    def __init__(self, groups: int) -> None:
        self._differences = False  # True: the last step was estimated from successive gradients
        self._averages = [_core.Noise() for _ in range(groups)]
        self._whole = _core.Noise()

    def grow(self, groups: int) -> None:
        """Called when groups of parameters were added, of which nothing is known yet."""
        self._averages += [_core.Noise() for _ in range(groups - len(self._averages))]

    def age(self, scale: float) -> None:
        """Counts a step of ``scale`` initial batches; call it before add."""
        for noise in (*self._averages, self._whole):
            noise.age(scale)

    def add(
        self,
        local: Sequence[float],
        total: Sequence[float],
        count: float,
        scale: float,
        differences: bool = False,
    ) -> bool:
        """Adds the norms of a step, for each group of parameters: see struct pawl_gns_step.

        ``differences``: the gradients are those of two steps, of a single rank. That is biased: the
        second step depends on the first one's noise, so the gradient's norm seems smaller. Returns
        False if a norm is not finite; nothing is added then.
        """
        if not self._whole.add(sum(local), sum(total), count, scale):
            return False
        self._differences = differences
        for noise, one, all_ in zip(self._averages, local, total, strict=True):
            noise.add(one, all_, count, scale)
        return True

    @property
    def biased(self) -> bool:
        """Whether the last estimate was made from successive gradients."""
        return self._differences

    def of_groups(self) -> list[Moments]:
        """(squared norm, variance of an initial batch) of each group of parameters."""
        return [noise.moments() for noise in self._averages]

    def moments(self) -> Moments:
        """(squared norm, variance of an initial batch) of all groups together."""
        return self._whole.moments()

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the noise scale, in initial batches; None: it is too early."""
        return self._whole.interval()

    def state_dict(self) -> dict[str, Any]:
        return {
            "averages": [noise.state() for noise in [*self._averages, self._whole]],
            "differences": self._differences,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rows = [row if len(row) == _FIELDS else _with_age(row) for row in state["averages"]]
        *self._averages, self._whole = [_core.Noise(tuple(row)) for row in rows]
        self._differences = state["differences"]
