#!/usr/bin/env python3
"""Runs every check and test of the project in stages and says what passed, failed and was skipped.

Stages: lint; gcc (build, C tests); asan (clang, address and undefined-behaviour sanitizers); tsan
(clang, thread sanitizer); python (pytest against the installed package). A test that runs in three
builds counts three times; a lint tool counts once; a build counts only when it fails. The last line
is `N passed, N failed, N skipped`; the exit status is 1 if anything failed.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
COMMAND_SECONDS_MAX = 3600  # of one command: a hang must end as a failure, not as silence
LONG_FACTOR = 20  # by which --long stretches the tests' and the commands' limits
SKIP_STATUS = 77
PYTHON_WORKERS = 3  # pytests side by side: most tests wait for processes, timers and the disk
FAILURE_LINES_MAX = 200  # of what a failed test printed; the end says most


@dataclass
class Outcome:
    """What came of a stage."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)  # what failed and what it printed
    reasons: list[str] = field(default_factory=list)  # of the skips, "where: why"

    def add(self, other: "Outcome") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.reasons += other.reasons

    def summary(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def failure(name: str, output: str, failed: int = 1) -> Outcome:
    lines = output.rstrip().splitlines()
    if len(lines) > FAILURE_LINES_MAX:
        lines = [f"… {len(lines) - FAILURE_LINES_MAX} lines …", *lines[-FAILURE_LINES_MAX:]]
    return Outcome(failed=failed, failures=["\n".join([name, *lines])])


def skip(name: str, reason: str) -> Outcome:
    return Outcome(skipped=1, reasons=[f"{name}: {reason}"])


@dataclass(frozen=True)
class Build:
    """One way to compile the C part, in build/<name>."""

    name: str
    compiler: str
    options: tuple[str, ...]  # for meson setup
    slowdown: int  # of its tests, for their time limits
    env: dict[str, str]  # for its tests


HALT = "halt_on_error=1:print_stacktrace=1"
BUILDS = {
    "gcc": Build("gcc", "gcc", (), 1, {}),
    "asan": Build(
        "asan",
        "clang",
        ("-Db_sanitize=address,undefined", "-Db_lundef=false"),
        3,
        {"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": HALT},
    ),
    "tsan": Build(
        "tsan",
        "clang",
        ("-Db_sanitize=thread", "-Db_lundef=false"),
        6,
        # It does not see the system calls that map rings, and takes a new one that lies where
        # another thread's old one lay for the same memory.
        {
            "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
            "PAWL_NO_URING": "1",
        },
    ),
}


def run(
    command: list[str], env: dict[str, str] | None = None, live: bool = False
) -> tuple[int, str]:
    """Exit status and output (empty when live: it has been seen). A hang ends with status 124."""
    limit = COMMAND_SECONDS_MAX * (LONG_FACTOR if os.environ.get("PAWL_LONG") else 1)
    pipe = None if live else subprocess.PIPE
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=None if live else subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return 124, f"{' '.join(command[:3])} …: not done after {limit} s"
    except FileNotFoundError:
        return 127, f"{command[0]}: not found; `make setup` installs it"
    return done.returncode, done.stdout or ""


def git(*arguments: str) -> list[str] | None:
    """The lines that git prints, or None when it fails."""
    status, output = run(["git", *arguments])
    return output.splitlines() if status == 0 else None


# ---- lint ----


def changed_files() -> tuple[set[str], str]:
    """Files that differ from the last commit on main, and why there may be none."""
    for branch in ("origin/main", "main"):
        base = git("merge-base", "HEAD", branch)
        if base:
            committed = git("diff", "--name-only", "--diff-filter=d", base[0]) or []
            untracked = git("ls-files", "--others", "--exclude-standard") or []
            return {*committed, *untracked}, f"no C file differs from {branch}"
    return set(), "there is no commit on main to compare with"


def clang_tidy_command(name: str) -> list[str]:
    command = ["clang-tidy", "-p", "build/asan", "--quiet", name]
    if name.endswith("err.c"):  # these look at the very functions that analyzer.h replaces
        return command
    return [*command, "--extra-arg=-include", f"--extra-arg={ROOT / 'tools/analyzer.h'}"]


def run_clang_tidy(everything: bool) -> Outcome:
    """clang-tidy over the C files that changed, or over all that are compiled."""
    problem = configure(BUILDS["asan"])
    if problem:
        return failure("clang-tidy: meson setup", problem)
    database = json.loads((BUILD / "asan/compile_commands.json").read_text())
    compiled = {os.path.relpath(Path(c["directory"], c["file"]), ROOT) for c in database}
    changed, reason = changed_files()
    names = sorted(compiled if everything else compiled & changed)
    if not names:
        return skip("clang-tidy", f"{reason}; `make test-long` looks at all files")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda name: run(clang_tidy_command(name)), names))
    outputs = [output for status, output in results if status != 0]
    return failure("clang-tidy", "\n".join(outputs)) if outputs else Outcome(passed=1)


def run_lint(long: bool) -> Outcome:
    files = git("ls-files", "-co", "--exclude-standard", "*.c", "*.h") or []
    sources = [name for name in files if (ROOT / name).is_file()]
    python = sys.executable
    commands = {
        "clang-format": ["clang-format", "--dry-run", "-Werror", *sources],
        "tidy": [python, "tools/tidy.py"],
        "docs": [python, "tools/docs.py"],
        "ruff check": ["ruff", "check", "--output-format=concise", "."],
        "ruff format": ["ruff", "format", "--check", "--output-format=concise", "."],
    }
    outcome = Outcome()
    for name, command in commands.items():
        status, output = run(command)
        if name == "clang-format":
            bad = sorted(set(re.findall(r"^(\S+?):\d+:.*clang-format", output, re.M)))
            output = f"run: .venv/bin/clang-format -i {' '.join(bad)}" if bad else output
        outcome.add(Outcome(passed=1) if status == 0 else failure(f"lint: {name}", output))
    outcome.add(run_clang_tidy(everything=long))
    return outcome


# ---- C ----


def compiler(build: Build) -> str:
    """The compiler's command, through ccache where it is installed."""
    return f"ccache {build.compiler}" if shutil.which("ccache") else build.compiler


def share_cache() -> None:
    """Lets ccache take what another checkout compiled: paths count from the root of each."""
    os.environ.setdefault("CCACHE_BASEDIR", str(ROOT))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")


def configure(build: Build) -> str:
    """Makes build/<name> ready for ninja; returns what went wrong, or nothing."""
    folder = BUILD / build.name
    command = ["meson", "setup", str(folder), *build.options]
    stamp = folder / ".configured"
    wanted = " ".join([compiler(build), *command])
    if stamp.is_file() and stamp.read_text() == wanted:
        # New files are known only to meson.build until it runs again.
        status, output = run(["ninja", "-C", str(folder), "build.ninja"])
        return output if status != 0 else ""
    shutil.rmtree(folder, ignore_errors=True)
    status, output = run(command, env={"CC": compiler(build)})
    if status != 0:
        return output
    stamp.write_text(wanted)
    return ""


def skip_reasons(output: str) -> list[str]:
    """The lines by which a test says why it skips: `skipped: <reason>`."""
    return re.findall(r"^.*\bskipped: *(.+)$", output, re.M | re.I)


def read_program(stage: str, test: dict) -> Outcome:
    """What one C test program did, from its record in meson's log. Counts cmocka's tests."""
    name, status = f"{stage}: {test['name'].split(':')[-1]}", test["returncode"]
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    passed = len(re.findall(r"^\[ +OK +\] ", output, re.M))
    # A set, because the summary names them again.
    failed = len(set(re.findall(r"^\[ +FAILED +\] (\w+)$", output, re.M)))
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
    outcome = Outcome(passed, 0, skipped)
    if failed:
        outcome.add(failure(f"{name}: {test['result']}, exit status {status}", output, failed))
    if skipped:
        outcome.reasons = [f"{name}: {reason}" for reason in reasons]
    return outcome


def read_log(stage: str, path: Path) -> Outcome:
    """Sums up meson's log: one JSON object a line."""
    outcome = Outcome()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        outcome.add(read_program(stage, json.loads(line)))
    return outcome


def run_c(build: Build, long: bool) -> Outcome:
    problem = configure(build)
    if problem:
        return failure(f"{build.name}: meson setup", problem)
    status, output = run(["ninja", "-C", f"build/{build.name}", "--quiet"])
    if status != 0:
        return failure(f"{build.name}: build", output)
    logs = BUILD / build.name / "meson-logs"
    for old in logs.glob("testlog*.json"):  # its name tells of the wrapper
        old.unlink()
    limit = build.slowdown * (LONG_FACTOR if long else 1)
    command = ["meson", "test", "-C", f"build/{build.name}", "--no-rebuild", "-t", str(limit)]
    command.append(f"--wrapper={shlex.join([sys.executable, str(ROOT / 'tools/reap.py')])}")
    # Older thread sanitizers do not start where addresses are more random than they expect.
    fixed = ["setarch", "-R"]
    if build.name == "tsan" and run([*fixed, "true"])[0] == 0:
        command = fixed + command
    status, _ = run(command, env=build.env, live=True)
    outcome = Outcome()
    for log in logs.glob("testlog*.json"):
        outcome.add(read_log(build.name, log))
    if (status != 0 or outcome.passed == 0) and outcome.failed == 0:
        outcome.add(failure(f"{build.name}: meson test", f"exit status {status}, or no test ran"))
    return outcome


# ---- Python ----


def read_case(case: ElementTree.Element) -> Outcome:
    """What one Python test did, from its element in pytest's report."""
    name = f"{case.get('classname')}.{case.get('name')}"
    skipped = case.find("skipped")
    if skipped is not None:
        return skip(name, skipped.get("message") or "it gave no reason")
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return failure(name, found.text or found.get("message") or "")
    return Outcome(passed=1)


def run_python(long: bool) -> Outcome:
    report = BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
    command += [f"--numprocesses={PYTHON_WORKERS}", "--dist=loadfile", "--no-loadscope-reorder"]
    status, _ = run(command, live=True)
    outcome = Outcome()
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            outcome.add(read_case(case))
    if (status != 0 or outcome.passed == 0) and outcome.failed == 0:
        outcome.add(failure("pytest", f"exit status {status}, or no test ran"))
    return outcome


# ---- all ----

STAGES: dict[str, Callable[[bool], Outcome]] = {
    "lint": run_lint,
    "gcc": lambda long: run_c(BUILDS["gcc"], long),
    "asan": lambda long: run_c(BUILDS["asan"], long),
    "tsan": lambda long: run_c(BUILDS["tsan"], long),
    "python": run_python,
}


def say(text: str) -> None:
    print(text, flush=True)  # what the stages' programs print must not overtake it


def run_stages(names: list[str], long: bool) -> Outcome:
    """Runs the stages one after another: each keeps all cores busy by itself."""
    total = Outcome()
    lines = []
    for name in names:
        say(f"\n==== {name}")
        start = time.monotonic()
        outcome = STAGES[name](long)
        line = f"{name:8} {time.monotonic() - start:7.1f} s   {outcome.summary()}"
        say(f"---- {line}")
        lines.append(line)
        total.add(outcome)
    say("\n==== stages\n" + "\n".join(lines))
    return total


def report(total: Outcome) -> None:
    if total.reasons:
        say("\n==== skipped, and why")
        for reason in total.reasons:
            say(f"  {reason}")
    if total.failures:
        say("\n==== failed")
        for text in total.failures:
            say(text + "\n")
    say("")
    say(total.summary())


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the project's checks and tests.")
    parser.add_argument("--long", action="store_true", help="the long tests too")
    parser.add_argument("--only", action="append", choices=STAGES, help="this stage (repeatable)")
    arguments = parser.parse_args()
    if arguments.long:
        os.environ["PAWL_LONG"] = "1"
    tools = Path(sys.executable).parent  # of the .venv; not resolved, its python is a link
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    share_cache()
    BUILD.mkdir(exist_ok=True)
    total = run_stages(arguments.only or list(STAGES), arguments.long)
    report(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
