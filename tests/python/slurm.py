"""A real Slurm without systemd or cgroups: a daemon a node, each in a namespace of netns.py.

The controller and the commands are on the first node.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import netns

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
_START_S = 30
_PORT = 17800
_CONF = """
ClusterName=pawl
SlurmctldHost=n1({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={port}
SlurmdPort={slurmd_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
PlugStackConfig={folder}/plugstack.conf
"""


class Cluster:
    """Nodes n1 and on."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self.folder = folder
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._hosts = hosts

    def inside(self, node: int, *command: str | Path) -> list[str]:
        """A command line that runs another on a node. Slurm wants /sys as it is: no `ip netns`."""
        enter = ["nsenter", f"--net=/run/netns/{self._hosts[node]}", "unshare", "-u", "sh", "-c"]
        return [*enter, f'hostname n{node + 1} && exec "$@"', "sh", *map(str, command)]

    def write(self) -> None:
        text = _CONF.format(
            folder=self.folder, port=_PORT, slurmd_port=_PORT + 1, controller=netns.address(0)
        )
        for node in range(len(self._hosts)):
            text += (
                f"NodeName=n{node + 1} NodeHostname=n{node + 1} NodeAddr={netns.address(node)} "
                "CPUs=4 RealMemory=1000\n"
            )
        text += f"PartitionName=main Nodes=n[1-{len(self._hosts)}] Default=YES State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "plugstack.conf").touch()
        (self.folder / "state").mkdir()
        (self.folder / "munge").mkdir(mode=0o755)
        (self.folder / "munge/key").write_bytes(os.urandom(1024))
        (self.folder / "munge/key").chmod(0o400)

    def daemons(self) -> list[list[str]]:
        munge = self.folder / "munge"
        files = ("socket", "key", "pid", "log", "seed")
        options = ("--socket", "--key-file", "--pid-file", "--log-file", "--seed-file")
        munged = ["munged", "--foreground", "--force"]
        munged += [f"{o}={munge / f}" for o, f in zip(options, files, strict=True)]
        return [
            munged,
            self.inside(0, "slurmctld", "-D", "-f", self.folder / "slurm.conf"),
            *(
                self.inside(i, "slurmd", "-D", "-N", f"n{i + 1}", "-f", self.folder / "slurm.conf")
                for i in range(len(self._hosts))
            ),
        ]

    def is_idle(self) -> bool:
        done = subprocess.run(
            self.inside(0, "timeout", "5", "sinfo", "-h", "-N", "-o", "%T"),
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
        )
        return done.stdout.split() == ["idle"] * len(self._hosts)


@contextlib.contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Starts it, and ends it; the test is skipped where it cannot be."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]} (apt-get install slurmctld slurmd slurm-client munge)")
    with netns.hosts(nodes) as hosts:
        made = Cluster(folder, hosts)
        made.write()
        started = []
        try:
            for command in made.daemons():
                log = open(folder / f"log.{len(started)}", "w")  # noqa: SIM115, the child's
                started.append(
                    subprocess.Popen(
                        command,
                        env={**os.environ, **made.env},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
                log.close()
            end = time.monotonic() + _START_S
            while not made.is_idle():
                logs = "\n".join(path.read_text() for path in sorted(folder.glob("log.*")))
                assert time.monotonic() < end, f"Slurm does not start:\n{logs}"
                time.sleep(0.2)
            yield made
        finally:
            for process in reversed(started):
                process.terminate()
            for process in reversed(started):
                process.wait(20)
