"""All-reduce between hosts: ours beside Gloo and OpenMPI, and what the links allow."""

from __future__ import annotations

import statistics
from pathlib import Path

from _hosts import Hosts, NoHosts, make_hosts
from _report import Report

HERE = Path(__file__).parent
LIMIT_S = 300
RATE = "1gbit"
NUMBERS = 25 * (1 << 20) // 4
BYTES = NUMBERS * 4
ROUNDS = 5
# OpenMPI's choice, and its best one here: ring, in segments
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm"]
MPI = {"OpenMPI": [], "OpenMPI's ring in segments": [*RING, "5"]}
# seconds a round, CPU seconds; and of torch's: bytes that all hosts sent, and the busiest one
Result = list[float]


class Layout:
    """Ranks on hosts, and what is held to."""

    def __init__(self, key: str, hosts: int, ranks: int) -> None:
        self.key, self.hosts, self.ranks = key, hosts, ranks
        self.where = [rank // ranks for rank in range(hosts * ranks)]

    def bound_s(self, goodput: float) -> float:
        """Each byte crosses the network once for a host, each way (2(n-1)/n: Patarasuk 2009)."""
        return self.host_bytes() / goodput

    def host_bytes(self) -> float:
        return 2 * (self.hosts - 1) / self.hosts * BYTES


FLAT, TALL = Layout("4x1", 4, 1), Layout("2x4", 2, 4)


def collect(
    hosts: Hosts, layout: Layout, program: Path | None, runs: int
) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    case = f"{NUMBERS},1,{ROUNDS},1"
    for run in range(runs):
        order = ["pawl,gloo", "gloo,pawl"][run % 2]
        turns = ["torch", *(MPI if program else [])]
        for turn in turns if run // 2 % 2 == 0 else reversed(turns):
            if turn == "torch":
                said = hosts.run_torch(
                    layout.where, HERE / "_reduce.py", order, case, limit_s=LIMIT_S
                )
                for who in order.split(","):
                    found.setdefault(who, []).append(said[who][case])
            else:
                command = [program, *case.split(",")]
                one = hosts.run_mpi(layout.where, command, MPI[turn], limit_s=LIMIT_S)
                found.setdefault(turn, []).append([one["wall"], one["cpu"]])
    return found


def ratio(found: dict[str, list[Result]], over: str, under: str) -> float:
    pairs = zip(found[over], found[under], strict=True)
    return statistics.median(a[0] / b[0] for a, b in pairs)


def describe(results: list[Result]) -> str:
    wall, cpu = (statistics.median(r[i] for r in results) for i in (0, 1))
    return f"{wall * 1e3:.1f} ms; {cpu * 1e3:.0f} CPU ms"


def report_layout(
    report: Report, hosts: Hosts, layout: Layout, program: Path | None, runs: int
) -> None:
    report.title(f"{layout.hosts} hosts of {layout.ranks} ranks, 25 MiB, links of 1 Gbit/s")
    goodputs = [hosts.measure_goodput()]
    found = collect(hosts, layout, program, runs)
    goodputs.append(hosts.measure_goodput())
    goodput = statistics.mean(goodputs)
    key, bound_s = layout.key, layout.bound_s(goodput)
    report.bound(f"goodput_{key}", "iperf3's goodput", goodput * 8 / 1e6, "Mbit/s")
    report.bound(f"bound_{key}_ms", "what it allows", bound_s * 1e3, "ms")
    wall = statistics.median(r[0] for r in found["pawl"])
    report.note(f"{key}_ms", "ours", wall * 1e3, "ms", describe(found["pawl"]))
    goal = 0.98 if layout is FLAT else 0.92
    report.at_least(f"{key}_of_bound", "  of what the goodput allows", bound_s / wall, goal, "x")
    beside = describe(found["gloo"])
    if layout is FLAT:
        times = ratio(found, "pawl", "gloo")
        report.at_most(f"{key}_to_gloo", "  ours to Gloo's", times, 1.01, "x", beside)
    else:
        times = ratio(found, "gloo", "pawl")
        report.at_least(f"{key}_to_gloo", "  Gloo's time to ours", times, 1.6, "x", beside)
    for i, who in enumerate(MPI if program else []):
        times, beside = ratio(found, who, "pawl"), describe(found[who])
        what = f"  {who}'s time to ours" if i == 0 else f"  {who}"
        if layout is FLAT and i == 0:
            report.at_least(f"{key}_to_openmpi", what, times, 1.9, "x", beside)
        else:
            report.note(f"{key}_to_openmpi{i or ''}", what, times, "x", beside)
    sent = statistics.median(r[2] for r in found["pawl"]) / layout.hosts / layout.host_bytes()
    most = statistics.median(r[3] * layout.hosts / r[2] for r in found["pawl"])
    report.at_most(f"{key}_sent", "  bytes sent to 2(n-1)/n of the vector", sent, 1.02, "x")
    report.at_most(f"{key}_most", "  the busiest host's to the mean", most, 1.001, "x")


def report_hosts(report: Report, folder: Path, program: Path | None, runs: int) -> None:
    """program: OpenMPI's, if it is here."""
    try:
        for layout in (FLAT, TALL):
            with make_hosts(layout.hosts, RATE, folder) as hosts:
                report_layout(report, hosts, layout, program, runs)
    except NoHosts as reason:
        report.title(f"between hosts: not measured: {reason}")
