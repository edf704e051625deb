"""Packages of other people at other releases than the .venv has: tools/integrations.sh brings them.

A test that needs one runs a child process with `env=with_package("deepspeed", "0.19.6")`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

import program

FOLDERS = Path(__file__).parents[3] / "build/pkgs"
LONG = bool(os.environ.get("PAWL_LONG"))


def require(*names: str) -> None:
    """Skips the module that calls this if a package is not here. Imports none: each of the workers
    loads all modules, and runs the tests of a few."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"could not import {name!r}", allow_module_level=True)


class Lazy:
    """A module that is imported when a test uses it, as those of large frameworks are."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


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
