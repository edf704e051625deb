"""Directories that checkpoints are written to: a plain one, and one under `pawl mirror`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from pawl import _agent
from shared._agent import wait_until
from shared._bucket_clients import Place
from shared._process import ROOT, TAIL_CHARS, read_json

SCRIPT = ROOT / "bench/programs/_write_checkpoint.py"
LOOK_S = 0.001
WRITE_S_MAX = 90.0  # a longer write is a hang


class Way(Protocol):
    """A directory that checkpoints are written to."""

    folder: Path

    def settle(self, step: int) -> tuple[float, float]:
        """Waits until a checkpoint is where it shall be. Returns when it was known to be whole, and
        when it was there."""

    def give_up(self) -> None:
        """Ends a write that hangs."""


class Plain:
    """A directory and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def settle(self, step: int) -> tuple[float, float]:
        return time.time(), time.time()

    def give_up(self) -> None:
        pass


class Mirror:
    """A directory, and a mirror that runs beside it."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self._sealed = folder.with_name(f".{folder.name}.pawl") / "sealed"
        self._process = process
        self._said: list[tuple[float, str]] = []  # lines, and when they came
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append((time.time(), line))

    def when(self, text: str) -> float:
        """When the mirror said that; 0: not yet."""
        if self._process.poll() is not None:
            said = "".join(line for _, line in self._said)
            raise RuntimeError(f"pawl mirror has ended: {said[-TAIL_CHARS:]}")
        return next((at for at, line in self._said if text in line), 0)

    def settle(self, step: int) -> tuple[float, float]:
        """Returns when the mirror sealed a checkpoint, and when it was committed. It has a record
        of what is sealed until that is committed."""
        name = f"checkpoint-{step}"
        sealed = 0.0

        def committed() -> float:
            nonlocal sealed
            if not sealed:
                with contextlib.suppress(FileNotFoundError):
                    sealed = (self._sealed / name).stat().st_mtime
            return self.when(f"committed {name} ")

        wait_until(f"{name} is committed", committed, LOOK_S)
        if not sealed:
            raise RuntimeError(f"{name} was committed before anybody saw it sealed")
        return sealed, committed()

    def give_up(self) -> None:
        self._process.kill()


@contextlib.contextmanager
def mirrored(place: Place, folder: Path) -> Iterator[Mirror]:
    """A mirror of the directory in the bucket, below the directory's name."""
    folder.mkdir()
    program = _agent.find_program()
    if program is None:
        sys.exit("the pawl program is not installed")
    process = subprocess.Popen(
        [program, "mirror", folder, f"s3://{place.bucket}/{folder.name}"],
        env={**os.environ, **place.env()},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        mirror = Mirror(folder, process)
        wait_until("the mirror runs", lambda: mirror.when(" mirrors to "))
        yield mirror
    finally:
        process.kill()  # nobody needs the rest in the bucket
        process.wait()


class Hung(Exception):
    """A write did not end."""


def write(way: Way, step: int, mib: int, *flags: str) -> dict[str, float]:
    """Writes a checkpoint, the only one in the directory then. Returns what the program says."""
    command = [sys.executable, SCRIPT, way.folder, str(step), str(mib), *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said, errors = process.communicate(timeout=WRITE_S_MAX)
        except subprocess.TimeoutExpired:
            way.give_up()
            process.kill()
            raise Hung(f"a write did not end within {WRITE_S_MAX:g} s") from None
    if process.returncode != 0:
        raise Hung(errors.strip()[-TAIL_CHARS:].rpartition("\n")[2])
    return read_json(said)
