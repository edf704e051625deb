"""Packages of other people at other releases than the .venv has: tools/integrations.sh brings them.

A test that needs one runs a child process with `env=with_package("deepspeed", "0.19.6")`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import program

FOLDERS = Path(__file__).parents[3] / "build/pkgs"
LONG = bool(os.environ.get("PAWL_LONG"))


def levels() -> dict[str, str]:
    """Returns the name of each release in tools/releases.txt, and the target that installs it."""
    lines = (FOLDERS.parents[1] / "tools/releases.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: level for name, level, *_ in rows}


def with_package(name: str, release: str, **extra: str) -> dict[str, str]:
    """Returns an environment in which `import name` finds that release; skips the test if it is not
    here.

    ``extra``: variables to set besides. A release that only `make test-long` installs is left to
    that target, even if it is already installed here.
    """
    folder = f"{name}-{release}"
    if levels()[folder] == "long" and not LONG:
        pytest.skip(f"{name} {release}: in make test-long")
    if not (FOLDERS / folder).is_dir():
        pytest.skip(f"{name} {release} is not in build/pkgs: tools/integrations.sh installs it")
    env = program.clean_env(**extra)
    env["PYTHONPATH"] = f"{FOLDERS / folder}{os.pathsep}{env['PYTHONPATH']}"
    return env
