"""Waiting in tests, each kind by a name of its own.

Events that must happen are awaited by ``program.wait_until``, which raises ``program.Late`` when
the time is over: nothing was seen to be wrong. Here are the other kinds: events that must not
happen, moments at random, times that the tested code distinguishes, pretended work, and
times that must not be used up. No test sleeps except by one of these (tools/tidy.py).
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator

import program

# Times for check_sooner() and sooner_than().
NAMED_S = 60  # seconds; a rank that ends badly is named long before, to others that would wait 600
SAVE_S = 30  # seconds that a save waits for storage, its agent or other ranks before it gives up


def eventually(true: Callable[[], object], limit_s: float = program.LIMIT_S) -> bool:
    """Returns True, for assertions, once true() holds. Raises Late after limit_s seconds."""
    program.wait_until(true, "what is asserted", limit_s)
    return True


def stays(true: Callable[[], object], what: str, seconds: float) -> None:
    """Fails as soon as true() does not hold; it must hold for that many seconds."""
    end = time.monotonic() + seconds
    while True:
        over = time.monotonic() >= end
        assert true(), f"{what}: no more"
        if over:
            return
        time.sleep(0.02)


def catch(true: Callable[[], object], what: str, limit_s: float = program.LIMIT_S) -> None:
    """Works like program.wait_until() for conditions that may hold for a few milliseconds only: it
    polls without rest."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() >= end:
            raise program.Late(f"{what}: not within {limit_s} s")


def moment(seconds: float) -> None:
    """Lets some time pass. However far others have come by then, the code that follows must
    work."""
    time.sleep(seconds)


def any_moment(rng: random.Random, least_s: float, most_s: float) -> None:
    """Lets a time at random pass, as moment() does."""
    moment(rng.uniform(least_s, most_s))


def let_pass(seconds: float) -> None:
    """Lets at least that much time pass where the tested code itself measures it: it counts two
    signals within a second as one, for example. Must not be used to wait until others have done
    something."""
    time.sleep(seconds)


def pretend_to_work(seconds: float) -> None:
    """Takes the time of a step, a copy or another's work. No test counts on its length."""
    time.sleep(seconds)


def check_sooner(took_s: float, limit_s: float, what: str) -> None:
    """Checks that took_s is less than limit_s, a time that the tested code would use up if it
    waited in vain; took_s was measured on a machine that may have stood still. Raises Late if not.
    limit_s is scaled where all waiting times are longer (PAWL_TEST_TIMES)."""
    if took_s >= limit_s * program.SCALE:
        raise program.Late(f"{what}: {took_s:.1f} s, not within {limit_s * program.SCALE:g} s")


@contextlib.contextmanager
def sooner_than(limit_s: float, what: str) -> Iterator[None]:
    """Calls check_sooner() with the time that the block takes."""
    began = time.monotonic()
    yield
    check_sooner(time.monotonic() - began, limit_s, what)
