#!/usr/bin/env python3
"""Runs the benchmarks of bench/ and writes docs/benchmarks.md from what they report.

A benchmark is an executable or a .py file in bench/ whose name does not begin with "_". Called with
--json it prints a table for people and, as its last line, one JSON object with name, runs, metrics,
ratios, bound and setting. Names on the command line run only those, and write nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH_SECONDS_MAX = 3600  # of one benchmark


def list_benchmarks() -> dict[str, list[str]]:
    """Name and command of each."""
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
    """Passes the output on as it comes and returns the object of the last line."""
    last = ""
    command = [*command, "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if not line.startswith("{"):
                print(line, end="", flush=True)
            last = line
        status = child.wait(BENCH_SECONDS_MAX)
    if status != 0:
        raise SystemExit(f"bench: {command[-2]} ended with status {status}")
    return json.loads(last)


def format_value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_report(result: dict) -> str:
    """One benchmark's section of the document."""
    setting = ", ".join(f"{key} {format_value(v)}" for key, v in result["setting"].items())
    lines = [f"## {result['name']}", "", f"{result['runs']} runs; medians. {setting}.", ""]
    for part in ("metrics", "ratios", "bound"):
        if result.get(part):
            lines += [f"| {part} | |", "|---|---|"]
            lines += [f"| {key} | {format_value(v)} |" for key, v in result[part].items()] + [""]
    return "\n".join(lines)


def main() -> int:
    benchmarks = list_benchmarks()
    names = sys.argv[1:] or list(benchmarks)
    unknown = sorted(set(names) - set(benchmarks))
    if unknown or not names:
        print(f"bench: no such benchmark: {' '.join(unknown) or '(bench/ is empty)'}")
        return 1
    sections = [format_report(run_benchmark(benchmarks[name])) for name in names]
    if not sys.argv[1:]:
        head = "# Benchmarks\n\nWritten by `make bench` on one machine, in one go; do not edit.\n\n"
        (ROOT / "docs/benchmarks.md").write_text(head + "\n".join(sections), encoding="utf-8")
        print("bench: docs/benchmarks.md is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
