"""A way of doing something, run in a process of its own, or by torchrun in several."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "bench"
TAIL_CHARS = 4000  # longest part of a failed process's output that is shown
WHY_CHARS = 150  # longest part of it that a table shows
DUMP_S = 0.5  # time for a hanging rank to print where it hangs
GRACE_S = 5.0  # time for the other ranks to end, once one has failed


def build(program: str) -> Path:
    """Compiles a program, by its path in a build, without sanitizers; returns its path."""
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", BUILD], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", BUILD, program], check=True, stdout=subprocess.DEVNULL)
    return BUILD / program


def load(name: str) -> Any:
    """A module of the tests' own library."""
    os.environ["PAWL_TEST_NURSERY"] = "0"  # ranks are interpreters of their own
    for folder in ("tests/python", "tests/python/lib"):
        if str(ROOT / folder) not in sys.path:
            sys.path.append(str(ROOT / folder))
    return importlib.import_module(name)


def run_script(script: Path, *args: object, ranks: int = 0, limit_s: float, **env: str) -> Any:
    """Runs a script; returns the JSON object that it prints last. ranks: started by
    torchrun, if not 0.
    """
    command = [sys.executable, str(script), *(str(arg) for arg in args)]
    if ranks > 0:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command[1:1] = launcher
    return run_command(command, limit_s=limit_s, OMP_NUM_THREADS="1", **env)


def run_command(command: Sequence[str | Path], *, limit_s: float, **env: str) -> Any:
    """Runs a command; returns the JSON object that it prints last."""
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-TAIL_CHARS:]}")
    return read_json(done.stdout)


def read_json(said: str) -> Any:
    """The last JSON object in a process's output."""
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])


def salvage(
    script: Path, *args: object, ranks: int, folder: Path, limit_s: float
) -> tuple[dict[str, Any], str]:
    """Runs ranks: the last JSON object that the first one printed, and why some
    rank did not end well.

    All ranks have ended when it returns. folder: for their output. A rank that does not end is sent
    SIGUSR1 first, for which it may have registered faulthandler.
    """
    command = [sys.executable, str(script), *(str(arg) for arg in args)]
    started = start_ranks(command, ranks, folder)
    why = await_ranks(started, limit_s)
    ended = [one.poll() for one in started]
    if None in ended:
        for one in started:
            one.send_signal(signal.SIGUSR1)
        time.sleep(DUMP_S)
    for rank, one in enumerate(started):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        if one.wait() != 0:
            said = (folder / f"err{rank}").read_text(errors="replace")[-TAIL_CHARS:].rstrip()
            if ended[rank]:
                why += f"; rank {rank}: {said[said.rfind(chr(10)) + 1 :][:WHY_CHARS]}"
            print(f"{script.name}, rank {rank}, status {one.returncode}: {said}", file=sys.stderr)
    lines = (folder / "out0").read_text().splitlines()
    found = [line for line in lines if line.startswith("{") and line.endswith("}")]
    return (json.loads(found[-1]) if found else {}), why


def start_ranks(command: list[str], ranks: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Starts ranks, each in a session of its own, with the variables that torchrun would set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = []
    for rank in range(ranks):
        env |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        env |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        with (folder / f"out{rank}").open("w") as out, (folder / f"err{rank}").open("w") as err:
            one = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        started.append(one)
    return started


def await_ranks(started: list[subprocess.Popen[bytes]], limit_s: float) -> str:
    """Waits for ranks; returns why they did not end well, or "". Some may still run."""
    end, why = time.monotonic() + limit_s, ""
    while any(one.poll() is None for one in started):
        if time.monotonic() > end:
            return why or f"did not end within {limit_s:g} s"
        if not why and any(one.poll() for one in started):
            why, end = "failed", min(end, time.monotonic() + GRACE_S)
        time.sleep(0.05)
    return why or ("failed" if any(one.poll() for one in started) else "")
