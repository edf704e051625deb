#!/usr/bin/env python3
"""From a fault to its name, and to the survivors' next sum: ours, and what Gloo does meanwhile.

4 ranks reduce 1 MB; one is killed or stopped, or its host's link goes down (hosts are network
namespaces). Times are those of the survivor that heard last. Then 16 busy processes run beside the
ranks, and none may be accused: for an hour with --hour. --quick shows only that it works: its
numbers mean nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared._hosts import rank_env
from shared._report import Report, describe_machine, make_parser

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import namespaces
from namespaces import NoHosts, address

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
PORT = 29553
LIMIT_S = 120  # longest wait for an event that must come
PATIENCE_S = 20  # longest wait for Gloo
BEAT_S = 0.5  # PAWL_HEARTBEAT's default
BUSY = 16
VICTIM = 1
LONG_S = 1e9
Said = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A fault, and the seconds within which the lost rank must be named."""

    key: str
    what: str
    where: Sequence[int]  # the host of each rank
    goal_s: float

    @property
    def survivors(self) -> list[int]:
        lost = self.where[VICTIM] if self.key == "link" else None
        return [r for r, host in enumerate(self.where) if r != VICTIM and host != lost]


CASES = [
    Case("kill", "a process is killed", (0, 0, 0, 0), 0.3),
    Case("kill_far", "a process on another host is killed", (0, 1, 0, 2), 0.3),
    Case("stop", "a process is stopped", (0, 0, 0, 0), 4 * BEAT_S),
    Case("link", "a host's link goes down", (0, 1, 0, 2), 4 * BEAT_S),
]


class Ranks:
    """The ranks of one run."""

    def __init__(self, folder: Path, backend: str, where: Sequence[int], hosts: list[str],
                 seconds: float = LONG_S) -> None:  # fmt: skip
        self._files = [folder / f"{backend}{rank}" for rank in range(len(where))]
        self.processes = []
        for rank, file in enumerate(self._files):
            file.unlink(missing_ok=True)
            host = where[rank]
            env = rank_env(where, rank, address(where[0]) if hosts else "127.0.0.1", PORT)
            env |= {"GLOO_SOCKET_IFNAME": "eth0"} if hosts else {}
            enter = ["ip", "netns", "exec", hosts[host]] if hosts else []
            command = [
                *enter,
                sys.executable,
                PROGRAMS / "_faults.py",
                backend,
                file,
                str(seconds),
            ]
            self.processes.append(
                subprocess.Popen(
                    command, env=os.environ | env,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip

    def find(self, rank: int, what: str) -> Said | None:
        file = self._files[rank]
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        said = [json.loads(line) for line in lines if line.endswith("\n")]
        return next((line for line in said if line["what"] == what), None)

    def await_all(self, ranks: Sequence[int], what: str, limit_s: float) -> list[Said]:
        """Waits until each of ranks has written a line of this kind; returns
        those written in time.
        """
        end = time.monotonic() + limit_s
        found: list[Said] = []
        while len(found) < len(ranks) and time.monotonic() < end:
            time.sleep(0.005)
            found = [said for rank in ranks if (said := self.find(rank, what))]
        return found

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def start(folder: Path, backend: str, case: Case) -> Iterator[tuple[Ranks, list[str]]]:
    with contextlib.ExitStack() as stack:
        hosts: list[str] = []
        if max(case.where) > 0:
            hosts = stack.enter_context(namespaces.hosts(max(case.where) + 1))
        ranks = Ranks(folder, backend, case.where, hosts)
        stack.callback(ranks.end)
        every = range(len(case.where))
        if len(ranks.await_all(every, "begins", LIMIT_S)) < len(every):
            sys.exit(f"{backend}: the ranks do not begin")
        time.sleep(0.3)
        yield ranks, hosts


def harm(case: Case, ranks: Ranks, hosts: list[str]) -> float:
    """Causes the fault; returns its time."""
    begun = time.monotonic()
    if case.key == "link":
        namespaces.ip("-n", hosts[case.where[VICTIM]], "link", "set", "eth0", "down")
    else:
        how = signal.SIGSTOP if case.key == "stop" else signal.SIGKILL
        ranks.processes[VICTIM].send_signal(how)
    return begun


def measure(folder: Path, case: Case) -> tuple[float, float]:
    """Seconds until all survivors know the lost rank, and from there to their next sum."""
    with start(folder, "pawl", case) as (ranks, hosts):
        begun = harm(case, ranks, hosts)
        named = ranks.await_all(case.survivors, "named", LIMIT_S)
        following = ranks.await_all(case.survivors, "next", LIMIT_S)
    if len(following) < len(case.survivors):
        sys.exit(f"{case.what}: the survivors said only {named} and {following}")
    wrong = [said["text"] for said in named if f"rank {VICTIM} is lost" not in said["text"]]
    if wrong:
        sys.exit(f"{case.what}: another is named: {wrong}")
    last = max(said["t"] for said in named)
    return last - begun, max(said["t"] for said in following) - last


def watch_gloo(folder: Path, case: Case) -> str:
    """Summarizes which errors Gloo's survivors get within PATIENCE_S."""
    with start(folder, "gloo", case) as (ranks, hosts):
        begun = harm(case, ranks, hosts)
        heard = ranks.await_all(case.survivors, "named", PATIENCE_S)
    if not heard:
        return f"Gloo: nothing in {PATIENCE_S} s"
    last = max(said["t"] for said in heard) - begun
    who = f"{len(heard)} of {len(case.survivors)}"
    names = sum(f"ank {VICTIM}" in said["text"] for said in heard)
    return f"Gloo: an error at {who} in {last:.2f} s, the rank in {names} of them"


def report_cases(report: Report, folder: Path, runs: int) -> None:
    report.title("a fault among 4 ranks: until all survivors have its name; until their next sum")
    for case in CASES:
        try:
            found = [measure(folder, case) for _ in range(runs)]
            gloo = watch_gloo(folder, case)
        except NoHosts as reason:
            report.title(f"{case.what}: not measured: {reason}")
            continue
        named, following = (statistics.median(column) for column in zip(*found, strict=True))
        report.at_most(f"{case.key}_named_s", case.what, named, case.goal_s, "s", gloo)
        worst = f"slowest {max(f[1] for f in found):.3f} s"
        report.at_most(f"{case.key}_next_s", "  the next sum", following, 1.0, "s", worst)


def report_accusations(report: Report, folder: Path, seconds: float) -> None:
    report.title(f"4 ranks for {seconds:.0f} s, with {BUSY} busy processes beside them")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    where = (0, 0, 0, 0)
    ranks = Ranks(folder, "pawl", where, [], seconds)
    try:
        ended = ranks.await_all(range(len(where)), "ends", seconds + 5 * LIMIT_S)
        accused = ranks.await_all(range(len(where)), "named", 0.1)
    finally:
        ranks.end()
        for process in busy:
            process.kill()
            process.wait()
    if len(ended) + len(accused) < len(where):
        sys.exit(f"only {ended} and {accused} were said")
    sums, slowest = (ended[0]["done"], max(e["slowest"] for e in ended)) if ended else (0, 0)
    beside = f"{sums} sums, the slowest {slowest:.2f} s, load {os.getloadavg()[0]:.0f}"
    report.at_most("accused", "ranks that were accused", len(accused), 0, "", beside)


def main() -> None:
    parser = make_parser(
        __doc__, "one run: shows that it works", "for small files (a temporary one)"
    )
    parser.add_argument("--hour", action="store_true", help="accusations for an hour, not a minute")
    options = parser.parse_args()
    runs, seconds = (1, 2.0) if options.quick else (7, 3600.0 if options.hour else 60.0)
    report = Report("faults", runs, describe_machine())
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        report_cases(report, Path(folder), runs)
        report_accusations(report, Path(folder), seconds)
    report.finish(options.json)


if __name__ == "__main__":
    main()
