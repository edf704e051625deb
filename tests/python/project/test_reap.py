"""tools/reap.py passes a test's end on and lets none of its processes live on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REAP = Path(__file__).parents[3] / "tools/reap.py"


def reap(script: str, *args: str, way: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command, which ends only when no process holds its output open any more."""
    command = [sys.executable, str(REAP), *way.split(), "sh", "-c", script, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


ways = pytest.mark.parametrize("way", ["", "--world"])


@ways
@pytest.mark.parametrize("status", [0, 1, 77])
def test_status_is_passed_on(status: int, way: str) -> None:
    assert reap(f"exit {status}", way=way).returncode == status


@ways
def test_signal_is_passed_on(way: str) -> None:
    assert reap("kill -SEGV $$", way=way).returncode == -signal.SIGSEGV


@ways
def test_process_that_leaves_by_itself_is_fine(way: str) -> None:
    done = reap("sleep 0.3 & exit 0", way=way)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_left_in_a_world_is_named_and_ends_with_it() -> None:
    done = reap("setsid sleep 97 & exit 0", way="--world")
    assert done.returncode == 1
    assert done.stdout.startswith("left behind, and killed: ") and "sleep 97" in done.stdout


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_left_behind_are_killed_and_named(tmp_path: Path) -> None:
    leave = "sleep 97 & echo $!; setsid sleep 98 & echo $!;"
    leave += ' (sleep 99 & echo $!; touch "$0"; sleep 99) &'
    until = 'until [ -e "$0" ]; do sleep 0.02; done'
    done = reap(f"{leave} {until}; sleep 0.3; exit 0", str(tmp_path / "all"))
    assert done.returncode == 1
    *pids, last = done.stdout.splitlines()
    assert last.startswith("left behind, and killed: ")
    assert "sleep 97" in last
    assert [is_alive(int(pid)) for pid in pids] == [False] * 3


def test_failure_stays_what_it_was() -> None:
    assert reap("sleep 97 & exit 3").returncode == 3


@ways
def test_nothing_is_left_when_the_time_is_over(way: str) -> None:
    script = "setsid sleep 97 & readlink /proc/self/ns/pid; echo $!; wait"
    command = [sys.executable, str(REAP), *way.split(), "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ours = process.stdout.readline().strip() == os.readlink("/proc/self/ns/pid")
        pid = int(process.stdout.readline())
        process.terminate()
        assert "left behind" in process.stdout.read()
        assert process.wait(60) == -signal.SIGTERM
    assert not ours or not is_alive(pid)


OVER_WHILE_STARTING = """
import os, runpy, signal, subprocess, sys
start = subprocess.Popen._execute_child
def start_and_end(*arguments):
    start(*arguments)
    os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen._execute_child = start_and_end
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_nothing_is_left_when_the_time_is_over_at_once() -> None:
    command = [sys.executable, "-c", OVER_WHILE_STARTING, str(REAP), "sleep", "97"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # The process may not have its name yet.
    assert done.stdout.startswith("left behind, and killed: "), done
    assert done.returncode == -signal.SIGTERM
    pid = int(done.stdout.split(": ")[1].split()[0])
    assert not is_alive(pid)
