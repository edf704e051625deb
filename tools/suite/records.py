"""Records of runs: costs, the inventory of tests, and the log of full runs.

- build/times.json: the cost of each test in its last run on this machine.
- tests/times.json: the expensive part of it, in the repository: the order of files and the limits
  of quick tests follow it. `tools/test.py --record` writes it after a full run, and the inventory.
- tests/inventory.txt: the number of tests of each tier in a file. A test that is lost, or made
  slow, is a line in a diff.
- tests/full.log: one line for each full run.
- tests/quarantine.txt: tests that may fail for a while.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from suite import command
from suite.command import BUILD, ROOT
from suite.outcome import Cost, Outcome, failure, skip

TIMES = BUILD / "times.json"
COLLECTED = BUILD / "collected.json"  # by conftest.py: the tier of each Python test
KEPT_TIMES = ROOT / "tests/times.json"
KEPT_CPU_S = 1.0  # CPU seconds; a test that takes less is not listed by itself
INVENTORY = ROOT / "tests/inventory.txt"
FULL_LOG = ROOT / "tests/full.log"
MUTANTS = ROOT / "tests/mutants"
QUARANTINE = ROOT / "tests/quarantine.txt"
QUARANTINE_DAYS_MAX = 10
QUARANTINE_TESTS_MAX = 10
# Limits of a quick test. A fork of the nursery costs 0.05 CPU seconds, an import of torch 2.3.
QUICK_CPU_S_MAX = 3.0
QUICK_EXECUTED_MAX = 2
QUICK_FORKED_MAX = 8
QUICK_C_CPU_S_MAX = 20.0  # limit of a program by gcc, which holds many tests
FULL_COMMITS_MAX = 60  # commits since the last full run, at most
SKIPS_GROW_MAX = 5  # more skipped tests than in the last full run, at most
LONG_REASONS = ("make test-long", "PAWL_LONG=1")  # reasons of tests that long runs run
INVENTORY_HEAD = (
    "# file, number of quick tests, number of slow ones; `tools/test.py --record` writes this\n"
)


def today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def read_json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else {}


def remember(costs: dict[str, Cost]) -> None:
    """Merges new measurements into build/times.json."""
    known = read_json(TIMES)
    known |= {name: asdict(cost) for name, cost in costs.items()}
    TIMES.write_text(json.dumps(known, indent=0, sort_keys=True))


def known_costs() -> dict[str, Cost]:
    """Returns costs measured on this machine, and where there are none, those of the repository."""
    kept = read_json(KEPT_TIMES).get("tests", {})
    return {name: Cost(**cost) for name, cost in {**kept, **read_json(TIMES)}.items()}


def file_of(node: str) -> str:
    """Returns the file of a Python test, in the form of the records: "test_x.py",
    "hostile/test_y.py"."""
    return node.split("::")[0].removeprefix("tests/python/")


# ---- inventory ----


def count_c() -> dict[str, Counter[str]]:
    """Returns the tests of each C program, counted in its source."""
    from suite import c_tests

    found = {}
    for name, slow in c_tests.list_programs(c_tests.BUILDS["gcc"]).items():
        sources = sorted((ROOT / "tests").glob(f"**/test_{name}.c"))
        text = "".join(source.read_text() for source in sources)
        text = re.sub(r"^#define TEST\(.*", "", text, flags=re.MULTILINE)
        tests = len(re.findall(r"\bcmocka_unit_test\w*\(|^\s+TEST\(", text, re.MULTILINE)) or 1
        found[f"c {name}"] = Counter({"slow" if slow else "quick": tests})
    return found


def count_python() -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for node, tier in read_json(COLLECTED).items():
        file = file_of(node)
        found.setdefault(f"python {file}", Counter())[tier] += 1
    return found


def read_inventory() -> dict[str, Counter[str]]:
    found = {}
    for line in INVENTORY.read_text().splitlines() if INVENTORY.is_file() else ():
        if not line.startswith("#"):
            name, quick, slow = line.rsplit(" ", 2)
            found[name] = Counter(quick=int(quick), slow=int(slow))
    return found


def write_inventory() -> None:
    rows = {**read_inventory(), **count_c(), **count_python()}
    lines = [f"{name} {rows[name]['quick']} {rows[name]['slow']}\n" for name in sorted(rows)]
    INVENTORY.write_text(INVENTORY_HEAD + "".join(lines))


def compare_inventory(found: dict[str, Counter[str]], kind: str) -> Outcome:
    """Checks that each file has its known tests, in their tiers. kind: "c", where all must be
    there, or "python", where a module may skip itself as a whole."""
    known = {name: c for name, c in read_inventory().items() if name.startswith(f"{kind} ")}
    wrong = []
    for name in sorted(found.keys() | (known.keys() if kind == "c" else set())):
        now, was = found.get(name, Counter()), known.get(name, Counter())
        for tier in ("quick", "slow"):
            if now[tier] != was[tier]:
                wrong.append(f"{name}: {now[tier]} {tier} tests, not {was[tier]}")
    if not wrong:
        return Outcome(passed=1)
    advice = "tests/inventory.txt is to say so: tools/test.py --record"
    return failure(f"{kind}: inventory", "\n".join([*wrong, advice]))


# ---- quarantine ----


@dataclass(frozen=True)
class Quarantined:
    """A test whose failure fails no run, for QUARANTINE_DAYS_MAX days."""

    since: str  # the day of its first failure, YYYY-MM-DD
    commit: str  # commit at which the test failed
    test: str  # "python: tests/python/test_x.py::test_y[1]" or "asan: coll_transport"
    symptom: str


def read_quarantine() -> list[Quarantined]:
    """Returns the tests in quarantine. Lines are `since commit test | symptom`; those that begin
    with # are comments."""
    found = []
    for line in QUARANTINE.read_text().splitlines() if QUARANTINE.is_file() else ():
        if line.strip() and not line.startswith("#"):
            head, _, symptom = line.partition(" | ")
            since, commit, test = head.split(" ", 2)
            found.append(Quarantined(since, commit, test.strip(), symptom.strip()))
    return found


def check_quarantine(now: str) -> Outcome:
    """Checks that no test has been in quarantine for too long, and that there are not too many."""
    listed = read_quarantine()
    wrong = [f"{q.test}: {days(q.since, now)} days" for q in listed if not may_stay(q, now)]
    if len(listed) > QUARANTINE_TESTS_MAX:
        wrong.append(f"{len(listed)} tests, at most {QUARANTINE_TESTS_MAX} may be")
    if not wrong:
        return Outcome(passed=1)
    return failure("tests/quarantine.txt: mend these tests", "\n".join(wrong))


def days(since: str, now: str) -> int:
    return (date.fromisoformat(now) - date.fromisoformat(since)).days


def may_stay(test: Quarantined, now: str) -> bool:
    return days(test.since, now) <= QUARANTINE_DAYS_MAX


def excuse(name: str, outcome: Outcome) -> Outcome:
    """Returns how a test's outcome counts: a failure of a test in quarantine is no failure, but is
    reported."""
    if not outcome.failed:
        return outcome
    found = next((q for q in read_quarantine() if q.test == name), None)
    if found is None:
        return outcome
    told = f"{name}: failed in quarantine, since {found.since}: {found.symptom}"
    return Outcome(outcome.passed, 0, outcome.skipped + outcome.failed, [], [told])


# ---- kept times ----


def read_killers() -> set[str]:
    """Returns the Python tests that mutants name as their killers."""
    texts = (path.read_text() for path in MUTANTS.glob("*.patch"))
    return {name for text in texts for name in re.findall(r"python:([^\s,]+)", text)}


def check_quick() -> Outcome:
    """Checks that quick tests were quick in the full run whose costs are kept. A test that a mutant
    names as its killer may be expensive; other parameters of that test may not."""
    tiers = read_json(COLLECTED)
    killers = read_killers()
    wrong = []
    for name, cost in read_json(KEPT_TIMES).get("tests", {}).items():
        stage, _, test = name.partition(": ")
        if (
            stage != "python"
            or tiers.get(test) != "quick"
            or not killers.isdisjoint({test, test.split("[")[0]})
        ):
            continue
        too_many = cost["executed"] > QUICK_EXECUTED_MAX or cost["forked"] > QUICK_FORKED_MAX
        if cost["cpu_s"] > QUICK_CPU_S_MAX or too_many:
            wrong.append(f"{test}: {cost}")
    if not wrong:
        return Outcome(passed=1)
    return failure(
        "python: quick tests that are not (mark them slow, or make them so)", "\n".join(wrong)
    )


def check_quick_c(programs: dict[str, bool]) -> Outcome:
    """Checks that quick C programs were quick. programs: whether each is slow."""
    kept = read_json(KEPT_TIMES).get("tests", {})
    wrong = [
        f"{name}: {kept[f'gcc: {name}']['cpu_s']} CPU seconds"
        for name, slow in programs.items()
        if not slow and kept.get(f"gcc: {name}", {"cpu_s": 0})["cpu_s"] > QUICK_C_CPU_S_MAX
    ]
    return (
        failure("gcc: quick tests that are not", "\n".join(wrong)) if wrong else Outcome(passed=1)
    )


def pace(measured: dict[str, Any]) -> float:
    """Returns how many times as long as in tests/times.json this machine takes: the median of the
    tests that both know. measured: build/times.json."""
    kept = read_json(KEPT_TIMES).get("tests", {})
    ratios = [
        measured[name]["cpu_s"] / cost["cpu_s"]
        for name, cost in kept.items()
        if cost["cpu_s"] >= KEPT_CPU_S and name in measured
    ]
    return statistics.median(ratios) if ratios else 1.0


def write_times() -> float:
    """Writes the expensive tests, and the time of each file of Python tests, to tests/times.json.
    All seconds are those of the machine that recorded first, so that the limits of quick tests mean
    one thing. Returns the pace by which they were divided."""
    files: Counter[str] = Counter()
    tests = {}
    collected = read_json(COLLECTED)
    measured = read_json(TIMES)
    slower = pace(measured)
    for name, cost in sorted(measured.items()):
        cost["cpu_s"] /= slower
        cost["wall_s"] /= slower
        stage, _, node = name.partition(": ")
        if stage == "python":
            if node not in collected:
                continue  # the test exists no more
            files[file_of(node)] += cost["wall_s"]
        elif "::" in node:
            continue  # the test ran on another torch
        if cost["cpu_s"] >= KEPT_CPU_S or cost["executed"] + cost["forked"] > 2:
            tests[name] = {
                "cpu_s": round(cost["cpu_s"], 1),
                "wall_s": round(cost["wall_s"], 1),
                "executed": cost["executed"],
                "forked": cost["forked"],
            }
    kept = {"files": {name: round(s, 1) for name, s in sorted(files.items())}, "tests": tests}
    KEPT_TIMES.write_text(to_lines(kept))
    return slower


def to_lines(kept: dict[str, dict[str, Any]]) -> str:
    """Returns JSON with one line an entry, so that a diff shows each change."""
    parts = []
    for head, entries in kept.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(v)}" for name, v in entries.items())
        parts.append(f" {json.dumps(head)}: {{\n{rows}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def record() -> None:
    """Records the results of a full run in the repository."""
    write_inventory()
    slower = write_times()
    print(
        f"tests/times.json: what was measured here, divided by {slower:.2f}: this machine takes so "
        "many times as long as the one that recorded first"
    )


# ---- full runs ----


def read_full_log() -> list[dict[str, Any]]:
    if not FULL_LOG.is_file():
        return []
    return [json.loads(line) for line in FULL_LOG.read_text().splitlines()]


def log_full(stages: dict[str, Outcome], second_runs: int, wall_s: float, cpu_s: float) -> None:
    """Appends a line about a full run."""
    commit = (command.git("rev-parse", "HEAD") or ["none"])[0]
    line = {
        "date": today(),
        "commit": commit + ("+" if command.git("status", "--porcelain") else ""),
        "passed": sum(o.passed for o in stages.values()),
        "failed": sum(o.failed for o in stages.values()),
        "second_runs": second_runs,
        "skipped": {name: count_skips(o) for name, o in stages.items()},
        "wall_s": round(wall_s),
        "cpu_s": round(cpu_s),
    }
    with FULL_LOG.open("a") as file:
        file.write(json.dumps(line) + "\n")


def last_full_commit() -> str:
    """Returns the commit of the newest full run; "": none is known."""
    log = read_full_log()
    return str(log[-1]["commit"]).rstrip("+") if log else ""


def check_full_log() -> Outcome:
    """Checks that a full run without a failure is no more than FULL_COMMITS_MAX commits old."""
    log = read_full_log()
    if not log:
        return skip("tests/full.log", "no full run has been logged yet: make test-full")
    if log[-1]["failed"]:
        return failure("tests/full.log", f"the newest full run failed: {log[-1]}")
    behind = command.git("rev-list", "--count", f"{last_full_commit()}..HEAD")
    if behind is None:
        return failure("tests/full.log", f"commit {last_full_commit()} is not known here")
    if int(behind[0]) > FULL_COMMITS_MAX:
        text = f"the newest full run is {behind[0]} commits old: make test-full"
        return failure("tests/full.log", text)
    return Outcome(passed=1)


def count_skips(outcome: Outcome) -> int:
    """Returns how many tests were skipped for want of something, not because they take long."""
    long = sum(any(word in reason for word in LONG_REASONS) for reason in outcome.reasons)
    return outcome.skipped - long


def check_skips(stage: str, outcome: Outcome) -> Outcome:
    """Checks that no more tests were skipped than in the last full run, with a small margin: a
    package that could not be installed must be noticed."""
    log = read_full_log()
    known = log[-1]["skipped"].get(stage) if log else None
    skipped = count_skips(outcome)
    if known is None or skipped <= known + SKIPS_GROW_MAX:
        return Outcome()
    text = f"{skipped} tests are skipped; in the last full run {known} were"
    return failure(f"{stage}: skipped", "\n".join([text, *outcome.reasons]))
