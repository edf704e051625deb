"""The `pawl` program for the tests: finds it, runs it, and watches it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import nursery
from pawl import _agent

TIMES = os.environ.get("PAWL_TEST_TIMES", "")  # waiting times of the product: src/base/times.h
SCALE = float(dict(pair.split("=") for pair in TIMES.split(",") if pair).get("scale", 1))
LIMIT_S = 120 * SCALE  # limit of one run; a hang must end as a failure
# For tests of silence, which then lasts 6 s: more than a busy machine lets a process stand still.
SILENT = {"PAWL_HEARTBEAT": f"{1.5 * SCALE:g}"}
PYTHON_DIR = Path(_agent.__file__).parent.parent  # the directory from which pawl can be imported


def script(name: str) -> Path:
    """Returns the path of a program of the tests, whichever area it lies in."""
    (found,) = Path(__file__).parents[1].rglob(name)
    return found


@cache
def find() -> str:
    """Returns the path of the program; skips the calling test module if there is none."""
    program = _agent.find_program()
    if program is None:
        pytest.skip(
            "the pawl program is not there (PAWL_PROGRAM names it)", allow_module_level=True
        )
    return program


def clean_env(**extra: str) -> dict[str, str]:
    """Returns this process's environment without launchers' variables, and with extra.

    It allows 8 s of silence, not 2: on a busy machine any process may stand still for a while.
    Tests of silence use SILENT.
    """
    launcher = re.compile(
        r"(RANK|WORLD_SIZE|LOCAL_|GROUP_|ROLE_|MASTER_|TORCHELASTIC_|PAWL_|SLURM_|SKYPILOT_|OMPI_|PMIX_"
        r"|OMP_|TORCH_NCCL|PYTEST_)"
    )
    env = {name: value for name, value in os.environ.items() if not launcher.match(name)}
    path = env.get("PYTHONPATH")
    env["PYTHONPATH"] = f"{PYTHON_DIR}{os.pathsep}{path}" if path else str(PYTHON_DIR)
    kept = (nursery.STARTS, "PAWL_TEST_TIMES", "PAWL_TEST_SEED", "OMP_WAIT_POLICY")
    env |= {name: os.environ[name] for name in kept if name in os.environ}
    return {**env, "PAWL_HEARTBEAT": f"{2 * SCALE:g}", **extra}


def agent_pid(root: Path) -> int | None:
    """Returns the pid of the agent that holds the lock of a root; None if there is none."""
    try:
        return int((root / ".pawl-lock").read_text().split("(pid ")[1].split(" ")[0])
    except (FileNotFoundError, IndexError):
        return None


def agent_of(job: str) -> int | None:
    """Returns the pid of the agent that works for a job; None if there is none."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = line.read_bytes().split(b"\0")
            if b"agent" in words and job.encode() in words and is_alive(int(line.parent.name)):
                return int(line.parent.name)
    return None


def kill_agent(job: str) -> None:
    """Kills the agent of a job, if there is one, and waits until it is gone."""
    while (pid := agent_of(job)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not is_alive(pid), "the agent ends")


def times(**seconds: float) -> dict[str, str]:
    """Returns an environment that changes some of the product's waiting times."""
    said = [TIMES, *(f"{name}={value:g}" for name, value in seconds.items())]
    return {"PAWL_TEST_TIMES": ",".join(filter(None, said))}


def run(
    *args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    return nursery.run(
        [find(), *map(str, args)],
        cwd=cwd,
        env=env or clean_env(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def run_script(
    script: Path, *options: str, args: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `pawl run options script args` to its end, in the script's directory, by this
    interpreter."""
    return run(
        "run", "--python", sys.executable, *options, script, *args, cwd=script.parent, env=env
    )


def start_script(
    script: Path,
    *options: str,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    to: Path | None = None,
) -> subprocess.Popen[str]:
    """Starts such a run without waiting for it; the caller ends it. stdout and stderr go to ``to``,
    or a pipe."""
    with contextlib.ExitStack() as files:
        return nursery.Popen(
            [find(), "run", "--python", sys.executable, *options, str(script), *args],
            cwd=script.parent,
            env=env or clean_env(),
            stdin=subprocess.DEVNULL,
            stdout=files.enter_context(to.open("w")) if to is not None else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


class Late(AssertionError):
    """A time limit was missed; nothing was seen to be wrong."""


def wait_until(true: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Polls until true() holds. Raises Late after limit_s seconds."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() >= end:
            raise Late(f"{what}: not within {limit_s} s")
        time.sleep(0.02)


def await_let_go(folder: Path) -> None:
    """Waits until no agent holds the root's lock. An agent releases it some time after its ranks
    have left, when it has written everything."""

    def free() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    with (folder / ".pawl-lock").open() as lock:
        wait_until(free, f"{folder} is let go", LIMIT_S)


def state_of(pid: int) -> str:
    """Returns the state of a process: "T" is stopped, "Z" a zombie; "": it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent(pid: int) -> int:
    """Returns the parent of a process; 0: the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_alive(pid: int) -> bool:
    """Returns whether a process runs (a zombie does not)."""
    return state_of(pid) not in ("", "Z")


def shared_memory() -> list[str]:
    """Returns the files in /dev/shm, except those that torch and multiprocessing put there for a
    while."""
    names = os.listdir("/dev/shm")
    return sorted(name for name in names if not name.startswith(("torch_", "sem.mp-", "psm_")))
