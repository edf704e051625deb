"""All-reduce between hosts: ours beside Gloo and OpenMPI, and what the links allow."""

from __future__ import annotations

import ctypes.util
import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path

from shared._hosts import Hosts, NoHosts, make_hosts
from shared._report import Report, ratio_of

PROGRAMS = Path(__file__).parents[1] / "programs"
LIMIT_S = 300
RATE = "1gbit"
NUMBERS = 25 * (1 << 20) // 4
BYTES = NUMBERS * 4
ROUNDS = 5
WHOLE = f"{NUMBERS},1,{ROUNDS},1"
# A model of which one embedding is 80 %.
EMBEDDING = f"{NUMBERS * 4 // 5}" + f"/{NUMBERS // 500}" * 100 + f",1,{ROUNDS},0"
# OpenMPI's own choice, and the fastest one here: a ring, in segments.
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm"]
MPI = {"OpenMPI": [], "OpenMPI-ring": [*RING, "5"]}
# Seconds and CPU seconds of a round; from torch also the bytes that all hosts sent,
# and the busiest.
Result = Sequence[float]


@dataclasses.dataclass
class Layout:
    """Ranks on hosts, servers, and the goals for them."""

    hosts: int
    ranks: int  # ranks on each host
    servers: int  # number of servers, each on a host of its own
    of_bound: float  # goal: least ratio of the bound's time to ours
    to_gloo: float  # goal: least ratio of Gloo's time to ours
    fabric: bool = False  # whether to measure libfabric as well

    @property
    def key(self) -> str:
        servers = f"+{self.servers}" if self.servers else ""
        return f"{self.hosts}x{self.ranks}{servers}"

    @property
    def where(self) -> list[int]:
        return [rank // self.ranks for rank in range(self.hosts * self.ranks)]

    def host_bytes(self) -> float:
        """Bytes that a host must send, and receive: 2(n-1)/n of the vector (Patarasuk 2009); with k
        servers 2n(n-1)/(n^2 + kn - 2k) of it (Jiang 2020, Theorem 1).
        """
        n, k = self.hosts, self.servers
        return BYTES * (2 * n * (n - 1) / (n * n + k * n - 2 * k) if k < n else 1.0)


LAYOUTS = [
    Layout(4, 1, 0, 0.98, 1 / 1.01, ctypes.util.find_library("fabric") is not None),
    Layout(2, 4, 0, 0.92, 1.6),
    Layout(4, 1, 2, 0.92, 1.14),
    Layout(4, 1, 4, 0.92, 1.38),
]


def collect(
    hosts: Hosts, layout: Layout, program: Path | None, runs: int
) -> dict[str, list[Result]]:
    """Results by backend; "embedding" and "libfabric" are Pawl's, of that model and
    over that transport.
    """
    found: dict[str, list[Result]] = {}
    others = range(layout.hosts, layout.hosts + layout.servers)
    with hosts.serve(others) as servers:
        for run in range(runs):
            order = ["pawl,gloo", "gloo,pawl"][run % 2]
            turns = ["torch", *(["libfabric"] if layout.fabric else []), *(MPI if program else [])]
            for turn in turns if run // 2 % 2 == 0 else reversed(turns):
                if turn == "torch":
                    said = hosts.run_torch(
                        layout.where, PROGRAMS / "_reduce.py", order, WHOLE, EMBEDDING,
                        limit_s=LIMIT_S, PAWL_SERVERS=servers,
                    )  # fmt: skip
                    for who in order.split(","):
                        found.setdefault(who, []).append(said[who][WHOLE])
                    found.setdefault("embedding", []).append(said["pawl"][EMBEDDING])
                elif turn == "libfabric":
                    said = hosts.run_torch(
                        layout.where, PROGRAMS / "_reduce.py", "pawl", WHOLE,
                        limit_s=LIMIT_S, PAWL_TRANSPORT="fabric",
                    )  # fmt: skip
                    found.setdefault(turn, []).append(said["pawl"][WHOLE])
                else:
                    command = [program, *WHOLE.split(",")]
                    one = hosts.run_mpi(layout.where, command, MPI[turn], limit_s=LIMIT_S)
                    found.setdefault(turn, []).append([one["wall"], one["cpu"]])
    return found


def ratio(over: Sequence[Result], under: Sequence[Result]) -> float:
    """The ratio of the times of two backends, run by run."""
    return ratio_of([result[0] for result in over], [result[0] for result in under])


def describe(results: Sequence[Result], count: int = 1) -> str:
    """Times for people. count: operations in each result."""
    wall, cpu = (statistics.median(r[i] for r in results) for i in (0, 1))
    each = f", {wall / count * 1e6:.0f} µs each" if count > 1 else ""
    return f"{wall * 1e3:.1f} ms{each}; {cpu * 1e3:.0f} CPU ms"


def report_layout(
    report: Report, hosts: Hosts, layout: Layout, program: Path | None, runs: int
) -> None:
    also = f" and {layout.servers} that only add" if layout.servers else ""
    report.title(f"{layout.hosts} hosts of {layout.ranks} ranks{also}, 25 MiB, links of 1 Gbit/s")
    goodputs = [hosts.measure_goodput()]
    found = collect(hosts, layout, None if layout.servers else program, runs)
    goodputs.append(hosts.measure_goodput())
    goodput = statistics.mean(goodputs)
    key, bound_s = layout.key, layout.host_bytes() / goodput
    report.bound(f"goodput_{key}", "iperf3's goodput", goodput * 8 / 1e6, "Mbit/s")
    report.bound(f"bound_{key}_ms", "what it allows", bound_s * 1e3, "ms")
    wall = statistics.median(r[0] for r in found["pawl"])
    report.note(f"{key}_ms", "ours", wall * 1e3, "ms", describe(found["pawl"]))
    what, share = "  of what the goodput allows", bound_s / wall
    report.at_least(f"{key}_of_bound", what, share, layout.of_bound, "x")
    what, times = "  Gloo's time to ours", ratio(found["gloo"], found["pawl"])
    beside = describe(found["gloo"])
    report.at_least(f"{key}_to_gloo", what, times, layout.to_gloo, "x", beside)
    if layout.fabric:
        wall = statistics.median(r[0] for r in found["libfabric"])
        beside = describe(found["libfabric"])
        report.note(f"{key}_fabric_ms", "  over libfabric", wall * 1e3, "ms", beside)
        times = ratio(found["libfabric"], found["pawl"])
        report.note(f"{key}_fabric", "  its time to ours over sockets", times, "x")
    for who in MPI if "OpenMPI" in found else []:
        times, beside = ratio(found[who], found["pawl"]), describe(found[who])
        name = f"{key}_to_{who.lower()}"
        if who == "OpenMPI" and layout.ranks == 1:
            report.at_least(name, f"  {who}'s time to ours", times, 1.9, "x", beside)
        else:
            report.note(name, f"  {who}'s time to ours", times, "x", beside)
    if layout.servers == 2:
        report_parameter_server(report, hosts, layout, found["pawl"], runs)
    for who, what in (("pawl", "25 MiB"), ("embedding", "one 80 % embedding, 100 more")):
        short = "" if who == "pawl" else "_embedding"
        must = layout.host_bytes() * layout.hosts
        sent = statistics.median(r[2] for r in found[who]) / must
        most = statistics.median(r[3] * layout.hosts / r[2] for r in found[who])
        beside = f"{what}; the kernel's counters"
        name, text = f"{key}{short}_sent", "  bytes that hosts sent to what they must"
        report.at_most(name, text, sent, 1.02, "x", beside)
        name, text = f"{key}{short}_most", "  the busiest host's bytes to the mean"
        report.at_most(name, text, most, 1.001, "x", beside)


def report_parameter_server(
    report: Report, hosts: Hosts, layout: Layout, ours: Sequence[Result], runs: int
) -> None:
    """Rows: what SMDDP was compared with, all gradients sent to servers and all
    parameters sent back.
    """
    where = list(range(layout.hosts + layout.servers))
    found = []
    for _ in range(runs):
        said = hosts.run_torch(
            where,
            PROGRAMS / "_server.py",
            NUMBERS,
            layout.servers,
            ROUNDS,
            limit_s=LIMIT_S,
        )
        found.append([said["wall"], said["cpu"]])
    what = "  an asynchronous parameter server's step to ours"
    times = ratio(found, ours)
    report.note(f"{layout.key}_to_parameter_server", what, times, "x", describe(found))


def report_hosts(report: Report, folder: Path, program: Path | None, runs: int) -> None:
    """Rows for all layouts. program: the OpenMPI benchmark; None: OpenMPI is not installed."""
    try:
        for layout in LAYOUTS:
            with make_hosts(layout.hosts + layout.servers, RATE, folder) as hosts:
                report_layout(report, hosts, layout, program, runs)
    except NoHosts as reason:
        report.title(f"between hosts: not measured: {reason}")
