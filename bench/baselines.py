#!/usr/bin/env python3
"""The baselines of balanced servers: our own ring, and servers that take whole tensors.

Hosts are network namespaces with links of 1 Gbit/s. Our ring is carried out as our other plans are
(bench/ring_reduce.c, by hand: no group uses it, since the place of its additions depends on the
offset), the direct plan beside it by the same program. Servers of whole tensors, and servers among
which each tensor is cut equally, exchange the same bytes by messages (programs/_whole.py); bytes
are the kernel's counters. --quick shows only that it works: its numbers mean nothing.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from programs._whole import give_whole
from shared._between import NUMBERS, RATE, ROUNDS, WHOLE, Result, describe, ratio
from shared._hosts import Hosts, NoHosts, address, make_hosts
from shared._process import build
from shared._report import Report, describe_machine, make_parser

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
LIMIT_S = 300
HOSTS, SERVERS = 4, 2
# One embedding of 80 %, and 100 more tensors.
LENGTHS = [NUMBERS * 4 // 5, *[NUMBERS // 500] * 100]


def run_plan(hosts: Hosts, program: Path, way: str) -> Result:
    """Runs a plan: seconds of a round in the slowest rank, and CPU seconds of all."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [*hosts.at(rank), program, str(rank), str(HOSTS), address(rank), folder, way,
                 str(NUMBERS), str(ROUNDS)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for rank in range(HOSTS)
        ]  # fmt: skip
        try:
            lines = [rank.stdout.readline() for rank in ranks if rank.stdout is not None]
            for rank in ranks:
                rank.communicate(timeout=LIMIT_S)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if not all(lines):
        sys.exit(f"{program.name}: ranks ended with {[rank.returncode for rank in ranks]}")
    said = [json.loads(line) for line in lines]
    return max(one["wall"] for one in said), sum(one["cpu"] for one in said)


def collect(hosts: Hosts, program: Path, runs: int) -> dict[str, list[Result]]:
    """Results by way; the order of the ways changes from run to run."""
    found: dict[str, list[Result]] = {}
    for run in range(runs):
        order = ["pawl,gloo", "gloo,pawl"][run % 2]
        turns = ["torch", "ring", "direct"]
        for turn in turns if run // 2 % 2 == 0 else reversed(turns):
            if turn == "torch":
                said = hosts.run_torch(
                    list(range(HOSTS)), PROGRAMS / "_reduce.py", order, WHOLE, limit_s=LIMIT_S
                )
                for who in order.split(","):
                    found.setdefault(who, []).append(said[who][WHOLE])
            else:
                found.setdefault(turn, []).append(run_plan(hosts, program, turn))
    return found


def report_ring(report: Report, hosts: Hosts, program: Path, runs: int) -> None:
    report.title(f"{HOSTS} hosts of 1 rank, 25 MiB, links of 1 Gbit/s")
    goodput = hosts.measure_goodput()
    bound_ms = 2 * (HOSTS - 1) / HOSTS * NUMBERS * 4 / goodput * 1e3
    report.bound("goodput", "iperf3's goodput", goodput * 8 / 1e6, "Mbit/s")
    report.bound("bound_ms", "what it allows", bound_ms, "ms")
    found = collect(hosts, program, runs)
    rows = [
        ("pawl", "all-reduce of a group"), ("direct", "our direct plan, by hand"),
        ("ring", "our ring, by hand"), ("gloo", "Gloo's ring"),
    ]  # fmt: skip
    for who, what in rows:
        wall = statistics.median(result[0] for result in found[who]) * 1e3
        report.note(f"{who}_ms", what, wall, "ms", describe(found[who]))
    report.note("ring_to_direct", "our ring's time to our direct plan's",
                ratio(found["ring"], found["direct"]), "x")  # fmt: skip


def uneven(servers: int) -> float:
    """Ratio of the busiest server's bytes to the mean, for so many servers of whole tensors."""
    loads = [sum(part) for part in give_whole(LENGTHS, servers)]
    return max(loads) * servers / sum(loads)


def report_servers(report: Report, hosts: Hosts, runs: int) -> None:
    report.title(f"{HOSTS} workers and {SERVERS} servers, a model of which one embedding is 80 %")
    found: dict[str, list[Sequence[float]]] = {"whole": [], "cut": []}
    where = list(range(HOSTS + SERVERS))
    for _ in range(runs):
        said = hosts.run_torch(
            where, PROGRAMS / "_whole.py", "/".join(map(str, LENGTHS)), SERVERS, ROUNDS,
            limit_s=LIMIT_S,
        )  # fmt: skip
        for how, results in found.items():
            results.append(said[how])
    for how, what in (("whole", "whole tensors"), ("cut", "tensors cut equally")):
        most = statistics.median(r[3] * SERVERS / r[2] for r in found[how])
        wall = statistics.median(r[0] for r in found[how]) * 1e3
        beside = describe(found[how])
        report.note(f"{how}_ms", f"{what}: a step", wall, "ms", beside)
        name = "  the busiest server's bytes to the mean"
        beside = "the kernel's counters"
        if how == "cut":
            report.at_most("cut_most", name, most, 1.001, "x", beside)
        else:
            beside += f"; by arithmetic, with {2 * SERVERS} servers {uneven(2 * SERVERS):.2f} x"
            report.note("whole_most", name, most, "x", beside)
    times = ratio(found["whole"], found["cut"])
    report.note("whole_to_cut", "whole tensors' step to that of balanced servers", times, "x")


def main() -> None:
    options = make_parser(
        __doc__, "one run: shows that it works", "for small files (a temporary one)"
    ).parse_args()
    runs = 1 if options.quick else 7
    report = Report("baselines", runs, describe_machine())
    program = build("bench/ring_reduce")
    try:
        with (
            tempfile.TemporaryDirectory(dir=options.dir) as folder,
            make_hosts(HOSTS + SERVERS, RATE, Path(folder)) as hosts,
        ):
            report_ring(report, hosts, program, runs)
            report_servers(report, hosts, runs)
    except NoHosts as reason:
        report.title(f"not measured: {reason}")
    report.finish(options.json)


if __name__ == "__main__":
    main()
