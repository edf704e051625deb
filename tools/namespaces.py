"""Network namespaces as hosts, on one bridge: 10.79.0.1 and on. For tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

# Burst of a shaped link: with less than 72 KiB, a second of 1 Gbit/s is full of cut-up packets, and
# with more than 128 KiB a short test is faster than the link.
BURST_BYTES = 80 << 10
QUEUE = "20ms"


class NoHosts(Exception):
    """Raised where network namespaces cannot be made; the text says why."""


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def address(host: int) -> str:
    return f"10.79.0.{host + 1}"


def silence(name: str) -> None:
    """Drops all packets of a host from now on, though its link stays up."""
    mark, _, number = name.removeprefix("pawl").partition("h")
    ip("link", "set", f"pb{mark}{number}", "nomaster")


def hear(name: str) -> None:
    """Ends what silence() began."""
    mark, _, number = name.removeprefix("pawl").partition("h")
    ip("link", "set", f"pb{mark}{number}", "master", f"pb{mark}")


def _shape(name: str, veth: str, rate: str) -> None:
    """Limits a link each way by a token bucket, which replaces an earlier one."""
    bucket = ["root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", QUEUE]
    for where, device in (([], veth), (["-n", name], "eth0")):
        command = ["tc", *where, "qdisc", "replace", "dev", device, *bucket]
        subprocess.run(command, check=True, capture_output=True, text=True)


def shape(names: list[str], host: int, rate: str) -> None:
    """Changes the rate of one of the hosts that hosts() gave."""
    _shape(names[host], f"pb{names[host].removeprefix('pawl').partition('h')[0]}{host}", rate)


def _make(names: list[str], bridge: str, rate: str) -> None:
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
        if rate:
            _shape(name, veth, rate)


@contextlib.contextmanager
def hosts(count: int, rate: str = "") -> Iterator[list[str]]:
    """Yields the names of hosts. rate: of each host's link, each way, as tc takes it ("1gbit"); "":
    unshaped."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise NoHosts("network namespaces need root and ip (apt-get install iproute2)")
    mark = secrets.token_hex(2)
    names = [f"pawl{mark}h{i}" for i in range(count)]
    bridge = f"pb{mark}"
    try:
        try:
            _make(names, bridge, rate)
        except subprocess.CalledProcessError as reason:
            raise NoHosts(f"no network namespaces here: {reason.stderr.strip()}") from reason
        yield names
    finally:
        for name in names:
            ip("netns", "del", name, check=False)
        ip("link", "del", bridge, check=False)
