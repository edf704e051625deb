"""The real scheduler under faults of its disk, its database, its clocks, its users and its jobs:
clear messages, bounded waits, and no job lost or run twice."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
import waits
from cluster import PROGRAM, Cluster, cluster, wait
from conftest import SEED

OPTIONS = ("--nodes", "2", "--slots", "4", "--grace", "2", "--round", "1")
LOOP = "while :; do sleep 0.05; done"
# The file has "twice" if another run of the job is there at the same time.
ONCE = "exec 9>$0.lock; flock -n 9 || echo twice >>$0; echo start >>$0; {}; echo end >>$0"


def refused(root: Path, *options: str) -> str:
    """Returns the message of a scheduler that refuses to start."""
    done = program.run("sched", "--root", root, *options)
    assert done.returncode in (1, 4, 75), done
    return done.stderr


def once(ours: Cluster, mark: Path, until: Path) -> int:
    """Submits a job that ends once a file exists, and records its runs. Returns its number."""
    script = ONCE.format(f"until [ -e {until} ]; do sleep 0.05; done")
    job = ours.submit("bash", "-c", script, str(mark))
    wait(mark.exists, "it runs")
    return job


def ran_once(mark: Path) -> bool:
    return mark.read_text().split() == ["start", "end"]


# ---- the disk ----


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of 8 MiB, for as long as the test lasts."""
    folder = Path(tempfile.mkdtemp(prefix="pawl-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    try:
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("may not mount a small tmpfs")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    return path


def test_a_full_disk_ends_the_scheduler_and_no_job(tmp_path: Path) -> None:
    with small_disk() as disk:
        ours = Cluster(disk / "s", *OPTIONS)
        ours.said = tmp_path / "said"
        try:
            ours.start()
            job = once(ours, tmp_path / "mark", tmp_path / "go")
            filler = fill(disk)
            texts = ["no space is left on its disk", "no scheduler runs in"]
            for _ in range(200):  # some may find room in pages that SQLite has overwritten
                done = ours.run("submit", "--", "true", cwd=tmp_path)
                if done.returncode != 0:
                    break
            assert done.returncode != 0 and any(text in done.stderr for text in texts)
            assert ours.daemon is not None and ours.daemon.wait(program.LIMIT_S) == 1
            said = ours.said.read_text()
            assert "sched.db" in said and "jobs go on without a scheduler" in said
            assert "No space" in refused(ours.root) or "no space" in refused(ours.root)
            (tmp_path / "go").touch()
            filler.unlink()
            ours.start()
            ours.await_state(job, "done")
            assert ran_once(tmp_path / "mark")
            wait(lambda: not ours.ask("ls"), "all are over")
        finally:
            ours.close()


def test_a_read_only_file_system_is_named() -> None:
    with small_disk() as disk:
        ours = Cluster(disk / "s", *OPTIONS)
        ours.start()
        ours.kill(signal.SIGTERM)
        ours.said.unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert "Read-only file system" in refused(ours.root)


# ---- the database ----


def test_a_database_that_is_locked_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    with cluster(*OPTIONS) as ours:
        job = once(ours, tmp_path / "mark", tmp_path / "go")
        ours.kill()
        (tmp_path / "go").touch()
        other = sqlite3.connect(ours.root / "sched.db", check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        assert "another process has locked it (waited 5000 ms)" in refused(ours.root)
        threading.Timer(0.5, other.close).start()
        ours.start()
        ours.await_state(job, "done")
        assert ran_once(tmp_path / "mark")


def test_nobody_locks_the_database_of_a_scheduler_that_runs() -> None:
    with cluster(*OPTIONS) as ours:
        other = sqlite3.connect(ours.root / "sched.db", timeout=0.1)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN EXCLUSIVE")
        other.close()
        job = ours.sh("true")
        ours.await_state(job, "done")


def starts_or_says(folder: Path, what: str) -> None:
    """A scheduler on damaged files answers, or ends with a message that names the file."""
    ours = Cluster(folder, *OPTIONS)
    try:
        try:
            ours.start()
        except AssertionError:
            assert ours.daemon is not None
            said = ours.said.read_text()
            assert ours.daemon.wait(program.LIMIT_S) in (1, 4) and "sched.db" in said, (what, said)
            return
        assert isinstance(ours.ask("ls", "-a"), list), what
    finally:
        ours.close()


def test_damaged_files_are_named_or_do_not_matter(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with cluster(*OPTIONS) as ours, tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as far:
        for _ in range(3):
            ours.await_state(ours.sh("true"), "done")
        ours.run("pause", str(ours.sh(LOOP)))
        ours.kill()
        for n in range(12):
            folder = Path(far) / f"s{n}"
            folder.mkdir()
            for name in ("sched.db", "sched.db-wal"):
                shutil.copy(ours.root / name, folder / name)
            name = rng.choice(["sched.db", "sched.db-wal", "sched.db-wal"])
            data = bytearray((folder / name).read_bytes())
            cut = n % 4 == 3
            if cut:
                data = data[: rng.randrange(len(data))]
            else:
                for _ in range(1 + n % 4 * 10):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            (folder / name).write_bytes(data)
            starts_or_says(folder, f"{n}: {name} {'cut' if cut else 'flipped'}")


def test_a_record_with_another_bit_is_not_believed() -> None:
    with cluster(*OPTIONS) as ours:
        assert ours.run("drain", "node0").returncode == 0
        job = ours.sh("true", "--num-nodes", "8")  # the job waits
        ours.kill(signal.SIGTERM)
        with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as db:
            (record,) = db.execute("SELECT record FROM jobs WHERE id = ?", [job]).fetchone()
            other = bytes([*record[:-1], record[-1] ^ 1])
            db.execute("UPDATE jobs SET record = ?", [other])
            db.commit()
        said = refused(ours.root)
        assert (
            f"the record of job {job} is damaged" in said and "put a copy of the file back" in said
        )


OLDER = """
ALTER TABLE clock DROP COLUMN boot; ALTER TABLE clock DROP COLUMN boot_ns;
ALTER TABLE cluster DROP COLUMN crc; ALTER TABLE nodes DROP COLUMN crc;
ALTER TABLE jobs DROP COLUMN crc; ALTER TABLE specs DROP COLUMN crc;
CREATE TABLE history(seq INTEGER PRIMARY KEY); DROP TABLE totals; DROP TABLE types;
DROP INDEX jobs_name;
PRAGMA user_version = 2;
"""


def test_an_older_database_is_taken_over_with_its_jobs_running(tmp_path: Path) -> None:
    with cluster(*OPTIONS) as ours:
        job = once(ours, tmp_path / "mark", tmp_path / "go")
        waits = ours.sh("true", "--num-nodes", "8", "-n", "waits")
        ours.kill()
        with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as db:
            db.executescript(OLDER)
        ours.start()
        assert ours.state(job) == "running" and ours.state(waits) == "queued"
        (tmp_path / "go").touch()
        ours.await_state(job, "done")
        ours.await_state(waits, "done")
        assert ran_once(tmp_path / "mark")


# ---- clocks ----


@pytest.mark.parametrize("years", [-10, 10])
def test_a_wall_clock_that_jumps_ends_no_job(tmp_path: Path, years: int) -> None:
    """The clock is set while no scheduler runs; the next one, which only has the file, sees the
    same."""
    with cluster(*OPTIONS) as ours:
        script = ONCE.format(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done")
        job = ours.submit(
            "bash", "-c", script, str(tmp_path / "mark"), options=["--time-limit", "1h"]
        )
        ours.await_state(job, "running")
        ours.kill()
        with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as db:
            shift = years * 365 * 86400 * 10**9
            db.execute("UPDATE clock SET wall_ns = wall_ns + ?", [shift])
            db.commit()
        ours.start()

        def runs() -> bool:
            row = ours.job(job)
            return row["state"] == "running" and row["ran_s"] < 600

        waits.stays(runs, "it runs, and has for less than ten minutes", 0.3)
        (tmp_path / "go").touch()
        ours.await_state(job, "done")
        assert ran_once(tmp_path / "mark")


def test_a_monotonic_clock_that_is_another_ends_no_job(tmp_path: Path) -> None:
    """The monotonic clock differs, as after a move into another container: a time namespace of the
    same boot."""
    there = ["unshare", "--time", "--monotonic", "1000000", "--"]
    if subprocess.run([*there, "true"], capture_output=True).returncode != 0:
        pytest.skip("may not make a name space of time")
    with cluster(*OPTIONS) as ours:
        job = once(ours, tmp_path / "mark", tmp_path / "go")
        ours.kill()
        ours.start(*there)
        assert ours.state(job) == "running" and ours.job(job)["ran_s"] < 600
        (tmp_path / "go").touch()
        ours.await_state(job, "done")
        ours.kill()
        ours.start()
        assert ours.state(job) == "done" and ran_once(tmp_path / "mark")


# ---- schedulers ----


def test_of_many_that_start_at_once_one_runs() -> None:
    with cluster(start=False) as ours:
        command = [PROGRAM, "sched", "--root", str(ours.root)]
        many = [
            subprocess.Popen(command, env=program.clean_env(), stderr=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        try:
            wait(lambda: sum(one.poll() is not None for one in many) == 3, "three leave")
            assert [one.returncode for one in many if one.poll() is not None] == [75] * 3
            wait(lambda: ours.run("ls").returncode == 0, "the fourth answers")
        finally:
            for one in many:
                one.kill()
                one.communicate()


# ---- jobs ----


def test_what_fails_for_ever_waits_ever_longer(tmp_path: Path) -> None:
    with cluster(*OPTIONS) as ours:
        job = ours.sh(f"echo x >> {tmp_path}/tries; exit 1", "--retries", "1000", "-n", "bad")
        wait(lambda: ours.job(job)["failures"] >= 2, "it fails twice")
        wait(lambda: "binds: back-off after " in ours.run("show", "bad").stdout, "it waits")
        assert len((tmp_path / "tries").read_text().split()) <= 3
        assert ours.run("cancel", "bad").returncode == 0
        ours.await_state(job, "cancelled")


def test_what_a_job_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    """A job leaves a daemon: in another session, with another parent, without its environment, and
    ignoring signals."""
    script = (
        f"env -i PATH=$PATH setsid bash -c '(setsid bash \"$1\" &) ; exit' x {tmp_path}/deaf\n"
        f"until [ -e {tmp_path}/up ]; do sleep 0.05; done"
    )
    (tmp_path / "deaf").write_text(
        f"trap '' TERM HUP\necho $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/up\n{LOOP}\n"
    )
    with cluster(*OPTIONS) as ours:
        job = ours.sh(script)
        ours.await_state(job, "done")
        assert not program.is_alive(int((tmp_path / "up").read_text()))
        assert ours.processes() == []


def test_what_hangs_as_it_ends_is_killed_in_time(tmp_path: Path) -> None:
    """The job handles SIGTERM, and never ends by itself."""
    script = f"trap 'echo hangs; {LOOP}' TERM; echo up; {LOOP}"
    with cluster("--grace", "6") as ours:
        job = ours.sh(script)
        wait(lambda: ours.lines(job) == ["up"], "it runs")
        ours.run("cancel", str(job))
        ours.await_state(job, "cancelled")
        assert "hangs" in ours.lines(job) and ours.processes() == []


# ---- job files ----

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "bomb": BOMB.encode() + b"run: x\n",
    "binary": random.Random(7).randbytes(4096),
    "deep": b"run: " + b"[" * 100000,
    "deep map": b"".join(b" " * n + b"a:\n" for n in range(2000)),
    "nul": b"run: echo\0hidden\n",
    "twice": b"run: echo one\nrun: echo two\n",
    "latin": b"run: echo caf\xe9\n",
    "surrogate": b'run: "\\ud800"\n',
    "empty": b"",
    "long": b"run: x\nname: " + b"n" * 100000 + b"\n",
    "merge": b"envs: &e {A: 1}\n<<: *e\nrun: x\n",
    "escape": b'name: "\\e]0;x\\a"\nrun: x\n',
    "tag": b"run: !!python/object/apply:os.system [x]\n",
    "documents": b"run: x\n---\nrun: y\n",
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with cluster(*OPTIONS) as made:
        yield made


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_by_place(shared: Cluster, tmp_path: Path, what: str) -> None:
    (tmp_path / "job.yaml").write_bytes(HOSTILE[what])
    done = shared.run("submit", "job.yaml", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("job.yaml:"), done
    assert "\x1b" not in done.stderr and len(done.stderr) < 20000
    assert shared.ask("ls", "-a") == []


@pytest.mark.skipif("asan" in PROGRAM, reason="the address sanitizer needs more memory")
def test_a_file_of_100_mb_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"run: x\n")
    os.truncate(tmp_path / "job.yaml", 100 << 20)
    # Less memory than the file has bytes.
    done = subprocess.run(
        ["prlimit", f"--data={64 << 20}", PROGRAM, "submit", "--check", "job.yaml"],
        cwd=tmp_path, env=program.clean_env(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "more than 1048576 bytes" in done.stderr, done


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbfrun: echo it is\n", b"name: x\r\nrun: echo it is\r\n"]
)
def test_files_of_other_systems_are_fine(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "job.yaml").write_bytes(text)
    with cluster(*OPTIONS) as ours:
        done = ours.run("submit", "job.yaml", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        ours.await_state(1, "done")
        assert ours.lines(1) == ["it is"]


# ---- the socket ----

SUBMIT, LIST, SHOW, ERROR, DONE, JOBS = 1, 2, 3, 64, 65, 66
VERSION = 2


def frame(kind: int, body: bytes, version: int = VERSION, length: int | None = None) -> bytes:
    body = struct.pack("<H", version) + body
    return struct.pack("<IHHI", len(body) if length is None else length, kind, 0, 7) + body


def connect(ours: Cluster) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(ours.root / "sched.sock"))  # waits in the queue of connections to accept
    peer.settimeout(program.LIMIT_S)
    return peer


def reply(peer: socket.socket) -> tuple[int, bytes]:
    """Returns the type and body of a reply; (0, b""): the connection was closed."""

    def exactly(n: int) -> bytes:
        got = b""
        while len(got) < n and (more := peer.recv(n - len(got))):
            got += more
        return got

    try:
        head = exactly(12)
        if len(head) < 12:
            return 0, b""
        length, kind, _, _ = struct.unpack("<IHHI", head)
        return kind, exactly(length)
    except ConnectionError:
        return 0, b""


def test_what_is_no_request_is_refused_or_cut_off(shared: Cluster) -> None:
    cases = [
        (frame(LIST, b"\0\0\0\0\0", version=9), ERROR, b"of different versions"),
        (frame(77, b""), ERROR, b"knows no request 77"),
        (frame(LIST, b""), ERROR, b"malformed"),
        (frame(SHOW, struct.pack("<I", 1 << 31) + b"x"), ERROR, b"a job is a number"),
        (frame(SUBMIT, struct.pack("<I", 5) + b"bytes"), ERROR, b""),
        (frame(SUBMIT, struct.pack("<I", 3 << 20) + bytes(3 << 20)), ERROR, b"a job of more than"),
        (frame(LIST, b"", length=0xFFFFFFFF), 0, b""),
        (frame(LIST, b"", length=(4 << 20) + 1), 0, b""),
    ]
    for request, kind, text in cases:
        with connect(shared) as peer:
            peer.sendall(request)
            got, body = reply(peer)
            assert got == kind and text in body, (request[:40], got, body[:200])
    assert shared.run("ls").returncode == 0


def test_a_thousand_connections_keep_nobody_out(shared: Cluster) -> None:
    """The connections are silent, or in the middle of a request, and stay open."""
    with contextlib.ExitStack() as all_of_them:
        for n in range(1000):
            peer = all_of_them.enter_context(connect(shared))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(frame(LIST, b"", length=1000)[: n % 14])
            if n % 100 == 99:
                assert shared.run("ls").returncode == 0
        job = shared.sh("true")
        shared.await_state(job, "done")


def descriptors(ours: Cluster) -> list[int]:
    assert ours.daemon is not None
    return [int(fd) for fd in os.listdir(f"/proc/{ours.daemon.pid}/fd")]


def test_descriptors_are_nobodys_to_send(shared: Cluster) -> None:
    """A kernel of 6.16 refuses descriptors, an older one drops them; a peer whose header announces
    some is disconnected."""
    before = len(descriptors(shared))
    with contextlib.ExitStack() as all_of_them:
        reader, writer = os.pipe()
        all_of_them.callback(os.close, reader)
        for _ in range(16):
            peer = all_of_them.enter_context(connect(shared))
            try:
                socket.send_fds(peer, [b"\5"], [writer] * 64)
            except PermissionError:
                peer.sendall(b"\5")
        os.close(writer)
        assert shared.run("ls").returncode == 0  # the scheduler has read what was sent before
        # The pipe is at its end: no other process has it open.
        wait(lambda: select.select([reader], [], [], 0)[0], "the pipe is at its end")
        wait(lambda: len(descriptors(shared)) <= before + 16, "ls is let go, too")
        named = all_of_them.enter_context(connect(shared))
        named.sendall(struct.pack("<IHHI", 2, LIST, 1, 7) + struct.pack("<H", VERSION))
        assert reply(named) == (0, b"")


def test_without_descriptors_it_waits_for_some() -> None:
    with cluster("--slots", "1") as ours:
        assert ours.daemon is not None
        pid = ours.daemon.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(descriptors(ours)) + 1, hard))
        with contextlib.ExitStack() as all_of_them:
            for _ in range(4):  # some fill free descriptor numbers
                all_of_them.enter_context(connect(ours))
            wait(lambda: "cannot accept a command" in ours.said.read_text(), "a word of it")
            spent, began = cpu_s(pid), time.monotonic()
            waits.let_pass(2)
            assert cpu_s(pid) - spent < 0.2 * (time.monotonic() - began)
            assert ours.said.read_text().count("cannot accept a command") == 1
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert ours.run("ls").returncode == 0


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def test_who_sends_many_requests_at_once_lets_others_in_between() -> None:
    one = struct.pack("<IQ", 1, 0) + text(b"/") + text(b"run: x\n") + text(b"")
    submit = frame(SUBMIT, text(one + bytes(12)))
    with cluster("--slots", "1") as ours, connect(ours) as many, connect(ours) as few:
        assert ours.daemon is not None
        assert ours.run("drain", "node0").returncode == 0  # lets no job start
        for peer in (many, few):  # requests of both are read before
            peer.sendall(frame(LIST, struct.pack("<BI", 0, 0)))
            assert reply(peer)[0] == JOBS
        ours.daemon.send_signal(signal.SIGSTOP)
        wait(lambda: program.state_of(ours.daemon.pid) == "T", "a scheduler that stands still")
        many.sendall(submit * 40)
        few.sendall(submit)
        ours.daemon.send_signal(signal.SIGCONT)
        kind, body = reply(few)
        assert kind == DONE and struct.unpack("<Q", body)[0] <= 3
        numbers = [struct.unpack("<Q", reply(many)[1])[0] for _ in range(40)]
        assert numbers == sorted(numbers) and numbers[-1] == 41


def test_one_user_does_not_take_all_places() -> None:
    with cluster("--slots", "1", "--user-jobs", "2") as ours:
        for _ in range(2):
            ours.sh(LOOP)
        refused = ours.run("submit", "--", "true")
        assert refused.returncode != 0 and "2 jobs that are not over" in refused.stderr
        ours.run("cancel", "1")
        wait(lambda: ours.state(1) == "cancelled", "its place")
        ours.sh("true")


def test_where_a_job_ran_may_be_forgotten(tmp_path: Path) -> None:
    with cluster(*OPTIONS) as ours:
        job = ours.sh("echo > here", cwd=tmp_path)
        ours.await_state(job, "done")
        ours.kill()
        with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as database:
            database.execute("DELETE FROM specs")
            database.commit()
        ours.start()
        assert ours.job(job)["cwd"] == ""
        lost = ours.run("cp", f"{job}:here", str(tmp_path / "there"))
        assert lost.returncode == 3 and "is not known any more" in lost.stderr
        assert ours.run("cp", f"{job}:{tmp_path}/here", str(tmp_path / "there")).returncode == 0


def memory_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def test_who_reads_no_replies_costs_one_of_them() -> None:
    with cluster("--slots", "1", "--policy", "fifo") as ours:
        for _ in range(60):
            ours.sh(LOOP)
        assert ours.daemon is not None
        before = memory_kib(ours.daemon.pid)
        requests = frame(LIST, struct.pack("<BI", 1, 1000)) * 20000
        with connect(ours) as peer:
            peer.setblocking(False)
            sent = 0
            # Sends until nothing more is taken for a second.
            while sent < len(requests) and select.select([], [peer], [], 1)[1]:
                sent += peer.send(requests[sent:])
            assert ours.run("ls").returncode == 0
            assert memory_kib(ours.daemon.pid) - before < 16 << 10
            peer.setblocking(True)
            for _ in range(200):  # once it reads, all answers come, in order
                kind, body = reply(peer)
                assert kind == JOBS and len(body) > 1000
