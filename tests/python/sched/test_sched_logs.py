"""`pawl logs`: each line once and in order, also while files are rotated; and an error if one
cannot be printed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
from cluster import PROGRAM, Cluster, cluster, wait

LOOP = "while :; do sleep 0.05; done"
FILES = 4  # as in job_log.h
# More than a pipe holds and the program reads at once: it stops in the middle.
BIG = b"".join(b"first %06d\n" % n for n in range(40000))


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with cluster("--slots", "4", "--grace", "2") as made:
        yield made


@pytest.fixture
def job(shared: Cluster) -> Iterator[int]:
    """A job that runs, and writes to its log no more."""
    made = shared.sh(f"echo up; {LOOP}")
    wait(lambda: shared.lines(made) == ["up"], "the job's line")
    yield made
    if shared.state(made) not in ("cancelled", "done"):
        shared.run("cancel", str(made))


def rotate(folder: Path, text: bytes) -> None:
    """Rotates as the process of a job does: the oldest goes, then each becomes older."""
    for i in range(FILES - 1, 0, -1):
        newer = folder / (f"log.{i - 1}" if i > 1 else "log")
        with contextlib.suppress(FileNotFoundError):
            newer.rename(folder / f"log.{i}")
    (folder / "log").write_bytes(text)


@contextlib.contextmanager
def slow(shared: Cluster, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yields `pawl logs`, printing into a pipe that is full."""
    command = [PROGRAM, "logs", "--root", str(shared.root), *args]
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)  # refused by a pipe that holds more than that
    with subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.PIPE, env=program.clean_env()
    ) as reader:
        os.close(theirs)
        reader.stdout = os.fdopen(ours, "rb")
        yield reader
        reader.kill()


def take(reader: subprocess.Popen[bytes], until: bytes) -> bytes:
    """Reads the program's output up to until, or to its end."""
    assert reader.stdout is not None
    got = b""
    while until not in got and (more := os.read(reader.stdout.fileno(), 1 << 16)):
        got += more
    return got


def ended_log(shared: Cluster, job: int) -> Path:
    folder = shared.root / "jobs" / str(job)
    (folder / "log").unlink()  # the job goes on with a file without a name
    (folder / "log").write_bytes(BIG)
    return folder


def test_who_follows_slowly_misses_no_file(shared: Cluster, job: int) -> None:
    folder = ended_log(shared, job)
    with slow(shared, "-f", str(job)) as reader:
        assert reader.stdout is not None
        start = os.read(reader.stdout.fileno(), 6)
        with (folder / "log").open("ab") as log:
            log.write(b"the rest\n")
        rotate(folder, b"second\n")
        rotate(folder, b"third\n")
        assert start + take(reader, b"third\n") == BIG + b"the rest\nsecond\nthird\n"
        rotate(folder, b"fourth\n")
        assert take(reader, b"fourth\n") == b"fourth\n"


def test_who_is_much_too_slow_is_told(shared: Cluster, job: int) -> None:
    folder = ended_log(shared, job)
    with slow(shared, "-f", str(job)) as reader:
        assert reader.stdout is not None and reader.stderr is not None
        start = os.read(reader.stdout.fileno(), 6)
        for n in range(FILES + 1):
            rotate(folder, b"file %d\n" % n)
        assert start + take(reader, b"file 4\n") == BIG + b"file 1\nfile 2\nfile 3\nfile 4\n"
        shared.run("cancel", str(job))
        reader.wait(program.LIMIT_S)
        assert b"lines are missing here" in reader.stderr.read()


def test_a_file_that_is_put_aside_while_it_is_printed(shared: Cluster, job: int) -> None:
    folder = ended_log(shared, job)
    rotate(folder, b"second\n")
    with slow(shared, str(job)) as reader:
        assert reader.stdout is not None
        start = os.read(reader.stdout.fileno(), 6)
        rotate(folder, b"third\n")
        assert start + take(reader, b"never") == BIG + b"second\nthird\n"
        assert reader.wait(program.LIMIT_S) == 0


def test_what_cannot_be_printed_is_an_error(shared: Cluster, job: int) -> None:
    command = [PROGRAM, "logs", "--root", str(shared.root), str(job)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=program.clean_env(), check=False
        )
    assert done.returncode == 1 and b"pawl logs: write: No space left" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command,
        stdout=writer,
        stderr=subprocess.PIPE,
        env=program.clean_env(),
        restore_signals=False,  # SIGPIPE stays ignored
        check=False,
    )
    os.close(writer)
    assert done.returncode == 1 and done.stderr == b""
