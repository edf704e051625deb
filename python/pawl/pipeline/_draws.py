"""Random numbers of units: by seed, step, microbatch, a module's path, and how often it was called.

So they do not depend on the rank that draws them. Where activations are computed again, the module
draws what it drew in the forward pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch

from pawl.errors import PawlError, error

_NEVER, _FIRST, _AGAIN = 0, 1, 2  # whether the unit that runs draws random numbers
_DRAWS_BITS: Final = 32  # low bits of a seed, which are the number of a draw in its step


class _Draw(NamedTuple):
    """A module that drew random numbers."""

    path: str
    microbatch: int
    visit: int
    inner: list[tuple[str, int]]  # path and visit of the modules in it that drew, in order


def hash64(text: str) -> int:
    """64 bits that depend on a text alone, to seed a generator."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Draws:
    """Of one rank. Set ``microbatch`` before each call that may draw."""

    def __init__(self, seed: str, device: torch.device) -> None:
        self.microbatch = 0
        # The device's own random numbers, if it has any.
        self._random = None if device.type == "cpu" else torch.get_device_module(device)
        self._seed = seed
        self._step = 0
        self._drawn: list[_Draw] = []  # draws in this step
        self._within: _Draw | None = None  # the draw that runs
        self._inner = 0  # how many draws in it have begun
        self._doing = _NEVER
        self._mark = 0  # seed of torch's generator before the first draw
        self._visits: dict[tuple[int, str], int] = {}  # calls of modules that draw, in this step

    def begin(self, step: int, rank: int) -> None:
        """Prepares for a step."""
        self._step = step
        mark = self._hash(f"draws of stage {rank}") >> (2 + _DRAWS_BITS)
        self._mark = mark << _DRAWS_BITS

    def end(self) -> None:
        """Forgets what the step drew."""
        self._visits.clear()
        self._drawn.clear()

    def drawing(self, path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward of a module that draws random numbers, with a stream of its own."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            if self._doing == _NEVER:
                return forward(*args, **kwargs)
            if self._within is not None:
                with self.stream(path, self._inner_visit(path, self._within)):
                    return forward(*args, **kwargs)
            if self._doing == _AGAIN:
                number = self._number_again(path)
            else:
                number = len(self._drawn)
                self._drawn.append(_Draw(path, self.microbatch, self._visit(path), []))
            self._within, self._inner = self._drawn[number], 0
            try:
                with self.stream(path, self._within.visit):
                    found = forward(*args, **kwargs)
            finally:
                self._within = None
            torch.default_generator.manual_seed(self._mark + number + 1)
            return found

        return draw

    def _visit(self, path: str) -> int:
        place = self.microbatch, path
        visit = self._visits[place] = self._visits.get(place, 0) + 1
        return visit

    def _inner_visit(self, path: str, outer: _Draw) -> int:
        """The visit of a module that draws within another one that does."""
        if self._doing == _FIRST:
            outer.inner.append((path, self._visit(path)))
        self._inner += 1
        if self._inner > len(outer.inner) or outer.inner[self._inner - 1][0] != path:
            raise self._unlike(path)
        return outer.inner[self._inner - 1][1]

    @contextmanager
    def counted(self, draws: bool, again: bool = False) -> Iterator[None]:
        """Around a pass of a unit. ``draws``: whether it draws. ``again``: where its backward pass
        computes activations again (checkpoint), it draws what it drew then. Between draws, the seed
        of torch's generator is the number of the next one, since a checkpoint puts that back.
        """
        if not draws:
            yield
            return
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(self._mark + (-1 if again else len(self._drawn)))
        self._doing = _AGAIN if again else _FIRST
        try:
            yield
        finally:
            self._doing = _NEVER
            torch.set_rng_state(state)

    def _number_again(self, path: str) -> int:
        """The number of the draw that a module repeats."""
        number = torch.default_generator.initial_seed() - self._mark
        if 0 <= number < len(self._drawn):
            was = self._drawn[number]
            if (was.path, was.microbatch) == (path, self.microbatch):
                return number
        raise self._unlike(path)

    @staticmethod
    def _unlike(path: str) -> PawlError:
        return error(
            "PAWL_ENOTSUP",
            f"pipeline: {path} draws random numbers where activations are computed again, and they "
            "would not be those of the forward pass; use "
            "torch.utils.checkpoint.checkpoint(..., preserve_rng_state=True, use_reentrant=False)",
        )

    def _hash(self, name: str) -> int:
        """64 bits, for this step."""
        return hash64(f"{self._seed}/{self._step}/{name}")

    @contextmanager
    def stream(self, name: str, visit: int) -> Iterator[None]:
        """Random numbers that depend on what is computed, not on where: on the seed, the step, the
        microbatch, the module's path, and how often it was called for this microbatch. 0: those
        of torch's generator as it is.
        """
        if visit == 0:
            yield
            return
        seed = self._hash(f"{self.microbatch}/{name}/{visit}") >> 1
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(seed)
        if self._random is not None:
            device_state = self._random.get_rng_state()
            self._random.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(state)
            if self._random is not None:
                self._random.set_rng_state(device_state)
