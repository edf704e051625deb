"""Runs torch's own tests of process groups, which torch installs, on a backend.

Usage: torch_suite.py FOLDER RANKS BACKEND [TEST...]. Prints "> " and a line of JSON: for each test
its outcome (passed, failed, skipped) and why. FOLDER must be empty.

torch starts two interpreters for each test. Here ranks are forks of this process, which has torch
loaded, and take test after test, each with a group of its own; where one fails, or ends, all are
forked anew. A test that fails in such company is run once more by ranks of its own.

Tests that torch marks as only for gloo run on any backend: see torch_tests().
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import sys
import traceback
import unittest
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

MODULE = "torch.testing._internal.distributed.distributed_test"
SILENT_S = float(os.environ.get("TORCH_SUITE_SILENT", "120"))  # seconds without a line of any rank
GRACE_S = 1.0  # seconds for other ranks, once a test has failed at one


class Outcome(NamedTuple):
    """The outcome of a test, at a rank or at all."""

    what: str  # passed, failed, skipped
    why: str = ""


# ---- torch's tests ----


def torch_tests(folder: Path, ranks: int, backend: str) -> type[Any]:
    """Returns the class of torch's tests, for a backend.

    While the module is read the backend is gloo, so that tests skipped on other backends are kept;
    when tests run, it is the backend under test. Backends for which torch's tests expect events in
    profiles are lists there. Two more kinds are only for MPI, for no reason of ours: groups of some
    ranks, below 8 ranks (3 are enough), and all_to_all.
    """
    os.environ.update(
        BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=str(folder), INIT_METHOD="file:///nowhere",
        MASTER_ADDR="127.0.0.1",
    )  # fmt: skip
    if importlib.util.find_spec("expecttest") is None:  # torch's tests need a base class of it
        stand_in = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    module = importlib.import_module(MODULE)
    module.BACKEND = LikeGloo(backend)
    for name in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(module, name).append(backend)
    if backend == "pawl":
        module.get_profiling_event = with_shapes(module.get_profiling_event)

    if ranks >= 3:
        os.environ["BACKEND"] = "mpi"  # the decorator looks there

    class Tests(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        meet: Any  # multiprocessing's barrier: torch's own looks at files every 0.1 s

        def _barrier(self, timeout: float = SILENT_S, wait_for: int | None = None) -> None:
            self.meet.wait(SILENT_S)

    for name in unittest.TestLoader().getTestCaseNames(Tests):
        method = getattr(Tests, name)
        if getattr(method, "__unittest_skip_why__", "").startswith("Only MPI supports"):
            method.__unittest_skip__ = False
    return Tests


class LikeGloo(str):
    """A backend's name that torch's tests treat as they treat gloo."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)  # type: ignore[operator]

    def __ne__(self, other: object) -> bool:
        return not self == other


def with_shapes(find: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Finds events in a profile, with the shapes of the calls in them: see _group/_events.py."""

    def found(name: str, profiler: Any, *args: Any, **kwargs: Any) -> list[Any]:
        inner = find("pawl::", profiler)
        inner.sort(key=lambda e: e.time_range.start)
        events = find(name, profiler, *args, **kwargs)
        for event in events:
            if event.name.startswith("pawl:"):
                begun = event.time_range.start
                event.input_shapes = next(
                    e.input_shapes
                    for e in inner
                    if e.thread == event.thread and e.time_range.start >= begun
                )
        return events

    return found


def set_up(test: Any, name: str, rank: int, number: int, folder: Path) -> None:
    """Prepares a test as torch's own runner does in a rank."""
    from torch.testing._internal import common_utils

    module = sys.modules[MODULE]
    test.rank = rank
    test.file_name = str(folder / f"init{number}")
    module.INIT_METHOD = f"file://{folder}/again{number}"  # type: ignore[attr-defined]
    seconds = module.CUSTOM_PG_TIMEOUT.get(name, module.default_pg_timeout)  # type: ignore[attr-defined]
    dist.init_process_group(
        module.BACKEND,  # type: ignore[attr-defined]
        init_method=test.init_method,
        world_size=int(test.world_size),
        rank=rank,
        timeout=timedelta(seconds=seconds),
    )
    test._barrier()
    common_utils.set_rng_seed()


def run_test(tests: type[Any], name: str, rank: int, number: int, folder: Path) -> Outcome:
    """Runs one test at this rank. Leaves no group behind, if it passes."""
    from torch.testing._internal.common_distributed import TEST_SKIPS

    skips = {each.exit_code: each.message for each in TEST_SKIPS.values()}
    outcome = Outcome("passed")
    test = tests(name)
    try:
        set_up(test, name, rank, number, folder)
        getattr(test, name)()
    except unittest.SkipTest as skip:
        outcome = Outcome("skipped", str(skip))
    except SystemExit as end:
        if end.code not in skips:
            return Outcome("failed", f"ended with {end.code}")
        outcome = Outcome("skipped", skips[end.code])
    except BaseException:
        return Outcome("failed", traceback.format_exc())
    test._barrier()
    if dist.is_initialized():
        dist.destroy_process_group()
    return outcome


# ---- ranks ----


class Ranks:
    """Forks of this process that run tests, one after the other."""

    def __init__(self, tests: type[Any], names: Sequence[str], first: int, folder: Path) -> None:
        fork = multiprocessing.get_context("fork")
        count = int(os.environ["WORLD_SIZE"])
        tests.meet = fork.Barrier(count)
        self.processes, self.pipes = [], {}
        for rank in range(count):
            ours, theirs = fork.Pipe(duplex=False)
            process = fork.Process(
                target=self.serve, args=(tests, names, rank, first, folder, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes[ours] = rank

    @staticmethod
    def serve(
        tests: type[Any],
        names: Sequence[str],
        rank: int,
        first: int,
        folder: Path,
        pipe: Connection,
    ) -> None:
        torch.set_num_threads(1)
        with open(folder / f"said{rank}", "ab", 0) as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        for number, name in enumerate(names, first):
            outcome = run_test(tests, name, rank, number, folder)
            pipe.send(outcome)
            if outcome.what == "failed":
                break
        os._exit(0)

    def outcome(self) -> Outcome:
        """Returns the outcome of the next test, at all ranks."""
        said: dict[int, Outcome] = {}
        patience_s = SILENT_S
        while missing := [pipe for pipe, rank in self.pipes.items() if rank not in said]:
            ready = wait(missing, patience_s)
            if not ready:
                break
            for pipe in ready:
                rank = self.pipes[pipe]  # type: ignore[index]
                try:
                    said[rank] = pipe.recv()  # type: ignore[union-attr]
                except EOFError:
                    self.processes[rank].join()
                    said[rank] = Outcome("failed", f"ended: {self.processes[rank].exitcode}")
                if said[rank].what == "failed":
                    patience_s = GRACE_S
        return self.of_all(said)

    def of_all(self, said: dict[int, Outcome]) -> Outcome:
        failed = [f"rank {r}: {o.why}" for r, o in sorted(said.items()) if o.what == "failed"]
        if failed:
            return Outcome("failed", "\n".join(failed))
        if len(said) < len(self.processes):
            return Outcome("failed", f"not over after {SILENT_S} s; ranks {sorted(said)} are")
        return next((o for o in said.values() if o.what == "skipped"), Outcome("passed"))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


@contextlib.contextmanager
def started(*args: Any) -> Iterator[Ranks]:
    """Runs ranks until the end of the block."""
    ranks = Ranks(*args)
    try:
        yield ranks
    finally:
        ranks.end()


def run_tests(tests: type[Any], names: Sequence[str], folder: Path) -> dict[str, Outcome]:
    """Runs tests, and returns their outcomes."""
    outcomes: dict[str, Outcome] = {}
    while left := [name for name in names if name not in outcomes]:
        with started(tests, left, len(outcomes), folder) as ranks:
            for name in left:
                outcomes[name] = ranks.outcome()
                if outcomes[name].what == "failed":
                    break
        if outcomes[name].what == "failed" and name != left[0]:
            with started(tests, [name], len(names) + len(outcomes), folder) as ranks:
                outcomes[name] = ranks.outcome()
    return outcomes


def main(folder: Path, ranks: int, backend: str, *names: str) -> None:
    for below in ("barrier", "test_dir", "init_dir"):
        (folder / below).mkdir()
    tests = torch_tests(folder, ranks, backend)
    every = unittest.TestLoader().getTestCaseNames(tests)
    outcomes = {}
    for name in every:
        method = getattr(tests, name)
        if getattr(method, "__unittest_skip__", False):
            outcomes[name] = Outcome("skipped", method.__unittest_skip_why__)
    wanted = [name for name in every if name not in outcomes and (not names or name in names)]
    outcomes |= run_tests(tests, wanted, folder)
    print("> " + json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
