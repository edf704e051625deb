"""Checkpoints in a bucket on a real server: what users do with a root, given its address.

The server is SeaweedFS, or that of PAWL_TEST_BUCKET (lib/buckets.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import buckets
import killed
import nursery
import pawl
import program
import waits
from buckets import Server
from conftest import SEED
from pawl import _core

SCRIPT = Path(killed.__file__)
SPLIT = Path(__file__).with_name("split.py")
RUNS = 100 if os.environ.get("PAWL_LONG") else 8
LARGE = 4_500_000  # elements of a tensor whose file is uploaded in two parts
NOT_DURABLE = 74  # exit code: docs/exit-codes.md


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with buckets.server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, which this process and those that it starts know by their environment."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return server


def make_state(seed: int) -> dict[str, torch.nn.Module]:
    torch.manual_seed(seed)
    return {"model": torch.nn.Linear(300, 200)}


def save(root: str, *steps: int, **options: int) -> None:
    """Saves models of these seeds durably, as a job that ends."""
    with pawl.Checkpointer(root, job="bucket", **options) as ckpt:
        for step in steps:
            ckpt.save(step, make_state(step)).wait("durable", timeout=60)


def steps_in(root: str) -> list[int]:
    return [one["step"] for one in _core.list_root(root)]


def run(*args: str | Path) -> str:
    """Returns what the program printed; it must succeed."""
    done = program.run(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- saving and restoring ----


def test_a_job_saves_and_another_goes_on(bucket: Server) -> None:
    root = bucket.root("goes-on")
    save(root, 1, 2, 3, keep=2)
    assert waits.eventually(lambda: steps_in(root) == [2, 3])  # the agent still removes the oldest
    state = make_state(9)
    with pawl.Checkpointer(root + "/", job="other") as ckpt:
        assert ckpt.restore(state) == 3
        ckpt.save(4, state)
    assert state["model"].weight.equal(make_state(3)["model"].weight)
    loaded = pawl.load(root, partition="model")
    assert loaded["weight"].equal(state["model"].weight)


def test_what_is_durable_is_in_the_bucket_before_it_is_said(bucket: Server) -> None:
    root = bucket.root("durable")
    with pawl.Checkpointer(root, job="bucket") as ckpt:
        for step in range(1, 6):
            ckpt.save(step, make_state(step)).wait("durable", timeout=60)
            assert _core.list_root(root)[-1]["tag"] == f"global_step{step}"


def test_files_of_a_tag_are_those_of_torch(bucket: Server, tmp_path: Path) -> None:
    root = bucket.root("export")
    save(root, 7)
    run("ckpt", "export", root, str(tmp_path / "out"))
    (file,) = (tmp_path / "out").rglob("model*")
    assert torch.load(file)["weight"].equal(make_state(7)["model"].weight)


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("s3://", "no bucket"),
        ("s3://UPPER/x", "lower-case"),
        ("s3://bucket/../x", r"\.\."),
        ("s3://user:secret@bucket/x", "user"),
        ("s3:/bucket/x", "pass a str"),
        ("ftp://bucket/x", "s3://BUCKET/PREFIX"),
        ("s3://no-such-bucket/x", "NoSuchBucket"),
    ],
)
def test_wrong_addresses_are_named(bucket: Server, root: str, why: str) -> None:
    for call in (pawl.load, lambda root: pawl.Checkpointer(root, job="bucket")):
        with pytest.raises(pawl.PawlError, match=why) as caught:
            call(root)
        assert "secret" not in str(caught.value)


def test_a_wrong_secret_is_named_and_not_shown(
    bucket: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong0123456789")
    with pytest.raises(pawl.PawlError, match="SignatureDoesNotMatch") as caught:
        pawl.load(bucket.root("export"))
    assert "wrong0123456789" not in str(caught.value)


# ---- the program ----


def test_commands_work_on_an_address(bucket: Server, tmp_path: Path) -> None:
    root = bucket.root("commands")
    save(root, 1, 2, 3)
    listed = json.loads(run("ckpt", "ls", "--json", root))
    assert "global_step3" in json.dumps(listed)
    assert "ok" in run("ckpt", "verify", root)
    assert "weight" in run("ckpt", "show", root)
    assert "weight" in run("ckpt", "diff", root, "2", "3")
    assert "removed global_step1" in run("ckpt", "rm", root, "1")
    run("ckpt", "gc", root)
    assert "nothing to do" in run("ckpt", "repair", root)
    run("report", root, "--out", str(tmp_path / "report"))
    assert (tmp_path / "report" / "report.json").exists() or any((tmp_path / "report").iterdir())
    torch.save(make_state(5)["model"].state_dict(), tmp_path / "model.pt")
    run("ckpt", "import", str(tmp_path / "model.pt"), bucket.root("imported"), "--step", "5")
    assert _core.list_root(bucket.root("imported"))[0]["step"] == 5


# ---- two jobs, crashes ----


def test_of_two_jobs_the_later_has_the_root(
    bucket: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The earlier one publishes nothing more, and says why."""
    root = bucket.root("two-jobs")
    first = pawl.Checkpointer(root, job="first", persist_every=0)
    first.save(1, make_state(1)).wait("durable", timeout=60)
    save(root, 2)
    first.save(3, make_state(3))
    assert waits.eventually(lambda: "global_step3 is not durable: another job" in caplog.text)
    assert steps_in(root) == [1, 2]
    with pytest.raises(pawl.PawlError):
        first.close()


def test_commands_take_no_root_from_a_job(bucket: Server) -> None:
    root = bucket.root("taken")
    ckpt = pawl.Checkpointer(root, job="first", persist_every=0)
    ckpt.save(1, make_state(1)).wait("durable", timeout=60)
    refused = program.run("ckpt", "gc", root)
    assert refused.returncode != 0
    assert "is in use by job first" in refused.stderr and "--take" in refused.stderr
    assert ckpt.save(2, make_state(2)).wait("durable", timeout=60)
    ckpt.close()
    program.kill_agent("first")  # nobody says that the root is free
    assert program.run("ckpt", "rm", root, "1").returncode == refused.returncode
    run("ckpt", "rm", "--take", root, "1")
    run("ckpt", "gc", root)  # the command before has released the root
    assert steps_in(root) == [2]


class Watcher:
    """Looks at a root all the time: whoever lists it must see whole tags only."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.broken: list[str] = []
        self.newest = 0
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            tags = _core.list_root(self.root)
            self.looks += 1
            self.broken += [f"{tag['tag']}: {tag['why']}" for tag in tags if tag["why"]]
            steps = [tag["step"] for tag in tags]
            if steps and steps[-1] < self.newest:
                self.broken.append(f"{self.newest} was there, now {steps}")
            self.newest = max([self.newest, *steps])

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.slow
def test_nothing_durable_is_lost(bucket: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer and agent are killed at random moments; readers never see half a tag, and the next
    start drops the uploads that were cut off."""
    rng = random.Random(SEED)
    root = bucket.root("killed")
    monkeypatch.setenv("KILLED_JOB", "killed-bucket")
    monkeypatch.setenv("KILLED_LARGE", str(LARGE))
    monkeypatch.setattr(killed, "SIZES", (LARGE, *killed.SIZES))
    durable, cut_off = 0, 0
    watcher = Watcher(root)
    try:
        for attempt in range(RUNS):
            trainer = nursery.Popen(
                [sys.executable, SCRIPT, "train", root, "100000"],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert trainer.stdout is not None
            assert trainer.stdout.readline().startswith("start ")
            waits.any_moment(rng, 0, 3)
            program.kill_agent("killed-bucket")
            trainer.kill()
            for line in trainer.stdout:
                word, number = line.split()
                durable = max(durable, int(number)) if word == "durable" else durable
            trainer.wait()
            program.kill_agent("killed-bucket")
            cut_off += bucket.open_uploads(root)
            found = nursery.run(
                [sys.executable, SCRIPT, "check", root],
                check=True, stdout=subprocess.PIPE, text=True,
            ).stdout.split()  # fmt: skip
            program.kill_agent("killed-bucket")
            assert bucket.open_uploads(root) == 0, attempt
            if found[0] == "step":
                step = int(found[1])
                assert step >= durable, (attempt, durable, step)
                assert found[2] == killed.sha256(killed.make(step)), (attempt, step)
            else:
                assert durable == 0, (attempt, durable)
    finally:
        watcher.stop()
    print(f"{RUNS} kills, {watcher.looks} looks, {cut_off} uploads cut off, step {durable} durable")
    assert not watcher.broken
    assert watcher.looks > RUNS
    assert durable > 0
    assert "ok" in run("ckpt", "verify", "--all", root)


def writers_of(root: str, begun: int) -> set[int]:
    """Returns who has saved the steps after one: see split.py."""
    found = set()
    for step in steps_in(root):
        if step > begun:
            try:
                weight = pawl.load(root, partition="model", step=step)["weight"]
            except pawl.PawlError:
                assert step not in steps_in(root)  # an old one, which is removed
                continue
            assert weight.eq(weight[0, 0]).all()
            found.add(int(weight[0, 0]))
    return found


@pytest.mark.slow
def test_a_job_that_runs_twice_has_one_writer(bucket: Server) -> None:
    """A job is started again on another machine while the first one lives: as soon as the second
    has saved, all newer steps are from the second and whole, and the first says why it ends."""
    root = bucket.root("split")

    def start(number: int) -> subprocess.Popen[str]:
        """Starts the job on a machine of its own, where no agent of another one is found."""
        machine = tempfile.mkdtemp(prefix="pawl-machine-", dir="/tmp")
        machines.callback(shutil.rmtree, machine)
        return nursery.Popen(
            [sys.executable, SPLIT, root, str(number)],
            env={**os.environ, "XDG_RUNTIME_DIR": machine},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def hear(job: subprocess.Popen[str], word: str) -> int:
        assert job.stdout is not None
        line = ""
        for line in job.stdout:
            if line.startswith(word):
                return int(line.split()[1])
        raise AssertionError(f"the job has ended: {line}")

    with contextlib.ExitStack() as machines:
        watcher = Watcher(root)
        newest = start(0)
        try:
            hear(newest, "durable")
            for number in range(1, RUNS + 1):
                older, newest = newest, start(number)
                begun = hear(newest, "start")
                said, _ = older.communicate(timeout=program.LIMIT_S)
                assert older.returncode == NOT_DURABLE, said
                assert "another job has taken the root" in said, said
                words = [line.split() for line in said.splitlines()]
                last = max([int(word[1]) for word in words if word[0] == "durable"], default=0)
                while hear(newest, "durable") <= last:
                    pass
                assert writers_of(root, begun) == {number}
        finally:
            watcher.stop()
            newest.kill()
            newest.communicate()
            program.kill_agent("split")
    assert not watcher.broken
    assert "ok" in run("ckpt", "verify", "--all", root)


def make_large(root: Path) -> None:
    """A checkpoint of 120 MiB: a file of eight parts of an upload, and a small one."""
    state = {"large": {"x": torch.arange(30 << 20, dtype=torch.int32)}, **make_state(1)}
    with pawl.Checkpointer(str(root), job="large") as ckpt:
        ckpt.save(1, state).wait("durable", timeout=60)


def test_a_root_is_copied_and_back(bucket: Server, tmp_path: Path) -> None:
    root = bucket.root("copied")
    save(str(tmp_path / "src"), 1, 2)
    assert "would copy global_step1" in run("ckpt", "copy", "-n", str(tmp_path / "src"), root)
    assert "copied global_step2" in run("ckpt", "copy", str(tmp_path / "src"), root)
    kept = run("ckpt", "copy", str(tmp_path / "src"), root)
    assert "kept global_step1" in kept and "copied before" in kept
    run("ckpt", "copy", root, str(tmp_path / "back"), "2")
    assert steps_in(str(tmp_path / "back")) == [2]
    for copy in (root, str(tmp_path / "back")):
        assert pawl.load(copy, partition="model")["weight"].equal(make_state(2)["model"].weight)


@pytest.mark.slow
def test_a_copy_that_is_killed_is_gone_on_with(bucket: Server, tmp_path: Path) -> None:
    """Each run gets further, whatever it was doing when it was killed."""
    rng = random.Random(SEED)
    root = bucket.root("copy-killed")
    make_large(tmp_path / "src")
    for _ in range(RUNS):
        command = [program.find(), "ckpt", "copy", "--take", str(tmp_path / "src"), root]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as copy:
            waits.any_moment(rng, 0, 1)
            copy.kill()
            copy.wait()
        seen = program.run("ckpt", "verify", "--all", root)
        assert "damaged" not in seen.stdout, seen.stdout
    run("ckpt", "copy", "--take", str(tmp_path / "src"), root)
    assert "ok" in run("ckpt", "verify", root)
    run("ckpt", "gc", root)
    assert "nothing to do" in run("ckpt", "gc", root)


# ---- the store itself ----


@pytest.mark.slow
@pytest.mark.parametrize("name", ["store", "store_bucket"])
def test_the_store_does_what_it_promises(bucket: Server, name: str) -> None:
    """The C suites of the store, on this server instead of their own."""
    tests = Path(os.environ.get("PAWL_TESTS_DIR", "build/gcc/tests")) / "unit" / f"test_{name}"
    if not tests.exists():
        pytest.skip(f"{tests} is not built")
    unique = hashlib.sha256(str(SEED).encode()).hexdigest()[:8]
    env = {**os.environ, "PAWL_TEST_BUCKET": bucket.root(f"suite-{unique}")}
    done = subprocess.run([tests], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
