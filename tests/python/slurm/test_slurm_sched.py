"""`pawl sched --engine slurm` on a real Slurm: its use, and its behaviour when something dies."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
import slurm
import waits
from cluster import OVER, Cluster, wait
from conftest import SEED, SUMMARY, real_core
from pawl._report import _cluster_history

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

LONG = os.environ.get("PAWL_LONG") is not None
KILLS = 200 if LONG else 12
JOBS = 20 if LONG else 10
LIMIT_S = 120
NODES = 4
FENCE_S = 30  # seconds until a pilot's fence, as in docs/slurm.md

# The file has "twice" if another run of the job is there at the same time.
WORK = """
exec 9>> $PAWL_TEST_DIR/$1.lock
flock -n 9 || echo twice >> $PAWL_TEST_DIR/$1
echo start >> $PAWL_TEST_DIR/$1
sleep $2
echo end >> $PAWL_TEST_DIR/$1
"""
# Runs until a file "go" exists, or SIGTERM ends it.
UNTIL = (
    "echo start >> $PAWL_TEST_DIR/$1; trap 'echo told >> $PAWL_TEST_DIR/$1; exit 143' TERM\n"
    "until [ -e $PAWL_TEST_DIR/go ]; do sleep 0.1; done; echo end >> $PAWL_TEST_DIR/$1\n"
)


class Scheduler(Cluster):
    """A scheduler on Slurm's nodes; its jobs write to folder."""

    def __init__(self, ours: slurm.Slurm, folder: Path, *options: str, user: str = "") -> None:
        self.slurm = ours
        self.folder = folder
        env = {**ours.env, "TMPDIR": str(folder)}
        if user:
            home = folder / "home"
            home.mkdir()
            for path in (folder, home):
                shutil.chown(path, user, pwd.getpwnam(user).pw_gid)
            env["HOME"] = str(home)
        prefix = [f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}"] if user else []
        super().__init__(
            folder / "s",
            *("--engine", "slurm", "--grace", "3", "--round", "1", "--poll", "0.5"),
            *options,
            env=env,
            prefix=["setpriv", *prefix, "--clear-groups"] if user else [],
        )

    def work(self, name: str, seconds: float, *options: str) -> int:
        return self._script(WORK, name, str(seconds), *options)

    def until(self, name: str, *options: str) -> int:
        return self._script(UNTIL, name, "", *options)

    def _script(self, script: str, name: str, argument: str, *options: str) -> int:
        words = ["--env", f"PAWL_TEST_DIR={self.folder}", "-n", name, *options]
        return self.submit("bash", "-c", script, "bash", name, argument, options=words)

    def wrote(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def go(self) -> None:
        (self.folder / "go").touch()

    def said_so(self) -> str:
        return self.said.read_text()

    def nodes(self) -> list[str]:
        return [node["name"] for node in self.ask("top")["nodes"] if node["state"] != "lost"]

    def pilots(self) -> list[tuple[str, str, str]]:
        """Returns number, state and node of each pilot, as Slurm has them."""
        text = self.slurm.call("squeue", "--noheader", "--format=%A %T %N %j")
        name = (self.spool() / "id").read_text()
        rows = [line.split() for line in text.splitlines() if f"pawl-{name}-" in line]
        return [(row[0], row[1], row[2] if len(row) == 4 else "") for row in rows]

    def spool(self) -> Path:
        return self.root / "slurm"

    def pilot_processes(self) -> dict[int, str]:
        """Returns process id -> node of the pilots."""
        found = {}
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):  # the process is ending
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if words[1:2] == [b"pilot"] and str(self.spool()).encode() in words:
                    env = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                    (node,) = (v[16:] for v in env if v.startswith(b"SLURMD_NODENAME="))
                    found[int(entry)] = node.decode()
        # A process that keeps a part of a job is a fork of its pilot.
        return {pid: node for pid, node in found.items() if program.parent(pid) not in found}

    def over(self, *jobs: int, limit_s: float = LIMIT_S) -> None:
        wait(lambda: all(self.state(job) in OVER for job in jobs), "jobs are over", limit_s)

    def settle(self) -> None:
        """Waits until all pilots, running or pending, are nodes of the scheduler."""

        def known() -> bool:
            here = {f"{node}.{job}" for job, state, node in self.pilots() if state == "RUNNING"}
            ours = {".".join(name.split(".")[:2]) for name in self.nodes()}
            return here == ours and all(state == "RUNNING" for _, state, _ in self.pilots())

        wait(known, f"all pilots are nodes: {self.pilots()}, {self.nodes()}", LIMIT_S)

    def asks(self) -> bool:
        """Whether an sbatch of this scheduler is under way."""
        name = f"pawl-{(self.spool() / 'id').read_text()}-".encode()
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
                if b"sbatch" in command and name in command:
                    return True
        return False

    def cancelled(self) -> bool:
        """Cancels the present pilots. Returns whether there were none, and none is to come."""
        asks, left = self.asks(), self.pilots()
        for job, _, _ in left:
            self.slurm.call("scancel", job)
        return not left and not asks

    def close(self) -> None:
        super().close()
        if (self.spool() / "id").exists():
            wait(self.cancelled, "pilots leave", LIMIT_S)
        for pid in self.pilot_processes():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def ours() -> Iterator[slurm.Slurm]:
    with slurm.own_cluster(NODES, late="n2") as made:
        yield made


@contextlib.contextmanager
def scheduler(
    ours: slurm.Slurm, *options: str, user: str = "", start: bool = True
) -> Iterator[Scheduler]:
    folder = Path(tempfile.mkdtemp(prefix="pawl-", dir="/tmp"))
    made = Scheduler(ours, folder, *(options or ("--pool", "cpu=4:0..3")), user=user)
    try:
        if start:
            made.start()
        yield made
    except BaseException:
        with contextlib.suppress(AssertionError):
            print(ours.call("sinfo", "-N", "--format=%N %T %E"), ours.call("squeue"))
        if made.said.exists():
            print(made.said_so())
        raise
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


# ---- as its user has it ----


def test_jobs_in_pilots(ours: slurm.Slurm) -> None:
    """Pilots are submitted when there is work: one job on one node, one whose ranks are on two."""
    with scheduler(ours, "--pool", "cpu=2:0..2") as made:
        assert made.pilots() == []
        one = made.sh("echo on $SLURM_CONF one")
        own = made.submit("printenv", "PYTHONPATH", options=["--env", "PYTHONPATH=/its/own"])
        made.over(one, own)
        assert made.lines(one) == [f"on {ours.env['SLURM_CONF']} one"]
        assert made.lines(own) == ["/its/own"]  # not the submitter's value
        four = made.sh("echo rank $RANK of $WORLD_SIZE", "--replicas", "4:4")
        made.over(four)
        assert [row[1] for row in made.pilots()] == ["RUNNING"] * 2
        printed = "".join(path.read_text() for path in (made.root / f"jobs/{four}").glob("log*"))
        assert all(f"rank {rank} of 4" in printed for rank in range(4))
        bad = made.sh("exit 3")
        made.over(bad)
        assert [made.state(job) for job in (own, four, bad)] == ["done", "done", "failed"]
        made.kill(signal.SIGTERM)
        (known,) = made.ask("report", "--cluster", "--python", sys.executable)
        assert (known["jobs"], known["done"], known["failed"]) == (4, 3, 1) and known["cost"] > 0
        assert known["avg_jct_s"] > 0 and 0 < known["utilisation"] < 1
        history = _cluster_history.read(made.root / "history")
        assert {span.pool for span in history.nodes} == {"cpu"} and history.lanes == 2
        lanes = {stay.lane: stay.slots for stay in history.stays if stay.job == four}
        assert lanes == {0: 2, 1: 2}


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user(ours: slurm.Slurm) -> None:
    """Scheduler, pilots and jobs belong to another user; --root is local, --spool is visible on all
    nodes."""
    with scheduler(ours, "--pool", "cpu=4:0..2", user="daemon", start=False) as made:
        shared = made.folder / "shared"
        made.options = (*made.options, "--spool", str(shared))
        made.spool = lambda: shared / "slurm"  # type: ignore[method-assign]
        made.start()
        (made.folder / "data").mkdir()
        (made.folder / "data/x").write_text("found\n")
        file = made.folder / "job.yaml"
        file.write_text(
            f"file_mounts:\n  ~/data: {made.folder}/data\n  {made.folder}/here: ~/data\n"
            f"setup: cat {made.folder}/here/x\nrun: id -un; cat ~/data/x\n"
        )
        done = made.run("submit", "-n", "mounts", str(file))
        assert done.returncode == 0, done.stderr
        wait(lambda: made.state("mounts") in OVER, "it is over", LIMIT_S)
        assert made.lines("mounts") == ["found", "daemon", "found"]
        owner = made.slurm.call("squeue", "--noheader", "--format=%u").split()
        assert set(owner) == {"daemon"}
        assert (shared / "jobs/1/log").owner() == "daemon" and not (made.root / "jobs").exists()
        file.write_text(f"file_mounts:\n  {made.folder}/data: ~/\nrun: 'true'\n")
        assert made.run("submit", "-n", "bad", str(file)).returncode == 0
        wait(lambda: made.state("bad") in OVER, "it is over", LIMIT_S)
        assert made.job("bad")["exit_code"] == 125
        assert "something else is there" in made.log("bad")


def test_what_nodes_are_to_have(ours: slurm.Slurm) -> None:
    """Memory, CPUs and disk are compared with what Slurm says of nodes: slurm.sh gives each 4 CPUs,
    1000 MiB, 2000 MiB."""
    options = ("--pool", "cpu=4:0..1", "--pool", "no=1:0..1", "--sbatch", "no=--partition=nowhere")
    with scheduler(ours, *options) as made:
        file = made.folder / "job.yaml"

        def submit(resources: str) -> subprocess.CompletedProcess[str]:
            file.write_text(f"resources:\n  {resources}\nrun: 'true'\n")
            return made.run("submit", str(file))

        wait(lambda: submit("cpus: 5+").returncode != 0, "Slurm says what its nodes have")
        for resources in ("cpus: 5", "memory: 1", "disk_size: 2", "cpus: 4\n  memory: 2+"):
            done = submit(resources)
            text = "no node that a pool's pilots can get has so many"
            assert done.returncode == 2 and text in done.stderr, (resources, done)
        good = submit("cpus: 4+\n  memory: 0.9\n  disk_size: 1")
        assert good.returncode == 0, good.stderr


def test_how_much_of_a_node_a_pilot_has(ours: slurm.Slurm) -> None:
    """A pilot has the whole node, unless an option says otherwise: sbatch alone means one CPU."""
    options = "--pool all=1:1..1 --sbatch all=--time=60 --pool two=1:1..1 --sbatch two=-c2"
    with scheduler(ours, *options.split()) as made:
        wait(lambda: [p[1] for p in made.pilots()] == ["RUNNING"] * 2, "both run", LIMIT_S)
        rows = ours.call("squeue", "--noheader", "--format=%j %C", "--states=RUNNING").split("\n")
        assert sorted(row.rpartition("-")[2] for row in rows if row) == ["all 4", "two 2"], rows


# ---- when things die ----


def test_a_killed_scheduler_loses_nothing_and_starts_nothing_twice(ours: slurm.Slurm) -> None:
    rng = random.Random(SEED)
    sent: list[int] = []
    with scheduler(ours, "--pool", "cpu=4:0..3") as made:
        for kill in range(KILLS):
            made.start() if kill > 0 else None
            while len(sent) < min(JOBS, JOBS * (kill + 1) / KILLS + 3):
                sent.append(made.work(f"job{len(sent)}", rng.uniform(0.1, 4)))
            waits.any_moment(rng, 0, 0.6)
            made.kill()
        made.start()
        made.over(*sent)
        for n, job in enumerate(sent):
            row = made.job(job)
            assert row["state"] == "done", (row, made.log(job))
            assert made.wrote(f"job{n}") == ["start", "end"], made.log(job)
        made.settle()
        assert 1 <= len(made.pilots()) <= 3
    SUMMARY.append(
        f"slurm: scheduler killed {KILLS} times with {len(sent)} jobs, none lost or doubled"
    )


def test_pilots_that_go(ours: slurm.Slurm) -> None:
    """Pilots are killed, cancelled, requeued: each job that ran there starts again, one run at a
    time."""
    with scheduler(ours, "--pool", "cpu=2:0..3") as made:
        jobs = [made.until(f"job{n}") for n in range(6)]
        wait(lambda: all(made.state(job) == "running" for job in jobs), "all run", LIMIT_S)
        rows = made.pilots()
        assert len(rows) == 3
        (killed,) = (pid for pid, node in made.pilot_processes().items() if node == rows[0][2])
        os.kill(killed, signal.SIGKILL)
        made.slurm.call("scancel", rows[1][0])
        made.slurm.call("scontrol", "requeue", rows[2][0])
        wait(lambda: all(made.wrote(f"job{n}").count("start") == 2 for n in range(6)),
             "all start again", LIMIT_S)  # fmt: skip
        made.go()
        made.over(*jobs)
        for n, job in enumerate(jobs):
            wrote = made.wrote(f"job{n}")
            assert made.state(job) == "done", (made.job(job), made.log(job))
            assert [word for word in wrote if word != "told"] == ["start", "start", "end"]
            assert made.job(job)["restarts"] == 1
        # Jobs of the killed pilot get no signal, so they print no "told".
        assert sum("told" in made.wrote(f"job{n}") for n in range(6)) == 4
        made.settle()


@pytest.mark.slow
def test_drained_and_dead_nodes(ours: slurm.Slurm) -> None:
    """Jobs of a drained node go on elsewhere; so do those of a node whose slurmd died."""
    with scheduler(ours, "--pool", "cpu=2:0..2") as made:
        jobs = [made.until(f"job{n}", "--replicas", "2:2") for n in range(2)]
        wait(lambda: all(made.state(job) == "running" for job in jobs), "both run", LIMIT_S)
        drained, dead = (row[2] for row in made.pilots())
        try:
            made.slurm.call("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=x")
            wait(lambda: drained not in [row[2] for row in made.pilots()], "it has left", LIMIT_S)
            made.slurm.kill(dead)
            wait(lambda: all(made.state(job) == "running" and
                             made.job(job)["restarts"] >= 1 for job in jobs),
                 "both run elsewhere", LIMIT_S)  # fmt: skip
            assert drained not in str([made.job(job)["nodes"] for job in jobs])
        finally:
            made.slurm.call("scontrol", "update", f"NodeName={drained}", "State=RESUME")
            with contextlib.suppress(UnboundLocalError):
                made.slurm.start(dead)
        made.go()
        made.over(*jobs)
        for n, job in enumerate(jobs):
            assert made.state(job) == "done" and made.wrote(f"job{n}").count("end") == 2
        made.settle()


@pytest.mark.slow
def test_slurmctld_is_away(ours: slurm.Slurm) -> None:
    """Jobs go on, start and end in the present pilots; the scheduler reports it, and goes
    on later."""
    with scheduler(ours, "--pool", "cpu=2:0..2") as made:
        one = made.until("one")
        made.await_state(one, "running", limit_s=LIMIT_S)
        made.slurm.await_state(made.pilots()[0][0])
        made.slurm.kill("ctld")
        try:
            two = made.work("two", 0.1)
            made.over(two)
            more = [made.until(f"more{n}", "--replicas", "1:1") for n in range(2)]
            wait(lambda: "slurm: no answer" in made.run("ls").stdout, "it is said", LIMIT_S)
            shown = made.job(waiting := more[1])
            assert shown["state"] == "queued" and "slurm: no answer" in shown["remark"][0]
            assert "slurm: no answer" in made.run("show", str(waiting)).stdout
            assert "jobs go on in the existing pilots" in made.said_so()
            if LONG:
                made.kill()  # the scheduler dies, too
                made.start()
                assert made.state(one) == "running" and made.state(waiting) == "queued"
                text = "jobs go on in the existing pilots"
                wait(lambda: made.said_so().count(text) == 2, "it is said again", LIMIT_S)
        finally:
            made.slurm.start("ctld")
            made.slurm.resume()
        made.await_state(waiting, "running", limit_s=LIMIT_S)
        assert "slurm: Slurm answers again" in made.said_so()
        made.go()
        made.over(one, *more)
        assert made.wrote("one") == made.wrote("more1") == ["start", "end"]
        made.settle()


@pytest.mark.slow
def test_slurmctld_forgets(ours: slurm.Slurm) -> None:
    """slurmctld dies without having stored that a pilot runs, or exists. It may start the pilot
    twice, drain its node for that, and hold it for ever: then the pilot is cancelled, and the job
    runs elsewhere."""
    with scheduler(ours, "--pool", "cpu=4:0..2") as made:
        stored = made.until("stored", "--replicas", "4:4")
        made.await_state(stored, "running", limit_s=LIMIT_S)
        ((first, _, _),) = made.pilots()
        made.slurm.await_state(first)
        job = made.until("job", "--replicas", "1:4")
        made.await_state(job, "running", limit_s=LIMIT_S)
        made.slurm.kill("ctld")
        made.slurm.start("ctld")
        wait(made.slurm.alive, "slurmctld answers", LIMIT_S)
        assert made.run("cancel", str(stored)).returncode == 0
        wait(lambda: made.job(job)["restarts"] == 1 and made.state(job) == "running",
             "it runs elsewhere", LIMIT_S)  # fmt: skip
        made.go()
        made.over(job)
        assert made.state(job) == "done"
        made.settle()
        made.slurm.resume()


# ---- Slurm's commands, and its refusals ----


SBATCH = ("garbage", "half", "fails")


@pytest.fixture
def stand_in(ours: slurm.Slurm) -> Iterator[tuple[Scheduler, Path]]:
    """A scheduler whose squeue, sinfo and sbatch are scripts that do as a file says, or call the
    real one: a stand-in for commands that hang or are cut off, since the real ones do not on
    demand."""
    pools = ["--pool", "cpu=2:0..1"]
    for mode in SBATCH:
        pools += ["--pool", f"{mode}=1:0..1:{mode}:9"]
    with scheduler(ours, *pools, start=False) as made:
        bin_dir = made.folder / "bin"
        bin_dir.mkdir()
        for name in ("squeue", "sinfo", "sbatch"):
            real = shutil.which(name)
            script = f"#!/bin/sh\nmode=$(cat {bin_dir}/{name}.mode 2>/dev/null)\n"
            script += f'[ -n "$mode" ] || exec {real} "$@"\n. {bin_dir}/$mode\n'
            (bin_dir / name).write_text(script)
            (bin_dir / name).chmod(0o755)
        (bin_dir / "garbage").write_text("echo '<html>502</html>'\n")
        (bin_dir / "nothing").write_text("true\n")
        (bin_dir / "half").write_text("printf '1'\n")
        (bin_dir / "fails").write_text("echo 'slurm: no, not today' >&2; exit 1\n")
        (bin_dir / "hangs").write_text("sleep 1000\n")
        made.env["PATH"] = f"{bin_dir}:{os.environ['PATH']}"
        made.start()
        yield made, bin_dir


def test_commands_that_print_what_was_not_asked_for(stand_in: tuple[Scheduler, Path]) -> None:
    made, bin_dir = stand_in
    job = made.until("job")
    made.await_state(job, "running", limit_s=LIMIT_S)
    for name, mode, text in (
        ("squeue", "garbage", "squeue prints unexpected output: <html>"),
        ("squeue", "half", "squeue prints unexpected output: 1"),
        ("squeue", "fails", "squeue: slurm: no, not today"),
        ("sinfo", "garbage", "sinfo prints unexpected output: <html>"),
        ("sinfo", "half", "sinfo prints unexpected output: 1"),
    ):
        (bin_dir / f"{name}.mode").write_text(mode)
        wait(lambda text=text: text in str(made.job(job)["remark"]), f"{name} {mode} is said")
        (bin_dir / f"{name}.mode").unlink()
        wait(lambda: made.job(job)["remark"] == [], "it answers again")
    for mode in SBATCH:  # each has its own pool, which is not asked again for ten minutes
        (bin_dir / "sbatch.mode").write_text(mode)
        file = made.folder / "job.yaml"
        file.write_text(f"resources:\n  accelerators: {mode}\nrun: 'true'\n")
        assert made.run("submit", "-n", mode, str(file)).returncode == 0
        text = f"pool {mode}: no pilot, "
        wait(lambda mode=mode, text=text: text in str(made.job(mode)["remark"]), f"{mode} is said")
        (remark,) = (line for line in made.job(mode)["remark"] if text in line)
        assert "s ago: sbatch" in remark, remark
        assert "no pilot" in made.run("ls").stdout
        (bin_dir / "sbatch.mode").unlink()
    assert len(made.pilots()) == 1
    assert made.state(job) == "running" and made.wrote("job") == ["start"]
    made.go()
    made.over(job)
    assert made.wrote("job") == ["start", "end"]


def test_sbatch_that_slurm_refuses(ours: slurm.Slurm) -> None:
    """Slurm refuses a partition's time limit, and a partition that does not exist: the error is in
    Slurm's words, and repeated only after ten minutes; another pool stands in."""
    options = ["--pool", "long=1:0..1:cpu:1", "--sbatch", "long=--partition=short"]
    options += ["--sbatch", "long=--time=60", "--pool", "none=1:0..1:cpu:2"]
    options += ["--sbatch", "none=--partition=nowhere", "--pool", "good=1:0..1:cpu:3"]
    with scheduler(ours, *options) as made:
        jobs = [made.until(f"job{n}") for n in range(2)]
        made.await_state(jobs[0], "running", limit_s=LIMIT_S)
        for text in ("pool long: no pilot", "pool none: no pilot"):
            wait(lambda text=text: text in str(made.job(jobs[1])["remark"]), f"{text} is said")
        remark = str(made.job(jobs[1])["remark"])
        assert "Requested time limit is invalid" in remark and "Invalid partition name" in remark
        assert made.said_so().count("Requested time limit is invalid") == 1
        assert made.run("cancel", str(jobs[1])).returncode == 0
        made.go()
        made.over(*jobs)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="a file system that is full needs root")
def test_a_full_spool(ours: slurm.Slurm) -> None:
    """Jobs go on for longer than pilots live without a spool, and end; then the scheduler learns
    all."""
    with scheduler(ours, "--pool", "cpu=2:0..1", start=False) as made:
        shared = made.folder / "shared"
        shared.mkdir()
        made.options = (*made.options, "--spool", str(shared))
        made.spool = lambda: shared / "slurm"  # type: ignore[method-assign]
        made.slurm.call("mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tmpfs", shared)
        try:
            made.start()
            job, ends = made.until("job"), made.work("ends", 1)
            made.await_state(ends, "running", limit_s=LIMIT_S)
            with contextlib.suppress(OSError), (shared / "filling").open("wb", 0) as filling:
                while True:
                    filling.write(b"x" * 4096)
            wait(lambda: made.wrote("ends") == ["start", "end"], "it ends", LIMIT_S)
            queued = made.work("waits", 0)
            wait(lambda: "its file system is full" in str(made.job(queued)["remark"]), "it is said")
            waits.stays(lambda: (made.state(job), made.wrote("job")) == ("running", ["start"]),
                        "the job goes on", 2 * FENCE_S if LONG else 0)  # fmt: skip
            assert len(made.pilots()) == 1
            (shared / "filling").unlink()
            made.over(ends, queued)
            made.go()
            made.over(job)
            assert [made.state(n) for n in (job, ends, queued)] == ["done"] * 3
            assert made.wrote("job") == made.wrote("ends") == ["start", "end"]
        finally:
            made.close()
            made.slurm.call("umount", "--lazy", shared)


# ---- what takes long ----

long = pytest.mark.skipif(not LONG, reason="long: PAWL_LONG=1")


@long
def test_commands_that_hang(stand_in: tuple[Scheduler, Path]) -> None:
    """Each command is killed after a minute, which is reported; jobs end and start all the
    while."""
    made, bin_dir = stand_in
    job = made.until("job")
    made.await_state(job, "running", limit_s=LIMIT_S)
    for name in ("squeue", "sinfo"):
        (bin_dir / f"{name}.mode").write_text("hangs")
        text = f"{name}: killed after 60 s"
        wait(lambda text=text: text in str(made.job(job)["remark"]), f"{name} is killed", LIMIT_S)
        made.over(made.work(f"beside-{name}", 0.1), limit_s=50)
        (bin_dir / f"{name}.mode").unlink()
        wait(lambda: made.job(job)["remark"] == [], "it answers again", LIMIT_S)
    (bin_dir / "sbatch.mode").write_text("hangs")
    file = made.folder / "job.yaml"
    file.write_text("resources:\n  accelerators: half\nrun: 'true'\n")
    assert made.run("submit", "-n", "half", str(file)).returncode == 0
    text = "sbatch: killed after 60 s"
    wait(lambda: text in str(made.job("half")["remark"]), "sbatch is killed", LIMIT_S)
    made.go()
    made.over(job)
    assert made.wrote("job") == ["start", "end"]
    (bin_dir / "sbatch.mode").unlink()
    wait(lambda: made.state("half") == "done", "it is asked again, and answers", 2 * LIMIT_S)


@long
def test_a_pilots_time_limit(ours: slurm.Slurm) -> None:
    """A minute before the limit Slurm warns, and the job goes elsewhere. With slurmctld away
    nothing ends the pilot, or warns: its job goes on, until slurmctld is back."""
    options = ("--pool", "cpu=1:0..2", "--sbatch", "cpu=--time=3")
    with scheduler(ours, *options) as made:
        job = made.until("job")
        made.await_state(job, "running", limit_s=LIMIT_S)
        wait(lambda: made.job(job)["restarts"] == 1 and made.state(job) == "running",
             "it goes elsewhere", 2 * LIMIT_S)  # fmt: skip
        assert made.wrote("job") == ["start", "told", "start"]
        wait(lambda: len(made.pilots()) == 1, "the first has left", LIMIT_S)
        ((pilot, _, _),) = made.pilots()
        made.slurm.await_state(pilot)
        made.slurm.kill("ctld")
        try:
            waits.stays(lambda: (made.state(job), made.wrote("job").count("start"))
                        == ("running", 2), "the job goes on", 3 * 60 + FENCE_S)  # fmt: skip
        finally:
            made.slurm.start("ctld")
        wait(lambda: made.job(job)["restarts"] == 2 and made.state(job) == "running",
             "it goes elsewhere", LIMIT_S)  # fmt: skip
        made.go()
        made.over(job)
        assert made.wrote("job") == [*["start", "told"] * 2, "start", "end"]
        made.settle()


@long
def test_a_node_that_is_gone(ours: slurm.Slurm) -> None:
    """All of Slurm's processes there and the pilot die at once: nothing can report that the job has
    ended, so it starts again only after the time by which the pilot would have ended by itself."""
    with scheduler(ours, "--pool", "cpu=2:0..2") as made:
        job = made.until("job")
        made.await_state(job, "running", limit_s=LIMIT_S)
        ((pilot, node),) = made.pilot_processes().items()
        made.slurm.kill(node)
        begun = time.monotonic()
        for process in (program.parent(pilot), pilot):  # otherwise slurmstepd would tell slurmctld
            os.kill(process, signal.SIGKILL)
        try:
            wait(lambda: made.wrote("job").count("start") == 2, "it starts again", LIMIT_S)
            assert time.monotonic() - begun > FENCE_S
        finally:
            made.slurm.start(node)
        made.go()
        made.over(job)
        assert made.wrote("job") == ["start", "start", "end"]
        made.settle()


@pytest.mark.slow
@long
def test_pilots_are_given_back(ours: slurm.Slurm) -> None:
    """Pilots end after five minutes without work, also those of a killed scheduler."""
    with scheduler(ours, "--pool", "cpu=4:0..2") as made:
        jobs = [made.work(f"job{n}", 1, "--replicas", "4:4") for n in range(2)]
        made.over(*jobs)
        made.kill()
        made.start()
        made.settle()
        wait(lambda: made.pilots() == [], "all are given back", 500)
        assert made.pilot_processes() == {}
