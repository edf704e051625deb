#!/usr/bin/env python3
"""Ranks go and come while a model of 100 MB is trained: how long the others make no step.

4 ranks on this host. One is killed and three go on; then one joins. Beside it torchrun, which
starts all ranks again, with DDP. And what the statistics of gradients cost a GPT, in CPU seconds of
all ranks: blocks of steps with them and without, in turns. --quick shows only that it works: its
numbers mean nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from shared._report import Report, describe_machine, make_parser, ratio_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SCRIPT = PROGRAMS / "_elastic.py"
NORMS = PROGRAMS / "_norms.py"
RANKS = 4
PORT = 29571
LIMIT_S = 60.0
SECONDS = 100.0  # longest time that a run lasts
QUIET = 6  # steps before and after each event


def wait_for(what: Callable[[], bool]) -> None:
    """Waits until what() is true. Raises TimeoutError after LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("a step that was to come did not")
        time.sleep(0.01)


def steps_of(folder: Path, pid: int) -> list[float]:
    """The time of each step of a process. The log's last line may be half
    written, and is left out.
    """
    path = folder / f"{pid}.steps"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [float(line) for line in lines]


def longest_gap(steps: list[float], since: float) -> float:
    """The longest time between two steps, from the last step before ``since`` on."""
    first = max([i for i, step in enumerate(steps) if step <= since], default=0)
    return max(b - a for a, b in itertools.pairwise(steps[first:]))


def start_rank(folder: Path, rank: int, *command: object, **more: str) -> subprocess.Popen[bytes]:
    """``command``: to run in place of training with pawl.elastic."""
    env = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(PORT),
        "PAWL_ELASTIC_DOOR": str(folder / "door"),
        "PAWL_JOB_ID": "bench-elastic",
        **more,
    }
    words = command or (SCRIPT, "elastic", folder, SECONDS)
    return subprocess.Popen([sys.executable, *map(str, words)], env=env, stderr=subprocess.DEVNULL)


def in_place(folder: Path) -> dict[str, float]:
    ranks = [start_rank(folder, rank) for rank in range(RANKS)]
    here = ranks[0].pid

    def wait_for_steps() -> list[float]:
        """Waits for more than QUIET new steps of rank 0; returns the times of all its steps."""
        before = len(steps_of(folder, here))
        wait_for(lambda: len(steps_of(folder, here)) > before + QUIET)
        return steps_of(folder, here)

    try:
        step = statistics.median(b - a for a, b in itertools.pairwise(wait_for_steps()))
        ranks[1].kill()
        killed = time.monotonic()
        steps = wait_for_steps()
        shrunk = longest_gap(steps, killed)
        again = next(done for done in steps if done > killed) - killed
        ranks.append(start_rank(folder, 0, PAWL_ELASTIC_JOIN="1"))
        asked, newcomer = time.monotonic(), ranks[-1].pid
        wait_for(lambda: len(steps_of(folder, newcomer)) > QUIET)
        grown = longest_gap(steps_of(folder, here), asked)
        first = steps_of(folder, newcomer)[0] - asked
        gaps = {"shrink": shrunk - step, "grow": grown - step}
        return gaps | {"step": step, "again": again, "start": first}
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def by_torchrun(folder: Path) -> dict[str, float]:
    """Empty: torchrun's ranks did not come together again."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    command += ["--standalone", "--max-restarts", "1", "--monitor-interval", "0.1"]
    command += [str(SCRIPT), "plain", str(folder), str(SECONDS)]
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def found() -> dict[int, list[float]]:
        """Steps by process, for the ranks that have made any."""
        steps = {int(p.stem): steps_of(folder, int(p.stem)) for p in folder.glob("*.steps")}
        return {pid: done for pid, done in steps.items() if done}

    try:
        wait_for(lambda: sum(len(done) > QUIET for done in found().values()) == RANKS)
        first = set(found())
        os.kill(min(first), signal.SIGKILL)
        killed = time.monotonic()
        wait_for(lambda: bool(found().keys() - first))
        begun = [done[0] for pid, done in found().items() if pid not in first]
        return {"restart": min(begun) - killed}
    except TimeoutError:
        return {}
    finally:
        run.terminate()  # torchrun ends its ranks, which are in sessions of their own
        run.wait(LIMIT_S)


def statistics_cost(folder: Path, pairs: int, steps: int) -> list[float]:
    """Relative CPU time of all ranks that statistics cost, one value per pair of blocks."""
    ranks = [start_rank(folder, r, NORMS, folder, pairs, steps) for r in range(RANKS)]
    try:
        if any(rank.wait(LIMIT_S * 10) for rank in ranks):
            sys.exit(f"{NORMS.name}: a rank failed")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    said = [json.loads((folder / str(rank)).read_text()) for rank in range(RANKS)]
    both = [[sum(times) for times in zip(*pair, strict=True)] for pair in zip(*said, strict=True)]
    return [with_them / without - 1 for with_them, without in both]


def main() -> None:
    options = make_parser(
        __doc__, "one run: shows that it works", "for small files (a temporary one)"
    ).parse_args()
    runs = 1 if options.quick else 5
    report = Report("elastic", runs, describe_machine())
    found: dict[str, list[float]] = {}
    for run in range(runs):
        turns = [in_place, by_torchrun]
        for turn in turns if run % 2 == 0 else reversed(turns):
            with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                for what, value in turn(Path(folder)).items():
                    found.setdefault(what, []).append(value)
    middle = {what: statistics.median(values) for what, values in found.items()}
    report.title(f"{RANKS} ranks on one host, 100 MB of weights, in place")
    report.note("step", "a step", middle["step"] * 1e3, "ms")
    what = "4 to 3 ranks, one killed: a step takes longer by"
    report.at_most("shrink", what, middle["shrink"], 0.2, "s", "the one that is done again")
    report.at_most("again", "  from its death to the next step", middle["again"], 1.0, "s")
    report.at_most("grow", "3 to 4 ranks: a step takes longer by", middle["grow"], 1.0, "s")
    report.note("start", "  from its start to a newcomer's first step", middle["start"], "s")
    if len(found.get("restart", [])) == runs:
        what = "  torchrun, which starts all again: to the next step"
        report.note("restart", what, middle["restart"], "s")
        share = ratio_of(found["again"], found["restart"])
        report.at_most("to_torchrun", "  of that, in place", share, 0.1, "x")
    else:
        report.title(f"torchrun: its ranks made no step within {LIMIT_S:.0f} s of one's end")
    pairs, steps = (2, 1) if options.quick else (20, 2)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        costs = statistics_cost(Path(folder), pairs, steps)
    report.title(f"the gradient's noise told at each step, a GPT of 13 MB, {RANKS} ranks")
    cost = statistics.median(costs) * 100
    beside = "quarters " + " and ".join(
        f"{100 * edge:.2f}" for edge in statistics.quantiles(costs)[::2]
    )
    report.at_most("statistics", "CPU time that it costs, of all", cost, 1.0, "%", beside)
    report.finish(options.json)


if __name__ == "__main__":
    main()
