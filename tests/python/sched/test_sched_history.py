"""The history that `pawl sched` keeps, read back by `pawl report --cluster`: the same as `pawl ls`
showed, whatever killed the scheduler meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import signal
import sqlite3
import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import program
import waits
from cluster import Cluster, cluster, wait
from conftest import SEED
from pawl._report import _cluster_history
from pawl._report._cluster_history import Cluster as History

OPTIONS = ("--nodes", "2", "--slots", "3", "--grace", "2", "--round", "1", "--policy", "fifo")
LONG = os.environ.get("PAWL_LONG") is not None
FAULT_EXIT = 99  # src/base/fault.h
LOOP = "while :; do sleep 0.05; done"
PYTHON = ("--python", sys.executable)
Place = dict[str, int]


def history_of(ours: Cluster) -> Path:
    return ours.root / "history"


def report(ours: Cluster, *options: str | Path, **extra: Any) -> Any:
    return ours.run("report", "--cluster", *map(str, options), *PYTHON, **extra)


def figures(ours: Cluster, *options: str) -> Any:
    done = report(ours, "--json", *options)
    assert done.returncode == 0, done.stderr
    (known,) = json.loads(done.stdout)
    return known


# ---- the same as was seen ----


@dataclass
class Seen:
    """An answer of `pawl ls -a`: the places of jobs at some time between the two."""

    asked: float
    answered: float
    jobs: dict[int, Place]


def look(ours: Cluster) -> Seen:
    asked = time.time()
    rows = ours.ask("ls", "-a")
    places = {row["id"]: dict(_spot(text) for text in row["nodes"].split()) for row in rows}
    return Seen(asked, time.time(), places)


def _spot(text: str) -> tuple[str, int]:
    node, count = text.split(":")
    return node, int(count)


def where(history: History, job: int, time: float) -> Place:
    names = {span.lane: span.name for span in history.nodes if span.begun <= time < span.ended}
    at: Place = {}
    for stay in history.stays:
        if stay.job == job and stay.begun <= time < stay.ended:
            at[names[stay.lane]] = at.get(names[stay.lane], 0) + stay.slots
    return at


def could_be(history: History, seen: Seen, job: int) -> list[Place]:
    """Returns the places the job had between question and answer."""
    changes = {stay.begun for stay in history.stays} | {stay.ended for stay in history.stays}
    times = [seen.asked, *(t for t in sorted(changes) if seen.asked < t <= seen.answered)]
    return [where(history, job, t) for t in times]


@pytest.mark.slow
def test_what_is_read_back_is_what_was_seen() -> None:
    """Jobs come, are resized and end; a node is drained; the scheduler is killed again and again,
    and for a while there is none."""
    rng = random.Random(SEED)
    seen: list[Seen] = []
    with cluster(*OPTIONS) as ours:
        ours.sh(LOOP, "--replicas", "1:6", "-n", "wide", "--env", "SECRET=hush")
        for turn in range(6):
            for _ in range(2):
                script = f"sleep {rng.uniform(0.1, 1.5)}; exit {rng.choice([0, 0, 3])}"
                ours.sh(script, "--num-nodes", str(rng.randint(1, 2)), "--priority", "5")
            for _ in range(rng.randint(2, 5)):
                seen.append(look(ours))
                waits.any_moment(rng, 0, 0.2)
            if turn == 2:
                assert ours.run("drain", "node1").returncode == 0
            if turn == 3:
                assert ours.run("drain", "--undo", "node1").returncode == 0
            if turn % 2 == 1:
                ours.kill()
                waits.let_pass(1.2 if turn == 3 else 0)
                ours.start()
                seen.append(look(ours))
        wait(lambda: len(ours.ask("ls")) == 1, "only the wide one is left", program.LIMIT_S)
        wait(lambda: ours.state(1) == "running", "it runs")
        seen.append(look(ours))
        rows = {row["id"]: row for row in ours.ask("ls", "-a")}
        known = figures(ours)
        text = "".join(file.read_text() for file in history_of(ours).iterdir())
        history = _cluster_history.read(history_of(ours), until=known["until"])
    for one in seen:
        for job, place in one.jobs.items():
            assert place in could_be(history, one, job), (job, one, could_be(history, one, job))
    assert "hush" not in text and "SECRET" not in text
    assert text.count('"cluster":') == 1  # all in one file, which each start continues
    assert set(history.jobs) == set(rows)
    for number, row in rows.items():
        job = history.jobs[number]
        assert (job.name, job.user, job.queue) == (row["name"], row["user"], row["queue"])
        assert job.submitted == pytest.approx(row["submitted"], abs=0.2)
        assert job.changes == row["restarts"], job
        over = row["state"] in ("done", "failed", "cancelled")
        assert (job.end or "running") == row["state"] and (job.ended is not None) == over
        if over:
            assert job.ended == pytest.approx(row["since"], abs=0.2)
    assert any(now - before > 1 for before, now in history.away) and not history.lost
    (drained,) = history.drained
    assert history.nodes[drained.lane].name == "node1"
    took = [r["since"] - r["submitted"] for r in rows.values() if r["state"] == "done"]
    assert known["jobs"] == len(rows) and known["done"] == len(took)
    assert known["failed"] == sum(row["state"] == "failed" for row in rows.values())
    assert known["avg_jct_s"] == pytest.approx(statistics.fmean(took), abs=0.2)
    assert known["p99_jct_s"] == pytest.approx(max(took), abs=0.2)
    moves = sum(row["restarts"] for row in rows.values())
    assert known["restarts_per_job"] == pytest.approx(moves / len(rows))
    assert 0 < known["utilisation"] <= 1 and known["cost"] is None
    assert known["cost_h"] == pytest.approx(
        sum(j.slot_s for j in history.jobs.values()) / 3600, 0.1
    )


def rows_of(ours: Cluster) -> list[Any]:
    files = sorted(history_of(ours).iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def stored_jobs(ours: Cluster) -> list[tuple[int, str, float]]:
    """Returns number, state, and its begin, of the jobs of a dead scheduler."""
    with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as db:
        rows = db.execute("SELECT id, state, since_ns FROM jobs").fetchall()
    return [(job, state, since_ns / 1e9) for job, state, since_ns in rows]


@pytest.mark.parametrize("step", range(5, 30 if LONG else 8))
def test_what_was_stored_and_not_written_is_made_up_for(step: int) -> None:
    """The scheduler is killed just between the two, as a job comes, starts, runs or ends: the
    history has the times of the changes, not of the next start."""
    with cluster(*OPTIONS, start=False) as ours:
        ours.start(PAWL_FAULT=f"daemon.stored:{step}:-1")
        assert ours.daemon is not None
        while ours.daemon.poll() is None:  # a command may find no scheduler any more
            if ours.run("ls").stdout.count("\n") == 1:
                ours.run("submit", "--", "sleep", "0.1")
        assert ours.daemon.wait() == FAULT_EXIT
        stored = stored_jobs(ours)
        written = {(row["job"], row["state"]) for row in rows_of(ours) if "job" in row}
        waits.let_pass(1)  # changes must not have the time of the next start
        ours.start()
        wait(lambda: not ours.ask("ls"), "all are over")
        made_up = {(job, state) for job, state, _ in stored} - written
        print(f"step {step}: {made_up} was made up for")
        for job, state, since in stored:
            told = [r["t"] for r in rows_of(ours) if (r.get("job"), r.get("state")) == (job, state)]
            assert told and min(abs(t - since) for t in told) < 0.002, (job, state, since, told)
        history = _cluster_history.read(history_of(ours))
        (away,) = history.away
        assert away[1] - away[0] > 0.9
        for row in ours.ask("ls", "-a"):
            job_read = history.jobs[row["id"]]
            assert (job_read.end, job_read.changes) == ("done", row["restarts"])
            assert job_read.ended == pytest.approx(row["since"], abs=0.1)


def test_it_is_drawn_with_nothing_else_said(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with cluster("--node", "a=2:A100:2.5", "--node", "b=1:H100") as ours:
        job = ours.sh("exit 4", "-n", "listed")
        ours.await_state(job, "failed")
        ours.sh(LOOP, "-n", "runs-on")
        wait(lambda: ours.state(2) == "running", "it runs")
        done = report(ours, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        out = tmp_path / "cluster-report"
        assert (out / "cluster.png").read_bytes().startswith(b"\x89PNG")
        page = (out / "report.html").read_text()
        assert "1 listed" in page and "2 runs-on" in page and "it ended by itself" in page
        assert "http" not in page.replace("http://www.w3.org", "")
        assert page.count("data:image/svg+xml;base64,") == 1 and "UTC" in page
        assert "cost" in done.stdout and "jobs        2, 1 of them ended" in done.stdout
        known = figures(ours)
        spans = _cluster_history.read(history_of(ours), until=known["until"]).nodes
        hours = sum(span.ended - span.begun for span in spans if span.name == "a") / 3600
        assert known["cost"] == pytest.approx(2.5 * hours)
        assert not (tmp_path / "s" / "cluster-report").exists()


def test_show_tells_a_jobs_newest_changes() -> None:
    with cluster(*OPTIONS) as ours:
        job = ours.sh(LOOP, "-n", "shown")
        ours.await_state(job, "running")
        ours.run("pause", "shown")
        ours.await_state(job, "paused")
        told = ours.job(job)["history"]
        assert [row["state"] for row in told][-3:] == ["running", "stopping", "paused"]
        assert told[-1]["nodes"] == {} and told[-2]["reason"] == "its user requested it"
        assert list(told[-3]["nodes"].values()) == [1]
        ours.run("cancel", "shown")
        ours.await_state(job, "cancelled")
        text = ours.run("show", str(job)).stdout
        lines = text[text.index("history:\n") :].splitlines()[1:]
        assert lines[-1].endswith("cancelled: its user requested it") and " on node" in lines[-4]


# ---- what it costs ----


def test_what_cannot_be_written_stops_nobody() -> None:
    """Every call of the history fails for want of space; a later scheduler goes on with it."""
    with cluster(*OPTIONS, start=False) as ours:
        ours.start(PAWL_FAULT="history.:1:28:1")
        lost = ours.sh("true")
        ours.await_state(lost, "done")
        said = ours.said.read_text()
        assert said.count("rows are lost until it can be written again, jobs go on") == 1
        done = report(ours)
        assert done.returncode == 3 and "no history of a cluster is" in done.stderr
        keeps = ours.sh(LOOP)
        ours.await_state(keeps, "running")
        ours.kill()
        ours.start()
        assert ours.state(keeps) == "running"
        history = _cluster_history.read(history_of(ours))
        assert list(history.jobs) == [keeps] and history.jobs[keeps].ended is None


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mounts a file system of 64 KiB at folder."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk is mounted: run as root")
def test_a_full_disk_costs_rows_only() -> None:
    with cluster(*OPTIONS, start=False) as ours, small_disk(history_of(ours)):
        ours.start()
        before = ours.sh("true")
        ours.await_state(before, "done")
        with (
            contextlib.suppress(OSError),
            (history_of(ours) / "filler").open("wb", buffering=0) as filler,
        ):
            while filler.write(b"x" * 512):
                pass
        after = [ours.sh("true") for _ in range(12)]  # more rows than the last page has room for
        wait(lambda: not ours.ask("ls"), "all are over")
        assert all(ours.state(job) == "done" for job in after)
        assert "No space left on device; rows are lost" in ours.said.read_text()
        history = _cluster_history.read(history_of(ours))  # the rows that were written can be read
        assert history.jobs[before].end == "done"
        assert any(n not in history.jobs or not history.jobs[n].end for n in after)
        (history_of(ours) / "filler").unlink()
        ours.kill()
        ours.start()
        last = ours.sh("true")
        ours.await_state(last, "done")
        history = _cluster_history.read(history_of(ours))
        assert history.jobs[last].end == "done" and history.jobs[before].end == "done"
        assert all(job.ended is not None for job in history.jobs.values())


# ---- who reads it ----


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
def test_its_group_reads_it_and_nobody_else() -> None:
    user = pwd.getpwnam("daemon")
    inside = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ["users"]}
    outside = {**inside, "extra_groups": []}
    with cluster("--group", "users") as ours:
        ours.await_state(ours.sh("true"), "done")
        (file,) = history_of(ours).iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert _may_read(file, inside) and not _may_read(file, outside)
        assert len(json.loads(ours.run("show", "--json", "1", **inside).stdout)["history"]) >= 2
        ours.kill(signal.SIGTERM)
        ours.options = ()
        ours.start()
        assert not _may_read(file, inside)


def _may_read(file: Path, who: dict[str, Any]) -> bool:
    return subprocess.run(["cat", file], capture_output=True, check=False, **who).returncode == 0


# ---- what is wrong ----


def written(ours: Cluster) -> Path:
    """A history of one job, whose scheduler has ended."""
    ours.start()
    ours.await_state(ours.sh("true"), "done")
    ours.kill(signal.SIGTERM)
    (file,) = history_of(ours).iterdir()
    return file


def test_what_is_wrong_is_named_with_its_remedy(tmp_path: Path) -> None:
    with cluster(*OPTIONS, start=False) as ours:
        never = report(ours)
        assert never.returncode == 3 and "`pawl sched` writes one" in never.stderr
        file = written(ours)
        for options, code, says in (
            (["--since", "soon"], 2, "an age such as 2d, 12h, 90m or 30s"),
            (["--since", "2999-01-01"], 3, "give an earlier one"),
            ([str(file)], 2, "one of them"),
        ):
            done = report(ours, *options)
            assert (done.returncode, says in done.stderr) == (code, True), done.stderr
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([*lines[:3], b"\x00\xff{\n", *lines[3:]]))
        done = report(ours)
        assert done.returncode == 4 and f"{file}:4: " in done.stderr
        assert "move that file away to draw the others" in done.stderr
        file.write_bytes(b"".join(lines) + b'{"t":1')  # cut off while it was written
        assert report(ours, "--json").returncode == 0
    for option in ("--root", "--since"):
        done = program.run("report", "x", "--out", tmp_path, option, "1d")
        assert done.returncode == 2 and f"{option} is for --cluster" in done.stderr


def test_only_what_is_asked_for_is_counted() -> None:
    with cluster(*OPTIONS) as ours:
        ours.await_state(ours.sh("true"), "done")
        waits.let_pass(1.1)
        ours.await_state(ours.sh("true"), "done")
        rows = ours.ask("ls", "-a")
        between = (min(row["since"] for row in rows) + max(row["since"] for row in rows)) / 2
        since = datetime.fromtimestamp(between, timezone.utc).isoformat()
        known = figures(ours, "--since", since)
        assert known["jobs"] == known["done"] == 1
        assert known["from"] == pytest.approx(between, abs=0.001)
        assert known["nodes_avg"] == pytest.approx(2)
        assert figures(ours, "--since", "1d")["jobs"] == 2
