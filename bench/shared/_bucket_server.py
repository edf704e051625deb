"""Servers of buckets: the stand-in, bucket_server.c of the tests, whose speed is known and which
counts requests (here it stores no bytes of long objects); and SeaweedFS."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shared._bucket_clients import Place
from shared._process import load

VOLUMES = 120  # each of 256 MB; SeaweedFS begins many before one is full


class StandIn:
    """A running server. Of long objects it keeps no bytes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        url = process.stdout.readline().strip()
        self.place = Place(url, "bucket", "AKIDTEST", "secret", "stand-in")
        self.command("drop 1")

    def command(self, text: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def pace(self, conn_mib: float = 0, link_mib: float = 0, hold_ms: int = 0) -> None:
        """Limits each connection, and all together, in MiB a second; and how soon it answers."""
        self.command(f"set {conn_mib} {link_mib} {hold_ms}")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The server stands still meanwhile, and answers nobody."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def counts(self) -> Any:
        return self.command("counts")

    def requests(self) -> dict[str, int]:
        """Requests since the last reset, by their kind; none that was never made."""
        return {kind: n for kind, n in self.counts()["requests"].items() if n}


@contextlib.contextmanager
def stand_in(
    program: Path, address: str = "127.0.0.1", within: Sequence[str] = ()
) -> Iterator[StandIn]:
    """within: a command that runs another one where the address is."""
    with subprocess.Popen(
        [*within, program, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield StandIn(process)  # the server ends with its standard input


def no_seaweedfs() -> str:
    """Why there is no SeaweedFS; "": there is."""
    buckets = load("buckets")
    try:
        buckets.find_weed()
    except buckets.pytest.skip.Exception as why:
        return str(why)
    return ""


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Place]:
    """A fresh SeaweedFS on the folder's disk, with an empty bucket."""
    buckets = load("buckets")
    with (
        tempfile.TemporaryDirectory(dir=folder) as state,
        buckets.seaweedfs(Path(state), VOLUMES) as server,
    ):
        yield Place(server.url, buckets.BUCKET, buckets.KEY, buckets.SECRET, "SeaweedFS")
