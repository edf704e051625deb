"""The scheduler's database is lost, emptied, overwritten or replaced by an older copy while jobs
run: the scheduler refuses to start and ends no job; with --rebuild it takes over the jobs that run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import program
from cluster import Cluster, cluster, wait

OPTIONS = ("--nodes", "2", "--slots", "4", "--grace", "2", "--round", "1")
# The file has "twice" if another run of the job is there at the same time.
ONCE = "exec 9>$0.lock; flock -n 9 || echo twice >>$0; echo start >>$0; {}; echo end >>$0"


def files(root: Path) -> list[Path]:
    return [root / name for name in ("sched.db", "sched.db-wal", "sched.db-shm")]


def remove(root: Path, older: Path) -> None:
    for path in files(root):
        path.unlink(missing_ok=True)


def empty(root: Path, older: Path) -> None:
    (root / "sched.db").write_bytes(b"")  # the files that SQLite keeps beside it stay


def overwrite(root: Path, older: Path) -> None:
    remove(root, older)
    (root / "sched.db").write_text("not a database\n" * 1000)


def make_alien(root: Path, older: Path) -> None:
    remove(root, older)
    with contextlib.closing(sqlite3.connect(root / "sched.db")) as db:
        db.execute("CREATE TABLE others(id INTEGER)")
        db.commit()


def make_blank(root: Path, older: Path) -> None:
    remove(root, older)
    with contextlib.closing(sqlite3.connect(root / "sched.db")) as db:
        db.execute("VACUUM")


def put_older_back(root: Path, older: Path) -> None:
    remove(root, older)
    shutil.copy(older, root / "sched.db")


def start(ours: Cluster, *more: str) -> None:
    options, ours.options = ours.options, (*ours.options, *more)
    ours.start()
    ours.options = options


def refused(ours: Cluster) -> str:
    done = program.run("sched", "--root", ours.root, *OPTIONS)
    assert done.returncode in (1, 4), done
    return str(done.stderr)


def running(ours: Cluster, mark: Path, go: Path) -> int:
    script = ONCE.format(f"until [ -e {go} ]; do sleep 0.05; done")
    job = ours.submit("bash", "-c", script, str(mark), options=["-n", "gpt"], cwd=mark.parent)
    ours.await_state(job, "running")
    wait(mark.exists, "it runs")
    return job


def told(ours: Cluster, job: int) -> dict[str, object]:
    row = ours.job(job)
    return {key: row[key] for key in ("id", "name", "user", "cwd", "state", "nodes", "replicas")}


@pytest.mark.parametrize(
    "fault", [remove, empty, overwrite, make_alien, make_blank, put_older_back]
)
def test_a_lost_database_ends_nothing_and_is_rebuilt(
    tmp_path: Path, fault: Callable[[Path, Path], None]
) -> None:
    with cluster(*OPTIONS) as ours:
        ours.await_state(ours.sh("true"), "done")
        ours.kill(signal.SIGTERM)
        older = shutil.copy(ours.root / "sched.db", tmp_path / "older")
        ours.start()
        job = running(ours, tmp_path / "mark", tmp_path / "go")
        ours.sh("true", "--num-nodes", "8", "-n", "waits")
        before = told(ours, job)
        ours.kill()
        fault(ours.root, older)
        left = [path.read_bytes() if path.exists() else None for path in files(ours.root)[:1]]
        before_it = ours.keepers()
        for _ in range(2):
            said = refused(ours)
            assert "sched.db" in said and "--rebuild" in said and "copy" in said, said
        assert ours.keepers() == before_it
        if fault is not put_older_back:
            assert left == [p.read_bytes() if p.exists() else None for p in files(ours.root)[:1]]
        start(ours, "--rebuild")
        wait(lambda: ours.state(job) == "running", "it was taken over")
        assert told(ours, job) == before
        assert "job 3 waits of" in ours.said.read_text()
        assert ours.sh("true") == 4
        ours.kill()
        ours.start()
        assert ours.state(job) == "running" and set(before_it) <= set(ours.keepers())
        (tmp_path / "go").touch()
        ours.await_state(job, "done")
        assert (tmp_path / "mark").read_text().split() == ["start", "end"]


def test_what_ended_while_the_database_was_lost_is_told(tmp_path: Path) -> None:
    """A job that ended keeps its exit code; a job whose keeper was killed meanwhile runs again."""
    with cluster(*OPTIONS) as ours:
        ends = ours.sh(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 3")
        again = ours.sh(
            f"echo x >>{tmp_path}/again; until [ -e {tmp_path}/go2 ]; do sleep 0.05; done"
        )
        for job in (ends, again):
            ours.await_state(job, "running")
        wait((tmp_path / "again").exists, "both run")
        ours.kill()
        (tmp_path / "go").touch()
        wait(lambda: len(list((ours.root / "runs" / "2.1").iterdir())) > 0, "it is there")
        for pid in ours.processes():
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{pid}/environ").read_bytes()
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"runs/2.1\0" in environ and b"shepherd" in command:
                    os.kill(pid, signal.SIGKILL)
        wait(lambda: not ours.processes(), "nothing is left of both")
        remove(ours.root, tmp_path)
        start(ours, "--rebuild")
        ours.await_state(ends, "failed")
        assert ours.job(ends)["exit_code"] == 3
        wait(lambda: (tmp_path / "again").read_text().split() == ["x", "x"], "it runs again")
        (tmp_path / "go2").touch()
        ours.await_state(again, "done")


def test_a_size_that_was_changed_is_taken_over(tmp_path: Path) -> None:
    """The job keeps its present size, not the size that it started with."""
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    with cluster("--nodes", "1", "--slots", "4", "--grace", "2", "--round", "1") as ours:
        job = ours.submit("bash", "-c", script, options=["--replicas", "1:4"])
        ours.await_state(job, "running")
        before = told(ours, job)
        ours.kill()
        empty(ours.root, tmp_path)
        start(ours, "--rebuild")
        wait(lambda: ours.state(job) == "running", "it was taken over")
        assert told(ours, job) == before
        assert ours.run("cancel", str(job)).returncode == 0
        ours.await_state(job, "cancelled")
        assert ours.processes() == []


def test_nodes_of_before_are_asked_for(tmp_path: Path) -> None:
    with cluster(*OPTIONS) as ours:
        job = running(ours, tmp_path / "mark", tmp_path / "go")
        ours.kill()
        empty(ours.root, tmp_path)
        done = program.run("sched", "--root", ours.root, "--node", "other=4", "--rebuild")
        assert done.returncode == 2 and "runs on node node0" in done.stderr, done
        start(ours, "--rebuild")
        wait(lambda: ours.state(job) == "running", "it was taken over")
        (tmp_path / "go").touch()
        ours.await_state(job, "done")


def test_what_cannot_be_looked_at_counts_as_there() -> None:
    """Where it is not known whether jobs run, no new database is made."""
    with tempfile.TemporaryDirectory(prefix="pawl-", dir="/tmp") as name:
        root = Path(name, "s")
        env = program.clean_env(PAWL_FAULT="rebuild.look:1:5")  # EIO
        done = program.run("sched", "--root", root, *OPTIONS, env=env)
        assert done.returncode == 4 and "jobs lie in runs/ beside it" in done.stderr, done
        assert os.listdir(root) == ["lock"]
