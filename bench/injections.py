#!/usr/bin/env python3
"""Real faults injected into running ranks: how many ranks hang, and how soon the lost one is named.

The program that runs is tests/python/torch_api/test_injections.py, 200 times (20 minutes): ranks,
links, servers and launchers are killed, stopped, cut off or do something else than the others, in
the middle of every collective, save and shutdown. --quick has 20 of them.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shared._report import Report, describe_machine, make_parser

ROOT = Path(__file__).parents[1]
NAMED_S = 3.0  # each of the 200 holds to it as well
GO_ON_S = 1.0
GO_ON = "the next right sum, after that"


def count(text: str, what: str) -> int:
    found = re.search(rf"(\d+) {what}", text)
    return int(found[1]) if found else 0


def run_tests(quick: bool, times: Path) -> str:
    """Runs the tests; returns pytest's last line. Failures and skipped tests go to stderr."""
    env = os.environ | {"PAWL_INJECTIONS": str(times)}
    env.pop("PAWL_LONG", None)
    if not quick:
        env["PAWL_LONG"] = "1"
    test = ROOT / "tests/python/torch_api/test_injections.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfs", "-p", "no:cacheprovider", test],
        env=env, cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1]
    if not times.exists() or done.returncode not in (0, 1):
        sys.exit(f"{test.name}: {last}\n{done.stderr}")
    if done.returncode == 1 or "skipped" in last:
        print(done.stdout, file=sys.stderr)
    return last


def main() -> None:
    options = make_parser(
        __doc__, "20 injections, in place of 200", "for what they took (a temporary one)"
    ).parse_args()
    report = Report("injections", 1, describe_machine())
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        times = Path(folder) / "times"
        last = run_tests(options.quick, times)
        took: dict[str, list[float]] = json.loads(times.read_text())
    passed, failed, skipped = (count(last, what) for what in ("passed", "failed", "skipped"))
    report.title(f"{passed + failed + skipped} injections")
    beside = f"{passed} ended well, {skipped} could not be made here"
    report.at_most("failed", "hung, wrong, unnamed, late or left something", failed, 0, "", beside)
    report.title("named by all others, seconds: the slowest, and the median of those")
    for what, seconds in sorted(took.items()):
        key = re.sub(r"\W+", "_", what)
        beside = f"of {len(seconds)}, median {statistics.median(seconds):.3f} s"
        goal = GO_ON_S if what == GO_ON else NAMED_S
        report.at_most(key, f"  {what.replace(': ', ' ')[:52]}", max(seconds), goal, "s", beside)
    report.finish(options.json)


if __name__ == "__main__":
    main()
