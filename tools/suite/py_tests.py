"""The Python tests: pytest, against the installed package."""

from __future__ import annotations

import os
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from suite import command, records
from suite.c_tests import RERUN_FACTOR
from suite.command import BUILD, ROOT
from suite.outcome import Cost, Outcome, failure, late, skip
from suite.stalls import StallMeter
from suite.tiers import NONE, Choice

WORKERS = 8  # pytests side by side: most tests wait for processes, timers and the disk
STAGE = "python"


@dataclass(frozen=True)
class Torch:
    """A release of torch that Python tests run on: a line of tools/torches.txt, or the .venv's."""

    stage: str
    level: str = "test"  # from `make test-full` or `make test-long` on: "full", "long"
    release: str = ""  # requirement for pip; "": the .venv's torch
    files: tuple[str, ...] = ()  # files whose quick tests alone run there; empty: all tests

    @property
    def folder(self) -> Path:
        """The folder of this torch's programs."""
        own = BUILD / "torch" / self.stage / "bin"
        return own if self.release else Path(sys.executable).parent

    @property
    def is_here(self) -> bool:
        """Whether tools/torches.sh has made the environment."""
        return not self.release or (self.folder.parent / ".pawl").is_file()


OURS = Torch(STAGE)


def torches() -> dict[str, Torch]:
    """Returns the other releases, by the names of their stages."""
    lines = (ROOT / "tools/torches.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: Torch(name, level, told, tuple(files)) for name, level, told, *files in rows}


def read_case(
    case: ElementTree.Element, meter: StallMeter | None = None, stage: str = STAGE
) -> Outcome:
    """Returns the outcome of one Python test, from its element in pytest's report. conftest.py has
    stored there its cost, its begin, and whether it only missed a time limit."""
    said = {p.get("name"): p.get("value") or "" for p in case.iter("property")}
    title = f"{case.get('classname')}.{case.get('name')}"
    wall_s = float(case.get("time") or 0)
    outcome = Outcome()
    if "nodeid" in said:
        outcome.costs[f"{stage}: {said['nodeid']}"] = Cost(
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
        outcome.add(late(stage, said["nodeid"], title, text))
    else:
        outcome.add(failure(title, text))
    return outcome


def run_pytest(
    words: list[str],
    env: dict[str, str],
    meter: StallMeter | None,
    torch: Torch = OURS,
    live: bool = True,
) -> Outcome:
    report = BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    python = str(torch.folder / "python")
    start = [python, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
    start = start if live else [*command.own_world(), *start]
    if torch is not OURS:
        path = f"{torch.folder}{os.pathsep}{os.environ['PATH']}"
        env = {**env, "PATH": path, "PAWL_TEST_TORCH": torch.stage}
    status, said = command.run([*start, *words], env=env, live=live)
    outcome = Outcome()
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            one = read_case(case, meter, torch.stage)
            names = list(one.costs) or [""]
            outcome.add(records.excuse(names[0], one))
    if (status != 0 or outcome.passed == 0) and outcome.failed == 0:
        text = f"exit status {status}, or no test ran\n{said}"
        outcome.add(failure("pytest", text))
    return outcome


def run_python(
    long: bool,
    choice: Choice,
    meter: StallMeter | None = None,
    name: str = "",
    torch: Torch = OURS,
) -> Outcome:
    """Runs the tests that a run takes. name: only tests that pytest's -k finds by it."""
    if not torch.is_here:
        return skip(torch.stage, f"{torch.release} is not here: tools/torches.sh installs it")
    python = shlex.join([*command.own_world(), str(torch.folder / "python")])
    words = [f"--tx={WORKERS}*popen//python={python}", "--dist=loadfile", "--no-loadscope-reorder"]
    words += [f"tests/python/{file}" for file in torch.files]
    words += ["-k", name] if name else []
    choice = NONE if torch.files else choice
    # Threads of torch that wait for each other by spinning would keep other tests from working.
    env = {"PAWL_TEST_SLOW": choice.variable(), "OMP_WAIT_POLICY": "passive"}
    return run_pytest(words, env, meter, torch)


def run_again(name: str, long: bool, torch: Torch = OURS) -> Outcome:
    """Runs a test that was late once more, alone, with longer waiting times."""
    env = {
        "PAWL_TEST_TIMES": f"scale={RERUN_FACTOR}",
        "PAWL_TEST_SEED": os.environ["PAWL_TEST_SEED"],
    }
    return run_pytest([name], env, None, torch, live=False)
