"""NFS as a store: an export of this machine to itself, mounted twice, as two hosts see it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import program
from hosts import Job, is_whole


def lacks() -> str:
    """Returns why nothing can be exported and mounted here; "": it can."""
    known = Path("/proc/filesystems").read_text().split()
    for name, module in (("nfsd", "nfsd"), ("nfs4", "nfsv4")):
        if name not in known:
            with contextlib.suppress(FileNotFoundError):
                subprocess.run(["modprobe", module], capture_output=True, check=False)
    known = Path("/proc/filesystems").read_text().split()
    missing = [name for name in ("nfsd", "nfs4") if name not in known]
    if missing:
        return f"this kernel has no {' and no '.join(missing)}"
    for tool in ("exportfs", "rpc.nfsd", "mount.nfs4"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (nfs-kernel-server, nfs-common)"
    return "" if os.geteuid() == 0 else "mounting needs root"


def run(*command: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"{command[0]}: {done.stderr.strip()}")


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[list[Path]]:
    """The exported directory as two clients see it, each with caches of its own."""
    if reason := lacks():
        pytest.skip(reason)
    shared = tmp_path / "export"
    shared.mkdir()
    mounted: list[Path] = []
    if not Path("/proc/fs/nfsd/threads").exists():
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    run("rpc.nfsd", "2")
    run("exportfs", "-o", "rw,sync,no_root_squash,insecure,fsid=77", f"127.0.0.1:{shared}")
    try:
        for name in ("one", "two"):
            at = tmp_path / name
            at.mkdir()
            run("mount", "-t", "nfs4", "-o", "nosharecache", f"127.0.0.1:{shared}", at)
            mounted.append(at)
        yield mounted
    finally:
        for at in mounted:
            subprocess.run(["umount", "-l", str(at)], check=False)
        subprocess.run(["exportfs", "-u", f"127.0.0.1:{shared}"], check=False)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    program.find()
    job = Job(tmp_path)
    yield job
    job.end()
    shutil.rmtree(job.sockets)


def test_hosts_save_and_restore_over_nfs(job: Job, mounts: list[Path]) -> None:
    roots = [at / "root" for at in mounts]
    job.start(1, 1)
    job.open_at(roots)
    for step in (1, 2, 2):  # the last save replaces a tag, in two renames
        job.save(step)
    job.all("restore", "2")
    for root in roots:
        is_whole(root)
    job.start(1, 1)
    job.open_at(roots)
    job.all("restore", "2")
    job.save(3)


def test_one_host_over_nfs(job: Job, mounts: list[Path]) -> None:
    job.root = mounts[0] / "root"
    job.start(2)
    job.open()
    for step in (1, 1, 2):
        job.save(step)
    job.all("restore", "2")
    job.all("close", "True")
    is_whole(mounts[1] / "root")
