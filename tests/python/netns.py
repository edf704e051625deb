"""Network namespaces as hosts, on one bridge: 10.79.0.1 and on."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def address(host: int) -> str:
    return f"10.79.0.{host + 1}"


def _make(names: list[str], bridge: str) -> None:
    ip("link", "add", bridge, "type", "bridge")
    ip("link", "set", bridge, "up")
    for i, name in enumerate(names):
        veth = f"{bridge}{i}"
        ip("netns", "add", name)
        ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", veth, "master", bridge, "up")
        ip("-n", name, "addr", "add", f"{address(i)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[str]]:
    """Their names; the test is skipped where there can be none."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip (apt-get install iproute2)")
    mark = secrets.token_hex(2)
    names = [f"pawl{mark}h{i}" for i in range(count)]
    bridge = f"pb{mark}"
    try:
        try:
            _make(names, bridge)
        except subprocess.CalledProcessError as reason:
            pytest.skip(f"no network namespaces here: {reason.stderr.strip()}")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name, check=False)
        ip("link", "del", bridge, check=False)
