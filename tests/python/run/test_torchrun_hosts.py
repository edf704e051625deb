"""torchrun on two hosts, which are namespaces of network and host name, with one root."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import netns
import nursery
import program
from conftest import real_core

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

JOB = Path(__file__).with_name("torchrun_hosts.py")
HOSTS = 2


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    with netns.hosts(HOSTS) as names:
        yield names


def torchrun(hosts: list[str], folders: list[str], job: str, *args: object) -> list[str]:
    """Runs torchrun on each host. Returns the lines of the ranks; ignores exit codes, which are
    torchrun's. folders: for the sockets of each host's agents."""
    processes = []
    with contextlib.ExitStack() as stack:
        for i, (host, folder) in enumerate(zip(hosts, folders, strict=True)):
            command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={HOSTS}"]
            command += [f"--node-rank={i}", "--nproc-per-node=2"]
            command += ["--master-addr=10.79.0.1", "--master-port=29533"]
            env = program.clean_env(
                PAWL_JOB_ID=job, XDG_RUNTIME_DIR=folder, GLOO_SOCKET_IFNAME="eth0"
            )
            processes.append(
                nursery.Popen(
                    [*command, str(JOB), *map(str, args)],
                    world=nursery.World(host, hostname=host[-2:]),
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            stack.callback(processes[-1].kill)
        texts = [process.communicate(timeout=program.LIMIT_S)[0] for process in processes]
    print(*texts, sep="\n")
    return sorted(x[2:] for text in texts for x in text.splitlines() if x.startswith("> "))


@pytest.fixture
def folders() -> Iterator[list[str]]:
    """Yields a short path for each host, for the sockets of its agents."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pawl-")) for _ in range(HOSTS)
        ]


@pytest.mark.slow
def test_a_job_on_two_hosts_goes_on(
    hosts: list[str], folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's ranks leave, die, and begin again, all from the same step; the last time in real
    interpreters."""
    job, root = f"test-{secrets.token_hex(4)}", tmp_path / "root"
    for first, dies in ((0, ()), (3, ("dies",)), (6, ())):
        if first == 6:
            monkeypatch.setattr(nursery.nursery, "enabled", False)
        said = torchrun(hosts, folders, job, root, *dies)
        assert said == sorted(
            line
            for rank in range(4)
            for line in (
                f"{rank} h{rank // 2} from {first} with {100 * first + rank if first else 0}",
                f"{rank} step {first + 3} durable True None",
            )
        )
    files = {path.name for path in (root / "global_step9").iterdir()}
    assert {"model", "optimizer", *(f"mine-rank{r}" for r in range(4))} <= files
    assert program.run("ckpt", "verify", root, "--all").returncode == 0
