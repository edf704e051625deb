"""Commands that the runner starts, and the places of files."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
COMMAND_SECONDS_MAX = 3600  # limit of one command: a hang must end as a failure, not as silence
LONG_FACTOR = 20  # factor of --long for the limits of tests and commands


IDLE = ["nice", "-n", "19"]  # words before a command whose process takes only idle cores


def run(
    command: list[str], env: dict[str, str] | None = None, live: bool = False
) -> tuple[int, str]:
    """Runs a command. Returns its exit status and output ("" if live, which prints it). A hang ends
    with status 124."""
    limit = COMMAND_SECONDS_MAX * (LONG_FACTOR if os.environ.get("PAWL_LONG") else 1)
    pipe = None if live else subprocess.PIPE
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=None if live else subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return 124, f"{' '.join(command[:3])} …: not done after {limit} s"
    except FileNotFoundError:
        return 127, f"{command[0]}: not found; `make setup` installs it"
    return done.returncode, done.stdout or ""


@cache
def own_world() -> list[str]:
    """Returns the words before a command that run it in a world of its own; empty where there can
    be none."""
    world = [sys.executable, str(ROOT / "tools/world.py")]
    return world if run([*world, "--can"])[0] == 0 else []


def git(*arguments: str) -> list[str] | None:
    """Returns the lines that git prints, or None if it fails."""
    status, output = run(["git", *arguments])
    return output.splitlines() if status == 0 else None
