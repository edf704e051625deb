"""Shared by the Python tests: the place pawl comes from, and the core that it runs on.

Tests that take the fixture `core` run twice: on the plain-Python fake (fakecore.py) and on the real
extension. Where the extension is not built, the second run is skipped with that reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
# Agents of this run listen where no other run's agents do, because jobs of tests have fixed names.
SOCKETS = tempfile.mkdtemp(prefix="pawl-test-", dir="/tmp")
os.environ["XDG_RUNTIME_DIR"] = SOCKETS
LIB = HERE / "lib"  # folder of the modules that tests of several areas import
AREAS = sorted(folder for folder in HERE.glob("[a-z]*") if folder.is_dir())
# A test may import from another area: the names of files are unique.
sys.path[:0] = [str(HERE), str(LIB), *map(str, AREAS)]
if importlib.util.find_spec("pawl") is None:
    sys.path.insert(0, str(HERE.parent.parent / "python"))

try:
    real_core: ModuleType | None = importlib.import_module("pawl._core")
except ImportError:
    real_core = None

sys.path.insert(0, str(HERE.parent.parent / "tools"))
import costs  # noqa: E402
import fakecore  # noqa: E402  (it takes its error class from the real core, if there is one)
import leftovers  # noqa: E402
import nursery  # noqa: E402
import program  # noqa: E402
from suite import records  # noqa: E402
from suite.command import BUILD  # noqa: E402
from suite.tiers import SLOW, Choice  # noqa: E402

if real_core is None:
    sys.modules["pawl._core"] = fakecore
    importlib.import_module("pawl")._core = fakecore

METER = costs.Meter()
ORPHANS = costs.Orphans()
LEFTOVERS = leftovers.Leftovers()
BEFORE = pytest.StashKey[tuple[float, int, int]]()  # METER's values when a test began
FAILED: set[Path] = set()  # modules in which a test has failed
LATE = (program.Late, subprocess.TimeoutExpired)
# All child processes load starts/sitecustomize.py, and import what programs share with tests.
os.environ["PYTHONPATH"] = f"{HERE / 'starts'}{os.pathsep}{LIB}"

SEED = int(os.environ.get("PAWL_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
os.environ["PAWL_TEST_SEED"] = str(SEED)  # pytests that this one starts take the same seed


def pytest_configure() -> None:
    # Programs under test would inherit the signals that the caller ignores (nohup, a job in the
    # background).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_unconfigure() -> None:
    nursery.nursery.close()
    METER.close()
    shutil.rmtree(SOCKETS, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Records for tools/test.py what the test costs and when it began. A test that is marked
    real_interpreters, and its fixtures, fork nothing."""
    item.stash[BEFORE] = METER.read()
    LEFTOVERS.begin(item.name)
    item.user_properties += [("nodeid", item.nodeid), ("began", time.time())]
    was = nursery.nursery.enabled
    nursery.nursery.enabled = was and item.get_closest_marker("real_interpreters") is None
    try:
        return (yield)
    finally:
        nursery.nursery.enabled = was


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """Records the cost of the test. The last test of a module fails if anything is left over:
    afterwards, nobody could tell which test left it."""
    try:
        result = yield
        if nextitem is None or nextitem.path != item.path:
            held = leftovers.held()
            if item.path not in FAILED:
                left = [f"tests of this module left {what}" for what in held]
            else:
                left = []  # a test that fails does not close what it has opened
            left += LEFTOVERS.end_module({nursery.nursery.pid()}).splitlines()
            assert not left, "\n".join(left)
        return result
    finally:
        ORPHANS.collect()
        spent = [now - was for now, was in zip(METER.read(), item.stash[BEFORE], strict=True)]
        names = ("cpu_s", "torch_executed", "torch_forked")
        item.user_properties += list(zip(names, [round(spent[0], 3), *spent[1:]], strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Marks a failure as a missed time limit, as opposed to a wrong result: see tools/test.py."""
    report = yield
    if report.failed:
        FAILED.add(item.path)
    if call.excinfo is not None and call.excinfo.errisinstance(LATE):
        item.user_properties.append(("late", 1))
    return report


def tier_of(item: pytest.Item) -> str:
    """Returns "slow" for a test that is marked so as a whole, or for a case that the mark names by
    its id."""
    mark = item.get_closest_marker(SLOW)
    case = getattr(item, "callspec", None)
    slow = mark is not None and (not mark.args or (case is not None and case.id in mark.args))
    return SLOW if slow else "quick"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Writes down all tests and their tiers, if this is the first worker of tools/test.py; leaves
    out slow tests that this run does not take; puts the files that take longest first."""
    tiers = {item.nodeid: tier_of(item) for item in items}
    # A test may start a pytest of its own, which inherits a worker's environment but is no worker.
    # A run on another torch may ask for some tests only.
    first = getattr(config, "workerinput", {}).get("workerid") == "gw0"
    if first and BUILD.is_dir() and "PAWL_TEST_TORCH" not in os.environ:
        records.COLLECTED.write_text(json.dumps(tiers, indent=0))
    part = os.environ.get("PAWL_TEST_SLOW", "all").partition("/")[0]
    choice = Choice() if part == "all" else Choice(int(part))
    left = [i for i in items if tiers[i.nodeid] == SLOW and not choice.takes(i.nodeid)]
    config.hook.pytest_deselected(items=left)
    seconds = records.read_json(records.KEPT_TIMES).get("files", {})
    taken = [item for item in items if item not in set(left)]
    taken.sort(key=lambda item: -seconds.get(records.file_of(item.nodeid), 0.0))
    # the sort is stable: tests of a file stay together
    items[:] = taken


def pytest_collection_finish() -> None:
    """Spares the garbage collector a million objects of modules: it took 0.2 s a time."""
    gc.collect()
    gc.freeze()


SUMMARY: list[str] = []  # measurements without a bound, printed at the end


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in SUMMARY:
        terminalreporter.write_line(line)


def pytest_report_header() -> str:
    built = "built" if real_core is not None else "not built: only the fake is tested"
    return f"pawl: PAWL_TEST_SEED={SEED}, real core {built}"


def _use(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Makes every module of pawl that has the core use this one."""
    for name in (
        "_ckpt._saver", "checkpoint", "loading", "_ckpt._skeleton", "_ckpt._restore", "_start",
    ):  # fmt: skip
        patch.setattr(importlib.import_module(f"pawl.{name}"), "_core", module)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """Yields the fake core: for tests that look at, or into, the moment of the copy."""
    _use(fakecore, monkeypatch)
    monkeypatch.setattr(fakecore, "proof", 1)
    monkeypatch.setattr(fakecore, "kernel", True)
    monkeypatch.setattr(fakecore, "environment", {})
    yield fakecore
    _close_all()


@pytest.fixture(params=["fake", "real"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields each core in turn: for tests of what a user sees."""
    if request.param == "real" and real_core is None:
        pytest.skip("pawl._core is not built here")
    module = fakecore if request.param == "fake" else real_core
    assert module is not None
    _use(module, monkeypatch)
    yield module
    _close_all()


def _close_all() -> None:
    """Closes the Checkpointers that a test left open. Does not wait where ranks never came."""
    _saver = importlib.import_module("pawl._ckpt._saver")
    for checkpointer in list(_saver._open):
        with contextlib.suppress(_saver.NotDurable):
            checkpointer.close(timeout=10 if checkpointer.world_size == 1 else 0)


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Holds a lock on build/wheel: a pytest beside this one builds there, too."""
    folder = HERE.parent.parent / "build"
    folder.mkdir(exist_ok=True)
    with (folder / ".wheel-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel from the sources; compiles only what is not compiled yet."""
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
