"""Which tests a run takes: all quick ones, and of the slow ones all, none or one part of four.

A C program is slow if its suite in meson.build is `slow`; a Python test if it is marked so. Which
part a tree gets follows from the hash of its files, so that a change of the tree is a new draw, and
the same tree gives the same run. A part has a test by the hash of the test's own name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from suite import command

PARTS = 4
SLOW = "slow"


@dataclass(frozen=True)
class Choice:
    """What a run takes of the slow tests. ``part``: the number of one of PARTS, or PARTS: none;
    None: all."""

    part: int | None = None

    def takes(self, name: str) -> bool:
        """Whether a slow test of that name is to run."""
        return self.part is None or number(name) % PARTS == self.part

    def variable(self) -> str:
        """The same for tests/python/conftest.py, as PAWL_TEST_SLOW."""
        return "all" if self.part is None else f"{self.part}/{PARTS}"

    def __str__(self) -> str:
        return "all slow tests" if self.part is None else f"slow tests: part {self.part} of {PARTS}"


NONE = Choice(PARTS)


def number(text: str) -> int:
    """The first 8 hexadecimal digits of its SHA-256."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def tree() -> str:
    """A hash of all files as they are: git's of what is committed, and of what differs from it."""
    committed = command.git("rev-parse", "HEAD^{tree}") or ["no tree"]
    changed = command.git("diff", "HEAD") or []
    return "\n".join(committed + changed)


def choose(everything: bool) -> Choice:
    return Choice() if everything else Choice(number(tree()) % PARTS)
