"""The report: reading histories whole and torn, its arithmetic, and its drawings."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SEED, real_core
from pawl._report import _history
from pawl._report._history import History, Run, SaveRow

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
PROGRAM = Path(sys.executable).with_name("pawl")

HEADER = (
    "time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s,"
    "begun,ranks,partitions,why\n"
)
EVENTS = "time,job,attempt,event,ranks,step,why\n"


def save(step: int, minute: float, level: str = "committed", stall: float = 0.01) -> SaveRow:
    at = 60 * minute
    return SaveRow(
        at, at, "j", 0, step, f"global_step{step}", level, 1 << 20, stall, 0.1, 0.5, "m", ""
    )


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "checkpointHistories.old.csv").write_text(
        HEADER + '2026-11-20T10:00:05Z,"a,b",0,5,global_step5,durable,1,9,1.5,2,500,4,,,,\n'
    )
    (tmp_path / "checkpointHistories.csv").write_text(
        HEADER
        + "2026-11-20T10:00:09Z,j,0,6,best,failed,,,,,,,2026-11-20T10:00:07.250Z,2,,rank 1 left\n"
        + "2026-11-20T10:00:10Z,j,0,7,glo\n\n"
        + "yesterday,j,0,7,x,durable,1,9,1,2,500,4,,,,\n"
        + "2026-11-20T10:00:11Z,j,0,8,global_step8,com"
    )
    (tmp_path / "checkpointEvents.csv").write_text(
        EVENTS + "2026-11-20T10:00:00.500Z,j,0,started,2,,\n2026-11-20T10:00:08.000Z,j,0,fai"
    )
    history = _history.read(tmp_path)
    assert [row.step for row in history.rows] == [5, 6]
    first, second = history.rows
    assert (first.job, first.stall, first.persist, first.begun) == ("a,b", 0.0015, 0.5, first.time)
    assert second.time - second.begun == 1.75
    assert (second.tag, second.why, second.size) == ("best", "rank 1 left", None)
    (run,) = history.runs
    assert (run.how, run.ended - run.started) == ("running", 8.5)


def test_what_a_failure_cost() -> None:
    rows = [save(step, 10 + step / 10) for step in range(0, 200, 10)]  # 10 steps a minute
    history = History(rows, [])

    def lost(run: Run, after: Run | None) -> tuple[int | None, float, int | None, float | None]:
        history.runs = [run] if after is None else [run, after]
        (failure,) = history.failures()
        return failure.usable, failure.lost_s, failure.lost_steps, failure.down_s

    def run(began: float, ended: float, how: str, **known: int) -> Run:
        return Run(60 * began, 0, 1, 60 * ended, how, **known)  # type: ignore[arg-type]

    # A run fails 12 steps after the newest save, which the next run restores.
    after = run(32, 40, "ended", restored=190)
    assert lost(run(9, 30.2, "failed", saved=190), after) == (190, pytest.approx(72), 12, 108)
    # An older save is restored: the steps between the two are lost as well.
    after.restored = 150
    assert lost(run(9, 30.2, "failed", saved=190), after)[:3] == (150, pytest.approx(312), 52)
    # No save is restored: all steps are lost.
    assert lost(run(9, 30.2, "failed", saved=190), run(32, 40, "ended"))[0] == 190
    history.rows = [*rows, save(10, 33)]
    assert lost(run(9, 30.2, "failed", saved=190), run(32, 40, "ended")) == (
        *(None, pytest.approx(1272), 212, 108),
    )
    # No run follows; the memory tier is gone too, and only one save was durable.
    history.rows = [*rows[:10], save(100, 20, "durable"), *rows[11:]]
    assert lost(run(9, 30, "lost", saved=190), None)[:2] == (100, 600)
    # A run that ended well costs nothing.
    history.runs = [run(9, 30, "ended")]
    assert history.failures() == []


def test_the_best_interval_is_where_simulated_jobs_lose_least() -> None:
    """Failures are drawn at random over a long job that always saves equally often: the optimum of
    its history is near the interval at which such jobs really lose least."""
    from pawl.report import find_interval

    print(f"PAWL_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    cost, mtbf = 2.0, 900.0

    def job(interval: float, failures: int) -> History:
        now = 0.0
        history = History()
        for attempt in range(failures):
            run = Run(now, attempt, 1, now + chance.expovariate(1 / mtbf), "failed")
            run.restored = history.rows[-1].step if history.rows else None
            at = now + interval
            while at + cost < run.ended:
                history.rows.append(save(len(history.rows), at / 60, stall=cost))
                at += interval + cost
            history.runs.append(run)
            now = run.ended
        return history

    best = find_interval((told := job(300, 1500)), told.failures())
    assert best is not None
    assert best.daly == pytest.approx(math.sqrt(2 * cost * mtbf), rel=0.12)
    assert best.daly_low < best.daly < best.daly_high
    assert best.measured == pytest.approx(300, rel=0.6)

    def overhead(interval: float) -> float:
        of = find_interval((history := job(interval, 1500)), history.failures())
        assert of is not None
        return of.overhead

    assert overhead(best.daly) < min(overhead(best.daly * 4), overhead(best.daly / 4))
    assert overhead(best.daly) == pytest.approx(best.least, rel=0.25)


def test_no_failure_and_few_saves() -> None:
    from pawl.report import find_interval

    history = History([save(s, s) for s in range(60)], [Run(0, 0, 1, 3600, "ended")])
    best = find_interval(history, [])
    assert best is not None
    assert best.rate == pytest.approx(1 / (86400 + 3600))
    assert (best.rate_low, best.daly_high) == (0, math.inf)
    assert best.rate_high == pytest.approx(3.689 / 3600, rel=1e-3)
    assert find_interval(History(history.rows[:1], history.runs), []) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (3.4, "3.4 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (12000, "3 h 20 min"),
        (187200, "2 d 4 h"),
        (86399, "1 d"),
        (float("inf"), "∞"),
        (None, "–"),
    ],
)
def test_spans_for_people(seconds: float | None, text: str) -> None:
    from pawl.report import span

    assert span(seconds) == text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "a & b"
    root.mkdir()
    rows = [
        f"2026-11-20T10:{i:02d}:00Z,j,0,{i},global_step{i},{level},1,{i << 20},{1 + i % 7},9,"
        f"{100 if level == 'durable' else ''},10,2026-11-20T10:{i:02d}:00.000Z,1,model,\n"
        for i in range(1, 50)
        for level in ["durable" if i % 3 else "failed" if i % 2 else "committed"]
    ]
    (root / "checkpointHistories.csv").write_text(HEADER + "".join(rows))
    (root / "checkpointEvents.csv").write_text(
        EVENTS
        + "2026-11-20T10:00:00.500Z,j,0,started,2,,\n"
        + '2026-11-20T10:25:30.000Z,j,0,failed,2,25,"rank 1 <&> is gone"\n'
        + "2026-11-20T10:26:30.000Z,j,1,started,2,,\n"
        + "2026-11-20T10:26:31.000Z,j,1,restored,2,25,memory\n"
        + "2026-11-20T10:50:00.000Z,j,1,ended,2,49,\n"
    )
    return root


def test_the_page_is_one_file(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib.font_manager")  # lists fonts once, and logs if that is slow
    out = tmp_path / "deep" / "out"
    done = subprocess.run(
        [PROGRAM, "report", root, "--out", out], text=True, capture_output=True, cwd=root
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "failures    1, work lost 30 s" in done.stdout
    page = (out / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page), "nothing from outside"
    assert "rank 1 &lt;&amp;&gt; is gone" in page and "a &amp; b" in page
    assert "30 s, about 0 steps" in page and "step 25" in page and "1 min" in page
    assert page.count("data:image/svg+xml") == 2
    for picture in ("saves.png", "interval.png"):
        assert (out / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_errors_name_the_remedy(root: Path, tmp_path: Path) -> None:
    def run(*words: object, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(PROGRAM), "report", *map(str, words)],
            text=True,
            capture_output=True,
            env={**os.environ, **env},
        )
        return done.returncode, done.stderr

    assert run(tmp_path / "none", "--out", tmp_path)[0] == 3
    assert "nothing was saved there yet" in run(tmp_path, "--out", tmp_path)[1]
    assert run(root)[0] == 2
    assert run(root, root, "--out", tmp_path)[0] == 2
    code, text = run(root, "--out", root / "checkpointEvents.csv")
    assert code == 1 and "checkpointEvents.csv" in text
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "matplotlib.py").write_text("raise ImportError('no')\n")
    code, text = run(root, "--out", tmp_path / "x", PYTHONPATH=str(hidden))
    assert code == 1 and "pip install 'pawl[report]'" in text
