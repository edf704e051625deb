"""Which processes belong to a job: a process of another user, or of an earlier job, does not,
whatever is in its environment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
from cluster import cluster, wait

OPTIONS = ("--nodes", "1", "--slots", "1", "--grace", "2", "--round", "1")
NOBODY = 65534


@contextlib.contextmanager
def claims(job: str, root: Path, uid: int) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process of a user that claims to belong to a job; checks that it is still there at the
    end."""
    var = {"PATH": os.environ["PATH"], "PAWL_SCHED_RUN": f"{root}/runs/{job}"}
    made = subprocess.Popen(
        ["sleep", "98761"], env=var, user=uid if uid != os.geteuid() else None, cwd="/"
    )
    try:
        yield made
        assert made.poll() is None
    finally:
        made.kill()
        made.wait()


def until(path: Path) -> str:
    return f"echo up; until [ -e {path} ]; do sleep 0.05; done"


def test_who_only_says_so_holds_no_slot(tmp_path: Path) -> None:
    """Processes claim to belong to an earlier job of the same user whose directory had that name,
    or come from another user. The job comes to its end, even if its keeper is killed, and the
    processes are left alone."""
    users = [os.geteuid(), *([NOBODY] if os.geteuid() == 0 else [])]
    with cluster(*OPTIONS) as ours, contextlib.ExitStack() as others:
        for run in ("1.1", "1.2", "2.2", "2.3"):
            for uid in users:
                others.enter_context(claims(run, ours.root, uid))
        job = ours.sh(until(tmp_path / "one"))
        wait(lambda: ours.lines(job) == ["up"], "it runs")
        (keeper,) = ours.keepers()
        os.kill(keeper, signal.SIGKILL)
        wait(lambda: ours.lines(job) == ["up", "up"], "it runs once more")
        (tmp_path / "one").touch()
        ours.await_state(job, "done")
        assert ours.run("cancel", str(ours.sh(until(tmp_path / "never")))).returncode == 0
        wait(lambda: not ours.ask("ls"), "the slot is free")
        wait(lambda: not list((ours.root / "runs").iterdir()), "nothing is kept of runs")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_a_job_does_as_another_user_is_the_jobs(tmp_path: Path) -> None:
    """A process of the job that has left its session and its parent ends with the job."""
    script = (
        f"import os, time\nos.setsid()\nif os.fork(): os._exit(0)\nos.setresuid({NOBODY}, 0, 0)\n"
        f"open('{tmp_path}/up', 'w').write(str(os.getpid()))\ntime.sleep(98761)"
    )
    (tmp_path / "daemon.py").write_text(script)
    line = (
        f"(env -i python3 {tmp_path}/daemon.py &); until [ -s {tmp_path}/up ]; do sleep 0.05; done"
    )
    with cluster(*OPTIONS) as ours:
        ours.await_state(ours.sh(line), "done")
        assert not program.is_alive(int((tmp_path / "up").read_text()))
