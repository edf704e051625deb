"""tools/world.py: a command has its own processes, ports and shared memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import program

WORLD = Path(__file__).parents[3] / "tools/world.py"


def can() -> bool:
    return subprocess.run([sys.executable, WORLD, "--can"], check=False).returncode == 0


def enter(script: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, WORLD, "sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=program.LIMIT_S, **more)  # type: ignore[call-overload]


own = pytest.mark.skipif(not can(), reason="namespaces need root")


@pytest.mark.parametrize("status", [0, 1, 77])
def test_status_is_passed_on(status: int) -> None:
    assert enter(f"exit {status}").returncode == status


def test_a_signal_is_passed_on() -> None:
    assert enter("kill -KILL $$").returncode == -signal.SIGKILL
    assert enter("ulimit -c 0; kill -SEGV $$").returncode == -signal.SIGSEGV


def test_a_command_that_is_not_there() -> None:
    done = subprocess.run([sys.executable, WORLD, "/none"], capture_output=True, text=True)
    assert done.returncode != 0 and "/none" in done.stderr


@own
def test_what_is_its_own() -> None:
    Path("/dev/shm/pawl-test-world").touch()
    try:
        said = enter(
            "ls /dev/shm; echo $$; ls -d /proc/[0-9]* | wc -l; cat /proc/net/route | wc -l"
        )
    finally:
        Path("/dev/shm/pawl-test-world").unlink()
    pid, processes, routes = map(int, said.stdout.split())
    assert pid < 10 and processes < 10 and routes == 1


@own
def test_a_port_of_its_own() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 29000)); input()"
    command = [sys.executable, str(WORLD), sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    ends = [process.communicate(b"\n", timeout=program.LIMIT_S)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], ends


@own
def test_each_has_a_meter() -> None:
    """Each world has its own meter, though process ids may be equal; see tools/suite/cpu.py."""
    code = "from suite.cpu import CpuMeter; m = CpuMeter(); print(m._group); input(); m.close()"
    command = [sys.executable, str(WORLD), sys.executable, "-uc", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = {**os.environ, "PYTHONPATH": str(WORLD.parent)}
    both = [subprocess.Popen(command, env=env, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    groups = [process.stdout.readline() for process in both]
    for process in both:
        process.communicate(b"\n", timeout=program.LIMIT_S)
    assert groups == [b"None\n"] * 3 or len(set(groups) - {b"None\n"}) == 3


@own
def test_nothing_outlives_it() -> None:
    heard, said = os.pipe()
    enter("setsid sleep 1000 & exit 0", pass_fds=[said])
    os.close(said)
    assert os.read(heard, 1) == b""  # the last holder of the pipe has ended
    os.close(heard)


def test_it_ends_when_it_is_told_to() -> None:
    """A signal ends the world however soon after the start of the command it comes."""
    command = [sys.executable, str(WORLD), "sh", "-c", "echo ready; exec sleep 1000"]
    for _ in range(5):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            process.terminate()
            assert process.wait(program.LIMIT_S) == -signal.SIGTERM
        finally:
            process.kill()
            process.communicate()
