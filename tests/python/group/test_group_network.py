"""Networks on which ranks may meet: IPv6, several interfaces, and one that lets nothing through.
Hosts are network namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

import netns
import nursery
import program
import ranks
from conftest import real_core
from test_group import HERE
from test_group_hosts import list_servers, serve, start

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
SECOND = "10.80.0"  # prefix of a cable between hosts 0 and 1
SIX = "fd79::"
NOBODY = "02:00:00:00:00:99"
STRANGER = """
import socket, sys, time

host, port, key = sys.argv[1].split(":")
ask = (0x3170767377617073).to_bytes(8, "little") + bytes(40)  # with another key
strangers = []


def say(stranger, words):
    try:
        stranger.send(words)
    except OSError:
        pass


while True:
    for words in (b"p", b"GET / HTTP/1.1\\r\\n\\r\\n", ask, bytes(100_000)):
        stranger = socket.create_connection((host, int(port)))
        stranger.setblocking(False)
        say(stranger, words)
        strangers.append(stranger)
    strangers = strangers[-400:]
    for stranger in strangers:
        say(stranger, b"a")
    time.sleep(0.02)  # pace
"""


def lay_cable(hosts: list[str]) -> None:
    """Connects hosts 0 and 1 by a second cable, eth1."""
    netns.ip(
        "link", "add", "eth1", "netns", hosts[0], "type", "veth",
        "peer", "name", "eth1", "netns", hosts[1],
    )  # fmt: skip
    for i in (0, 1):
        netns.ip("-n", hosts[i], "addr", "add", f"{SECOND}.{i + 1}/24", "dev", "eth1")
        netns.ip("-n", hosts[i], "link", "set", "eth1", "up")


def swallow(hosts: list[str]) -> None:
    """Drops packets between the two on eth1, like a firewall that sends no answer."""
    for i in (0, 1):
        other = f"{SECOND}.{2 - i}"
        netns.ip("-n", hosts[i], "neigh", "add", other, "lladdr", NOBODY, "dev", "eth1")


def sent_bytes(host: str, interface: str) -> int:
    command = ["ip", "netns", "exec", host, "cat", "/proc/net/dev"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in lines.splitlines() if line.strip().startswith(interface)]
    return int(line.partition(":")[2].split()[8])


def test_ipv6() -> None:
    """Ranks meet on IPv6 alone; also with a server."""
    with netns.hosts(3) as hosts:
        for i, host in enumerate(hosts):
            netns.ip("-n", host, "-4", "addr", "flush", "dev", "eth0")
            netns.ip("-n", host, "addr", "add", f"{SIX}{i + 1}/64", "dev", "eth0", "nodad")
        checks = ["all_reduce", "messages", "rooted"]
        env = {"MASTER_ADDR": f"{SIX}1"}
        for said in ranks.hear_ranks(
            start(hosts, (0, 1, 1), HERE / "group_rank.py", *checks, **env)
        ):
            assert said == checks
        with serve(hosts, (2,), [f"{SIX}3"]) as servers:
            env["PAWL_SERVERS"] = list_servers(servers)
            assert env["PAWL_SERVERS"].startswith(f"[{SIX}3]:")
            started = start(hosts, (0, 1, 1), HERE / "group_rank.py", *checks, **env)
            for said in ranks.hear_ranks(started):
                assert said == checks


@pytest.mark.parametrize("interface", ["eth0", "eth1"])
def test_the_interface_that_is_named_is_used(interface: str) -> None:
    with netns.hosts(2) as hosts:
        lay_cable(hosts)
        ranks.hear_ranks(
            start(hosts, (0, 1), HERE / "group_rank.py", "all_reduce", PAWL_IFNAME=interface)
        )
        sent = {name: sent_bytes(hosts[0], name) for name in ("eth0", "eth1")}
    other = "eth1" if interface == "eth0" else "eth0"
    assert sent[interface] > 2_000_000 > 10 * sent[other], sent


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_a_firewall_between_ranks_is_named() -> None:
    """Both ranks name the other one, the address they tried, and what to check."""
    with netns.hosts(2) as hosts:
        lay_cable(hosts)
        swallow(hosts)
        started = start(
            hosts, (0, 1), HERE / "group_end_rank.py", "none", PAWL_IFNAME="eth1", LIMIT="8"
        )
        texts = [process.communicate(timeout=program.LIMIT_S)[0] for process in started]
    for rank, text in enumerate(texts):
        assert f"rank {1 - rank}, at {SECOND}.{2 - rank}:" in text, text
        assert "is a firewall between them, or is it the wrong interface (PAWL_IFNAME)?" in text


def test_a_firewall_before_a_server_is_named() -> None:
    name = f"{SECOND}.2:5555:77"
    with netns.hosts(2) as hosts:
        lay_cable(hosts)
        swallow(hosts)
        netns.ip("-n", hosts[1], "addr", "flush", "dev", "eth1")
        netns.ip("-n", hosts[1], "addr", "add", f"{SECOND}.3/24", "dev", "eth1")
        netns.ip("-n", hosts[1], "neigh", "add", f"{SECOND}.2", "lladdr", NOBODY, "dev", "eth1")
        started = start(
            hosts, (0, 1), HERE / "group_end_rank.py", "none", PAWL_SERVERS=name, LIMIT="8"
        )
        texts = [process.communicate(timeout=program.LIMIT_S)[0] for process in started]
    for text in texts:
        assert f"server 0 cannot be reached at {name}: Connection timed out: is a firewall" in text


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = program.run("serve", "--listen", "127.0.0.1", "--port", port)
    assert done.returncode != 0
    assert f"listen at 127.0.0.1, port {port}: Address already in use" in done.stderr


def test_strangers_do_not_disturb_a_server() -> None:
    """Strangers that send nothing, send slowly, speak HTTP or have another key connect while ranks
    use the server."""
    with netns.hosts(2) as hosts, serve(hosts, (1,)) as servers:
        name = list_servers(servers)
        command = [sys.executable, "-c", STRANGER, name]
        stranger = nursery.Popen(command, world=nursery.World(hosts[0]))
        try:
            env = {"PAWL_SERVERS": name}
            for said in ranks.hear_ranks(
                start(hosts, (0, 1), HERE / "group_rank.py", "all_reduce", "groups", **env)
            ):
                assert said == ["all_reduce", "groups"]
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()
        assert servers[0].poll() is None
