"""The tests of a run: all quick ones, and of the slow ones all, none or one part of eight.

A C program is slow if its suite in meson.build is `slow`; a Python test if it is marked so. The
part of a tree follows from the hash of its files, so that a change of the tree is a new draw, and
the same tree gives the same run. A test belongs to a part by the hash of its own name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from suite import command

PARTS = 8
SLOW = "slow"


@dataclass(frozen=True)
class Choice:
    """The slow tests that a run takes. ``part``: the number of one of PARTS; PARTS: none; None:
    all."""

    part: int | None = None

    def takes(self, name: str) -> bool:
        """Whether a slow test of that name runs."""
        return self.part is None or number(name) % PARTS == self.part

    def variable(self) -> str:
        """Returns the choice as PAWL_TEST_SLOW, for tests/python/conftest.py."""
        return "all" if self.part is None else f"{self.part}/{PARTS}"

    def __str__(self) -> str:
        return "all slow tests" if self.part is None else f"slow tests: part {self.part} of {PARTS}"


NONE = Choice(PARTS)


def number(text: str) -> int:
    """Returns the first 8 hexadecimal digits of a name's SHA-256 as a number."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def tree() -> str:
    """Returns a hash of all files as they are: git's of committed files, and that of the
    differences."""
    committed = command.git("rev-parse", "HEAD^{tree}") or ["no tree"]
    changed = command.git("diff", "HEAD") or []
    return "\n".join(committed + changed)


def choose(everything: bool) -> Choice:
    return Choice() if everything else Choice(number(tree()) % PARTS)
