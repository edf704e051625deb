"""Runs a script as several ranks, as a launcher would, and reads the output of each."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import nursery
import program

_ports = itertools.count(os.getpid() * 101)


def free_port() -> int:
    """Returns a port that the kernel gives to no process that asks for any port, or connects: the
    caller binds it some time later."""
    while True:
        port = 10000 + next(_ports) % 10000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def rank_env(rank: int, world: int, port: int, job: str) -> dict[str, str]:
    """Returns the variables that torchrun sets for a rank, on one node."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PAWL_JOB_ID": job,
    }


def start_ranks(
    script: Path, world: int, *args: str, env: Mapping[str, str] | None = None, job: str = ""
) -> list[subprocess.Popen[str]]:
    """Starts the ranks; the caller ends them. stderr goes where stdout goes."""
    port = free_port()
    job = job or f"test-{secrets.token_hex(4)}"
    return [
        nursery.Popen(
            [sys.executable, str(script), *args],
            env={**(env or program.clean_env()), **rank_env(rank, world, port, job)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]


def run_ranks(
    script: Path, world: int, *args: str, env: Mapping[str, str] | None = None, job: str = ""
) -> list[list[str]]:
    """Runs ranks to their end. Returns the lines that each prints after "> ". Fails, with all
    output, if a rank fails."""
    return hear_ranks(start_ranks(script, world, *args, env=env, job=job))


def say(text: str) -> list[str]:
    """Returns the lines after "> "."""
    return [line[2:] for line in text.splitlines() if line.startswith("> ")]


def hear_ranks(ranks: Sequence[subprocess.Popen[str]]) -> list[list[str]]:
    """Waits for ranks that were started, and ends them. Returns the same lines as run_ranks."""
    said: Sequence[str] = ["" for _ in ranks]
    try:
        said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    codes = [rank.returncode for rank in ranks]
    assert codes == [0] * len(ranks), "\n".join([f"exit codes {codes}", *said])
    return [say(text) for text in said]


def stop(started: Sequence[subprocess.Popen[str]]) -> None:
    """Ends ranks, also those that have ended already."""
    for process in started:
        process.kill()
        process.communicate()
