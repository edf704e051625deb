#!/usr/bin/env python3
"""Runs the benchmarks of bench/ and writes docs/benchmarks.md from their output.

A benchmark is an executable or a .py file in bench/ whose name does not begin with "_". Called with
--json it prints a table for people and, as its last line, one JSON object with name, runs, metrics,
ratios, bound and setting. Names on the command line run only those: other sections stay. --from
FILE [COMMIT] writes the section of a benchmark that was run elsewhere, at that commit or at this
one: FILE has its output.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs/benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`; do not edit. Each section is one run of one benchmark, at the commit that
it names; values are medians.
"""
BENCH_SECONDS_MAX = 3600  # limit of one benchmark


def list_benchmarks() -> dict[str, list[str]]:
    """Returns name and command of each benchmark."""
    found = {}
    for path in sorted((ROOT / "bench").glob("*")):
        if path.name.startswith(("_", ".")) or not path.is_file():
            continue
        if path.suffix == ".py":
            found[path.stem] = [sys.executable, str(path)]
        elif os.access(path, os.X_OK):
            found[path.name] = [str(path)]
    return found


def run_benchmark(command: list[str]) -> dict:
    """Runs a command, and prints its table as it comes. Returns the object of the last line, with
    the table as "text"."""
    lines = []
    command = [*command, "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if not line.startswith("{"):
                print(line, end="", flush=True)
            lines.append(line)
        status = child.wait(BENCH_SECONDS_MAX)
    if status != 0:
        raise SystemExit(f"bench: {command[-2]} ended with status {status}")
    return read_result(lines)


def read_result(lines: list[str]) -> dict:
    """Returns the object of the last line, with the lines before it as "text"."""
    return {**json.loads(lines[-1]), "text": "".join(lines[:-1]).strip("\n")}


def format_section(result: dict, commit: str) -> str:
    """Returns the section of a benchmark in the document."""
    return f"## {result['name']}\n\nAt commit {commit}.\n\n```text\n{result['text']}\n```\n"


def write_section(name: str, section: str) -> None:
    """Adds a section to the document, or replaces the benchmark's earlier one."""
    text = REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    sections = {part.split("\n", 1)[0][3:]: part.rstrip("\n") + "\n" for part in parts}
    sections[name] = section
    REPORT.write_text("\n".join([HEAD, *(sections[key] for key in sorted(sections))]), "utf-8")


def read_commit() -> str:
    """Returns the commit, with "-dirty" if anything but the document has changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "-uno", "--", ".", f":!{REPORT.relative_to(ROOT)}")
    return (git("describe", "--always", "--exclude=*") or "unknown") + ("-dirty" if changed else "")


def write_result(result: dict, commit: str) -> None:
    write_section(result["name"], format_section(result, commit))
    print(f"bench: the section {result['name']} of docs/benchmarks.md is written", flush=True)


def main() -> int:
    if sys.argv[1:2] == ["--from"]:
        path, *commit = sys.argv[2:]
        lines = Path(path).read_text("utf-8").splitlines(keepends=True)
        write_result(read_result(lines), *(commit or [read_commit()]))
        return 0
    benchmarks = list_benchmarks()
    names = sys.argv[1:] or list(benchmarks)
    unknown = sorted(set(names) - set(benchmarks))
    if unknown or not names:
        print(f"bench: no such benchmark: {' '.join(unknown) or '(bench/ is empty)'}")
        return 1
    commit = read_commit()
    for name in names:
        write_result(run_benchmark(benchmarks[name]), commit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
