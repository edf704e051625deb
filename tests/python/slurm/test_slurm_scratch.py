"""`disk_tier: best` on a real Slurm: each job gets a directory of its own on the fastest file
system of a node."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
import slurm
from cluster import OVER, wait
from conftest import real_core
from test_slurm_sched import LIMIT_S, Scheduler, scheduler

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

NODES = 2
# A directory as a job's user may leave it: full, closed, with a link out of it.
FILL = "mkdir -p $PAWL_SCRATCH/a/b; ln -s /etc $PAWL_SCRATCH/a/c; echo x > $PAWL_SCRATCH/a/b/x; "


@pytest.fixture(scope="module")
def ours() -> Iterator[slurm.Slurm]:
    with slurm.own_cluster(NODES) as made:
        yield made


@pytest.fixture
def disks() -> Iterator[tuple[Path, Path]]:
    """Yields a folder in memory, and one on a disk, where durable writes are slower."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="scratch-", dir="/dev/shm") as fast,
        tempfile.TemporaryDirectory(prefix="pawl-", dir="/var/tmp") as slow,
    ):
        yield Path(fast), Path(slow)


def submit(made: Scheduler, script: str, *lines: str, resources: str = "") -> int:
    """Submits a job with disk_tier: best."""
    kind = f"resources: {{disk_tier: best, {resources}}}"
    return made.submit_file("\n".join([*lines, kind, f"run: |\n  {script}\n"]))


def log_of(made: Scheduler, job: int) -> list[str]:
    paths = (made.root / f"jobs/{job}").glob("log*")
    return [line for path in sorted(paths) for line in path.read_text().splitlines()]


def test_a_part_has_the_fastest_while_it_runs(ours: slurm.Slurm, disks: tuple[Path, Path]) -> None:
    """The directory exists on both nodes of a job, also in setup; it is removed with the job,
    killed or not."""
    fast, slow = disks
    options = ("--pool", "cpu=1:0..2", "--scratch", f"cpu={slow}", "--scratch", f"cpu={fast}")
    with scheduler(ours, *options) as made:
        job = submit(
            made,
            "cat $PAWL_SCRATCH/setup; ls $PAWL_SCRATCH; echo in $PAWL_SCRATCH; " + FILL,
            "num_nodes: 2",
            "setup: ls $PAWL_SCRATCH; stat -c %a $PAWL_SCRATCH; echo s > $PAWL_SCRATCH/setup",
        )
        made.over(job)
        lines = log_of(made, job)
        assert [line for line in lines if not line.startswith("in ")] == ["700", "s", "setup"] * 2
        where = {Path(line.split()[1]) for line in lines if line.startswith("in ")}
        assert len(where) == 2 and {path.parent.parent for path in where} == {fast}
        assert not any(path.exists() for path in where)
        assert sorted(path.name[:-6] for path in fast.iterdir()) == [
            "pawl-scratch-n1-",
            "pawl-scratch-n2-",
        ]
        assert list(slow.iterdir()) == []
        stuck = submit(made, f"trap '' TERM; {FILL} echo up; while :; do sleep 1; done")
        wait(lambda: "up" in log_of(made, stuck), "it runs", LIMIT_S)
        assert len(list(fast.glob("*/*/a/b/x"))) == 1
        made.run("cancel", str(stuck))  # killed when its grace is over
        made.over(stuck)
        plain = made.sh("echo ${PAWL_SCRATCH-none}")
        made.over(plain)
        assert made.lines(plain) == ["none"]
        wait(lambda: list(fast.glob("*/*")) == [], "what they wrote is removed", LIMIT_S)
        for pilot, _, _ in made.pilots():
            made.slurm.call("scancel", pilot)
        wait(lambda: list(fast.iterdir()) == [], "pilots take theirs with them", LIMIT_S)


def test_ranks_of_replicas_have_it(ours: slurm.Slurm) -> None:
    """Without --scratch, the directory is in the pilots' TMPDIR."""
    with scheduler(ours, "--pool", "cpu=2:0..1") as made:
        job = submit(made, "echo in $PAWL_SCRATCH; ls $PAWL_SCRATCH", "replicas: 2..2")
        made.over(job)
        assert made.state(job) == "done", made.log(job)
        said = {line.split("in ")[1] for line in log_of(made, job) if "in /" in line}
        (path,) = said
        assert Path(path).parent.parent == made.folder and not Path(path).exists()


def test_what_a_killed_pilot_leaves_is_removed(ours: slurm.Slurm, disks: tuple[Path, Path]) -> None:
    """The next pilot on that node removes it, but no directory of a pilot that lives, nor of
    others."""
    fast = disks[0]
    options = []
    for name in ("one", "two"):  # both pilots are on n1, which has room for four
        options += ["--pool", f"{name}=1:0..1:{name}", "--sbatch", f"{name}=--nodelist=n1"]
        options += ["--sbatch", f"{name}=--cpus-per-task=1", "--scratch", f"{name}={fast}"]
    others = fast / "pawl-scratch-n1-0-abcdef", fast / "pawl-scratch-n1-abcdef"
    others[0].mkdir()  # belongs to a node of another name
    others[1].touch()
    script = f"{FILL} echo up; exec sleep 1000"
    with scheduler(ours, *options) as made:
        job = submit(made, script, resources="accelerators: one")
        wait(lambda: "up" in log_of(made, job), "it runs", LIMIT_S)
        (left,) = (path.parents[3] for path in fast.glob("pawl-scratch-n1-*/*/a/b/x"))
        ((pilot, _),) = made.pilot_processes().items()
        beside = submit(made, script, resources="accelerators: two")
        wait(lambda: "up" in log_of(made, beside), "the other one runs", LIMIT_S)
        os.kill(pilot, signal.SIGSTOP)  # otherwise it might clean up after them
        for keeper in children(pilot):
            os.kill(keeper, signal.SIGKILL)
        os.kill(pilot, signal.SIGKILL)
        assert list(left.glob("*/a/b/x")) != []  # no pilot was left to clean up
        wait(lambda: log_of(made, job).count("up") == 2, "it runs again", LIMIT_S)
        wait(lambda: not left.exists(), "it is removed", LIMIT_S)
        assert len(list(fast.glob("pawl-scratch-n1-*/*/a/b/x"))) == 2
        assert all(path.exists() for path in others) and made.state(beside) == "running"
        for each in (job, beside):
            made.run("cancel", str(each))
        made.over(job, beside)


def children(pid: int) -> list[int]:
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and program.parent(int(p)) == pid]


def test_what_must_be_free_there(ours: slurm.Slurm, disks: tuple[Path, Path]) -> None:
    """disk_size is compared with the file system, not with what Slurm says of the node's; a file
    system that cannot be used is left out."""
    fast, slow = disks
    free = shutil.disk_usage(fast).free >> 30
    options = ("--pool", "cpu=1:0..1", "--scratch", f"cpu={fast}", "--scratch", f"cpu={slow}/no")
    with scheduler(ours, *options) as made:
        good = (
            submit(made, "echo in $PAWL_SCRATCH", resources="disk_size: 2GB") if free > 2 else None
        )
        bad = submit(made, "true", resources=f"disk_size: {free + 100}GB")
        if good is not None:  # slurm.sh gives a node 2000 MiB
            made.over(good)
            assert made.state(good) == "done" and f"in {fast}/" in made.log(good)
        text = "MiB free for disk_tier: best, and the job is to have more"
        wait(lambda: text in made.run("show", str(bad)).stdout, "it is said", LIMIT_S)
        assert made.job(bad)["state"] not in OVER
        (log,) = (made.spool() / "log").glob("pilot-*")
        text = f"scratch {slow}/no: No such file or directory; the directory is not used"
        assert text in log.read_text()
        made.run("cancel", str(bad))
