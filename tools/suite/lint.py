"""Checks of the sources: layout, rules, links, and the records of the tests."""

from __future__ import annotations

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suite import c_tests, command, linted, records
from suite.command import BUILD, ROOT, git
from suite.outcome import Outcome, failure
from suite.tiers import number, tree

TIDY_PARTS = 8  # clang-tidy reads one of that many parts of all files, beside changed files
TIDY_COMMITS = 40  # without a known full run: files changed in that many commits


def changed_files() -> set[str]:
    """Returns the files that differ from the last full run, which read them all."""
    base = records.last_full_commit() or f"HEAD~{TIDY_COMMITS}"
    committed = git("diff", "--name-only", "--diff-filter=d", base)
    if committed is None:  # the history is shorter than that
        committed = git("ls-files") or []
    untracked = git("ls-files", "--others", "--exclude-standard") or []
    return {*committed, *untracked}


def clang_tidy_command(name: str) -> list[str]:
    words = ["clang-tidy", "-p", "build/asan", "--quiet", name]
    if name.endswith("err.c"):  # err.c tests the very functions that analyzer.h replaces
        return words
    return [*words, "--extra-arg=-include", f"--extra-arg={ROOT / 'tools/analyzer.h'}"]


def run_clang_tidy(everything: bool) -> Outcome:
    """Runs clang-tidy over all C files that are compiled (everything), or over those that changed
    and an eighth of the rest."""
    problem = c_tests.configure(c_tests.BUILDS["asan"])
    if problem:
        return failure("clang-tidy: meson setup", problem)
    compiled: dict[str, list[dict[str, str]]] = {}
    for entry in json.loads((BUILD / "asan/compile_commands.json").read_text()):
        name = os.path.relpath(Path(entry["directory"], entry["file"]), ROOT)
        compiled.setdefault(name, []).append(entry)
    names = sorted(compiled)
    if not everything:
        part, changed = number(tree()) % TIDY_PARTS, changed_files()
        names = [n for n in names if n in changed or number(n) % TIDY_PARTS == part]

    def check(name: str) -> tuple[bool, str]:
        """Returns whether the file had passed before, and what is wrong with it."""
        words = clang_tidy_command(name)
        known = linted.find(words, compiled[name])
        if linted.passes(known):
            return True, ""
        status, output = command.run([*command.IDLE, *words])
        if status == 0:
            linted.remember(known)
            return False, ""
        return False, output or f"{name}: clang-tidy ended with status {status}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, names))
    before = sum(known for known, _ in results)
    print(f"clang-tidy: {len(names)} of {len(compiled)} files, {before} as they had passed before")
    linted.forget_old()
    outputs = [output for _, output in results if output]
    return failure("clang-tidy", "\n".join(outputs)) if outputs else Outcome(passed=1)


def run_lint(full: bool) -> Outcome:
    """Runs all checks but clang-tidy. full: this run is to be the newest in full.log."""
    files = git("ls-files", "-co", "--exclude-standard", "*.c", "*.h") or []
    sources = [name for name in files if (ROOT / name).is_file()]
    python = sys.executable
    commands = {
        "clang-format": ["clang-format", "--dry-run", "-Werror", *sources],
        "tidy": [python, "tools/tidy.py"],
        "docs": [python, "tools/docs.py"],
        "mutants": [python, "tools/mutants.py", "check"],
        "ruff check": ["ruff", "check", "--output-format=concise", "."],
        "ruff format": ["ruff", "format", "--check", "--output-format=concise", "."],
    }
    outcome = Outcome()
    for name, words in commands.items():
        status, output = command.run(words)
        if name == "clang-format":
            bad = sorted(set(re.findall(r"^(\S+?):\d+:.*clang-format", output, re.M)))
            output = f"run: .venv/bin/clang-format -i {' '.join(bad)}" if bad else output
        outcome.add(Outcome(passed=1) if status == 0 else failure(f"lint: {name}", output))
    outcome.add(records.check_quarantine(records.today()))
    if not full:
        outcome.add(records.check_full_log())
    return outcome
