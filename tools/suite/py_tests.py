"""The Python tests: pytest, against the installed package."""

from __future__ import annotations

import os
import shlex
import sys
import xml.etree.ElementTree as ElementTree

from suite import command, records
from suite.c_tests import RERUN_FACTOR
from suite.command import BUILD
from suite.outcome import Cost, Outcome, failure, late, skip
from suite.stalls import StallMeter
from suite.tiers import Choice

WORKERS = 6  # pytests side by side: most tests wait for processes, timers and the disk
STAGE = "python"


def read_case(case: ElementTree.Element, meter: StallMeter | None = None) -> Outcome:
    """What one Python test did, from its element in pytest's report. conftest.py has put there what
    it cost, when it began, and whether a time limit is all that it missed."""
    said = {p.get("name"): p.get("value") or "" for p in case.iter("property")}
    title = f"{case.get('classname')}.{case.get('name')}"
    wall_s = float(case.get("time") or 0)
    outcome = Outcome()
    if "nodeid" in said:
        outcome.costs[f"{STAGE}: {said['nodeid']}"] = Cost(
            float(said["cpu_s"]), wall_s, int(said["torch_executed"]), int(said["torch_forked"])
        )
    skipped = case.find("skipped")
    if skipped is not None:
        outcome.add(skip(title, skipped.get("message") or "it gave no reason"))
        return outcome
    found = [part for part in case if part.tag in ("failure", "error")]
    if not found:
        outcome.passed = 1
        return outcome
    text = "\n".join(part.text or part.get("message") or "" for part in found)
    began = float(said.get("began", 0))
    text += "\n" + (meter.during(began, began + wall_s) if meter else "")
    if said.get("late") == "1" and len(found) == 1 and found[0].tag == "failure":
        outcome.add(late(STAGE, said["nodeid"], title, text))
    else:
        outcome.add(failure(title, text))
    return outcome


def run_pytest(
    words: list[str], env: dict[str, str], meter: StallMeter | None, live: bool = True
) -> Outcome:
    report = BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    start = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
    start = start if live else [*command.own_world(), *start]
    status, said = command.run([*start, *words], env=env, live=live)
    outcome = Outcome()
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            one = read_case(case, meter)
            names = list(one.costs) or [""]
            outcome.add(records.excuse(names[0], one))
    if (status != 0 or outcome.passed == 0) and outcome.failed == 0:
        text = f"exit status {status}, or no test ran\n{said}"
        outcome.add(failure("pytest", text))
    return outcome


def run_python(
    long: bool, choice: Choice, meter: StallMeter | None = None, name: str = ""
) -> Outcome:
    """Runs the tests that a run takes. name: only those that pytest's -k finds by it."""
    python = shlex.join([*command.own_world(), sys.executable])
    words = [f"--tx={WORKERS}*popen//python={python}", "--dist=loadfile", "--no-loadscope-reorder"]
    words += ["-k", name] if name else []
    # Threads of torch that wait for each other by spinning would keep other tests from working.
    env = {"PAWL_TEST_SLOW": choice.variable(), "OMP_WAIT_POLICY": "passive"}
    return run_pytest(words, env, meter)


def run_again(name: str, long: bool) -> Outcome:
    """Runs a test that was late once more, alone, with longer waiting times."""
    env = {
        "PAWL_TEST_TIMES": f"scale={RERUN_FACTOR}",
        "PAWL_TEST_SEED": os.environ["PAWL_TEST_SEED"],
    }
    return run_pytest([name], env, None, live=False)
