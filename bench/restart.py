#!/usr/bin/env python3
"""From the kill of a worker to the first step of its group's next life: `pawl run` and torchrun.

The same script under both (_ddp.py): 2 ranks, 100 MB of state. One rank is killed with SIGKILL;
a step counts when both ranks have completed it. --quick kills once, with a small state.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from shared._agent import end_agent, is_running, scratch, wait_until
from shared._report import Report, describe_machine, make_parser

from pawl._agent import find_program

SCRIPT = Path(__file__).parent / "programs/_ddp.py"
RANKS = 2
KILLS, WIDTH = 5, 2048  # 33.6 MB of parameters, twice as much of AdamW
QUICK_KILLS, QUICK_WIDTH = 1, 128
STEPS_MIN = 12  # before a kill: past the second save
TAIL_CHARS = 4000  # end of a failed launcher's output that is shown
READY = "template: ready"  # `pawl run` says so at PAWL_LOG=debug
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PAWL_LOG": "debug",
    # Otherwise torch 2.13's torchrun keeps its store over a restart, in which the new group finds
    # the addresses of the dead one: it then fails once more, or hangs.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


@dataclass(frozen=True)
class Step:
    """A line of the script's log."""

    pid: int
    rank: int
    step: int
    time_s: float


class Launch:
    """A launcher at work on the script, in a folder of its own."""

    def __init__(self, folder: Path, width: int, command: list[str]) -> None:
        folder.mkdir()
        self._root = folder / "ckpt"
        self._log = folder / "steps"
        self._said = folder / "stderr"
        script = [str(SCRIPT), f"--root={self._root}", f"--steps={self._log}", f"--width={width}"]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, *script],
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def says(self, text: str) -> bool:
        return text in self._said.read_text(errors="replace")

    def steps(self) -> list[Step]:
        if not self._log.exists():
            return []
        # Text behind the last line end is not a whole line.
        lines = self._log.read_text().split("\n")[:-1]
        return [Step(**json.loads(line)) for line in lines]

    def tail(self) -> str:
        return self._said.read_text(errors="replace")[-TAIL_CHARS:]

    def _lives(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the launcher ended with {self._process.returncode}")

    def wait_for_steps(self, number: int, besides: set[int]) -> list[Step]:
        """Waits until each rank has completed so many steps; returns steps of
        pids not in besides.
        """

        def of_rank(rank: int) -> list[Step]:
            return [one for one in self.steps() if one.rank == rank and one.pid not in besides]

        def done() -> bool:
            self._lives()
            return all(len(of_rank(rank)) >= number for rank in range(RANKS))

        wait_until(f"{number} steps of every rank", done)
        return [one for rank in range(RANKS) for one in of_rank(rank)]

    def kill_one(self, rank: int) -> tuple[float, int]:
        """Seconds until every rank of the new group has completed a step; steps lost."""
        before = self.steps()
        pids = {one.pid for one in before}
        pid = [one.pid for one in before if one.rank == rank][-1]
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        after = self.wait_for_steps(1, pids)
        firsts = [min(one.time_s for one in after if one.rank == r) for r in range(RANKS)]
        reached = max(one.step for one in self.steps() if one.pid in pids)
        return max(firsts) - killed_s, reached - (min(one.step for one in after) - 1)

    def end(self) -> None:
        """Ends the launcher, all that it started, and the workers' agent."""
        # Stopped, the launcher starts no process meanwhile.
        self._process.send_signal(signal.SIGSTOP)
        started = descendants(self._process.pid)
        self._process.kill()
        self._process.wait()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until(f"process {pid} ends", lambda pid=pid: not is_running(pid))
        end_agent(self._root)


def descendants(pid: int) -> list[int]:
    """All descendants of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a process that just ended
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def measure(folder: Path, width: int, way: str, rank: int, name: str) -> tuple[float, int]:
    """Seconds and lost steps of one launch with one kill."""
    program = find_program()
    assert program is not None, "the program pawl is not installed"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    commands = {
        "pawl": [program, "run", "--python", sys.executable, "-n", str(RANKS), f"--job={name}"],
        "torchrun": [
            *torchrun,
            f"--nproc-per-node={RANKS}",
            "--max-restarts=3",
            f"--rdzv-id={name}",
        ],
    }
    launch = Launch(folder / name, width, commands[way])
    try:
        launch.wait_for_steps(STEPS_MIN, set())
        if way == "pawl":
            wait_until("the template is ready", lambda: launch.says(READY))
        return launch.kill_one(rank)
    except (RuntimeError, TimeoutError) as reason:
        raise RuntimeError(f"{name}: {reason}\n{launch.tail()}") from reason
    finally:
        launch.end()


def main() -> int:
    args = make_parser(
        __doc__, "one kill, a small state", "where checkpoints go", "/var/tmp"
    ).parse_args()
    kills, width = (QUICK_KILLS, QUICK_WIDTH) if args.quick else (KILLS, WIDTH)
    took: dict[str, list[float]] = {"pawl": [], "torchrun": []}
    lost: dict[str, list[int]] = {"pawl": [], "torchrun": []}
    state_mb = 3 * 4 * 2 * (width * width + width) / 1e6
    setting = {**describe_machine(), "ranks": RANKS, "state MB": round(state_mb, 1)}
    if args.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("restart", kills, setting)
    with scratch(args.dir) as folder:
        for kill in range(kills):
            for way in ("pawl", "torchrun") if kill % 2 == 0 else ("torchrun", "pawl"):
                seconds, steps = measure(folder, width, way, kill % RANKS, f"{way}{kill}")
                took[way].append(seconds)
                lost[way].append(steps)
    pawl_s, torchrun_s = (statistics.median(took[way]) for way in ("pawl", "torchrun"))
    report.title(f"worker killed to first step of the new group, medians of {kills}")
    report.at_most("pawl_s", "pawl run, template ready", pawl_s, 1, "s")
    report.note("pawl_max_s", "pawl run, slowest", max(took["pawl"]), "s")
    report.note("torchrun_s", "torchrun", torchrun_s, "s")
    report.at_most("pawl_to_torchrun", "to torchrun", pawl_s / torchrun_s, 0.15, "x")
    report.note("pawl_steps_lost", "steps lost, pawl run", statistics.median(lost["pawl"]), "")
    report.note("torchrun_steps_lost", "torchrun", statistics.median(lost["torchrun"]), "")
    report.finish(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
