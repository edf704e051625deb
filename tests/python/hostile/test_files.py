"""Links, FIFOs, devices, modes and names that a user puts into a job's directories do no harm to
other users who read its logs or copy its files, to root above all."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pty
import pwd
import select
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
from cluster import PROGRAM, Cluster, cluster

SECRET = "roots alone"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with cluster("--slots", "4", "--grace", "2") as made:
        yield made


@pytest.fixture(scope="module")
def of_root() -> Iterator[Cluster]:
    """Yields a scheduler of root's, whose jobs run as their users."""
    with cluster("--slots", "4", "--grace", "2", "--group", "users") as made:
        yield made


class Hostile:
    """A user of the scheduler, with a directory, and a secret of root's beside it."""

    def __init__(self, ours: Cluster, folder: Path, name: str = "daemon") -> None:
        user = pwd.getpwnam(name)
        self.ours, self.uid, self.work = ours, user.pw_uid, folder / "work"
        self.who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ["users"]}
        self.work.mkdir()
        os.chown(self.work, user.pw_uid, user.pw_gid)
        self.closed = folder / "closed"
        self.closed.mkdir(0o700)
        self.secret = self.closed / "log"
        self.secret.write_text(SECRET + "\n")

    def runs(self, script: str) -> int:
        """Runs a job of this user's to its end."""
        job = self.ours.sh(script, cwd=self.work, **self.who)
        self.ours.await_state(job, "done", "failed")
        assert self.ours.state(job) == "done", self.ours.log(job)
        return job

    def logs(self, job: int) -> Path:
        return self.ours.root / "jobs" / str(job) / "log"


@pytest.fixture
def hostile(of_root: Cluster) -> Iterator[Hostile]:
    folder = Path(tempfile.mkdtemp(prefix="pawl-test-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield Hostile(of_root, folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    (tmp_path / "dest").mkdir()
    return tmp_path / "dest"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# ---- pawl cp, by root ----


@AS_ROOT
@pytest.mark.slow
def test_a_copy_is_whose_who_makes_it_and_never_set_user_id(hostile: Hostile, dest: Path) -> None:
    job = hostile.runs(
        "mkdir out; cp /usr/bin/id out/id; cp out/id out/all; echo x > out/mine; mkdir out/wide;"
        "chmod 6755 out/id; chmod 7777 out/all; chmod 600 out/mine; chmod 7777 out/wide"
    )
    copied = hostile.ours.run("cp", f"{job}:out", str(dest), umask=0o027)
    assert copied.returncode == 0 and copied.stderr == ""
    out = dest / "out"
    names = ("id", "all", "mine", "wide")
    assert [mode(out / name) for name in names] == [0o750, 0o750, 0o600, 0o750]
    assert {(out / name).stat().st_uid for name in ("", *names)} == {0}
    one = hostile.ours.run("cp", f"{job}:out/id", str(dest / "one"))
    assert one.returncode == 0 and mode(dest / "one") == 0o755


@AS_ROOT
@pytest.mark.slow
def test_what_leads_elsewhere_or_waits_is_left_out_and_named(hostile: Hostile, dest: Path) -> None:
    job = hostile.runs(
        "mkdir -p out/a/b; cd out; echo kept > a/f; ln -s ../f a/b/near; ln -s . a/here;"
        f"mkfifo fifo; ln -s {hostile.secret} far; ln -s ../../../x a/up; ln -s b/../../f a/turn;"
        "echo no > closed; chmod 0 closed"
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(hostile.work / "out" / "sock"))
    os.mknod(hostile.work / "out" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    done = hostile.ours.run("cp", "--json", f"{job}:out", str(dest))
    said = {Path(row["path"]).name: row["why"] for row in json.loads(done.stdout)["left_out"]}
    assert set(said) == {"fifo", "sock", "null", "far", "up", "turn", "closed"}
    assert [said[name] for name in ("fifo", "sock", "null")] == ["a FIFO", "a socket", "a device"]
    assert "leads out" in said["far"] and "Permission denied" in said["closed"]
    assert f"{hostile.work}/out/fifo is left out: it is a FIFO" in done.stderr
    assert done.returncode == 1  # for the files that could not be read
    found = {str(p.relative_to(dest / "out")) for p in (dest / "out").rglob("*")}
    assert found == {"a", "a/f", "a/b", "a/b/near", "a/here"}
    assert (dest / "out/a/b/near").read_text() == "kept\n"


@AS_ROOT
@pytest.mark.slow
def test_a_link_leads_no_further_than_its_owner_may_go(hostile: Hostile, dest: Path) -> None:
    job = hostile.runs(f"ln -s {hostile.secret} file; ln -s {hostile.closed} folder; mkfifo fifo")
    for path in ("file", "folder", "folder/log", str(hostile.secret)):
        refused = hostile.ours.run("cp", f"{job}:{path}", str(dest))
        assert refused.returncode == 1 and "Permission denied" in refused.stderr
    refused = hostile.ours.run("cp", f"{job}:fifo", str(dest))
    assert refused.returncode == 2 and "is a FIFO" in refused.stderr
    assert list(dest.iterdir()) == []


@AS_ROOT
@pytest.mark.slow
def test_of_links_in_a_destination_none_is_followed(hostile: Hostile, dest: Path) -> None:
    """The destination holds links that another user made there first."""
    job = hostile.runs("mkdir -p out/d; echo theirs > out/log; echo theirs > out/d/log")
    (dest / "out").mkdir()
    (dest / "out" / "log").symlink_to(hostile.secret)
    (dest / "out" / "d").symlink_to(hostile.closed)
    refused = hostile.ours.run("cp", f"{job}:out", str(dest))
    assert refused.returncode == 1 and "a directory is needed there" in refused.stderr
    assert hostile.secret.read_text() == SECRET + "\n"
    (dest / "out" / "d").unlink()
    assert hostile.ours.run("cp", f"{job}:out", str(dest)).returncode == 0
    assert not (dest / "out" / "log").is_symlink()
    assert hostile.secret.read_text() == SECRET + "\n"


# ---- pawl cp, by anybody ----


def test_a_copy_is_as_the_file_was(shared: Cluster, tmp_path: Path, dest: Path) -> None:
    (work := tmp_path / "work").mkdir()
    (work / "out").mkdir()
    (work / "out" / "run").write_text("new\n")
    (work / "out" / "run").chmod(0o755)
    (work / "out" / "empty").touch()
    with (work / "out" / "holes").open("wb") as holes:
        for at in (0, 40 << 20):
            holes.seek(at)
            holes.write(b"data")
        holes.truncate(64 << 20)
    os.utime(work / "out" / "run", (1e9, 1e9))
    os.utime(work / "out", (2e9, 2e9))
    job = shared.sh("true", cwd=work)
    shared.await_state(job, "done")
    (dest / "out").mkdir()
    (dest / "out" / "run").write_text("an older and longer one\n")
    for to in (dest, dest / "other"):
        assert shared.run("cp", f"{job}:out", str(to)).returncode == 0
    for out in (dest / "out", dest / "other"):
        assert (out / "run").read_text() == "new\n" and (out / "run").stat().st_mtime == 1e9
        assert mode(out / "run") & 0o700 == 0o700 and (out / "empty").stat().st_size == 0
        assert (out / "holes").read_bytes() == (work / "out" / "holes").read_bytes()
        assert sorted(os.listdir(out)) == ["empty", "holes", "run"]  # no temporary file is left
    assert (dest / "other").stat().st_mtime == 2e9
    if (work / "out" / "holes").stat().st_blocks < 1 << 15:
        assert (dest / "other" / "holes").stat().st_blocks < 1 << 15
    done = shared.run("cp", "--json", f"{job}:.", str(work / "out"))
    assert [row["why"] for row in json.loads(done.stdout)["left_out"]] == [
        "the destination of the copy"
    ]


@pytest.mark.slow
def test_what_is_no_file_is_not_replaced(shared: Cluster, tmp_path: Path, dest: Path) -> None:
    (tmp_path / "f").write_text("f\n")
    job = shared.sh("true", cwd=tmp_path)
    shared.await_state(job, "done")
    os.mkfifo(dest / "fifo")
    refused = shared.run("cp", f"{job}:f", str(dest / "fifo"))
    assert refused.returncode == 1 and "is a FIFO already" in refused.stderr
    assert shared.run("cp", f"{job}:f", str(dest / "no" / "f")).returncode == 3
    assert shared.run("cp", f"{job}:f", str(dest / "no") + "/").returncode == 3
    (dest / "real").write_text("old\n")
    (dest / "link").symlink_to("real")
    assert shared.run("cp", f"{job}:f", str(dest / "link")).returncode == 0
    assert (dest / "link").is_symlink() and (dest / "real").read_text() == "f\n"


# ---- pawl logs ----


@AS_ROOT
@pytest.mark.slow
@pytest.mark.parametrize("name", ["log", "log.2"])
def test_a_log_that_is_no_file_is_refused(hostile: Hostile, name: str) -> None:
    """Links do not count as files of the log, even if their target is a file that the owner may
    read."""
    job = hostile.runs("echo mine > readable; echo up")
    log = hostile.logs(job).with_name(name)
    for make in (f"ln -s {hostile.secret}", f"ln -s {hostile.work}/readable", "mkfifo", "mkdir"):
        subprocess.run(
            ["sh", "-c", f"rm -rf {log}; {make} {log}"], check=True, user=hostile.uid, group=0
        )
        for options in ([], ["-f"]):
            refused = hostile.ours.run("logs", *options, str(job))
            assert refused.returncode == 2 and "a plain file is needed" in refused.stderr
            assert SECRET not in refused.stdout and "mine" not in refused.stdout


@contextlib.contextmanager
def scheduler_of(user: pwd.struct_passwd, folder: Path) -> Iterator[Cluster]:
    """Yields a scheduler that another user runs, in a directory of theirs."""
    users = grp.getgrnam("users").gr_gid
    ours = Cluster(folder / "s", "--group", "users")
    ours.root.mkdir()
    ours.said.touch()
    for path in (ours.root, ours.said):
        os.chown(path, user.pw_uid, user.pw_gid)
    try:
        ours.start(
            "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", f"--groups={users}"
        )
        yield ours
    finally:
        ours.close()


@AS_ROOT
@pytest.mark.slow
def test_another_users_scheduler_gives_away_only_what_is_theirs() -> None:
    """The scheduler may report any owner of a job, and any place of its files."""
    user, caller = pwd.getpwnam("daemon"), pwd.getpwnam("bin")
    folder = Path(tempfile.mkdtemp(prefix="pawl-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with scheduler_of(user, folder) as ours:
            hostile = Hostile(ours, folder)
            job = ours.sh(f"ln -s {hostile.closed} links; ln -s {folder}/own own", cwd=hostile.work)
            ours.await_state(job, "done")
            assert ours.log(job) != ""
            own = folder / "own"
            own.write_text("the caller's\n")
            own.chmod(0o600)
            os.chown(own, caller.pw_uid, caller.pw_gid)
            who: dict[str, Any] = {
                "user": caller.pw_uid, "group": caller.pw_gid, "extra_groups": ["users"],
            }  # fmt: skip
            refused = ours.run("cp", f"{job}:own", "/tmp/pawl-never", **who)
            assert refused.returncode == 2 and "your own, not of the job" in refused.stderr
            kept = ours.root / "jobs" / str(job)
            shutil.rmtree(kept)
            kept.symlink_to(hostile.closed)
            os.lchown(kept, user.pw_uid, user.pw_gid)
            for command in (["logs", str(job)], ["cp", f"{job}:links/log", "/tmp/pawl-never"]):
                refused = ours.run(*command)
                assert refused.returncode == 1 and "Permission denied" in refused.stderr
                assert SECRET not in refused.stdout
    finally:
        shutil.rmtree(folder)


def on_a_terminal(*command: str) -> bytes:
    """Returns what a program prints on a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, env=program.clean_env()) as process:
        os.close(theirs)
        got = b""
        while select.select([ours], [], [], program.LIMIT_S)[0]:
            try:
                got += os.read(ours, 1 << 16)
            except OSError:  # EIO: all have closed the terminal
                break
        assert process.wait(program.LIMIT_S) == 0
    os.close(ours)
    return got


def test_a_log_gives_a_terminal_no_orders(shared: Cluster) -> None:
    said = "\033[31mred\033[0m \033]0;title\007 \033[2J 50%\rgr\u00fc\u00df \u009b31m\n"
    job = shared.submit("printf", "%s", said)
    shared.await_state(job, "done")
    assert said.encode() in subprocess.run(
        [PROGRAM, "logs", "--root", str(shared.root), str(job)],
        env=program.clean_env(), capture_output=True, check=True,
    ).stdout  # fmt: skip
    shown = on_a_terminal(PROGRAM, "logs", "--root", str(shared.root), str(job))
    assert (
        "\033[31mred\033[0m \\x1b]0;title\\x07 \\x1b[2J 50%\rgr\u00fc\u00df \\xc2\\x9b31m"
    ).encode() in shown
    assert shown.endswith(b"\033[0m")
    refused = shared.run("cp", f"{job}:\033[2Jx", "y")
    assert refused.returncode == 3 and "/\\x1b[2Jx: No such file" in refused.stderr


# ---- the scheduler's directory ----


@pytest.fixture
def short() -> Iterator[Path]:
    """Yields a directory with a path that is short enough for a scheduler's sockets."""
    with tempfile.TemporaryDirectory(prefix="pawl-", dir="/tmp") as name:
        yield Path(name)


def test_a_directory_that_others_write_to_is_refused(short: Path) -> None:
    root = short / "s"
    root.mkdir()
    root.chmod(0o777)
    refused = program.run("sched", "--root", root)
    assert refused.returncode == 2 and "can be written to by others (mode 777)" in refused.stderr
    assert list(root.iterdir()) == []


@AS_ROOT
@pytest.mark.slow
def test_a_directory_of_another_users_is_refused(short: Path) -> None:
    root = short / "s"
    root.mkdir()
    os.chown(root, pwd.getpwnam("daemon").pw_uid, -1)
    refused = program.run("sched", "--root", root)
    assert refused.returncode == 2 and "belongs to user" in refused.stderr
    slurm = ("--engine", "slurm", "--pool", "p=1:0..1", "--group", "users")
    refused = program.run("sched", "--root", short / "new", *slurm)
    assert refused.returncode == 2 and "jobs run as the scheduler's user" in refused.stderr


@AS_ROOT
def test_a_directory_that_others_can_replace_is_refused(short: Path) -> None:
    """The directory is root's own, but lies in one in which another user may rename it."""
    (above := short / "above").mkdir()
    for owner, mode in ((pwd.getpwnam("daemon").pw_uid, 0o755), (0, 0o777)):
        os.chown(above, owner, 0)
        above.chmod(mode)
        refused = program.run("sched", "--root", above / "s")
        assert refused.returncode == 2 and f"others can change {above}," in refused.stderr
        assert os.listdir(above / "s") == []
    above.chmod(0o1777)  # with the mode of /tmp
    # The check of the directory comes before this point.
    env = program.clean_env(PAWL_FAULT="rebuild.look:1:5")
    assert program.run("sched", "--root", above / "s", env=env).returncode == 4
