"""torch's own tests of process groups, on the backend pawl and on gloo."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

import nursery
import program
from conftest import SUMMARY

HERE = Path(__file__).parent
LIST = HERE.parents[2] / "docs/distributed.md"
HEADING = "## torch's own tests"
AT_LEAST = 80  # tests that pass on gloo, at least: with fewer, the runner does not work


def listed() -> dict[str, str]:
    """Returns the tests that the document excludes for this backend, and why."""
    section = LIST.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`test_.*?) \| (.+) \|$", section, re.MULTILINE)
    found = {name: why for names, why in rows for name in re.findall(r"`(\w+)`", names)}
    assert found, f"{LIST} has no table behind {HEADING!r}"
    return found


def outcomes(world: int, backend: str) -> dict[str, list[str]]:
    """Returns the outcome of each of torch's tests, and why."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        done = nursery.run(
            [sys.executable, str(HERE / "torch_suite.py"), folder, str(world), backend],
            env=program.clean_env() | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        said = [p.read_text(errors="replace")[-2000:] for p in Path(folder).glob("said*")]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *said])
    return json.loads(done.stdout.splitlines()[-1].removeprefix("> "))


def passed(of: dict[str, list[str]]) -> set[str]:
    return {name for name, (what, _) in of.items() if what == "passed"}


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_what_passes_on_gloo_passes_on_pawl(world: int) -> None:
    """Every exception stands in docs/distributed.md, with the reason; and what stands there does
    not pass."""
    gloo, pawl = outcomes(world, "gloo"), outcomes(world, "pawl")
    reasons = listed()
    missing = passed(gloo) - passed(pawl)
    SUMMARY.append(
        f"torch's own tests, {world} ranks: passed on gloo {len(passed(gloo))}, on pawl "
        f"{len(passed(pawl))}; not on pawl:"
    )
    SUMMARY.extend(f"  {name}: {reasons.get(name, 'FAILED')}" for name in sorted(missing))
    new = {name: pawl[name] for name in missing - set(reasons)}
    assert not new, "\n".join(f"{name}: {what}: {why}" for name, (what, why) in new.items())
    assert not (passed(pawl) & set(reasons)), "passes, and is listed as one that does not"
    assert set(reasons) <= set(gloo), "listed, and torch has no such test"
    assert len(passed(gloo)) >= AT_LEAST
