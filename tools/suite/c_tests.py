"""The C part in three builds: by gcc, and by clang with sanitizers. Meson runs the tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from suite import command, records
from suite.command import BUILD, LONG_FACTOR, ROOT
from suite.outcome import Cost, Outcome, failure, late
from suite.stalls import StallMeter
from suite.tiers import SLOW, Choice

SKIP_STATUS = 77
PROCESSES = 8  # programs side by side: many only wait
RERUN_FACTOR = 4  # factor of waiting times when a late test runs again


@dataclass(frozen=True)
class Build:
    """One way to compile the C part, in build/<name>."""

    name: str
    compiler: str
    options: tuple[str, ...]  # options of meson setup
    slowdown: int  # factor of its tests' time limits
    env: dict[str, str]  # environment of its tests


LINES = "-Ddebug=false"  # reports name lines: no more is compiled in
HALT = "halt_on_error=1:print_stacktrace=1"
BUILDS = {
    "gcc": Build("gcc", "gcc", (), 1, {}),
    "asan": Build(
        "asan",
        "clang",
        (
            *("-Db_sanitize=address,undefined", "-Db_lundef=false", LINES),
            # The first fault ends a test: code that goes on takes the compiler half as long again.
            "-Dc_args=-gline-tables-only -fno-sanitize-recover=all",
        ),
        3,
        {"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": HALT},
    ),
    "tsan": Build(
        "tsan",
        "clang",
        ("-Db_sanitize=thread", "-Db_lundef=false", LINES, "-Dc_args=-gline-tables-only"),
        6,
        # The sanitizer does not see the system calls that map rings, and takes a new ring at the
        # place of another thread's old one for the same memory.
        {
            "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
            "PAWL_NO_URING": "1",
        },
    ),
}


def compiler(build: Build) -> str:
    """Returns the compiler's command, through ccache where it is installed."""
    return f"ccache {build.compiler}" if shutil.which("ccache") else build.compiler


def compilers(build: Build) -> dict[str, str]:
    """Returns the variables by which meson learns of the compiler, and of a linker that takes a
    third of the time, where it is installed."""
    linker = {"CC_LD": "lld"} if shutil.which("ld.lld") else {}
    return {"CC": compiler(build), **linker}


def share_cache() -> None:
    """Lets ccache share objects between checkouts: paths count from the root of each."""
    os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")


def configure(build: Build) -> str:
    """Makes build/<name> ready for ninja. Returns an error, or nothing."""
    folder = BUILD / build.name
    setup = ["meson", "setup", str(folder), *build.options]
    stamp = folder / ".configured"
    wanted = " ".join([*compilers(build).values(), *setup])
    if stamp.is_file() and stamp.read_text() == wanted:
        # meson.build learns of new files only when it runs again.
        status, output = command.run(["ninja", "-C", str(folder), "build.ninja"])
        return output if status != 0 else ""
    shutil.rmtree(folder, ignore_errors=True)
    status, output = command.run(setup, env=compilers(build))
    if status != 0:
        return output
    stamp.write_text(wanted)
    return ""


def list_programs(build: Build) -> dict[str, bool]:
    """Returns the test programs of a configured build, and whether each is slow."""
    path = BUILD / build.name / "meson-info/intro-tests.json"
    tests = json.loads(path.read_text())
    return {
        test["name"]: any(suite.rpartition(":")[2] == SLOW for suite in test["suite"])
        for test in tests
    }


def skip_reasons(output: str) -> list[str]:
    """Returns the lines by which a test says why it skips: `skipped: <reason>`."""
    return re.findall(r"^.*\bskipped: *(.+)$", output, re.M | re.I)


# Output of a program that failed not only by being late.
WRONG = re.compile(
    r"Sanitizer|runtime error:|^left behind|^assertion failed|ASSERT|core dumped", re.M
)


def is_late(test: dict, output: str, failed: set[str]) -> bool:
    """Whether a program failed by time limits alone: its own (meson ended it), or one that each of
    its failed tests named in a line `late: …`."""
    if WRONG.search(output):
        return False
    if test["result"] == "TIMEOUT":
        return not failed
    lines = len(re.findall(r"^late: ", output, re.M))
    return test["returncode"] > 0 and bool(failed) and lines >= len(failed)


def read_program(stage: str, test: dict, meter: StallMeter | None = None) -> Outcome:
    """Returns the outcome of one C test program, from its record in meson's log. Counts cmocka's
    tests."""
    program, status = test["name"].split(":")[-1], test["returncode"]
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    passed = len(re.findall(r"^\[ +OK +\] ", output, re.M))
    # A set, because the summary names them again.
    names = set(re.findall(r"^\[ +FAILED +\] (\w+)$", output, re.M))
    failed = len(names)
    skipped = len(set(re.findall(r"^\[ +SKIPPED +\] (\w+)$", output, re.M)))
    if status == SKIP_STATUS:
        skipped = max(skipped, 1)
    elif status != 0:
        failed = max(failed, 1)
    elif passed + failed + skipped == 0:
        passed = 1  # not a cmocka program
    reasons = skip_reasons(output)
    if skipped and not reasons:
        failed, skipped = failed + skipped, 0
        output += "\nit skips without saying `skipped: <reason>`"
        names = set()
    outcome = Outcome(passed, 0, skipped)
    duration = float(test.get("duration") or 0)
    outcome.costs[f"{stage}: {program}"] = Cost(wall_s=round(duration, 2))
    if failed:
        title = f"{stage}: {program}: {test['result']}, exit status {status}"
        began = float(test.get("starttime") or 0)
        output += "\n" + (meter.during(began, began + duration) if meter else "")
        if is_late(test, output, names):
            outcome.add(late(stage, program, title, output, failed))
        else:
            outcome.add(failure(title, output, failed))
    if skipped:
        outcome.reasons = [f"{stage}: {program}: {reason}" for reason in reasons]
    return outcome


def read_log(stage: str, path: Path, meter: StallMeter | None = None) -> Outcome:
    """Sums up meson's log: one JSON object a line."""
    outcome = Outcome()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        test = json.loads(line)
        name = f"{stage}: {test['name'].split(':')[-1]}"
        outcome.add(records.excuse(name, read_program(stage, test, meter)))
    return outcome


def read_costs(stage: str, path: Path, outcome: Outcome) -> None:
    """Adds the costs that tools/reap.py has measured."""
    for line in path.read_text().splitlines() if path.is_file() else ():
        said = json.loads(line)
        cost = outcome.costs.get(f"{stage}: {said['program'].removeprefix('test_')}")
        if cost is not None:
            cost.cpu_s = said["cpu_s"]


def run_programs(
    build: Build, names: list[str], factor: int, meter: StallMeter | None, env: dict[str, str]
) -> Outcome:
    """Runs programs of a build. factor: stretches their limits."""
    logs = BUILD / build.name / "meson-logs"
    for old in logs.glob("testlog*.json"):  # the wrapper is part of the name
        old.unlink()
    costs = BUILD / build.name / "costs.jsonl"
    costs.unlink(missing_ok=True)
    words = ["meson", "test", "-C", f"build/{build.name}", "--no-rebuild", "--quiet"]
    words += ["-t", str(build.slowdown * factor), f"--num-processes={PROCESSES}"]
    reap = [sys.executable, str(ROOT / "tools/reap.py"), "--world"]
    words.append(f"--wrapper={shlex.join(reap)}")
    # Older thread sanitizers do not start where addresses are more random than they expect.
    fixed = ["setarch", "-R"]
    if build.name == "tsan" and command.run([*fixed, "true"])[0] == 0:
        words = fixed + words
    env = {**build.env, "PAWL_TEST_COSTS": str(costs), **env}
    status, _ = command.run([*words, *names], env=env, live=True)
    outcome = Outcome()
    for log in logs.glob("testlog*.json"):
        outcome.add(read_log(build.name, log, meter))
    read_costs(build.name, costs, outcome)
    if (status != 0 or outcome.passed == 0) and outcome.failed == 0:
        outcome.add(failure(f"{build.name}: meson test", f"exit status {status}, or no test ran"))
    return outcome


def compile_c(build: Build) -> Outcome:
    """Compiles a build. Its outcome counts nothing unless it fails."""
    problem = configure(build)
    if problem:
        return failure(f"{build.name}: meson setup", problem)
    status, output = command.run([*command.IDLE, "ninja", "-C", f"build/{build.name}", "--quiet"])
    return failure(f"{build.name}: build", output) if status != 0 else Outcome()


def run_c(
    build: Build, long: bool, choice: Choice, meter: StallMeter | None = None, name: str = ""
) -> Outcome:
    """Runs the tests of a build that a run takes. name: only tests whose names contain it."""
    programs = list_programs(build)
    taken = [
        program
        for program, slow in programs.items()
        if name in program and (not slow or choice.takes(f"{build.name}: {program}"))
    ]
    if not taken:
        return Outcome() if name else failure(f"{build.name}: tests", "there is none")
    return run_programs(build, taken, LONG_FACTOR if long else 1, meter, {})


def run_again(build: Build, name: str, long: bool) -> Outcome:
    """Runs a program that was late once more, with longer waiting times."""
    env = {"PAWL_TEST_TIMES": f"scale={RERUN_FACTOR}"}
    factor = RERUN_FACTOR * (LONG_FACTOR if long else 1)
    return run_programs(build, [name], factor, None, env)
