"""Outcomes of checks and tests: counts, and messages."""

from __future__ import annotations

from dataclasses import dataclass, field

FAILURE_LINES_MAX = 200  # lines shown of a failed test's output; the end says most


@dataclass(frozen=True)
class Late:
    """A test that only missed a time limit: nothing was seen to be wrong."""

    stage: str
    name: str  # a C program's name, or pytest's node id
    failed: int  # number of tests it counts as
    text: str  # first failure of the test in full


@dataclass
class Cost:
    """The cost of a test, or of a C program."""

    cpu_s: float = 0.0  # CPU seconds of the test's processes and their descendants
    wall_s: float = 0.0
    executed: int = 0  # processes that imported torch
    forked: int = 0  # processes that were forked with torch in them


@dataclass
class Outcome:
    """The outcome of a stage."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)  # what failed, and its output
    reasons: list[str] = field(default_factory=list)  # why tests were skipped, "where: why"
    late: list[Late] = field(default_factory=list)  # counted as failed until they run again
    costs: dict[str, Cost] = field(default_factory=dict)  # by stage and name

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.reasons += other.reasons
        self.late += other.late
        self.costs |= other.costs

    def summary(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def tail(text: str) -> str:
    """Returns the last lines of an output, with a line that says how many are missing."""
    lines = text.rstrip().splitlines()
    if len(lines) > FAILURE_LINES_MAX:
        lines = [f"… {len(lines) - FAILURE_LINES_MAX} lines …", *lines[-FAILURE_LINES_MAX:]]
    return "\n".join(lines)


def failure(name: str, output: str, failed: int = 1) -> Outcome:
    return Outcome(failed=failed, failures=[f"{name}\n{tail(output)}"])


def late(stage: str, name: str, title: str, output: str, failed: int = 1) -> Outcome:
    """Returns a failure that is to run once more."""
    return Outcome(failed=failed, late=[Late(stage, name, failed, f"{title}\n{tail(output)}")])


def skip(name: str, reason: str) -> Outcome:
    return Outcome(skipped=1, reasons=[f"{name}: {reason}"])
