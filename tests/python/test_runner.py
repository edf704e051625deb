"""tools/test.py counts what ran: it must never call a crash, a hang or an empty run a success."""

import importlib.util
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("runner", Path(__file__).parents[2] / "tools/test.py")
assert SPEC and SPEC.loader
runner = importlib.util.module_from_spec(SPEC)
sys.modules["runner"] = runner  # dataclasses look their module up
SPEC.loader.exec_module(runner)

PASSED = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n[       OK ] b\n[  PASSED  ] 2 test(s).\n"
FAILED = "[ RUN      ] c\n[  FAILED  ] c\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] c\n"
SKIPPED = "skipped: no such kernel\n[  SKIPPED ] d\n[  SKIPPED ] 1 test(s), listed below:\n"

# what the program printed, its exit status, what is counted: passed, failed, skipped
PROGRAMS = [
    (PASSED, 0, (2, 0, 0)),
    (PASSED + FAILED, 1, (2, 1, 0)),
    (PASSED + SKIPPED + "[  SKIPPED ] d\n", 0, (2, 0, 1)),
    (PASSED, -11, (2, 1, 0)),  # died after its last test
    ("[ RUN      ] a\n", -6, (0, 1, 0)),  # died in its first
    ("skipped: no device\n", 77, (0, 0, 1)),
    ("", 77, (0, 1, 0)),  # without a reason
    (PASSED + "[  SKIPPED ] d\n", 0, (2, 1, 0)),  # likewise
    ("fine\n", 0, (1, 0, 0)),  # not a cmocka program
    ("", 1, (0, 1, 0)),
]


@pytest.mark.parametrize(("output", "status", "counts"), PROGRAMS)
def test_c_program(output: str, status: int, counts: tuple[int, int, int]) -> None:
    test = {"name": "pawl:x", "returncode": status, "result": "?", "stdout": output, "stderr": ""}
    outcome = runner.read_program("gcc", test)
    assert (outcome.passed, outcome.failed, outcome.skipped) == counts
    assert len(outcome.failures) == (counts[1] > 0)
    assert len(outcome.reasons) == counts[2]


def test_reason_of_a_skip_is_kept() -> None:
    test = {"name": "pawl:x", "returncode": 77, "result": "SKIP", "stdout": "skipped: no GPU\n"}
    assert runner.read_program("gcc", test).reasons == ["gcc: x: no GPU"]


def test_log_of_meson_is_summed_up(tmp_path: Path) -> None:
    tests = [
        {"name": f"x{n}", "returncode": status, "result": "?", "stdout": output}
        for n, (output, status, _) in enumerate(PROGRAMS)
    ]
    log = tmp_path / "testlog.json"
    log.write_text("\n".join(json.dumps(test) for test in tests))
    sums = tuple(sum(counts[i] for _, _, counts in PROGRAMS) for i in range(3))
    outcome = runner.read_log("gcc", log)
    assert (outcome.passed, outcome.failed, outcome.skipped) == sums


def test_report_of_pytest_is_read() -> None:
    cases = {
        '<testcase classname="m" name="a"/>': (1, 0, 0),
        '<testcase classname="m" name="a"><failure>no</failure></testcase>': (0, 1, 0),
        '<testcase classname="m" name="a"><error>no</error></testcase>': (0, 1, 0),
        '<testcase classname="m" name="a"><skipped message="why"/></testcase>': (0, 0, 1),
    }
    for text, counts in cases.items():
        outcome = runner.read_case(ElementTree.fromstring(text))
        assert (outcome.passed, outcome.failed, outcome.skipped) == counts


def test_command_that_is_not_there_fails() -> None:
    assert runner.run(["/nonexistent/program"])[0] == 127


def test_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "COMMAND_SECONDS_MAX", 0.1)
    monkeypatch.delenv("PAWL_LONG", raising=False)
    assert runner.run([sys.executable, "-c", "import time; time.sleep(60)"])[0] == 124


def test_last_line_is_the_count_and_failures_come_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    total = runner.Outcome()
    for output, status, _ in PROGRAMS[:3]:
        test = {"name": "x", "returncode": status, "result": "?", "stdout": output}
        total.add(runner.read_program("gcc", test))
    runner.report(total)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "6 passed, 1 failed, 1 skipped"
    assert "  gcc: x: no such kernel" in lines
    assert "[  FAILED  ] c" in lines


def test_stage_without_a_test_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    monkeypatch.setattr(runner, "configure", lambda build: "")
    monkeypatch.setattr(runner, "run", lambda *a, **k: (0, ""))
    assert runner.run_c(runner.BUILDS["gcc"], long=False).failed == 1
    assert runner.run_python(long=False).failed == 1


def test_a_long_failure_keeps_its_end() -> None:
    lines = [f"line {n}" for n in range(1000)]
    (text,) = runner.failure("x", "\n".join(lines)).failures
    assert text.endswith("line 999")
    assert len(text.splitlines()) < 300
