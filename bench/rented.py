#!/usr/bin/env python3
"""Rented nodes, in `pawl sim`: spot nodes beside on-demand ones, as many nodes as
jobs can use, and nodes of two types.

Workloads and profiles are those that were published with Pollux (docs/sim.md gives their source):
PAWL_PROFILES names a copy. Without one there is nothing to measure.

--quick: two workloads.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from shared._process import build
from shared._report import Report, describe_machine, make_parser
from shared._simulate import PROGRAM, Workloads, find_profiles, mean, simulate

FIRM = "firm,boot=60"
LIVES_H = (8, 4, 2)  # mean lives of spot nodes in hours; the goals are for the first
# Values of --good-use; the first is the usual one, and the goals are for it.
USES = ("0.5", "0.4", "0.3", "0.2")
HEADER = "name,time,application,num_replicas,batch_size"


def say_rented(report: Report, workloads: Workloads) -> None:
    """Bounds, boot times and the nodes' life are the same with and without spot nodes."""
    report.title("Spot nodes at 0.30 of the price, beside on-demand ones alone (up to 16 nodes)")
    firm = workloads.run("pawl", "workloads", "--pool", FIRM)
    for hours in LIVES_H:
        spot = f"spot,spot,price=0.3,boot=60,notice=120,gap=600,life={hours * 3600}"
        both = workloads.run("pawl", "workloads", "--pool", FIRM, "--pool", spot)
        cost = mean(both, "cost") / mean(firm, "cost")
        longer = mean(both, "avg_jct_s") / mean(firm, "avg_jct_s")
        what = f"taken away after {hours} h on average: cost"
        beside = f"{mean(both, 'reclaims'):.0f} taken away a workload, "
        beside += f"{100 * mean(both, 'spot_share'):.0f} % of hours on spot"
        after = f"{mean(both, 'avg_jct_s'):.0f} s, {mean(firm, 'avg_jct_s'):.0f} s"
        if hours == LIVES_H[0]:
            report.at_most("spot_cost", what, cost, 0.36, "x", beside)
            report.at_most("spot_average", "  average completion", longer, 1.10, "x", after)
        else:
            report.note(f"spot_cost_{hours}", what, cost, "x", beside)
            report.note(f"spot_average_{hours}", "  average completion", longer, "x", after)


def say_scaled(report: Report, profiles: Path) -> None:
    """Rows: one job of ImageNet alone, for each degree to which a replica must be used."""
    report.title("An ImageNet job, nodes rented as it makes use of them, beside 16 all the time")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "imagenet.csv"
        path.write_text(f"{HEADER}\nimagenet-0,0,imagenet,64,12800\n")
        known = ("--profiles", profiles, "--policy", "pawl", path, "--pool")
        (all_nodes,) = simulate(*known, "firm,least=16,boot=60")
        for use in USES:
            (row,) = simulate(*known, f"{FIRM},least=1", "--good-use", use)
            cheaper = (1 - row["cost"] / all_nodes["cost"]) * 100
            longer = (row["makespan_s"] / all_nodes["makespan_s"] - 1) * 100
            beside = f"{row['cost']:.0f} node hours, {all_nodes['cost']:.0f}"
            after = f"{row['makespan_s']:.0f} s, {all_nodes['makespan_s']:.0f} s"
            what = f"--good-use {use}: cheaper by"
            if use == USES[0]:
                report.at_least("scaled_cheaper", what, cheaper, 25, "%", beside)
                report.at_most("scaled_longer", "  and longer by", longer, 6, "%", after)
            else:
                report.note(f"scaled_cheaper_{use}", what, cheaper, "%", beside)
                report.note(f"scaled_longer_{use}", "  and longer by", longer, "%", after)


def say_types(report: Report, workloads: Workloads) -> None:
    """Rows without goals: there are no published profiles of other devices."""
    report.title("Nodes of two types in one optimum: 8 as measured, 8 twice as fast")
    firm = ("--pool", "slow,least=8,most=8", "--pool")
    rows = {
        speed: workloads.run("pawl", "workloads", *firm, f"fast,least=8,most=8,speed={speed}")
        for speed in ("1", "2")
    }
    ratio = mean(rows["2"], "avg_jct_s") / mean(rows["1"], "avg_jct_s")
    report.note("types", "average completion, to 16 as measured", ratio, "x")


def main() -> None:
    options = make_parser(__doc__, "two workloads").parse_args()
    build(PROGRAM)
    profiles = find_profiles()
    report = Report("rented", 1, describe_machine())
    if profiles is None:
        report.title("skipped: it needs published workloads: PAWL_PROFILES names none")
    else:
        workloads = Workloads(profiles, (1, 2) if options.quick else (1, 2, 3, 4, 5, 6))
        say_rented(report, workloads)
        say_scaled(report, profiles)
        say_types(report, workloads)
    report.finish(options.json)


if __name__ == "__main__":
    main()
