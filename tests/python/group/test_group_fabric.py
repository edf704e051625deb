"""torch.distributed's backend "pawl" between hosts over libfabric. Hosts are network namespaces."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

import netns
import nursery
import program
import ranks
import waits
from conftest import real_core
from test_group import COLLECTIVES, HERE, TORCH, take_in
from test_group_hosts import run, start
from test_group_network import SIX, lay_cable, sent_bytes

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
ENV = {"PAWL_TRANSPORT": "fabric"}
OPEN = "from pawl import _core; _core.Group(0, 2, '127.0.0.1')"


@functools.cache
def find_reason() -> str:
    """Returns why libfabric cannot be tried here; "": it can."""
    command = [sys.executable, "-c", OPEN]
    done = nursery.run(command, env=program.clean_env(**ENV), capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.fixture(autouse=True)
def skip_without() -> None:
    if find_reason():
        pytest.skip(find_reason())


@pytest.mark.parametrize("where", [(0, 1), (0, 1, 2), (0, 1, 0)])
def test_every_collective(where: tuple[int, ...]) -> None:
    for said in run(where, "group_rank.py", **ENV):
        assert said == COLLECTIVES


@pytest.mark.slow
def test_what_torch_builds_on_groups() -> None:
    for said in run((0, 0, 1, 1), "group_torch_rank.py", **ENV):
        assert said == TORCH


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("kill", "rank 1 is lost: "),
        ("exit", "rank 1 has left the group"),
        ("shape", "all_reduce(sum) of 1001 float32"),
        ("stop", "rank 1 is lost: not a sign of it for"),
    ],
)
def test_whoever_ends_badly_is_named(how: str, text: str) -> None:
    """Rank 1 is on a host of its own. A killed rank may be named for its silence only."""
    with netns.hosts(2) as hosts:
        env = ENV | program.SILENT
        started = start(hosts, (0, 1, 0), HERE / "group_end_rank.py", how, **env)
        try:
            texts = [started[rank].communicate(timeout=program.LIMIT_S)[0] for rank in (0, 2)]
        finally:
            ranks.stop(started)
    said = [ranks.say(text) for text in texts]
    assert all("rank 1" in error for error, _ in said), said
    assert any(text in error for error, _ in said), said
    waits.check_sooner(max(float(seconds) for _, seconds in said), waits.NAMED_S, "rank 1 is named")


def test_survivors_go_on_and_take_in_another(tmp_path: Path) -> None:
    script, folder = HERE / "group_admit_rank.py", str(tmp_path)
    with netns.hosts(4) as hosts:
        started = start(hosts, (0, 1, 2), script, folder, **ENV)
        take_in(tmp_path, started, lambda: start(hosts, (3,), script, folder, "join", **ENV))


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_ipv6() -> None:
    with netns.hosts(2) as hosts:
        for i, host in enumerate(hosts):
            netns.ip("-n", host, "-4", "addr", "flush", "dev", "eth0")
            netns.ip("-n", host, "addr", "add", f"{SIX}{i + 1}/64", "dev", "eth0", "nodad")
        env = ENV | {"MASTER_ADDR": f"{SIX}1"}
        for said in ranks.hear_ranks(
            start(hosts, (0, 1), HERE / "group_rank.py", "all_reduce", **env)
        ):
            assert said == ["all_reduce"]


@pytest.mark.parametrize("interface", ["eth0", "eth1"])
def test_the_interface_that_is_named_is_used(interface: str) -> None:
    with netns.hosts(2) as hosts:
        lay_cable(hosts)
        env = ENV | {"PAWL_IFNAME": interface}
        ranks.hear_ranks(start(hosts, (0, 1), HERE / "group_rank.py", "all_reduce", **env))
        sent = {name: sent_bytes(hosts[0], name) for name in ("eth0", "eth1")}
    other = "eth1" if interface == "eth0" else "eth0"
    assert sent[interface] > 2_000_000 > 10 * sent[other], sent
