"""torch.distributed's backend "pawl" between hosts, which are network namespaces."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import netns
import nursery
import program
import ranks
import waits
from conftest import real_core
from test_group import COLLECTIVES, HERE, TORCH

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
PORT = "29541"


def start(
    hosts: list[str], where: Sequence[int], script: Path, *args: str, **env: str
) -> list[subprocess.Popen[str]]:
    """Starts a rank for each number in where, which is its host."""
    return [
        nursery.Popen(
            [sys.executable, str(script), *args],
            world=nursery.World(hosts[host]),
            env=program.clean_env(
                RANK=str(rank), WORLD_SIZE=str(len(where)), MASTER_ADDR=netns.address(where[0]),
                MASTER_PORT=PORT, LOCAL_RANK=str(list(where[:rank]).count(host)),
                GLOO_SOCKET_IFNAME="eth0",
            ) | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, host in enumerate(where)
    ]  # fmt: skip


def run(where: Sequence[int], script: str, *args: str, **env: str) -> list[list[str]]:
    """Runs ranks, and returns the lines of each."""
    with netns.hosts(max(where) + 1) as hosts:
        return ranks.hear_ranks(start(hosts, where, HERE / script, *args, **env))


@pytest.mark.parametrize("where", [(0, 1), (0, 1, 2), (0, 0, 1, 1), (0, 1, 0), (0, 0, 0, 1)])
def test_every_collective(where: tuple[int, ...]) -> None:
    for said in run(where, "group_rank.py"):
        assert said == COLLECTIVES


@pytest.mark.slow
@pytest.mark.parametrize("where", [(0, 0, 1, 1)])
def test_what_torch_builds_on_groups(where: tuple[int, ...]) -> None:
    for said in run(where, "group_torch_rank.py"):
        assert said == TORCH


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("kill", "rank 1 is lost: its connection "),
        ("exit", "rank 1 has left the group"),
        ("shape", "all_reduce(sum) of 1001 float32"),
        ("stop", "rank 1 is lost: not a sign of it for"),
        ("link", "rank 1 is lost: not a sign of it for"),
    ],
)
def test_whoever_ends_badly_is_named(how: str, text: str) -> None:
    """Rank 1 is on a host of its own; link: the host's cable is pulled."""
    with netns.hosts(2) as hosts:
        at = "late" if how == "link" else how
        started = start(
            hosts, (0, 1, 0), HERE / "group_end_rank.py", at, LIMIT="60" if how == "link" else "",
            **program.SILENT,
        )  # fmt: skip
        if how == "link":
            assert started[1].stdout is not None
            while "late" not in started[1].stdout.readline():
                assert started[1].poll() is None
            netns.ip("-n", hosts[1], "link", "set", "eth0", "down")
        said = []
        try:
            for rank in (0, 2):
                output = started[rank].communicate(timeout=program.LIMIT_S)[0]
                said.append(ranks.say(output))
                assert len(said[-1]) == 2, output
        finally:
            ranks.stop(started)
    assert all(f"; rank 1 is on {socket.gethostname()}" in error for error, _ in said), said
    assert any(text in error for error, _ in said), said
    waits.check_sooner(max(float(seconds) for _, seconds in said), waits.NAMED_S, "rank 1 is named")


@contextlib.contextmanager
def serve(
    hosts: Sequence[str], where: Sequence[int], addresses: Sequence[str] = ()
) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs `pawl serve` on hosts."""
    with contextlib.ExitStack() as stack:
        servers = []
        for host, address in zip(where, addresses or map(netns.address, where), strict=True):
            command = [program.find(), "serve", "--listen", address]
            server = subprocess.Popen(
                ["ip", "netns", "exec", hosts[host], *command], env=program.clean_env(),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            stack.callback(server.communicate)
            stack.callback(server.kill)
            servers.append(server)
        yield servers


def list_servers(servers: Sequence[subprocess.Popen[str]]) -> str:
    """Returns the value of PAWL_SERVERS."""
    lines = [server.stdout.readline().strip() for server in servers if server.stdout is not None]
    return ",".join(lines)


@pytest.mark.parametrize(
    ("where", "others"), [((0, 1), (2,)), ((0, 1, 0), (2, 3)), ((0, 1, 2), (3, 4, 5))]
)
def test_servers_add(where: tuple[int, ...], others: tuple[int, ...]) -> None:
    with netns.hosts(max(others) + 1) as hosts, serve(hosts, others) as servers:
        env = {"PAWL_SERVERS": list_servers(servers)}
        for said in ranks.hear_ranks(start(hosts, where, HERE / "group_rank.py", **env)):
            assert said == COLLECTIVES
        for server in servers:
            server.terminate()
            assert server.stdout is not None
            assert "all have left" in server.stdout.read()
            assert server.wait(program.LIMIT_S) == 128 + signal.SIGTERM


def test_a_server_that_dies_is_named() -> None:
    with netns.hosts(3) as hosts, serve(hosts, (2,)) as (server,):
        env = {"PAWL_SERVERS": list_servers([server]), "LIMIT": "60"}
        started = start(hosts, (0, 1, 0), HERE / "group_end_rank.py", "late", **env)
        assert started[1].stdout is not None
        while "late" not in started[1].stdout.readline():
            assert started[1].poll() is None
        server.kill()
        for error, seconds in ranks.hear_ranks(started):
            assert "server 0 is lost: its connection " in error
            waits.check_sooner(float(seconds), 26, "it is named before rank 1 comes")


def test_servers_that_are_not_there_are_named() -> None:
    with netns.hosts(2) as hosts:
        started = start(
            hosts, (0, 1), HERE / "group_rank.py", PAWL_SERVERS=f"{netns.address(0)}:5:5"
        )
        texts = [process.communicate(timeout=program.LIMIT_S)[0] for process in started]
    assert all(
        f"server 0 cannot be reached at {netns.address(0)}:5:5: " in text for text in texts
    ), texts


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_hosts_without_a_network_between_them() -> None:
    """A wrong interface is named; so are ranks that cannot reach each other."""
    with netns.hosts(2) as hosts:
        started = start(hosts, (0, 1), HERE / "group_rank.py", PAWL_IFNAME="eth7")
        texts = [process.communicate(timeout=program.LIMIT_S)[0] for process in started]
    assert all("PAWL_IFNAME=eth7: there is no such interface" in text for text in texts)
