#!/usr/bin/env python3
"""Replicas of checkpoints in other hosts' memory: their rate, what they cost training, and how soon
a lost host is replaced.

Hosts are network namespaces of this machine, and share its cores and memory; ranks have as much
state as memory allows, up to 1 GiB, or --mib. The rate is that from committed to replicated, in
turns with two peers between the same hosts: plain TCP (sendfile and recv, neither encrypted nor
verified), and OpenSSL over TCP with the cipher of the agents' links, which verifies no checkpoint.
The bucket is bucket.py's stand-in, which stands still meanwhile. Training is that of 2 hosts, with
replicas and without, in turns: steps that leave the CPU to an accelerator, and steps that keep a
core of each host busy, so that 2 cores have nothing left for replication. A lost host ends at once
and without notice, and its bucket is SeaweedFS. --quick shows only that it works.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared._agent import scratch
from shared._bucket_clients import find_program
from shared._nodes import Ranks, Raw, Said, lose_host, ranks, why_not
from shared._process import load
from shared._report import Report, describe_machine, make_parser, ratio_of

MIB_MAX = 1024
# Memory of a host, in states: its own, slots of the tier, replicas, and as much free besides.
COPIES = 10
COPIES_TRAINING = 13  # with a second root
RESTORE_GOAL_S = 15.0
PARTS = ("rate", "training", "loss", "parity")

median = statistics.median


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int  # turns that the rate is measured in, and training
    losses: int
    steps: int  # steps of training after a save
    divisor: int  # divides the bytes of parity
    mib: int  # a rank's state; 0: as memory allows
    links: Sequence[str] = ("", "10gbit", "1gbit")


FULL = Sizes(rounds=5, losses=3, steps=100, divisor=1, mib=0)
QUICK = Sizes(rounds=1, losses=1, steps=5, divisor=16, mib=16, links=("", "1gbit"))


def choose_mib(hosts: int, copies: int) -> int:
    """The state of a rank that this machine's memory allows."""
    text = Path("/proc/meminfo").read_text()
    free_kib = int(re.search(r"^MemAvailable:\s+(\d+) kB", text, re.M)[1])  # type: ignore[index]
    return min(MIB_MAX, max(64, (free_kib >> 10) // (hosts * copies) // 64 * 64))


# ---- the rate ----


def time_replication(found: list[Said]) -> tuple[float, float]:
    """Seconds from the leader's commit to the last host's news, and CPU seconds of all hosts."""
    if any(said["level"] != "replicated" for said in found):
        sys.exit(f"a save became durable, though the bucket does not answer: {found}")
    took_s = max(said["replicated"] for said in found) - found[0]["committed"]
    return took_s, sum(said["cpu_s"] for said in found)


def time_raw(found: list[Said]) -> tuple[float, float]:
    took_s = max(said["ended"] for said in found) - min(said["begun"] for said in found)
    return took_s, sum(said["cpu_s"] for said in found)


def measure_link(
    report: Report, job: Ranks, peers: dict[str, Raw], link: str, mib: int, rounds: int
) -> None:
    """Rows of one rate of the links."""
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "pawl": lambda: time_replication(job.take()),
        "raw": lambda: time_raw(peers["raw"].move(mib)),
        "tls": lambda: time_raw(peers["tls"].move(mib)),
    }
    costs: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for round_ in range(rounds):
        for way in ways if round_ % 2 else reversed(ways):
            costs[way].append(ways[way]())
    took = {way: [cost[0] for cost in costs[way]] for way in ways}
    gib = mib * job.hosts / 1024
    cpu = {way: median(cost[1] for cost in costs[way]) / gib for way in ways}
    key = link or "free"
    report.title(f"{job.hosts} hosts, {mib} MiB a rank, links of {link or 'any speed'}")
    share = ""
    if link:
        limit = float(link.removesuffix("gbit")) * 1e9 / 8 / (1 << 20)
        report.bound(f"link_{key}", "a host's link", limit, "MiB/s")
        share = f", {mib / median(took['raw']) / limit:.2f} of the link"
    report.bound(f"raw_{key}", "plain TCP, a host", mib / median(took["raw"]), "MiB/s")
    report.bound(f"tls_{key}", "OpenSSL over TCP, a host", mib / median(took["tls"]), "MiB/s")
    rate = mib / median(took["pawl"])
    beside = f"{rate * job.hosts:.0f} MiB/s in sum, {cpu['pawl']:.2f} CPU-s/GiB"
    report.note(f"rate_{key}", "from committed to replicated, a host", rate, "MiB/s", beside)
    for way, goal, what in (("raw", 0.8, "plain TCP"), ("tls", 0.8, "OpenSSL over TCP")):
        beside = f"{what}: {cpu[way]:.2f} CPU-s/GiB{share if way == 'raw' else ''}"
        ratio = ratio_of(took[way], took["pawl"])
        report.at_least(f"to_{way}_{key}", f"  to {what}", ratio, goal, "x", beside)


def measure_rate(report: Report, options: Any, sizes: Sizes, folder: Path) -> None:
    mib = options.mib or sizes.mib or choose_mib(options.hosts, COPIES)
    shape = load("netns").shape
    program = find_program("tests/lib/bucket_server", options.quick)
    tls_peer = str(find_program("bench/tls_peer", options.quick))
    with (
        ranks(folder / "rate", program, options.hosts, "rate", mib) as job,
        contextlib.ExitStack() as stack,
    ):
        peers = {"raw": Raw(job.names, stack), "tls": Raw(job.names, stack, (tls_peer,))}
        job.take(answers=True)  # arenas and memory are made in turns that do not count
        for peer in peers.values():
            peer.move(mib)
        for link in sizes.links:
            for host in range(options.hosts) if link else ():
                shape(job.names, host, link)
            measure_link(report, job, peers, link, mib, sizes.rounds)


# ---- training ----


def measure_training(report: Report, options: Any, sizes: Sizes, folder: Path) -> None:
    mib = options.mib or sizes.mib or choose_mib(2, COPIES_TRAINING)
    report.title(f"training on 2 hosts, {mib} MiB a rank, {sizes.steps} steps of 0.1 s a save")
    program = find_program("tests/lib/bucket_server", options.quick)
    with ranks(folder / "slow", program, 2, "slow", mib, sizes.steps) as job:
        for replicas in (1, 0):  # arenas are made in turns that do not count
            job.take(f"{replicas} light", answers=True)
        for load_, what in (("light", "idle CPU"), ("busy", "busy CPU")):
            took: dict[int, list[float]] = {1: [], 0: []}
            within = []
            for round_ in range(sizes.rounds):
                for replicas in (1, 0) if round_ % 2 else (0, 1):
                    found = job.take(f"{replicas} {load_}")
                    took[replicas].append(max(said["took"] for said in found))
                    within += [said["replicated_s"] for said in found] if replicas else []
            lost_s = median(a - b for a, b in zip(took[1], took[0], strict=True))
            speed = ratio_of(took[0], took[1])
            when = f"replicated after {max(within):.1f} s" if all(within) else "not replicated yet"
            beside = f"{when}; {lost_s * 1e3:.0f} ms lost a save"
            what = f"steps/s, to those without replicas: {what}"
            if load_ == "light":
                report.at_least(f"steps_{load_}", what, speed, 0.97, "x", beside)
            else:
                report.note(f"steps_{load_}", what, speed, "x", beside)


# ---- loss ----


def measure_loss(report: Report, options: Any, sizes: Sizes, folder: Path) -> None:
    mib = options.mib or sizes.mib or choose_mib(2, COPIES_TRAINING)
    found: dict[str, list[tuple[float, float]]] = {"replicated": [], "durable": []}
    for round_ in range(sizes.losses):
        for level in found if round_ % 2 else reversed(found):
            found[level].append(lose_host(folder / f"{level}{round_}", mib, level))
    report.title(f"one of 2 hosts is lost, {mib} MiB a rank, until its successor's first step")
    own, store = ([total for _, total in found[level]] for level in ("replicated", "durable"))
    known = median(noticed for noticed, _ in found["replicated"])
    beside = f"known after {known:.1f} s; slowest {max(own):.1f} s"
    what = "from replicas, the bucket does not answer"
    report.at_most("lost_s", what, median(own), RESTORE_GOAL_S, "s", beside)
    report.note("lost_store_s", "no replicas, from the bucket, which answers", median(store), "s")
    report.note("lost_to_store", "  to that", ratio_of(own, store), "x")


# ---- parity ----


def measure_parity(report: Report, options: Any, sizes: Sizes, folder: Path) -> None:
    program = find_program("bench/parity_bench", options.quick)
    done = subprocess.run([program, str(sizes.divisor)], check=True, capture_output=True, text=True)
    report.title("parity of one row, by one core")
    for line in done.stdout.splitlines():
        where, parity, crc = line.split()
        what = {"cache": "blocks in the cache", "memory": "blocks from memory"}[where]
        report.note(f"parity_{where}", f"{what}: added to the sum", float(parity), "GiB/s")
        beside = f"CRC-32C: {float(crc):.1f} GiB/s"
        share = float(parity) / float(crc)
        report.at_least(f"parity_{where}_to_crc", "  to CRC-32C's rate", share, 0.5, "x", beside)


def parse_options() -> argparse.Namespace:
    parser: Any = make_parser(__doc__, "small, once", "disk of the bucket", "/var/tmp")
    parser.add_argument("--hosts", type=int, help="hosts that the rate is measured with; 4")
    parser.add_argument("--mib", type=int, default=0, help="state of a rank")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="parts of it")
    options = parser.parse_args()
    options.hosts = options.hosts or (2 if options.quick else 4)
    if options.hosts < 2:
        parser.error("--hosts: 2 or more")
    return options


def main() -> int:
    options = parse_options()
    sizes = QUICK if options.quick else FULL
    setting = describe_machine()
    if options.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("replicate", sizes.rounds, setting)
    measures = (measure_rate, measure_training, measure_loss, measure_parity)
    with scratch(options.dir) as folder:
        for part, measure in zip(PARTS, measures, strict=True):
            why = why_not(part == "loss") if part != "parity" else ""
            if part not in options.only:
                continue
            if why:
                report.title(f"{part}: not measured: {why}")
            else:
                measure(report, options, sizes, folder)
    report.finish(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
