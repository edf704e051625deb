"""A job's measurements of its own speed, and the batch that is best by them."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pawl import _core
from pawl.elastic import _hints, _states

if TYPE_CHECKING:
    from pawl.elastic._model import AdaptiveDataParallel

_REFIT: Final = "PAWL_ELASTIC_REFIT"  # seconds between two searches for a better batch
_REFIT_S: Final = 30.0
# First pause, relative to _REFIT, at first and after ranks changed; doubles up to it.
_FIRST: Final = 1 / 32
_EARLY: Final = 16  # steps after which the noise is known, if it can be known at all
_BETTER: Final = 1.05  # ratio of goodputs from which on a change is worth it

Key = tuple[tuple[int, int, int], int]  # a place, and an atomic batch


@dataclass(frozen=True)
class Choice:
    """The result of a search for a better batch."""

    batch: tuple[int, int] | None  # atomic, accum; None: unchanged
    goodput: float | None  # predicted goodput from now on; None: not known
    why: str


class Metrics(_states.State):
    """Times of steps, the fit to them, and the worth of the work done. The same at all ranks."""

    def __init__(self) -> None:
        super().__init__("adaptdl-metrics")
        self.progress = 0.0  # in steps of an initial batch
        self.steps = 0  # number of steps, of any batch
        self.samples = 0  # samples in steps of this run
        self.perf: _core.Perf | None = None
        self._profile: dict[Key, list[float]] = {}  # steps, seconds of gradients, seconds of steps
        self._models: list[AdaptiveDataParallel] = []
        self._refit_s = float(os.environ.get(_REFIT) or _REFIT_S)
        self._pause_s = _FIRST * self._refit_s  # pause before the next search
        self._refit_due = time.monotonic() + self._pause_s
        self._since = (0, time.monotonic())  # step and time when ranks had last gone or come
        _states.load_state(self)

    def enroll(self, model: AdaptiveDataParallel) -> None:
        """Adds a model that is trained."""
        self._models.append(model)

    def advance(self, gain: float, samples: int) -> None:
        """Counts a step."""
        self.progress += gain
        self.steps += 1
        self.samples += samples

    def moments(self) -> _core.Moments:
        """The moments of all models together."""
        sqr, var = zip(*(model.noise.moments() for model in self._models), strict=True)
        return sum(sqr), sum(var)

    def _sure_moments(self) -> _core.Moments:
        """The moments for a choice. While it is not certain that there is a noise scale, by far the
        largest batch would seem the best; so then the least noise scale that is likely.
        """
        limits = self.noise_interval()
        if limits is not None and math.isinf(limits[1]):
            return 1.0, limits[0]
        return self.moments()

    def noise_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the noise scale, in initial batches; None: it is too
        early, or there are several models.
        """
        return self._models[0].noise.interval() if len(self._models) == 1 else None

    def is_early(self) -> bool:
        """Whether the error of the noise scale is not known yet, but will be in a
        few more steps.
        """
        steps, at_s = self._since
        few = self.steps < steps + _EARLY and time.monotonic() < at_s + self._refit_s
        return few and len(self._models) == 1 and self.noise_interval() is None

    def record(self, place: _core.Place, atomic: int, grad_s: float, step_s: float) -> None:
        """Records a step's times: of its last gradient alone, and with the reduction beside it."""
        row = self._profile.setdefault((place, atomic), [0.0, 0.0, 0.0])
        for i, value in enumerate((1.0, grad_s, step_s)):
            row[i] += value

    def fit(self) -> bool:
        """Fits the model of step times to the measured ones. False: there are none yet."""
        profiles = [
            (place, atomic, grad / n, step / n)
            for (place, atomic), (n, grad, step) in self._profile.items()
        ]
        if profiles:
            self.perf = _core.perf_fit(self.perf, profiles)
        return bool(profiles)

    def is_due(self) -> bool:
        """Whether it is time to look for a better batch."""
        now = time.monotonic()
        if now < self._refit_due:
            return False
        self._refit_due = now + self._pause_s
        if not self.is_early():
            self._pause_s = min(2 * self._pause_s, self._refit_s)
        return True

    def report_fit(self, bounds: tuple[int, int, int, int, bool], remaining: float | None) -> None:
        """Reports the last fit to a scheduler, if there is one. ``remaining``: see _hints.make."""
        assert self.perf is not None
        replicas = max(place[1] for place, _ in self._profile)
        _hints.post(
            _hints.make(
                self.perf,
                self._sure_moments(),
                bounds,
                replicas,
                self.noise_interval(),
                self.progress,
                remaining,
            )
        )

    def hurry(self) -> None:
        """Called when ranks have gone or come: the best batch may be another one,
        and speeds with so many ranks are new.
        """
        self._pause_s = _FIRST * self._refit_s
        self._refit_due = time.monotonic()
        self._since = (self.steps, self._refit_due)

    def choose(
        self,
        bounds: tuple[int, int, int, int, bool],
        place: _core.Place,
        now: tuple[int, int],
    ) -> Choice:
        """The best batch, if it is much better than ``now``."""
        assert self.perf is not None
        noise = self._sure_moments()
        best = _core.batch_choose(self.perf, noise, bounds, place)
        was = _core.goodput(self.perf, noise, bounds[0], place, now)
        if best is None:
            return Choice(None, was, "so many ranks can have no batch within the bounds")
        atomic, accum, worth = best
        if (atomic, accum) == now:
            return Choice(None, was, "it is the best")
        better = f"{100 * (worth / was - 1):.2g} % better" if was > 0 else "better"
        if worth > was * _BETTER:
            return Choice(
                (atomic, accum), worth, f"{better} than {place[1] * now[0] * (now[1] + 1)}"
            )
        other = place[1] * atomic * (accum + 1)
        return Choice(None, was, f"{other} would be {better} only")

    def save(self, fileobj: _states.Writer) -> None:
        rows = [[place, atomic, row] for (place, atomic), row in self._profile.items()]
        fileobj.write(json.dumps([self.progress, self.steps, self.perf, rows]).encode())

    def load(self, fileobj: _states.Reader) -> None:
        self.progress, self.steps, perf, rows = json.loads(fileobj.read())
        self.perf = tuple(perf) if perf else None
        self._profile = {(tuple(place), atomic): row for place, atomic, row in rows}


def write_scalars(writer: Any, values: dict[str, float], step: int, prefix: str) -> None:
    """Writes values to a SummaryWriter of TensorBoard, under a prefix, if there is
    one; it may end with "/".
    """
    prefix = prefix.rstrip("/")
    for name, value in values.items():
        writer.add_scalar(f"{prefix}/{name}" if prefix else name, value, step)


_current: Metrics | None = None


def current() -> Metrics:
    """The metrics of this process's job."""
    global _current
    if _current is None:
        _current = Metrics()
    return _current
