"""An elastic job's record of itself: its lines, its rows, and the pictures of them."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import program
from conftest import real_core

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
SCRIPT = program.script("adaptdl_job.py")
PAWL = Path(sys.executable).with_name("pawl")


def row(step: int, **what: object) -> object:
    from pawl._report._training import Row

    known = {"time": 1e9 + step, "step": step, "progress": float(step), "batch": 16, "atomic": 8}
    return Row(**{**known, "ranks": 2, "why": "it is, the best", **what})  # type: ignore[arg-type]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    from pawl._report import _training
    from pawl.elastic._record import _append

    path = tmp_path / "deep" / _training.FILE
    rows = [row(0, event="started"), row(7, noise=3.25, noise_high=float("inf"), epoch=1)]
    for each in rows:
        _append(path, each)  # type: ignore[arg-type]
    with path.open("a") as file:
        file.write("2026-01-01T00:00:00.000Z,job,0,ref")  # a crash in the middle of a line
    _append(path, row(9))  # type: ignore[arg-type]
    assert _training.read(path.parent) == [*rows, row(9)]
    assert _training.read(path) == _training.read(path.parent)
    assert path.read_text().count("time,job,attempt") == 1
    assert _training.read(tmp_path) == []


def test_a_line_says_what_and_why() -> None:
    from pawl._report._training import Row

    told = Row(step=1200, ranks=4, batch=256, accum=1, why="23 % better than 128")
    assert told.text() == "elastic: step 1200, 4 ranks: batch 256 of 2 parts: 23 % better than 128"
    told = Row(ranks=1, batch=9, why="x", samples_per_s=12345.6, goodput=99.5, noise=41.26)
    told.noise_low, told.noise_high = 30.0, float("inf")
    assert told.text() == (
        "elastic: step 0, 1 rank: batch 9: x; 12,346 samples/s, worth 99.5; "
        "noise scale 41.3 (30 to inf)"
    )


@pytest.mark.slow
def test_a_job_tells_and_is_drawn(tmp_path: Path) -> None:
    from pawl._report import _training

    pytest.importorskip("matplotlib.font_manager")  # lists fonts once, and logs if that is slow
    root = tmp_path / "run"
    env = program.clean_env(PAWL_ELASTIC_REFIT="0.05", PAWL_ELASTIC_ROOT=str(root))
    done = program.run_script(SCRIPT, "-n", "2", "--max-restarts", "0", env=env)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"\[rank0\] pawl: elastic: step .*", done.stderr)
    assert lines and lines[-1].count("no epochs are left") == 1, done.stderr
    assert not re.search(r"\[rank1\] pawl: elastic: step", done.stderr)
    rows = _training.read(root)
    assert [rows[0].event, rows[-1].event] == ["started", "ended"]
    assert {each.event for each in rows[1:-1]} == {"refit"}
    assert len(lines) == len(rows) - 1
    assert all(each.ranks == 2 and 16 <= each.batch <= 256 for each in rows)
    assert [each.step for each in rows] == sorted(each.step for each in rows)
    # The speed of each span, times its length, adds up to the whole progress.
    spans = [after.time - before.time for before, after in itertools.pairwise(rows)]
    worth = sum(s * (each.goodput or 0) for s, each in zip(spans, rows[1:], strict=True))
    assert worth == pytest.approx(16 * (rows[-1].progress - rows[0].progress), rel=0.1)

    fixed = tmp_path / "fixed.csv"
    fixed.write_text((root / _training.FILE).read_text())
    out = tmp_path / "out"
    command = [PAWL, "report", root, "--beside", fixed, "--out", out]
    drawn = subprocess.run(command, text=True, capture_output=True)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert re.search(rf"trained +{rows[-1].step - rows[0].step} steps in ", drawn.stdout)
    assert (out / "training.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = (out / "report.html").read_text()
    assert "<td>fixed</td>" in page and "data:image/svg+xml" in page
    command[4] = tmp_path / "none"
    drawn = subprocess.run(command, text=True, capture_output=True)
    assert drawn.returncode == 3 and "none: there is no elasticHistory.csv" in drawn.stderr


def test_rows_that_can_not_be_written_hold_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pawl.elastic import _record

    (tmp_path / "file").touch()
    monkeypatch.setenv("PAWL_ELASTIC_HISTORY", str(tmp_path / "file" / "h.csv"))
    record = _record.Record()
    for step in range(3):
        record.add(row(step), 16 * step, 16)  # type: ignore[arg-type]
    record._close()
    (said,) = [r.getMessage() for r in caplog.records if "no more rows" in r.getMessage()]
    assert str(tmp_path / "file") in said
    # A file that takes nothing does not hold up the job, either.
    gate = threading.Event()
    monkeypatch.setattr(_record, "_append", lambda *_: gate.wait())
    monkeypatch.setattr(_record, "seconds", lambda _: 0.1)
    record = _record.Record()
    opener = threading.Timer(program.LIMIT_S, gate.set)
    opener.start()
    record.add(row(0), 0, 16)  # type: ignore[arg-type]
    record._close()
    assert not gate.is_set(), "it waited for the file"
    opener.cancel()
    gate.set()
