"""The job of SkyPilot's training guide, unchanged but for the bucket's name, on nodes that are
lost: transformers' own run_qa.py, W&B, a scheduler, and a real S3 server.

A node is a namespace of processes, with an empty disk at /checkpoint. It is lost when all of it,
the scheduler included, is killed at once. The bucket and the scheduler's database are left.

PAWL_GUIDE_YAML may name a copy of the guide's file; without it, one of the same keys is taken.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import random
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bert_job
import buckets
import packages
import program
import qa_files
import waits
from bert_job import EXAMPLE, wandb_rows
from buckets import BUCKET, Server
from cluster import Cluster, cluster
from conftest import SEED, SUMMARY
from pawl import _core

packages.require("accelerate", "wandb")

WHERE = "examples/pytorch/question-answering"
DISK = Path("/checkpoint")  # the guide's
LIMIT_S = 3600.0 * program.SCALE  # the limit of any wait: one may last as long as the training
QUESTIONS = 2880  # some 240 steps an epoch, so that 50 epochs save 12 times
KEPT = 10  # save_total_limit
IN_CREATE = 0x100  # inotify(7)
KILLS = 20
LAST_KILL = 10_000  # steps: the last node saves once more at least
MOMENTS = ("train", "save", "upload", "save", "upload", "start")  # when a node is lost

GUIDE = f"""
name: bert-qa
resources:
  accelerators: V100:1
  use_spot: true
  disk_tier: best
file_mounts:
  /checkpoint:
    name:
    mode: MOUNT_CACHED
envs:
  WANDB_API_KEY:
workdir: ~/transformers
setup: |
  pip install -e .
  cd {WHERE}/
  pip install -r requirements.txt torch==1.12.1+cu113
  pip install wandb
run: |
  cd {WHERE}/
  python run_qa.py {shlex.join(bert_job.GUIDE)} \\
    --output_dir /checkpoint/bert_qa/ --run_name $SKYPILOT_TASK_ID
"""
# With run_qa.py of transformers 5: docs/spot.md.
NEWEST = (
    "python run_qa.py ",
    "last=$(ls -dv /checkpoint/bert_qa/checkpoint-* | tail -n 1)\n"
    "  python run_qa.py ${last:+--resume_from_checkpoint $last} ",
)
# What is as on a machine that has just been booted. $0 is the folder of home().
BOOT = """
mount --bind "$0/passwd" /etc/passwd
mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id
mount -t tmpfs node /checkpoint
exec "$@"
"""


def guides_file() -> str:
    path = os.environ.get("PAWL_GUIDE_YAML")
    text = Path(path).read_text() if path is not None else GUIDE
    filled, n = re.subn(r"(?m)^(    name:)( *#.*)?$", rf"\1 {BUCKET}", text)
    assert n == 1
    return filled if qa_files.looks_for_checkpoints() else filled.replace(*NEWEST)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the job's user: transformers as git brings it, as far as the job uses it, and
    programs of the names that the job calls. The model and the data set lie where the job looks for
    them by name before it would ask the hub."""
    sys.path.insert(0, str(EXAMPLE))
    import prepare

    made = tmp_path_factory.mktemp("home")
    work = made / "transformers" / WHERE
    work.mkdir(parents=True)
    for name in qa_files.FILES:
        shutil.copy(qa_files.folder() / name, work)
    prepare.prepare(work, train=QUESTIONS, validation=60, hidden=16, layers=1, length=160)
    for path in (work / "squad").glob("*.json"):  # as `load_dataset` reads a folder: a row a line
        rows = json.loads(path.read_text())["data"]
        path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        path.unlink()
    (made / "evaluate.py").write_text(qa_files.METRIC)
    (made / "bin").mkdir()
    # What setup installs is installed.
    for name, script in (("python", f'exec {sys.executable} "$@"'), ("pip", 'echo "pip $*"')):
        (made / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (made / "bin" / name).chmod(0o755)
    users = re.sub(
        r"(?m)^(root:(?:[^:]*:){4})[^:]*", rf"\g<1>{made}", Path("/etc/passwd").read_text()
    )
    (made / "passwd").write_text(users)
    (made / "bert_qa.yaml").write_text(guides_file())
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with buckets.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as running:
        yield running


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    """The place of a node's disk, for which the machine must have a directory."""
    made = not DISK.exists()
    DISK.mkdir(exist_ok=True)
    yield DISK
    if made:
        DISK.rmdir()


def boot(home: Path) -> list[str]:
    """Returns the words that run a command on a new node."""
    (home / "boot_id").write_text(f"{uuid.uuid4()}\n")
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    return [*apart, "sh", "-ec", BOOT, str(home)]


def job_env(home: Path) -> dict[str, str]:
    """Returns the environment of those who submit the job."""
    env = qa_files.env()
    env["PATH"] = f"{home / 'bin'}{os.pathsep}{env['PATH']}"
    env["PYTHONPATH"] = f"{home}{os.pathsep}{env['PYTHONPATH']}"
    return env


def variables(home: Path, server: Server) -> dict[str, str]:
    """Returns the variables that the job is submitted with."""
    return {
        **server.env,
        "WANDB_API_KEY": "key",
        "WANDB_RESUME": "allow",
        "WANDB_MODE": "offline",
        "HF_HOME": str(home / "hub"),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


@contextlib.contextmanager
def undisturbed(home: Path, server: Server, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the file's run without Pawl, on a node that is not lost; what it has written is then
    in folder/straight."""
    given = variables(home, server) | {"SKYPILOT_TASK_ID": "straight", "WANDB_DIR": str(folder)}
    asked = ["submit", "--check", "--json", "--env=WANDB_API_KEY=key", home / "bert_qa.yaml"]
    run = json.loads(program.run(*asked).stdout)["run"]
    script = f"{run}\ncp -r {DISK}/bert_qa {folder}/straight"
    with (folder / "straight.log").open("w") as log:
        process = subprocess.Popen(
            [*boot(home), "bash", "-ec", script],
            env=job_env(home) | given,
            cwd=home / "transformers", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_made(folder: Path, prefix: str) -> str:
    """Waits until the program makes a directory of such a name, and returns it at once. Looking
    again and again would miss what lasts for milliseconds, on a busy machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(0)
    try:
        assert libc.inotify_add_watch(fd, os.fsencode(folder), IN_CREATE) >= 0, ctypes.get_errno()
        while True:
            if not select.select([fd], [], [], LIMIT_S)[0]:
                raise program.Late(f"nothing is made in {folder}")
            events = os.read(fd, 65536)
            while events:
                (length,) = struct.unpack_from("I", events, 12)
                name = os.fsdecode(events[16 : 16 + length].rstrip(b"\0"))
                if name.startswith(prefix):
                    return name
                events = events[16 + length :]
    finally:
        os.close(fd)


class Job:
    """The job, and the node that it runs on."""

    def __init__(self, scheduler: Cluster, home: Path) -> None:
        self.scheduler, self.home = scheduler, home
        self.log = scheduler.root / "jobs" / "1" / "log"
        self.begun = 0  # bytes of the log before this node
        self.newest = 0  # step of the newest checkpoint in the bucket then; 0: none
        self.whole: dict[int, dict[str, str]] = {}  # by step: digests of each checkpoint's files
        self.resumed: set[object] = set()  # steps from which nodes have gone on

    def start(self) -> None:
        self.begun = self.log.stat().st_size if self.log.exists() else 0
        self.newest = max(committed(), default=0)
        self.scheduler.start(*boot(self.home))

    def submit(self, server: Server) -> str:
        """Returns the job's id."""
        given = [f"--env={name}={value}" for name, value in variables(self.home, server).items()]
        words = ["submit", "--root", self.scheduler.root, "-n", "bert-qa", *given]
        done = subprocess.run(
            [program.find(), *words, self.home / "bert_qa.yaml"],
            env=job_env(self.home), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.until(lambda: "--run_name" in self.command(), "it runs")
        return self.command()[self.command().index("--run_name") + 1]

    def command(self) -> list[str]:
        """Returns the words of run_qa.py's process; none if there is none yet."""
        for pid in self.scheduler.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if "run_qa.py" in words:
                    return words
        return []

    def said(self, most: int = 1 << 30) -> str:
        """Returns what was printed on this node, the newest bytes of it."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(self.begun, self.log.stat().st_size - most))
            return log.read().decode(errors="replace")

    def step(self) -> int:
        """Returns the step that the progress bar shows; 0: none yet."""
        shown = re.findall(r"(\d+)/\d{5} \[", self.said(4096))
        return int(shown[-1]) if shown else 0

    def first(self) -> int:
        """Returns the first process of the node, without which there is none."""
        assert self.scheduler.daemon is not None
        pid = self.scheduler.daemon.pid
        (first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(first)

    def folder(self) -> Path:
        """Returns the folder on the node's disk that has the checkpoints."""
        return Path(f"/proc/{self.first()}/root{DISK}/bert_qa")

    def await_save(self) -> Path:
        """Waits until a checkpoint is made on the disk, and returns it."""
        return self.folder() / await_made(self.folder(), "checkpoint-")

    def until(self, true: Callable[[], object], what: str) -> None:
        """Waits until true(), or the job has failed."""

        def comes() -> bool:
            said = self.said(8192)
            assert not re.search("Traceback|ended with [1-9]", said), said
            return bool(true())

        program.wait_until(comes, what, LIMIT_S)

    def lose(self) -> None:
        """Loses the node, and checks what its disk was for: it went on from the newest checkpoint
        that the bucket had, each byte of which was as the node before had written it."""
        here = digests(self.folder())
        os.kill(self.first(), signal.SIGKILL)
        self.scheduler.kill()
        said = self.said()
        program.wait_until(lambda: not self.scheduler.processes(), "nothing of the node is left")
        if "Running training" in said:
            from_steps = re.findall(r"Continuing training from global step (\d+)", said)
            assert [*map(int, from_steps)] == [self.newest] * (self.newest > 0), said
            if self.newest > 0:
                assert here[self.newest] == self.whole[self.newest]
                self.resumed.add(self.newest)
        self.whole |= here


def digests(folder: Path) -> dict[int, dict[str, str]]:
    """Returns, by their steps, the digests of the files of all checkpoints that are whole: the
    Trainer writes trainer_state.json last."""
    found = {}
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        with contextlib.suppress(ValueError, FileNotFoundError):
            json.loads(state.read_text())
            found[int(state.parent.name.removeprefix("checkpoint-"))] = {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in state.parent.iterdir()
            }
    return found


def committed() -> list[int]:
    """Returns the steps of the checkpoints in the bucket, all of which must be whole."""
    tags = _core.list_root(f"s3://{BUCKET}")
    assert all(one["why"] == "" for one in tags), tags
    return sorted(one["step"] for one in tags)


def verify() -> None:
    done = program.run("ckpt", "verify", "--all", f"s3://{BUCKET}", env=dict(os.environ))
    assert done.returncode == (0 if committed() else 3), done.stdout + done.stderr


def await_moment(job: Job, moment: str, goal: int, rng: random.Random) -> None:
    """Waits for a moment at which to lose the node: behind this step, or while it starts."""
    if moment != "start":
        job.until(lambda: job.step() > goal, f"step {goal}")
    if moment in ("start", "train"):
        waits.any_moment(rng, 0, 15)
    else:
        made = job.await_save()
        waits.any_moment(rng, 0, 0.1)  # model, optimizer and the rest
        if moment == "upload":
            program.wait_until((made / "trainer_state.json").exists, "it is whole")
            waits.any_moment(rng, 0, 4)


def losses(folder: Path) -> dict[int, float]:
    """Returns the losses of a training, by their steps."""
    state = json.loads((folder / "trainer_state.json").read_text())
    return {one["step"]: one["loss"] for one in state["log_history"] if "loss" in one}


def check_results(end: Path, straight: Path) -> None:
    """Checks that the job has done all that a run has done that nobody has disturbed. Its losses
    are nearly the same: transformers 4.47.1 goes on with slightly other numbers whenever it
    resumes, also without Pawl, from the disk that it has saved to."""
    names = ("epoch", "train_samples", "eval_samples")
    ours, theirs = (json.loads((path / "all_results.json").read_text()) for path in (end, straight))
    assert ours.keys() == theirs.keys()
    assert [ours[name] for name in names] == [theirs[name] for name in names]
    assert losses(end) == pytest.approx(losses(straight), rel=0.02)


def steps_of(rows: list[dict[str, object]]) -> set[object]:
    """Returns the steps that were logged to W&B."""
    return {row["train/global_step"] for row in rows}


@pytest.mark.skipif(not packages.LONG, reason="half an hour: make test-long")
@qa_files.needed
def test_it_survives_the_loss_of_its_nodes(
    home: Path, server: Server, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED)
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    with (
        undisturbed(home, server, tmp_path) as straight,
        cluster("--node", "node0=1:V100", "--grace", "20", start=False) as scheduler,
    ):
        job = Job(scheduler, home)
        job.start()
        task = job.submit(server)
        for kill in range(KILLS):
            moment = MOMENTS[kill % len(MOMENTS)]
            await_moment(job, moment, LAST_KILL * kill // KILLS, rng)
            job.lose()
            verify()
            assert len(committed()) <= KEPT + 1
            job.start()
        job.until(lambda: scheduler.state(1) == "done", "the job is done")
        assert straight.wait(LIMIT_S) == 0
    done = program.run(
        "mirror", "--fetch-only", tmp_path / "end", f"s3://{BUCKET}", env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    check_results(tmp_path / "end" / "bert_qa", tmp_path / "straight")
    kept = {f"checkpoint-{step}" for step in committed()}
    assert kept == {path.name for path in (tmp_path / "straight").glob("checkpoint-*")}
    assert len(kept) == KEPT
    ids, rows = wandb_rows(home / "transformers" / WHERE)
    _, expected = wandb_rows(tmp_path)
    assert ids == {task}
    # A node may be lost, and its checkpoint not, before W&B has written the row of that step.
    assert steps_of(rows) <= steps_of(expected)
    assert steps_of(expected) - steps_of(rows) <= job.resumed
    SUMMARY.append(f"guide's job: {KILLS} nodes lost, resumed from steps {job.resumed}")
