"""What Pawl costs a program besides: memory over many saves, time at its start and at a step."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch

from pawl._agent import find_program
from shared._agent import agent_pid, count_fds, memory_of, opened, settle
from shared._report import Report
from shared._sizes import Sizes
from shared._state import State, Training

SMALL_BLOCKS, SMALL_WIDTH = 2, 128  # the small state: 5 MB, most of it watched
WARM_SAVES_PART = 10  # memory is first measured after 1/10 of the saves
# Allows an allocator's grain, but no leak: half of what 2,000 saves of 256 bytes take.
GROWTH_MAX_MB = 1.0
PERSIST_S = 1.0  # seconds between durable saves
LOOKS = 10  # counts of the agent's descriptors; the least one is taken
IMPORT = (
    "import time, torch; begun = time.perf_counter(); import pawl; pawl.Checkpointer; pawl.load;"
    "print(time.perf_counter() - begun)"
)

Sample = tuple[int, int, int, int]  # bytes and descriptors of the trainer, and of the agent


def _sample(agent: int) -> Sample:
    """Takes the least of several counts of the agent's descriptors: it may still
    be closing some.
    """
    looks = []
    for _ in range(LOOKS):
        looks.append(count_fds(agent))
        time.sleep(0.01)
    return (
        memory_of("self", "RssAnon"),
        count_fds("self"),
        memory_of(agent, "RssAnon"),
        min(looks),
    )


def _save_often(conn: Connection, saves: int, root: Path) -> None:
    torch.set_num_threads(1)
    state = State(SMALL_BLOCKS, SMALL_WIDTH)
    training = Training(state)
    with opened(root, persist_every=PERSIST_S, keep=2) as checkpointer:
        for step in range(1, saves + 1):
            save = checkpointer.save(step, state.parts)
            training.step()
            if step == saves // WARM_SAVES_PART:
                settle(save, "durable")
                first = _sample(agent_pid(root))
        settle(save, "durable")
        conn.send((first, _sample(agent_pid(root))))


def measure_growth(report: Report, sizes: Sizes, folder: Path, context: ForkServerContext) -> None:
    """Row: how much trainer and agent grow over many saves."""
    ours, theirs = context.Pipe()
    root = folder / "growth"
    process = context.Process(target=_save_often, args=(theirs, sizes.small_saves, root))
    process.start()
    theirs.close()
    first, last = ours.recv()
    process.join()
    report.title(f"growth over {sizes.small_saves} saves of a small state, the first 10 % apart")
    for at, who in ((0, "trainer"), (2, "agent")):
        grown = (last[at] - first[at]) / 1e6
        report.at_most(f"{who}_grown_mb", f"{who}: memory of its own", grown, GROWTH_MAX_MB, "MB")
        fds = last[at + 1] - first[at + 1]
        report.at_most(f"{who}_grown_fds", f"{who}: descriptors", fds, 0, "")


def measure_due(report: Report, folder: Path) -> None:
    """Row: the time of the check that a program makes at every step."""
    with opened(folder / "due") as checkpointer:
        settle(checkpointer.save(1, {"w": torch.zeros(1000)}), "committed")
        seconds = min(timeit.repeat(checkpointer.due, number=1000, repeat=5)) / 1000
    report.title("the question of every step, the best of 5 thousands")
    report.at_most("due_us", "due(), which is not yet", seconds * 1e6, 20, "µs")


def _time_version(program: str) -> float:
    begun = time.perf_counter()
    subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def _time_import() -> float:
    command = [sys.executable, "-c", IMPORT]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _median_ms(one: Callable[[], float], times: int) -> float:
    return 1e3 * statistics.median(one() for _ in range(times))


def measure_starts(report: Report, sizes: Sizes) -> None:
    """Row: importing the package over torch, and the program's start."""
    program = find_program()
    assert program is not None, "the program pawl is not installed"
    report.title(f"starts, medians of {sizes.starts} processes")
    imported = _median_ms(_time_import, sizes.starts)
    report.at_most("import_ms", "import pawl and all behind it, over torch", imported, 50, "ms")
    version = _median_ms(lambda: _time_version(program), sizes.starts)
    bare = _median_ms(lambda: _time_version("/bin/true"), sizes.starts)
    beside = f"/bin/true {bare:.1f} ms"
    report.at_most("version_ms", "pawl --version, until it has ended", version, 10, "ms", beside)
