"""Ranks on hosts that are network namespaces with shaped links: starting them,
and the links' bound.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shared._process import read_json, run_command

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import namespaces
from namespaces import NoHosts, address

__all__ = ["Hosts", "NoHosts", "make_hosts", "rank_env"]
STORE_PORT = 29551
IPERF_PORT = 5299
# mpirun calls this in place of ssh to reach another host: the address is a namespace's.
AGENT = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
case $host in
{cases}
esac
exec ip netns exec "$name" unshare --uts /bin/sh -c "hostname $name; $*"
"""


def rank_env(where: Sequence[int], rank: int, master: str, port: int) -> dict[str, str]:
    """The variables that init_process_group reads. where: host of each rank;
    master: the first host's address.
    """
    env = {
        "RANK": rank, "WORLD_SIZE": len(where), "LOCAL_RANK": where[:rank].count(where[rank]),
        "MASTER_ADDR": master, "MASTER_PORT": port,
        "OMP_NUM_THREADS": 1, "TORCH_CPP_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    return {key: str(value) for key, value in env.items()}


class Hosts:
    """A set of hosts, made by make_hosts."""

    def __init__(self, names: list[str], folder: Path) -> None:
        self._names = names
        self._agent = folder / "agent.sh"
        cases = [f"{address(i)}) name={name} ;;" for i, name in enumerate(names)]
        self._agent.write_text(AGENT.replace("{cases}", "\n".join(cases)))
        self._agent.chmod(0o755)

    def measure_goodput(self, seconds: float = 3) -> float:
        """Bytes a second from one host to another by TCP, as iperf3 measures them."""
        server = subprocess.Popen(
            [*self.at(1), "iperf3", "-s", "-1", "-p", str(IPERF_PORT)], stdout=subprocess.DEVNULL
        )
        time.sleep(0.5)
        command = [*self.at(0), "iperf3", "-c", address(1), "-p", str(IPERF_PORT), "-J"]
        try:
            done = subprocess.run(
                [*command, "-t", str(seconds)], check=True, capture_output=True, text=True
            )
        finally:
            server.terminate()
            server.wait()
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8

    @contextlib.contextmanager
    def serve(self, hosts: Sequence[int]) -> Iterator[str]:
        """Runs `pawl serve` on each of hosts; yields PAWL_SERVERS for the ranks."""
        pawl = Path(sys.executable).parent / "pawl"
        with contextlib.ExitStack() as stack:
            names = []
            for host in hosts:
                command = [*self.at(host), pawl, "serve", "--listen", address(host)]
                server = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
                stack.callback(server.wait)
                stack.callback(server.terminate)
                assert server.stdout is not None
                names.append(server.stdout.readline().strip())
            yield ",".join(names)

    def run_torch(
        self, where: Sequence[int], script: Path, *args: object, limit_s: float, **env: str
    ) -> Any:
        """Runs a script on torch; returns the JSON object that rank 0 prints last.
        where: host of each rank.
        """
        started = []
        for rank, host in enumerate(where):
            names = rank_env(where, rank, address(where[0]), STORE_PORT)
            names |= {"GLOO_SOCKET_IFNAME": "eth0", "PAWL_IFNAME": "eth0", **env}
            started.append(
                subprocess.Popen(
                    [*self.at(host), sys.executable, script, *map(str, args)],
                    env=os.environ | names,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    stderr=None,
                    text=True,
                )
            )
        try:
            said = started[0].communicate(timeout=limit_s)[0]
            statuses = [process.wait(limit_s) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
        if any(statuses):
            sys.exit(f"{script.name}: ranks ended with {statuses}")
        return read_json(said)

    def run_mpi(
        self, where: Sequence[int], command: Sequence[object], options: Sequence[str] = (), *,
        limit_s: float,
    ) -> Any:  # fmt: skip
        counts = [f"{address(host)}:{where.count(host)}" for host in sorted(set(where))]
        network = ["btl_tcp_if_include", "oob_tcp_if_include"]
        settings = [word for key in network for word in ("--mca", key, "eth0")]
        settings += ["--mca", "btl", "tcp,vader,self", "--mca", "pml", "ob1"]
        settings += ["--mca", "plm_rsh_agent", str(self._agent), "--allow-run-as-root"]
        mpirun = ["mpirun", *settings, *options, "--host", ",".join(counts)]
        return run_command(
            [*self.at(where[0]), *mpirun, "-np", str(len(where)), *map(str, command)],
            limit_s=limit_s,
        )

    def at(self, host: int) -> list[str]:
        return ["ip", "netns", "exec", self._names[host]]


@contextlib.contextmanager
def make_hosts(count: int, rate: str, folder: Path) -> Iterator[Hosts]:
    """Makes hosts. rate: of each host's link, each way ("1gbit"). Raises NoHosts
    with the reason.
    """
    if shutil.which("iperf3") is None:
        raise NoHosts("iperf3 is not installed: make bench does that")
    with namespaces.hosts(count, rate) as names:
        yield Hosts(names, folder)
