"""tools/test.py counts what ran: it must never call a crash, a hang or an empty run a success."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suite import c_tests, command, py_tests, records, stalls, tiers
from suite.outcome import Cost, Late, Outcome, failure

SPEC = importlib.util.spec_from_file_location("runner", Path(__file__).parents[3] / "tools/test.py")
assert SPEC and SPEC.loader
runner = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(runner)

PASSED = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n[       OK ] b\n[  PASSED  ] 2 test(s).\n"
FAILED = "[ RUN      ] c\n[  FAILED  ] c\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] c\n"
SKIPPED = "skipped: no such kernel\n[  SKIPPED ] d\n[  SKIPPED ] 1 test(s), listed below:\n"
LATE = "late: x == 1: not within 120 s (t.c:3)\n"

# output of the program, its exit status, counts: passed, failed, skipped
PROGRAMS = [
    (PASSED, 0, (2, 0, 0)),
    (PASSED + FAILED, 1, (2, 1, 0)),
    (PASSED + SKIPPED + "[  SKIPPED ] d\n", 0, (2, 0, 1)),
    (PASSED, -11, (2, 1, 0)),  # ended after its last test
    ("[ RUN      ] a\n", -6, (0, 1, 0)),  # ended in its first test
    ("skipped: no device\n", 77, (0, 0, 1)),
    ("", 77, (0, 1, 0)),  # skipped without a reason
    (PASSED + "[  SKIPPED ] d\n", 0, (2, 1, 0)),  # d skipped without a reason
    ("fine\n", 0, (1, 0, 0)),  # not a cmocka program
    ("", 1, (0, 1, 0)),
]


def program(output: str, status: int, result: str = "FAIL") -> dict[str, Any]:
    """Returns a record of meson's log."""
    return {"name": "x", "returncode": status, "result": result, "stdout": output, "stderr": ""}


@pytest.mark.parametrize(("output", "status", "counts"), PROGRAMS)
def test_c_program(output: str, status: int, counts: tuple[int, int, int]) -> None:
    outcome = c_tests.read_program("gcc", program(output, status))
    assert (outcome.passed, outcome.failed, outcome.skipped) == counts
    assert len(outcome.failures) == (counts[1] > 0)
    assert len(outcome.reasons) == counts[2]
    assert not outcome.late


def test_reason_of_a_skip_is_kept() -> None:
    outcome = c_tests.read_program("gcc", program("skipped: no GPU\n", 77, "SKIP"))
    assert outcome.reasons == ["gcc: x: no GPU"]


def test_log_of_meson_is_summed_up(tmp_path: Path) -> None:
    log = tmp_path / "testlog.json"
    log.write_text("\n".join(json.dumps(program(text, status)) for text, status, _ in PROGRAMS))
    sums = tuple(sum(counts[i] for _, _, counts in PROGRAMS) for i in range(3))
    outcome = c_tests.read_log("gcc", log)
    assert (outcome.passed, outcome.failed, outcome.skipped) == sums


def test_report_of_pytest_is_read() -> None:
    cases = {
        '<testcase classname="m" name="a"/>': (1, 0, 0),
        '<testcase classname="m" name="a"><failure>no</failure></testcase>': (0, 1, 0),
        '<testcase classname="m" name="a"><error>no</error></testcase>': (0, 1, 0),
        '<testcase classname="m" name="a"><skipped message="why"/></testcase>': (0, 0, 1),
    }
    for text, counts in cases.items():
        outcome = py_tests.read_case(ElementTree.fromstring(text))
        assert (outcome.passed, outcome.failed, outcome.skipped) == counts


def test_command_that_is_not_there_fails() -> None:
    assert command.run(["/nonexistent/program"])[0] == 127


def test_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "COMMAND_SECONDS_MAX", 0.1)
    monkeypatch.delenv("PAWL_LONG", raising=False)
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]  # pace
    assert command.run(sleeps)[0] == 124


def test_last_line_is_the_count_and_failures_come_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    total = Outcome()
    for output, status, _ in PROGRAMS[:3]:
        total.add(c_tests.read_program("gcc", program(output, status)))
    runner.report(total, ["y: its first failure"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["1 passed on second run", "6 passed, 1 failed, 1 skipped"]
    assert "  gcc: x: no such kernel" in lines
    assert "[  FAILED  ] c" in lines
    assert "y: its first failure" in lines


def test_stage_without_a_test_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (c_tests, py_tests):
        monkeypatch.setattr(module, "BUILD", tmp_path)
    monkeypatch.setattr(c_tests, "list_programs", lambda build: {"x": False})
    monkeypatch.setattr(command, "run", lambda *a, **k: (0, ""))
    every = tiers.Choice()
    assert c_tests.run_c(c_tests.BUILDS["gcc"], False, every).failed == 1
    assert py_tests.run_python(False, every).failed == 1
    monkeypatch.setattr(c_tests, "list_programs", lambda build: {})
    assert c_tests.run_c(c_tests.BUILDS["gcc"], False, every).failed == 1


def test_a_long_failure_keeps_its_end() -> None:
    lines = [f"line {n}" for n in range(1000)]
    (text,) = failure("x", "\n".join(lines)).failures
    assert text.endswith("line 999")
    assert len(text.splitlines()) < 300


# ---- late, or wrong ----

# Output of the program, its exit status, meson's word for it, whether it may run again.
LATENESS = [
    (PASSED + LATE + FAILED, 1, "FAIL", True),
    (PASSED + FAILED, 1, "FAIL", False),
    (PASSED, -9, "TIMEOUT", True),
    (PASSED + FAILED, -9, "TIMEOUT", False),  # c had failed already
    (PASSED + LATE + FAILED + FAILED.replace("c\n", "e\n"), 1, "FAIL", False),  # e was not late
    (PASSED + LATE + FAILED, -6, "FAIL", False),  # ended by a signal
    (PASSED + LATE + FAILED + "ERROR: AddressSanitizer: x\n", 1, "FAIL", False),
    (PASSED + LATE + FAILED + "WARNING: ThreadSanitizer: x\n", 66, "FAIL", False),
    (PASSED + LATE + FAILED + "x.c:3: runtime error: overflow\n", 1, "FAIL", False),
    (PASSED + LATE + FAILED + "left behind, and killed: 7 x\n", 1, "FAIL", False),
    ("not late: x\n" + FAILED, 1, "FAIL", False),
]


@pytest.mark.parametrize(("output", "status", "result", "again"), LATENESS)
def test_what_was_late_only(output: str, status: int, result: str, again: bool) -> None:
    outcome = c_tests.read_program("tsan", program(output, status, result))
    assert outcome.failed >= 1
    assert bool(outcome.late) == again == (not outcome.failures)
    if again:
        (late,) = outcome.late
        assert (late.stage, late.name, late.failed) == ("tsan", "x", outcome.failed)


def case(found: str, **said: object) -> ElementTree.Element:
    said = {"nodeid": "f.py::a", "cpu_s": 1.5, "torch_executed": 0, "torch_forked": 2, **said}
    rows = "".join(f'<property name="{name}" value="{value}"/>' for name, value in said.items())
    text = f'<testcase classname="m" name="a" time="2"><properties>{rows}</properties>{found}'
    return ElementTree.fromstring(text + "</testcase>")


def test_python_test_that_was_late_only() -> None:
    failed, error = "<failure>no</failure>", "<error>left behind</error>"
    assert py_tests.read_case(case(failed, late=1)).late == [
        Late("python", "f.py::a", 1, "m.a\nno")
    ]
    for found, said in ((failed, {}), (error, {"late": 1}), (failed + error, {"late": 1})):
        outcome = py_tests.read_case(case(found, **said))
        assert (outcome.failed, outcome.late) == (1, [])
    assert py_tests.read_case(case("")).costs == {"python: f.py::a": Cost(1.5, 2.0, 0, 2)}


def made_suite(monkeypatch: pytest.MonkeyPatch, late: int, passes: bool) -> Any:
    """Returns a run in which that many tests were late; passes: whether they pass on their second
    run."""
    again = Outcome(passed=1) if passes else failure("again", "no")
    monkeypatch.setattr(runner.py_tests, "run_again", lambda name, long, torch: again)
    suite = runner.Suite.__new__(runner.Suite)
    tests = [Late("python", f"t{n}", 1, f"first failure of t{n}") for n in range(late)]
    suite.stages, suite.second = {"python": Outcome(passed=5, failed=late, late=tests)}, []
    suite.long = False
    suite.run_late()
    return suite


@pytest.mark.parametrize(
    ("late", "passes", "counts"),
    [
        (0, True, (5, 0)),
        (2, True, (7, 0)),
        (2, False, (5, 2)),
        (runner.SECOND_RUNS_MAX, True, (8, 0)),
        (runner.SECOND_RUNS_MAX + 1, True, (9, 1)),  # too many second runs: the run has failed
        (runner.LATE_MAX + 1, True, (5, 11)),  # too many late tests: none runs again
    ],
)
def test_second_runs(
    monkeypatch: pytest.MonkeyPatch, late: int, passes: bool, counts: tuple[int, int]
) -> None:
    suite = made_suite(monkeypatch, late, passes)
    total = suite.total()
    assert (total.passed, total.failed) == counts
    said = suite.second + total.failures
    assert all(any(f"first failure of t{n}" in text for text in said) for n in range(late))


# ---- other releases of torch ----


def test_a_run_takes_the_torches_of_its_level() -> None:
    usual = ["lint", *c_tests.BUILDS, "python"]
    for full, long, more in ((0, 0, []), (1, 0, ["oldest"]), (0, 1, ["oldest", "newest"])):
        assert runner.stages_of(argparse.Namespace(full=full, long=long)) == usual + more
    for torch in py_tests.torches().values():
        assert all((Path(__file__).parents[1] / file).is_file() for file in torch.files), torch


def test_the_oldest_is_what_is_promised() -> None:
    root = Path(__file__).parents[3]
    told = py_tests.torches()["oldest"].release.removeprefix("torch==")
    minor = told.rpartition(".")[0]
    assert f'"torch>={minor}"' in (root / "pyproject.toml").read_text()
    assert f"torch {minor} or later" in " ".join((root / "README.md").read_text().split())


OTHER = py_tests.Torch("oldest", "full", "torch==1", ("test_a.py", "test_b.py"))
REPORT = """<testsuite><testcase classname="m" name="a" time="2"><properties>
<property name="nodeid" value="t.py::a"/><property name="cpu_s" value="1"/>
<property name="torch_executed" value="0"/><property name="torch_forked" value="2"/>
<property name="late" value="1"/></properties><failure>no</failure></testcase></testsuite>"""


def test_tests_on_another_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The interpreter of that torch runs the tests: quick ones of the files named, and late ones
    again."""
    monkeypatch.setattr(py_tests, "BUILD", tmp_path)
    asked: list[tuple[list[str], dict[str, str]]] = []

    def run(words: list[str], env: dict[str, str], live: bool) -> tuple[int, str]:
        asked.append((words, env))
        (tmp_path / "pytest.xml").write_text(REPORT)
        return 1, ""

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "own_world", list)
    without = py_tests.run_python(False, tiers.Choice(), torch=OTHER)
    assert (without.skipped, asked) == (1, []) and "torch==1 is not here" in without.reasons[0]
    folder = tmp_path / "torch/oldest"
    folder.mkdir(parents=True)
    (folder / ".pawl").touch()
    outcome = py_tests.run_python(False, tiers.Choice(), torch=OTHER)
    (late,) = outcome.late
    assert (late.stage, late.name, list(outcome.costs)) == (
        "oldest", "t.py::a", ["oldest: t.py::a"],
    )  # fmt: skip
    monkeypatch.setenv("PAWL_TEST_SEED", "1")
    py_tests.run_again(late.name, False, OTHER)
    (words, env), (again, _) = asked
    python = str(folder / "bin/python")
    assert (
        words[0] == again[0] == python
        and f"--tx={py_tests.WORKERS}*popen//python={python}" in words
    )
    assert words[-2:] == ["tests/python/test_a.py", "tests/python/test_b.py"]
    assert env["PATH"].startswith(f"{folder}/bin:") and env["PAWL_TEST_TORCH"] == "oldest"
    assert not any(tiers.Choice(int(env["PAWL_TEST_SLOW"][0])).takes(str(n)) for n in range(99))


# ---- tiers and records ----


def test_each_slow_test_is_in_one_part() -> None:
    names = [f"test_{n}" for n in range(400)]
    parts = [tiers.Choice(part) for part in range(tiers.PARTS)]
    taken = [sum(part.takes(name) for name in names) for part in parts]
    assert sum(taken) == len(names) and min(taken) > 30
    assert all(tiers.Choice().takes(name) for name in names)
    assert tiers.Choice(2).variable() == "2/8" and tiers.Choice().variable() == "all"


def test_a_lost_test_and_one_made_slow_are_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(records, "INVENTORY", tmp_path / "inventory.txt")
    records.INVENTORY.write_text("# head\nc a 3 0\npython test_a.py 2 1\npython test_b.py 1 0\n")
    same = {"python test_a.py": Counter(quick=2, slow=1)}
    assert records.compare_inventory(same, "python").passed == 1  # test_b.py skips as a whole
    for quick, slow in ((1, 1), (1, 2), (3, 1)):
        changed = {"python test_a.py": Counter(quick=quick, slow=slow)}
        assert records.compare_inventory(changed, "python").failed == 1
    assert records.compare_inventory({"python test_new.py": Counter(quick=1)}, "python").failed == 1
    assert records.compare_inventory({"c a": Counter(quick=3)}, "c").passed == 1
    assert records.compare_inventory({}, "c").failed == 1


def full_run(commit: str, **more: object) -> str:
    said = {"commit": commit, "passed": 9, "failed": 0, "skipped": {"python": 20}, **more}
    return json.dumps(said) + "\n"


def test_a_full_run_may_not_be_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(records, "FULL_LOG", tmp_path / "full.log")
    assert records.check_full_log().skipped == 1  # there is no log yet
    behind = {"new": ["60"], "old": ["61"]}
    monkeypatch.setattr(command, "git", lambda *words: behind.get(words[2].split("..")[0]))
    for text, failed in (
        (full_run("old") + full_run("new"), 0),
        (full_run("new+"), 0),
        (full_run("old"), 1),
        (full_run("unknown"), 1),
        (full_run("new", failed=1), 1),
    ):
        records.FULL_LOG.write_text(text)
        assert records.check_full_log().failed == failed, text


def test_skips_may_not_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(records, "FULL_LOG", tmp_path / "full.log")
    assert records.check_skips("python", Outcome(skipped=99)).failed == 0  # no count known
    records.FULL_LOG.write_text(full_run("new"))
    assert records.check_skips("python", Outcome(skipped=25)).failed == 0
    assert records.check_skips("python", Outcome(skipped=26, reasons=["a: b"])).failed == 1
    long = ["a: in make test-long", "b: minutes; PAWL_LONG=1 runs it"]
    assert records.check_skips("python", Outcome(skipped=27, reasons=long)).failed == 0
    assert records.check_skips("gcc", Outcome(skipped=26)).failed == 0


def test_quarantine_excuses_for_some_days(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(records, "QUARANTINE", tmp_path / "quarantine.txt")
    failed = Outcome(passed=3, failed=1, failures=["no"])
    assert records.excuse("asan: x", failed) is failed
    assert records.check_quarantine("2026-03-12").passed == 1
    records.QUARANTINE.write_text("# head\n2026-03-01 abc asan: x | it hangs\n")
    excused = records.excuse("asan: x", failed)
    assert (excused.passed, excused.failed, excused.skipped) == (3, 0, 1)
    assert excused.reasons == ["asan: x: failed in quarantine, since 2026-03-01: it hangs"]
    assert records.excuse("asan: y", failed) is failed
    assert records.excuse("asan: x", Outcome(passed=1)) == Outcome(passed=1)
    assert records.check_quarantine("2026-03-11").passed == 1
    assert records.check_quarantine("2026-03-12").failed == 1
    line = "2026-03-11 abc python: t.py::a[1 2] | late\n"
    records.QUARANTINE.write_text(line * (records.QUARANTINE_TESTS_MAX + 1))
    assert records.read_quarantine()[0].test == "python: t.py::a[1 2]"
    assert records.check_quarantine("2026-03-12").failed == 1


def test_quick_tests_are_quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(records, "KEPT_TIMES", tmp_path / "kept.json")
    monkeypatch.setattr(records, "COLLECTED", tmp_path / "collected.json")
    records.COLLECTED.write_text(json.dumps({"a": "quick", "b": "slow"}))
    cheap = {"cpu_s": 2.0, "wall_s": 1.0, "executed": 1, "forked": 3}
    for test, more, failed in (
        ("a", {}, 0),
        ("b", {"cpu_s": 30.0}, 0),
        ("a", {"cpu_s": 3.1}, 1),
        ("a", {"executed": 3}, 1),
        ("a", {"forked": records.QUICK_FORKED_MAX}, 0),
        ("a", {"forked": records.QUICK_FORKED_MAX + 1}, 1),
    ):
        kept = {"tests": {f"python: {test}": {**cheap, **more}, "gcc: c": {**cheap, "cpu_s": 21}}}
        records.KEPT_TIMES.write_text(json.dumps(kept))
        assert records.check_quick().failed == failed
    assert records.check_quick_c({"c": True, "d": False}).passed == 1
    assert records.check_quick_c({"c": False}).failed == 1
    monkeypatch.setattr(records, "MUTANTS", tmp_path)
    (tmp_path / "old.patch").write_text(
        "killed-by: c:a, python:t.py::test[1], python:t.py::other\n"
    )
    for test, failed in (("test[1]", 0), ("test[2]", 1), ("other[2]", 0)):
        records.COLLECTED.write_text(json.dumps({f"t.py::{test}": "quick"}))
        kept = {"tests": {f"python: t.py::{test}": {**cheap, "cpu_s": 3.1}}}
        records.KEPT_TIMES.write_text(json.dumps(kept))
        assert records.check_quick().failed == failed


def test_costs_on_another_torch_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KEPT_TIMES", "COLLECTED", "TIMES"):
        monkeypatch.setattr(records, name, tmp_path / name)
    records.COLLECTED.write_text(json.dumps({"tests/python/a.py::b": "quick"}))
    names = ("python: tests/python/a.py::b", "newest: tests/python/a.py::b", "gcc: c")
    records.remember({name: Cost(2.0, 3.0) for name in names})
    records.write_times()
    kept = records.read_json(records.KEPT_TIMES)
    assert list(kept["tests"]) == [names[2], names[0]] and kept["files"] == {"a.py": 3.0}


def test_costs_of_a_slower_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recorded seconds are those of the machine that recorded first."""
    for name in ("KEPT_TIMES", "COLLECTED", "TIMES"):
        monkeypatch.setattr(records, name, tmp_path / name)
    first = {"gcc: a": Cost(2.0, 3.0), "gcc: b": Cost(4.0, 5.0), "gcc: c": Cost(8.0, 8.0)}
    records.remember(first)
    assert records.write_times() == 1.0
    was = records.read_json(records.KEPT_TIMES)
    slower = {name: Cost(1.5 * cost.cpu_s, 1.5 * cost.wall_s) for name, cost in first.items()}
    records.remember(slower | {"gcc: b": Cost(30.0, 15.0), "gcc: new": Cost(3.0, 3.0)})
    assert records.write_times() == 1.5
    now = records.read_json(records.KEPT_TIMES)["tests"]
    assert now.pop("gcc: b")["cpu_s"] == 20.0, "what one test takes more is its own"
    assert now.pop("gcc: new") == {"cpu_s": 2.0, "wall_s": 2.0, "executed": 0, "forked": 0}
    assert now.items() <= was["tests"].items()


def test_a_stall_is_told_beside_what_it_met() -> None:
    meter = stalls.StallMeter.__new__(stalls.StallMeter)
    meter.stalls = [(100.0, 3.2), (200.0, 1.0)]
    assert "for 3.2 s" in meter.during(101, 102)
    assert "2 times, the longest for 3.2 s" in meter.during(90, 250)
    assert meter.during(110, 190) == ""


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["test.py", "--only", "python", "-k", "x"])
    arguments = runner.read_arguments()
    assert isinstance(arguments, argparse.Namespace)
    assert (arguments.only, arguments.k, arguments.full) == (["python"], "x", False)
