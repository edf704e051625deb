"""The gradient's noise, told from squared norms of what each rank and all ranks together have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from pawl import _core

Moments = tuple[float, float]
_FIELDS: Final = 8  # of struct pawl_gns


def _with_age(row: Sequence[float]) -> tuple[float, ...]:
    """As saved before averages knew their age: all weighed 0.999 to the power of it."""
    return (-1000 * math.log1p(-min(row[0], 1 - 1e-9)), *row)


class NoiseScale:
    """Averages over steps, one for each group of parameters. See include/pawl/adapt.h.

    What they tell is the same, however many ranks there are: so they go on where those are others.
    """

    def __init__(self, groups: int) -> None:
        self._differences = False  # of what was told last
        self._averages = [_core.Noise() for _ in range(groups)]
        self._whole = _core.Noise()

    def grow(self, groups: int) -> None:
        """Groups of parameters were added: nothing is known of those."""
        self._averages += [_core.Noise() for _ in range(groups - len(self._averages))]

    def age(self, scale: float) -> None:
        """A step was made, of so many initial batches: before what it tells."""
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
        """What a step tells, of each group of parameters: see struct pawl_gns_step.

        ``differences``: of the gradients of two steps, of a rank alone, which is biased: the second
        one knows of the first one's noise, so that the gradient's norm seems less. False: a norm is
        not finite, and nothing is added.
        """
        if not self._whole.add(sum(local), sum(total), count, scale):
            return False
        self._differences = differences
        for noise, one, all_ in zip(self._averages, local, total, strict=True):
            noise.add(one, all_, count, scale)
        return True

    @property
    def biased(self) -> bool:
        """Whether it was told from successive gradients last."""
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
        rows = [row if len(row) == _FIELDS else _with_age(row) for row in state["averages"]]
        *self._averages, self._whole = [_core.Noise(tuple(row)) for row in rows]
        self._differences = state["differences"]
