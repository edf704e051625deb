#!/usr/bin/env python3
"""Pipelines: a step of ours beside one of torch.distributed.pipelining and beside the bound.

Both run in the same processes, on the same group, and take turns. Stages that only sleep show what
is lost between stages. A GPT-2 over two stages shows what a cut by measured costs gains over one by
hand, the bytes that are sent, and the activations that are kept. What the loss keeps is not among
these: the first rank's graph refers to it, and it is a value at another rank. U-Nets of MONAI show
how evenly models are cut, beside SMP's heuristic. --quick shows only that it works: its numbers
mean nothing.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from programs._pipelined import MICROBATCHES, TINY_UNITS, TOKENS
from shared._process import salvage
from shared._report import Report, describe_machine, make_parser, ratio_of

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 600
STAGES = 4
NEAR = {"1f1b": 1.05, "simple": 1.05}  # a step is at most so much of its bound
NEAR |= dict.fromkeys(("interleaved", "zero-bubble", "zbv"), 1.07)
RACED_FROM = 8  # microbatches from which on ours must not be slower than torch's
TIMER_S = 1e-4  # a step may seem to be faster than its bound by this much
Found = dict[str, Any]
median = statistics.median


def run(program: str, ranks: int, *args: int) -> tuple[Found, str]:
    """What a program's first rank printed, and why some rank did not end well."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        return salvage(PROGRAMS / program, *args, ranks=ranks, folder=Path(folder), limit_s=LIMIT_S)


def say_race(report: Report, key: str, what: str, times: Found, goal: bool) -> None:
    """A row: a step of ours to one of torch's."""
    ours, torch = times["ours"], times["torch"]
    beside = f"{median(ours) * 1e3:.0f} and {median(torch) * 1e3:.0f} ms"
    beside += f"; of the fastest {min(ours) / min(torch):.3f}"
    if goal:
        report.at_most(key, what, ratio_of(ours, torch), 1.0, "x", beside)
    else:
        report.note(key, what, ratio_of(ours, torch), "x", beside)


def say_naps(report: Report, found: Found) -> None:
    least = []
    for microbatches, schedules in found.items():
        report.title(
            f"{STAGES} stages that sleep 20 ms forward, 40 backward; {microbatches} microbatches"
        )
        for name, times in schedules.items():
            ours, bound_s = times["ours"], times["bound_s"]
            key = f"{name}_{microbatches}"
            goal = NEAR[name]
            what = f"{name} to its bound of {bound_s * 1e3:.0f} ms"
            fastest = f"fastest {min(ours) / bound_s:.3f}"
            report.at_most(f"{key}_bound", what, median(ours) / bound_s, goal, "x", fastest)
            predicted_s = times["predicted_s"]
            beside = f"{predicted_s * 1e3:.0f} ms"
            ratio = median(ours) / predicted_s
            report.at_most(f"{key}_plan", "  to what its plan predicts", ratio, goal, "x", beside)
            least += [(t + TIMER_S) / bound_s for t in (*ours, *times.get("torch", ()))]
            if "torch" in times:
                race = int(microbatches) >= RACED_FROM
                say_race(report, f"{key}_torch", "  to torch's", times, race)
    report.at_least("least", "the fastest of all steps, of both, to its bound", min(least), 1, "x")


def say_calls(report: Report, found: Found) -> None:
    report.title(f"{TINY_UNITS} tiny units at the other rank, {MICROBATCHES} microbatches")
    beside = f"{found['calls']:.0f} calls a step; its own {found['own_calls']:.0f} took "
    beside += f"{found['own_s'] * 1e6 / found['own_calls']:.0f} us each"
    what = "CPU of the first rank for a remote call, less its own"
    report.at_most("call_us", what, found["cpu_s"] * 1e6, 60, "us", beside)
    beside = f"the pass alone, in one process: {found['plain_s'] * 1e6:.1f} us a unit"
    what = "CPU of the rank that carries it out, in all"
    report.note("carry_out_us", what, found["other_s"] * 1e6, "us", beside)
    step_us = found["step_s"] * 1e6 / found["calls"]
    report.note("step_us", "the fastest step, by its calls", step_us, "us")


def say_gpt2(report: Report, found: Found, rows: int) -> None:
    ours, hand = found["plan"], found["hand"]
    batch = f"batch {MICROBATCHES * rows} of {TOKENS} tokens"
    report.title(f"GPT-2 of 8 layers over 2 stages, {batch}, {MICROBATCHES} microbatches")
    auto = found["auto"]
    chosen = f"ours, with a schedule of its choice ({auto['schedule']})"
    for key, what, times, goal in (
        ("gpt2", "ours, cut by its plan, to torch's 1F1B cut by hand", ours, True),
        ("gpt2_auto", chosen, auto, True),
        ("gpt2_hand", "ours, cut by the same hand", hand, False),
    ):
        say_race(report, key, what, times, goal)
        cuts = sum(a != b for a, b in pairwise(times["stages"].values()))
        ratio = median(times["ours"]) / times["predicted_s"]
        beside = f"{times['predicted_s'] * 1e3:.0f} ms; {len(times['stages'])} units"
        report.note(f"{key}_plan", "  to what its plan predicts", ratio, "x", beside)
        sent = times["sent_bytes"] / (cuts * times["edge_bytes"])
        beside = f"{times['sent_bytes'] / 1e6:.2f} MB over {cuts} cut(s)"
        beside += f", {times['frames_bytes'] / 1e6:.2f} MB of calls"
        what = "  values sent, to one activation and gradient a cut"
        if goal:  # a cut in the middle of a block has more than one value
            report.note(f"{key}_bytes", what, sent, "x", beside)
        else:
            report.at_most(f"{key}_bytes", what, sent, 1.02, "x", beside)
    for stage, most in enumerate(hand["live_bytes"]):
        what = f"  stage {stage}: activations kept at most, to the plan"
        ratio = most / hand["live_planned"][stage]
        report.at_most(f"live_{stage}", what, ratio, 1.02, "x", f"{most / 1e6:.1f} MB")
    say_profile(report, found["profile"])


def say_profile(report: Report, found: Found) -> None:
    report.title("the first step's profile of this GPT-2: CPU, to a pass without a pipeline")
    whole_s = found["whole_s"]
    beside = f"{whole_s * 1e3:.0f} ms for a microbatch"
    ratio = found["measure_s"] / whole_s
    report.at_most("measure", "a pass in which units are measured", ratio, 1.3, "x", beside)
    what = "  with backward passes in two parts as well, as auto does"
    report.note("measure_halves", what, found["halves_s"] / whole_s, "x")
    ratio = found["survey_s"] / whole_s
    report.note("survey", "a pass that surveys all modules", ratio, "x")
    ratio = found["first_step_s"] / whole_s
    beside = f"{found['first_step_passes']} passes"
    report.note("first_step", "all passes of the first step", ratio, "x", beside)
    sum_s = found["units_s"] + found["outside_s"]
    beside = f"{sum_s / whole_s:.3f}; units alone {found['units_s'] / whole_s:.3f}"
    gap = abs(sum_s / whole_s - 1)
    report.at_most(
        "sum_gap", "sum of units and the rest, over the whole, less 1", gap, 0.1, "", beside
    )


def say_unets(report: Report, found: Found) -> None:
    report.title(f"{len(found)} U-Nets of MONAI over {STAGES} stages: the largest stage, by time")
    for key, what in (("smp", "SMP's heuristic"), ("equal", "equal numbers of leaf modules")):
        ratios = [one[f"{key}_s"] / one["ours_s"] for one in found.values()]
        beside = f"{min(ratios):.2f} to {max(ratios):.2f}"
        report.at_least(
            f"unets_{key}", f"{what}, to ours: median", median(ratios), 1.2, "x", beside
        )
    ratios = [one["ours_s"] / one["mean_s"] for one in found.values()]
    beside = f"{min(ratios):.2f} to {max(ratios):.2f}; single modules are larger than even stages"
    report.note("unets_even", "ours, to even stages: median", median(ratios), "x", beside)


def say_gradients(report: Report, found: Found) -> None:
    report.title("gradients of a tied GPT-2 in float64: largest error relative to one process")
    for tied, what in (("replicate", "on both stages"), ("visit", "on one stage, visited twice")):
        error = found[tied]
        report.at_most(
            f"error_{tied}", f"ours, shared weights {what}", error, 1e-10, "", f"{error:.1e}"
        )
    beside = f"{found['torch_at']}: each stage trains a copy of its own"
    what = "control: torch's pipeline(), which must be wrong"
    report.at_least("error_torch", what, found["torch"], 0.1, "", beside)


def main() -> None:
    options = make_parser(__doc__, "few steps: shows that it works").parse_args()
    rounds, rows, steps = (1, 1, 5) if options.quick else (7, 2, 30)
    each = (4,) if options.quick else (3, 4, 7, 8, 16)
    report = Report("pipeline", rounds, describe_machine())
    naps, why = run("_naps.py", STAGES, rounds, *each)
    if why:
        report.title(f"naps not measured: {why}")
    else:
        say_naps(report, naps)
    found, why = run("_pipelined.py", 2, rounds, rows, steps)
    if "calls" in found:
        say_calls(report, found["calls"])
    if "gpt2" in found:
        say_gpt2(report, found["gpt2"], rows)
    if "gradients" in found:
        say_gradients(report, found["gradients"])
    if why or "without" in found:
        report.title(f"GPT-2 not measured: {why or found['without']['why']}")
    found, why = run("_unets.py", 1, STAGES)
    if why:
        report.title(f"U-Nets not measured: {why}")
    else:
        say_unets(report, found)
    report.finish(options.json)


if __name__ == "__main__":
    main()
