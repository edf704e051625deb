"""Buckets that are mounted as file systems: by rclone, as SkyPilot does it, and by s3fs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared._agent import wait_until
from shared._bucket_clients import PLACE, REGION, Place, rclone_options

RCLONE = PLACE / "bin/rclone"
# What SkyPilot gives `rclone mount` besides --daemon, --allow-other and names of files: for MOUNT,
# where goofys does not run, nothing; files are uploaded while they are written. For MOUNT_CACHED:
CACHED = (
    "--vfs-cache-mode=full", "--dir-cache-time=10s", "--vfs-cache-poll-interval=10s",
    "--vfs-write-back=1s", "--vfs-cache-max-size=10G", "--vfs-fast-fingerprint",
)  # fmt: skip
CLOSE_S = 0.5  # rclone hears of a close a little later, and then waits a second (--vfs-write-back)
END_S = 10.0  # longest time for a mount to end by itself
LOG_CHARS = 500


def why_not(program: str | Path) -> str:
    """Why this program can mount nothing here; "": it can."""
    if shutil.which("fusermount3") is None:
        return "fuse3 is not installed (tools/packages.sh --bench)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "this user may not open /dev/fuse"
    if shutil.which(program) is None:
        return f"{Path(program).name} is not installed"
    return ""


def is_mounted(path: Path) -> bool:
    """Looks into the list of mounts: one whose process has died answers nothing else."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split()[1].replace("\\040", " ") == str(path) for line in lines)


class Mount:
    """A mounted bucket, and its process."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
        self.folder = folder
        self._process = process
        self._port = port  # where rclone answers what it is doing; 0: nothing is done after close

    def _uploads(self) -> int:
        ask = urllib.request.Request(f"http://127.0.0.1:{self._port}/vfs/stats", method="POST")
        with urllib.request.urlopen(ask, timeout=END_S) as answer:
            cache = json.load(answer)["diskCache"]
        return cache["uploadsInProgress"] + cache["uploadsQueued"]

    def settle(self, step: int) -> tuple[float, float]:
        """Waits until all that was closed is in the bucket. Returns when the wait began, and when
        it ended."""
        begun = time.time()
        if self._port:
            time.sleep(CLOSE_S)
            wait_until("all is uploaded", lambda: self._uploads() == 0)
        return begun, time.time()

    def give_up(self) -> None:
        """Ends all calls in the mount that hang: they fail."""
        self._process.kill()


def _end(folder: Path, process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if is_mounted(folder):
        subprocess.run(["fusermount3", "-uz", folder], check=False)


@contextlib.contextmanager
def _mounted(
    folder: Path, command: Sequence[str | Path], env: dict[str, str], port: int
) -> Iterator[Mount]:
    folder.mkdir()
    log = folder.with_name(f"{folder.name}.log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        wait_until(
            "the bucket is mounted", lambda: is_mounted(folder) or process.poll() is not None
        )
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]}: {log.read_text()[-LOG_CHARS:]}")
        yield Mount(folder, process, port)
    finally:
        _end(folder, process)


@contextlib.contextmanager
def rclone(place: Place, folder: Path, flags: Sequence[str] = ()) -> Iterator[Mount]:
    """The bucket's objects with the folder's name as prefix, mounted there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    state = folder.with_name(f"{folder.name}.cache")
    # The stand-in keeps no MD5s and no times.
    kept = [] if place.name == "SeaweedFS" else ["--ignore-checksum", "--size-only"]
    command = [
        RCLONE, "mount", f":s3:{place.bucket}/{folder.name}", folder, *rclone_options(place),
        "--rc", f"--rc-addr=127.0.0.1:{port}", "--rc-no-auth", f"--cache-dir={state}",
        *kept, *flags,
    ]  # fmt: skip
    with _mounted(folder, command, place.env(), port if flags else 0) as mount:
        yield mount


@contextlib.contextmanager
def s3fs(place: Place, folder: Path) -> Iterator[Mount]:
    """The whole bucket, mounted there."""
    keys = folder.with_name(f"{folder.name}.keys")
    keys.touch(0o600)
    keys.write_text(f"{place.key_id}:{place.secret}\n")
    options = (
        f"url={place.url}", "use_path_request_style", f"endpoint={REGION}", f"passwd_file={keys}",
        f"tmpdir={folder.parent}",
    )  # fmt: skip
    command = ["s3fs", place.bucket, folder, "-f", *(f"-o{option}" for option in options)]
    with _mounted(folder, command, {}, 0) as mount:
        yield mount
