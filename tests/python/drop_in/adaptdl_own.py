"""Runs AdaptDL's own unit tests on Pawl's `adaptdl`.

Usage: adaptdl_own.py FOLDER [OPTION...]. FOLDER is a copy of AdaptDL's sources, at any place
outside of this repository:

    git clone https://github.com/petuum/adaptdl FOLDER
    python tests/python/drop_in/adaptdl_own.py FOLDER

OPTIONs are pytest's, such as `-k sampler`. For each test, prints how often it passed and failed,
and why, where that is known. Exit codes: 0; 1 if a test fails that is not in KNOWN; 2 if there is
nothing to run.

The tests are copied away from AdaptDL's package, so that `import adaptdl` is Pawl's. The tests are
not changed. Stand-ins replace what else they need: portpicker, torchtext (`stand_in`) and their
own adaptdl.conftest, whose replicas are forks. The whole run takes four minutes.
"""

from __future__ import annotations

import collections
import importlib.util
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType

import pytest

import program

HANGS_S = 300  # a test that takes longer has failed: if a replica dies, it may wait for ever
PRIVATE = "calls private functions of AdaptDL's (adaptdl.torch._metrics)"
FEWER = (
    "calls private functions of AdaptDL's (_predict_accum_time, _obj_fn), and fits places with "
    "fewer replicas than nodes, which are refused"
)
KNOWN = {
    "_metrics_test.py::test_profile": PRIVATE,
    "_metrics_test.py::test_profile_accumulation": PRIVATE,
    "data_test.py::test_bptt_iterator": "needs torchtext's Field and BPTTIterator, gone since 0.12",
    "fit_test.py::test_fit_1": FEWER,
    "fit_test.py::test_fit_2": FEWER,
}


# ---- what the tests find ----


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def no_tokenizer(name: str) -> None:
    raise RuntimeError("torchtext is not here")


def stand_in(name: str, **contents: object) -> None:
    """Makes a module of that name, in place of a package."""
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def prepare(conftest: Path) -> None:
    """Makes `adaptdl` Pawl's, except adaptdl.conftest, and removes the variables that make this
    process a rank."""
    env = program.clean_env(PAWL_COMPAT="adaptdl=pawl")
    os.environ.clear()
    os.environ.update({k: v for k, v in env.items() if not k.startswith("ADAPTDL_")})
    import adaptdl

    if not adaptdl.__name__.startswith("pawl."):
        raise ImportError(f"adaptdl is {adaptdl.__file__}, not Pawl's")
    multiprocessing.set_start_method("fork")  # replicas are closures, which cannot be pickled
    stand_in("portpicker", pick_unused_port=free_port)
    stand_in("torchtext")
    stand_in("torchtext.data")
    stand_in("torchtext.data.utils", get_tokenizer=no_tokenizer)
    spec = importlib.util.spec_from_file_location("adaptdl.conftest", conftest)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["adaptdl.conftest"] = module


# ---- running them ----


def give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not over in {HANGS_S} s")


class Outcomes:
    """A plugin of pytest that counts how tests ended, by name, whatever their parameters."""

    def __init__(self) -> None:
        self.passed: collections.Counter[str] = collections.Counter()
        self.failed: collections.Counter[str] = collections.Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(HANGS_S)
        try:
            return (yield)
        finally:
            signal.alarm(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid.partition("[")[0]] += 1
        elif report.when == "call" and report.passed:
            self.passed[report.nodeid.partition("[")[0]] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] += 1


def run(sources: Path, options: Sequence[str]) -> Outcomes:
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory() as folder:
        for test in sorted(sources.rglob("*_test.py")):
            shutil.copy(test, folder)
        Path(folder, "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
        here = ["-c", f"{folder}/pytest.ini", "--rootdir", folder, folder]
        pytest.main(["-q", "-W", "ignore", "--tb=short", "-rN", *options, *here], [outcomes])
    return outcomes


def tell(outcomes: Outcomes) -> int:
    names = sorted(outcomes.passed | outcomes.failed)
    print()
    for name in names:
        passed, failed = outcomes.passed[name], outcomes.failed[name]
        why = KNOWN.get(name, "not known") if failed else ""
        if name in KNOWN and not failed:
            why = "passes now: it can go from KNOWN"
        print(f"{passed:5} passed {failed:5} failed  {name}{f': {why}' if why else ''}")
    new = sum(n for name, n in outcomes.failed.items() if name not in KNOWN)
    ran = outcomes.passed.total() + outcomes.failed.total()
    print(
        f"\n{outcomes.passed.total()} of {ran} pass; {outcomes.failed.total() - new} are known "
        f"not to, {new} others fail"
    )
    return 2 if ran == 0 else 1 if new else 0


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "-")
    if folder.name.startswith("-"):
        print(__doc__)
        return 2
    conftest = next(iter(sorted(folder.rglob("adaptdl/conftest.py"))), None)
    if conftest is None:
        print(f"{folder}: no adaptdl/conftest.py in it: not AdaptDL's sources", file=sys.stderr)
        return 2
    prepare(conftest)
    return tell(run(conftest.parent, sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
