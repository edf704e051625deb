"""What the Python tests share: where pawl comes from, and the core it runs on.

Tests that take the fixture `core` run twice: on the plain-Python fake (fakecore.py) and on the real
extension, which is skipped, and said so, where it is not built.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
# Agents of this run listen where no other run's do: jobs of tests have fixed names.
SOCKETS = tempfile.mkdtemp(prefix="pawl-test-", dir="/tmp")
os.environ["XDG_RUNTIME_DIR"] = SOCKETS
sys.path.insert(0, str(HERE))
if importlib.util.find_spec("pawl") is None:
    sys.path.insert(0, str(HERE.parent.parent / "python"))

try:
    real_core: ModuleType | None = importlib.import_module("pawl._core")
except ImportError:
    real_core = None

import fakecore  # noqa: E402  (it takes its error class from the real core, if there is one)

if real_core is None:
    sys.modules["pawl._core"] = fakecore
    importlib.import_module("pawl")._core = fakecore

SEED = int(os.environ.get("PAWL_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
os.environ["PAWL_TEST_SEED"] = str(SEED)  # of the pytests that this one starts, too


def pytest_configure() -> None:
    # what the caller ignores (nohup, a job in the background), programs under test would ignore too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_unconfigure() -> None:
    shutil.rmtree(SOCKETS, ignore_errors=True)


SUMMARY: list[str] = []  # what tests measured and hold to no bound: printed at the end


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in SUMMARY:
        terminalreporter.write_line(line)


def pytest_report_header() -> str:
    built = "built" if real_core is not None else "not built: only the fake is tested"
    return f"pawl: PAWL_TEST_SEED={SEED}, real core {built}"


def _use(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Makes every module of pawl that has the core use this one."""
    for name in ("_saver", "checkpoint", "loading", "_skeleton", "_restore"):
        patch.setattr(importlib.import_module(f"pawl.{name}"), "_core", module)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The fake core alone: for tests that look at, or into, the moment of the copy."""
    _use(fakecore, monkeypatch)
    monkeypatch.setattr(fakecore, "proof", 1)
    monkeypatch.setattr(fakecore, "kernel", True)
    monkeypatch.setattr(fakecore, "environment", {})
    yield fakecore
    _close_all()


@pytest.fixture(params=["fake", "real"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Each core in turn: for tests of what a user sees."""
    if request.param == "real" and real_core is None:
        pytest.skip("pawl._core is not built here")
    module = fakecore if request.param == "fake" else real_core
    assert module is not None
    _use(module, monkeypatch)
    yield module
    _close_all()


def _close_all() -> None:
    """What a test left open. With ranks that never came there is nothing to wait for."""
    _saver = importlib.import_module("pawl._saver")
    for checkpointer in list(_saver._open):
        checkpointer.close(timeout=10 if checkpointer.world_size == 1 else 0)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Alone in build/wheel: a pytest beside this one builds there, too."""
    folder = HERE.parent.parent / "build"
    folder.mkdir(exist_ok=True)
    with (folder / ".wheel-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources; what is compiled already is not compiled again."""
    root = HERE.parent.parent
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["-C", f"build-dir={root / 'build/wheel'}", "-w", str(folder), str(root)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with building():
        done = subprocess.run(
            command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("pawl-*.whl")
    return built


@pytest.fixture(autouse=True)
def seeded() -> None:
    import torch

    random.seed(SEED)
    torch.manual_seed(SEED)
