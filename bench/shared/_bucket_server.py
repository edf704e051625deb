"""The stand-in for a bucket: bucket_server.c, whose speed is known and which counts requests."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared._bucket_clients import Place


class StandIn:
    """A running server. Of long objects it keeps no bytes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        url = process.stdout.readline().strip()
        self.place = Place(url, "bucket", "AKIDTEST", "secret", "stand-in")

    def command(self, text: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def pace(self, conn_mib: float = 0, link_mib: float = 0, hold_ms: int = 0) -> None:
        """Limits each connection, and all together, in MiB a second; and how soon it answers."""
        self.command(f"set {conn_mib} {link_mib} {hold_ms}")

    def counts(self) -> Any:
        return self.command("counts")

    def requests(self) -> dict[str, int]:
        """Requests since the last reset, by their kind; none that was never made."""
        return {kind: n for kind, n in self.counts()["requests"].items() if n}


@contextlib.contextmanager
def stand_in(program: Path) -> Iterator[StandIn]:
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield StandIn(process)  # the server ends with its standard input
