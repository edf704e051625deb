"""Waiting in tests, each kind by a name of its own.

What is to happen is awaited by ``program.wait_until``, which raises ``program.Late`` when the time
is over: nothing was seen to be wrong. Here are the other kinds: what must not happen, moments at
random, times that the tested code tells apart, work that is only pretended, and times that must not
be used up. No test sleeps but by one of them (tools/tidy.py).
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

import program

# Times that check_sooner() and sooner_than() are given.
NAMED_S = 60  # whoever ends badly is named long before, to others who would wait for it for 600
SAVE_S = 30  # a save waits so long for storage, its agent or other ranks, and is given up


def eventually(true: Callable[[], object], limit_s: float = program.LIMIT_S) -> bool:
    """For assertions that come true: True, once true() holds. Raises Late after limit_s seconds."""
    program.wait_until(true, "what is asserted", limit_s)
    return True


def stays(true: Callable[[], object], what: str, seconds: float) -> None:
    """Fails as soon as true() does not hold, which it is to do for so many seconds."""
    end = time.monotonic() + seconds
    while True:
        over = time.monotonic() >= end
        assert true(), f"{what}: no more"
        if over:
            return
        time.sleep(0.02)


def catch(true: Callable[[], object], what: str, limit_s: float = program.LIMIT_S) -> None:
    """program.wait_until() of what may hold for a few milliseconds only: it polls without rest."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() >= end:
            raise program.Late(f"{what}: not within {limit_s} s")


def moment(seconds: float) -> None:
    """Lets a time pass. However far others have come by then, what follows must do."""
    time.sleep(seconds)


def any_moment(rng: random.Random, least_s: float, most_s: float) -> None:
    """A moment() at random."""
    moment(rng.uniform(least_s, most_s))


def let_pass(seconds: float) -> None:
    """Lets at least so much pass where the tested code itself measures it: of two signals within a
    second, for example, it takes notice once. Never to let others come to something."""
    time.sleep(seconds)


def pretend_to_work(seconds: float) -> None:
    """Takes the time of a step, a copy or another's work. No test counts on how long it takes."""
    time.sleep(seconds)


def check_sooner(took_s: float, limit_s: float, what: str) -> None:
    """limit_s is a time that the tested code would use up if it waited in vain; took_s was measured
    on a machine that may have stood still. Raises Late if that is not less. Where all waiting times
    are longer (PAWL_TEST_TIMES), so is limit_s."""
    if took_s >= limit_s * program.SCALE:
        raise program.Late(f"{what}: {took_s:.1f} s, not within {limit_s * program.SCALE:g} s")


@contextlib.contextmanager
def sooner_than(limit_s: float, what: str) -> Iterator[None]:
    """check_sooner() of what the block takes."""
    began = time.monotonic()
    yield
    check_sooner(time.monotonic() - began, limit_s, what)
