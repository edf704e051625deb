#!/usr/bin/env python3
"""Runs the checks and tests of the project in stages, and reports what passed, failed and was
skipped.

Stages: lint; gcc (build, C tests); asan (clang, address and undefined-behaviour sanitizers); tsan
(clang, thread sanitizer); python (pytest against the installed package); in full and long runs also
the Python tests on other releases of torch (tools/torches.txt): oldest (some), newest (all). The
compilers and clang-tidy work ahead, on cores that waiting tests leave idle. A test that runs in
three builds counts three times; a lint tool counts once; a build counts only when it fails.

A run takes all quick tests and an eighth of the slow ones, by the hash of the files (--full: all).
A test that only missed a time limit runs once more, alone, after the others, with four times its
waiting times; if it passes then, it is listed and counts as passed. More than three of these fail
the run. The last line is `N passed, N failed, N skipped`; the exit status is 1 if anything failed.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite import c_tests, lint, py_tests, records, tiers
from suite.ahead import Ahead
from suite.command import BUILD
from suite.cpu import CpuMeter
from suite.outcome import Late, Outcome
from suite.stalls import StallMeter

SECOND_RUNS_MAX = 3  # tests that may pass on their second run; with more, the whole run has failed
LATE_MAX = 10  # late tests that run again; with more, the machine is at fault


def say(text: str) -> None:
    print(text, flush=True)  # the output of the stages' programs must not overtake it


class Suite:
    """A run: its options, its meters, and its outcome."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.long: bool = arguments.long
        self.full: bool = arguments.full or arguments.long
        self.name: str = arguments.k
        self.choice = tiers.choose(self.full or bool(self.name))
        self.meter = StallMeter()
        self.cpu = CpuMeter()
        self.stages: dict[str, Outcome] = {}
        self.second: list[str] = []  # passed on their second run: the first failure

    def work_ahead(self, names: list[str]) -> Ahead:
        """Begins to compile, and then clang-tidy, for these stages."""
        jobs = {
            n: partial(c_tests.compile_c, c_tests.BUILDS[n]) for n in names if n in c_tests.BUILDS
        }
        if "lint" in names:
            jobs["clang-tidy"] = partial(lint.run_clang_tidy, self.long)
        return Ahead(jobs)

    def run_stage(self, name: str, ahead: Ahead) -> Outcome:
        if name == "lint":
            return lint.run_lint(full=self.full)
        if name in c_tests.BUILDS:
            build = c_tests.BUILDS[name]
            outcome = ahead.take(name)
            if outcome.failed:
                return outcome
            if name == "gcc" and not self.name:
                outcome.add(records.compare_inventory(records.count_c(), "c"))
                outcome.add(records.check_quick_c(c_tests.list_programs(build)))
            outcome.add(c_tests.run_c(build, self.long, self.choice, self.meter, self.name))
            return outcome
        torch = TORCHES[name]
        outcome = py_tests.run_python(self.long, self.choice, self.meter, self.name, torch)
        if torch is py_tests.OURS and not self.name and not self.long:
            outcome.add(records.compare_inventory(records.count_python(), "python"))
            outcome.add(records.check_quick())
        return outcome

    def run(self, names: list[str]) -> None:
        """Runs the stages one after another. The CPU seconds of each are those of all processes
        meanwhile, also of those that work ahead."""
        ahead = self.work_ahead(names)
        lines = []
        for name in names:
            say(f"\n==== {name}")
            start, cpu_s = time.monotonic(), self.cpu.seconds()
            outcome = self.run_stage(name, ahead)
            if not self.name:
                outcome.add(records.check_skips(name, outcome))
            wall_s, cpu_s = time.monotonic() - start, self.cpu.seconds() - cpu_s
            line = f"{name:8} {wall_s:7.1f} s {cpu_s:7.1f} CPU-s   {outcome.summary()}"
            say(f"---- {line}")
            lines.append(line)
            self.stages[name] = outcome
        if "lint" in names:
            self.stages["lint"].add(ahead.take("clang-tidy"))
        records.remember({k: c for o in self.stages.values() for k, c in o.costs.items()})
        say("\n==== stages\n" + "\n".join(lines))

    def run_late(self) -> None:
        """Gives each test that was only late its second run, and decides how it counts."""
        late = [test for outcome in self.stages.values() for test in outcome.late]
        if late:
            say(f"\n==== late, {len(late)}")
        for test in late:
            outcome = self.stages[test.stage]
            again = self.run_again(test) if len(late) <= LATE_MAX else Outcome(failed=1)
            say(f"---- {test.stage}: {test.name}: again: {again.summary()}")
            if again.failed:
                texts = "\n".join(again.failures + [t.text for t in again.late])
                outcome.failures.append(f"{test.text}\n-- and on its second run:\n{texts}")
            else:
                outcome.failed -= test.failed
                outcome.passed += test.failed
                self.second.append(test.text)

    def run_again(self, test: Late) -> Outcome:
        if test.stage in TORCHES:
            return py_tests.run_again(test.name, self.long, TORCHES[test.stage])
        return c_tests.run_again(c_tests.BUILDS[test.stage], test.name, self.long)

    def total(self) -> Outcome:
        total = Outcome()
        for outcome in self.stages.values():
            total.add(outcome)
        if len(self.second) > SECOND_RUNS_MAX:
            total.failed += 1
            text = f"{len(self.second)} tests passed on their second run only"
            total.failures.append(f"{text}: at most {SECOND_RUNS_MAX} may")
        return total


def report(total: Outcome, second: list[str]) -> None:
    if total.reasons:
        say("\n==== skipped, and why")
        for reason in total.reasons:
            say(f"  {reason}")
    if second:
        say("\n==== passed on second run")
        for text in second:
            say(text + "\n")
    if total.failures:
        say("\n==== failed")
        for text in total.failures:
            say(text + "\n")
    say("")
    if second:
        say(f"{len(second)} passed on second run")
    say(total.summary())


def list_tests() -> None:
    """Prints each test's tier and its last cost."""
    costs = records.known_costs()
    rows = [
        (f"python: {node}", tier) for node, tier in records.read_json(records.COLLECTED).items()
    ]
    for build in c_tests.BUILDS.values():
        if not c_tests.configure(build):
            programs = c_tests.list_programs(build)
            rows += [(f"{build.name}: {n}", "slow" if s else "quick") for n, s in programs.items()]
    say("tier    CPU s   wall s  processes with torch: executed, forked   test")
    for name, tier in rows:
        cost = costs.get(name)
        if cost is None:
            say(f"{tier:6}      -        -    -    -  {name}")
        else:
            counts = f"{cost.executed:4} {cost.forked:4}"
            say(f"{tier:6} {cost.cpu_s:6.1f} {cost.wall_s:8.1f} {counts}  {name}")


TORCHES = {py_tests.STAGE: py_tests.OURS, **py_tests.torches()}
STAGES: tuple[str, ...] = ("lint", *c_tests.BUILDS, *TORCHES)


def stages_of(arguments: argparse.Namespace) -> list[str]:
    """Returns the stages of a run that names none."""
    levels = {"test"}
    if arguments.full or arguments.long:
        levels.add("full")
    if arguments.long:
        levels.add("long")
    return [name for name in STAGES if name not in TORCHES or TORCHES[name].level in levels]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs the project's checks and tests.")
    parser.add_argument("--full", action="store_true", help="all slow tests; logged in full.log")
    parser.add_argument("--long", action="store_true", help="all slow tests, and the long ones")
    parser.add_argument("--only", action="append", choices=STAGES, help="this stage (repeatable)")
    parser.add_argument("-k", default="", metavar="NAME", help="only tests of this name")
    parser.add_argument("--list", action="store_true", help="tier and cost of each test")
    parser.add_argument(
        "--record", action="store_true",
        help="write tests/inventory.txt and tests/times.json from the last full run",
    )  # fmt: skip
    return parser.parse_args()


def main() -> int:
    arguments = read_arguments()
    if arguments.long:
        os.environ["PAWL_LONG"] = "1"
    # The bin folder of the .venv: its python is a link, which must not be resolved.
    tools = Path(sys.executable).parent
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    seed = os.environ.setdefault("PAWL_TEST_SEED", str(random.SystemRandom().randrange(1 << 32)))
    c_tests.share_cache()
    # Each process would compile what it imports, and pytest the tests' assertions.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    BUILD.mkdir(exist_ok=True)
    actions: dict[str, Callable[[], None]] = {"list": list_tests, "record": records.record}
    for option, act in actions.items():
        if getattr(arguments, option):
            act()
            return 0
    suite = Suite(arguments)
    say(f"PAWL_TEST_SEED={seed}; {suite.choice}")
    began = time.monotonic()
    suite.run(arguments.only or stages_of(arguments))
    suite.run_late()
    suite.meter.stop()
    total = suite.total()
    wall_s, cpu_s = time.monotonic() - began, suite.cpu.seconds()
    suite.cpu.close()
    executed = sum(cost.executed for cost in total.costs.values())
    forked = sum(cost.forked for cost in total.costs.values())
    say(f"all      {wall_s:7.1f} s {cpu_s:7.1f} CPU-s   {total.summary()}")
    say(f"processes with torch: {executed} that imported it, {forked} forked with it")
    say(f"machine: {suite.meter.summary()}")
    if suite.full and not suite.name and not arguments.only:
        records.log_full(suite.stages, len(suite.second), wall_s, cpu_s)
    report(total, suite.second)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
