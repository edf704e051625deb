#!/usr/bin/env python3
"""All-reduce on 64 to 4,096 hosts, on paper: the plans' own lists of steps, carried out in virtual
time, beside the cost model and the bound. Nothing is measured; docs/scale.md says what is left out.

--quick goes up to 256 hosts.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict

from shared._process import build
from shared._report import Report, make_parser

PROGRAM = "bench/scale_plans"
GRANULE = 64  # bytes: the smallest share
OURS = ("direct", "doubling", "halving", "tree")
SIZES = {4096: "4 KiB", 1 << 20: "1 MiB", 25 << 20: "25 MiB", 1 << 30: "1 GiB"}

# Name, bytes a second each way (the nominal rate), seconds of latency from one process to another,
# and seconds that a message keeps a host busy.
LINKS = [
    # coll_link_default (src/coll/plan/cost.c), from measurements between virtual machines.
    ("1 Gbit/s, TCP", 125e6, 85e-6, 42.6e-6),
    # Assumed: physical machines, the kernel's TCP, one switch.
    ("25 Gbit/s, TCP", 3.125e9, 25e-6, 5e-6),
    # About the latency that AWS gave for MPI on c5n.18xlarge when it announced EFA (2019); the time
    # of a message is assumed.
    ("100 Gbit/s, EFA", 12.5e9, 15e-6, 1e-6),
    # HDR; latency as of MPI in vendors' guides (osu_latency: 1.06 µs, QLogic); the
    # time of a message is assumed.
    ("200 Gbit/s, InfiniBand", 25e9, 1.5e-6, 0.3e-6),
]

# Way -> whether a group chooses it; seconds simulated, seconds by the model, bound.
Times = dict[str, tuple[bool, float, float, float]]


def run_plans(hosts_max: int) -> dict[tuple[int, int, int], Times]:
    """Times by link, hosts and bytes. A way with servers is named by their number."""
    numbers = [str(number) for link in LINKS for number in link[1:]]
    done = subprocess.run(
        [build(PROGRAM), str(hosts_max), *numbers], check=True, capture_output=True, text=True
    )
    found: dict[tuple[int, int, int], Times] = defaultdict(dict)
    for line in done.stdout.splitlines():
        hosts, link, way, size, servers, chosen, *numbers = line.split()
        name = way if servers == "0" else f"+{servers}"
        took, model, bound = map(float, numbers)
        found[int(link), int(hosts), int(size)][name] = (chosen == "1", took, model, bound)
    return found


def format_time(seconds: float) -> str:
    scale, unit = ((1e6, "µs"), (1e3, "ms"), (1.0, "s"))[(seconds >= 1e-3) + (seconds >= 1)]
    value = seconds * scale
    return f"{value:.{2 - min(2, len(str(int(value))) - 1)}f} {unit}"


def seconds(times: Times, way: str) -> float:
    """The time as carried out, or by the model if it was not."""
    return times[way][1] or times[way][2]


def describe(times: Times) -> str:
    """The times of all ways; in brackets those by the model alone."""
    parts = []
    for way, (_, took, model, _) in times.items():
        parts.append(f"{way} {format_time(took)}" if took else f"{way} ({format_time(model)})")
    return ", ".join(parts)


def off_by(times: Times, shares: bool) -> float:
    """The worst ratio of the model to the simulation, over our ways. direct counts only where each
    host has a share, as the model assumes.
    """
    found = [times[way] for way in OURS if way in times and (way != "direct" or shares)]
    return max(max(took / model, model / took) for _, took, model, _ in found if took)


def lost(times: Times) -> float:
    """The time of the way that a group chooses, divided by that of our fastest way."""
    chosen = next(seconds(times, way) for way in OURS if way in times and times[way][0])
    return chosen / min(seconds(times, way) for way in OURS if way in times)


def report_link(report: Report, link: int, found: dict[tuple[int, int, int], Times]) -> None:
    report.title(f"{LINKS[link][0]}: the fastest way of ours")
    for (at, hosts, size), times in found.items():
        if at != link:
            continue
        best = min(seconds(times, way) for way in OURS if way in times)
        bound = times["direct"][3]
        key = f"link{link}_{hosts}_{size}"
        beside = f"bound {format_time(bound)}; {describe(times)}"
        what = f"{hosts:,} hosts, {SIZES[size]}"
        report.note(f"{key}_us", what, best * 1e6, "µs", beside)


def main() -> None:
    options = make_parser(__doc__, "256 hosts at most").parse_args()
    report = Report("scale", 1, {"all of it": "simulated", "hosts": "one rank each"})
    found = run_plans(256 if options.quick else 4096)
    for link in range(len(LINKS)):
        report_link(report, link, found)
    report.title("the cost model (src/coll/plan/cost.h), over all of the above")
    worst = max(off_by(times, size >= GRANULE * hosts) for (_, hosts, size), times in found.items())
    report.at_most("model", "furthest from what was carried out", worst, 1.3, "x")
    slowest = max(map(lost, found.values()))
    report.at_most("choice", "what a group takes, to the fastest way", slowest, 1.15, "x")
    report.finish(options.json)


if __name__ == "__main__":
    main()
