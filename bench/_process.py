"""A way of doing something, run in a process of its own, or by torchrun in several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
TAIL_CHARS = 4000  # of what a process said, when it fails


def build(program: str) -> Path:
    """Compiles a program of bench/ without sanitizers; where it is."""
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", BUILD], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", BUILD, program], check=True, stdout=subprocess.DEVNULL)
    return BUILD / program


def run_script(script: Path, *args: object, ranks: int = 0, limit_s: float, **env: str) -> Any:
    """The JSON object that it prints last. ranks: started by torchrun, if not 0."""
    command = [sys.executable, str(script), *(str(arg) for arg in args)]
    if ranks > 0:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command[1:1] = launcher
    return run_command(command, limit_s=limit_s, OMP_NUM_THREADS="1", **env)


def run_command(command: Sequence[str | Path], *, limit_s: float, **env: str) -> Any:
    """The JSON object that it prints last."""
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
    """The last JSON object of what a process printed."""
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
