#!/usr/bin/env python3
"""DDP over a slow network: how much of reducing hides behind computing, ours beside Gloo.

Two hosts, network namespaces with links of 200 Mbit/s, a rank on each, a core for a rank. The
backward pass takes as long as reducing does. DDP begins with a bucket when the backward pass has
filled it, so what is left of the last one comes behind: with its buckets of 25 MB nearly all of a
model of 21 MB. Hence a second row, with buckets of 1 MB for both. --quick shows only that it works:
its numbers mean nothing.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from programs._overlap import CAPS_MB
from shared._hosts import NoHosts, make_hosts
from shared._report import Report, describe_machine, make_parser, ratio_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
LIMIT_S = 300
RATE = "200mbit"
RANKS = 2
Found = dict[str, dict[str, list[float]]]  # backend -> quantity -> one value a run


def collect(folder: Path, runs: int, steps: int) -> tuple[Found, float]:
    """All measurements, and the goodput in bytes a second."""
    found: Found = {who: {} for who in ("pawl", "gloo")}
    with make_hosts(RANKS, RATE, folder) as hosts:
        goodput = hosts.measure_goodput()
        for run in range(runs):
            order = ["pawl,gloo", "gloo,pawl"][run % 2]
            said = hosts.run_torch(
                list(range(RANKS)), PROGRAMS / "_overlap.py", order, steps, limit_s=LIMIT_S
            )
            for who, kinds in found.items():
                for what, value in said[who].items():
                    kinds.setdefault(what, []).append(value)
    return found, goodput


def ideal_s(run: dict[str, float]) -> float:
    """Ideal seconds of a step.

    The forward pass, then the backward pass with the CPU time that reducing takes from its core; or
    reducing, if that is longer.
    """
    backward = run["compute"] - run["forward"]
    return run["forward"] + max(backward + run["cpu"] / RANKS, run["reduce"])


def each_run(kinds: dict[str, list[float]]) -> list[dict[str, float]]:
    return [dict(zip(kinds, values, strict=True)) for values in zip(*kinds.values(), strict=True)]


def say_steps(report: Report, found: Found, cap: int) -> None:
    """Rows of steps with DDP's buckets of cap MB. Only the smaller buckets have goals."""
    step = f"step_{cap}"
    shares = {}
    for who, kinds in found.items():
        shares[who] = statistics.median(ideal_s(run) / run[step] for run in each_run(kinds))
        ms = {what: statistics.median(values) * 1e3 for what, values in kinds.items()}
        beside = ", ".join(f"{what} {ms[what]:.0f}" for what in ("forward", "compute", "reduce"))
        beside += f", CPU {ms['cpu'] / RANKS:.0f} ms a rank"
        what = f"a step, bucket_cap_mb={cap}: {who}"
        report.note(f"{who}_{step}_ms", what, ms[step], "ms", beside)
    times = ratio_of(found["gloo"][step], found["pawl"][step])
    share, gloo = "  of what computing and its CPU allow", f"Gloo {shares['gloo']:.3f}"
    if cap == min(CAPS_MB):
        report.at_least("overlap", share, shares["pawl"], 0.9, "x", gloo)
        report.at_least("step_to_gloo", "  Gloo's step to ours", times, 1.0, "x")
    else:
        report.note(f"overlap_{cap}", share, shares["pawl"], "x", gloo)
        report.note(f"{step}_to_gloo", "  Gloo's step to ours", times, "x")


def main() -> None:
    options = make_parser(
        __doc__, "one run: shows that it works", "for small files (a temporary one)"
    ).parse_args()
    runs, steps = (1, 2) if options.quick else (7, 3)
    report = Report("ddp", runs, describe_machine())
    try:
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            found, goodput = collect(Path(folder), runs, steps)
    except NoHosts as reason:
        report.title(f"not measured: {reason}")
        report.finish(options.json)
        return
    report.title("2 hosts of 1 rank, links of 200 Mbit/s, 21 MB of gradients")
    report.bound("goodput", "iperf3's goodput", goodput * 8 / 1e6, "Mbit/s")
    for cap in CAPS_MB:
        say_steps(report, found, cap)
    slower = statistics.median(found["pawl"]["beside"])
    theirs = statistics.median(found["gloo"]["beside"])
    report.at_most(
        "slow_down", "  computing while others reduce, to alone", slower, 1.05, "x",
        f"Gloo {theirs:.3f}",
    )  # fmt: skip
    report.finish(options.json)


if __name__ == "__main__":
    main()
