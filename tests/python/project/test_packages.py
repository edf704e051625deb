"""Older releases of other people's packages are found by the processes that ask for them."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import packages

ROOT = Path(__file__).parents[3]
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


@pytest.mark.parametrize("folder", packages.levels())
def test_release_is_what_a_process_sees(folder: str) -> None:
    name, _, release = folder.rpartition("-")
    env = packages.with_package(name, release)
    found = subprocess.run([sys.executable, "-c", VERSION, name], env=env, stdout=subprocess.PIPE)
    assert found.stdout.decode().strip() == release


def test_pins_are_what_is_installed() -> None:
    """An environment that the script has finished has exactly the packages listed."""
    if not (Path(sys.prefix) / ".integrations").is_file():
        pytest.skip("tools/integrations.sh has not run here")
    for line in (ROOT / "tools/integrations.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, release = line.partition("==")
            assert importlib.metadata.version(name) == release


def test_without_a_network_nothing_fails(tmp_path: Path) -> None:
    """The script names what is missing, once, and ends well; the next run tries again."""
    for name in ("integrations.sh", "integrations.txt", "releases.txt"):
        (tmp_path / "tools").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    for line in ("integrations.txt", "releases.txt"):
        path = tmp_path / "tools" / line
        path.write_text(path.read_text().replace("==", "==9999."))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    done = subprocess.run(
        [tmp_path / "tools/integrations.sh", "--", "--no-index"],
        env={**os.environ, "PIP_RETRIES": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    assert "integrations.txt could not be installed: tests" in done.stdout
    assert not (tmp_path / ".venv/.integrations").exists()
    assert not list((tmp_path / "build/pkgs").iterdir())


def test_a_torch_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    """An environment made before is not taken for the present release; the others are still
    tried."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/torches.sh", tmp_path / "tools")
    lines = "# head\na full torch==1 test_x.py\nb full torch==2 test_x.py\nc long torch==3\n"
    (tmp_path / "tools/torches.txt").write_text(lines)
    (tmp_path / "Makefile").write_text(
        'setup:\n\t@test "$(TORCH)" = torch==2 || exit 1; echo "$(VENV), told: $(PIP_ARGS)"\n'
    )
    for name in "abc":
        (tmp_path / f"build/torch/{name}").mkdir(parents=True)
        (tmp_path / f"build/torch/{name}/.pawl").touch()
    command = [tmp_path / "tools/torches.sh", "--", "--no-index", "--retries", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert "torch==1 could not be installed into build/torch/a: the tests on it" in done.stdout
    assert "build/torch/b, told: --no-index --retries 0" in done.stdout
    assert "torch==3" not in done.stdout
    left = sorted(path.parent.name for path in tmp_path.glob("build/torch/*/.pawl"))
    assert left == ["b", "c"]
