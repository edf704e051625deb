"""The `pawl` program for the tests that run it: where it is, and how to run it and watch it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import nursery
from pawl import _agent

TIMES = os.environ.get("PAWL_TEST_TIMES", "")  # waiting times of the product: src/base/times.h
SCALE = float(dict(pair.split("=") for pair in TIMES.split(",") if pair).get("scale", 1))
LIMIT_S = 120 * SCALE  # of one run; a hang must end as a failure
# For tests of silence, which is then 6 s: more than a busy machine lets a process stand still.
SILENT = {"PAWL_HEARTBEAT": f"{1.5 * SCALE:g}"}
PYTHON_DIR = Path(_agent.__file__).parent.parent  # where pawl is importable from


def find() -> str:
    """Path of the program; skips the calling test module where there is none."""
    program = _agent.find_program()
    if program is None:
        pytest.skip(
            "the pawl program is not there (PAWL_PROGRAM names it)", allow_module_level=True
        )
    return program


def clean_env(**extra: str) -> dict[str, str]:
    """This process's environment without what launchers set, and with extra.

    Silence is borne for 8 s, not 2: on a busy machine any process may stand still for a while. For
    tests of silence there is SILENT.
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


def times(**seconds: float) -> dict[str, str]:
    """An environment in which some of the product's waiting times are others."""
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
    """`pawl run options script args`, in the script's directory, by this interpreter."""
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
    """The same without waiting: the caller ends it. stdout and stderr go to ``to``, or a pipe."""
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
    """Something did not happen in time: nothing was seen to be wrong."""


def wait_until(true: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Polls until true() holds. Raises Late after limit_s seconds."""
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() >= end:
            raise Late(f"{what}: not within {limit_s} s")
        time.sleep(0.02)


def await_let_go(folder: Path) -> None:
    """Until nobody has the root whose lock is there: its agent lets go some time after its ranks
    have left, and has then written all that it was to write."""

    def free() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    with (folder / ".pawl-lock").open() as lock:
        wait_until(free, f"{folder} is let go", LIMIT_S)


def state_of(pid: int) -> str:
    """A process's: "T" is stopped, "Z" a zombie; none: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent(pid: int) -> int:
    """Of a process; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return state_of(pid) not in ("", "Z")


def shared_memory() -> list[str]:
    """What lies in /dev/shm, but for what torch and multiprocessing put there for a while."""
    names = os.listdir("/dev/shm")
    return sorted(name for name in names if not name.startswith(("torch_", "sem.mp-", "psm_")))
