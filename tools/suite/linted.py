"""Remembers which C files clang-tidy has passed, as ccache remembers what was compiled.

A file is known by all that clang-tidy reads of it: the program and its options, the checks, the
compiler's flags, and the file after preprocessing with its comments, in which NOLINT may stand.
Only files that passed are remembered, so a mistake is told by every run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from suite import command
from suite.command import ROOT

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pawl-clang-tidy"
_READS = ("-I", "-D", "-std", "-f", "-pthread")  # options that decide what the compiler reads
KEPT_S = 30 * 86400  # a file that no run has asked for in that time is forgotten


@cache
def _tool() -> str:
    return command.run(["clang-tidy", "--version"])[1] + (ROOT / ".clang-tidy").read_text()


def _preprocess(entry: Mapping[str, str]) -> str | None:
    """Returns a file of compile_commands.json as the compiler sees it, comments included; None if
    it does not preprocess."""
    words = [word for word in shlex.split(entry["command"]) if word.startswith(_READS)]
    done = subprocess.run(
        ["clang", *words, "-E", "-C", "-P", entry["file"]],
        cwd=entry["directory"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


def find(tidy: Sequence[str], entries: Sequence[Mapping[str, str]]) -> Path | None:
    """Returns where it is remembered that a file passes; None if that cannot be told.

    tidy: the command that checks it; entries: the file's in compile_commands.json.
    """
    texts = [_preprocess(entry) for entry in entries]
    if None in texts:
        return None
    words = [*tidy, *(entry["command"] for entry in entries)]
    parts = [_tool(), *(word.replace(str(ROOT), "") for word in words), *map(str, texts)]
    return FOLDER / hashlib.sha256("\0".join(parts).encode()).hexdigest()


def passes(path: Path | None) -> bool:
    """Whether a file has passed before; says that it was asked for."""
    if path is None or not path.exists():
        return False
    path.touch()
    return True


def remember(path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def forget_old() -> None:
    """Another run may do this at the same time."""
    oldest = time.time() - KEPT_S
    for path in FOLDER.iterdir() if FOLDER.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()
