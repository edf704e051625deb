#!/usr/bin/env python3
"""A training on a GPU: how much saves cost it, how fast restores are, and
all-reduces of its memory.

Saves: a GPT in bfloat16 with AdamW, 1.5 and 4.2 GB of state. A save's cost is the time that it and
the next 5 steps take beyond 5 steps without a save, from an idle device to an idle one; "in all":
until the save is over, while steps go on. Goals are relative to the time that the state takes over
the link, by one large copy into page-locked memory. A figure of Pawl's stands only if the durable
file is bit by bit the state as of the call of save().

All-reduces: 2 and 4 ranks share the one GPU, which NCCL refuses: Pawl's and Gloo's go through host
memory. Bound: the bytes that all ranks have to move over the link, one after the other.

Each part runs in processes of its own; one that fails is named, and the others go on. It needs a
CUDA device. --device cpu --quick shows only that it works: its numbers mean nothing.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from shared._agent import end_agent, scratch
from shared._process import salvage
from shared._report import Report, describe_machine, make_parser, ratio_of

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
OVER_LINK = 1.2  # goal: cost of a save, relative to the time of the link
STRETCH_S = 0.020
PATIENCE = 3  # factor of the time limits with --patient
PATIENT = ("--rare=5", "--cold=5", "--seconds=600", "--restore-seconds=600")
# Free memory needed, in sizes of the state: files that peers write to memory, and slack.
RAM_SHARE = 3.5
PARTS = ("saves", "ranks")
SHAPES_GB = ("1.5", "4", "9")
GB = SHAPES_GB[:2]  # sizes measured by default
PAWLS = ("overlap", "now")
ANEW = ("torch", "torch_ram", "dcp")  # ways whose first save is like any other
TITLES = {
    "overlap": 'Pawl, copy="overlap"',
    "now": 'Pawl, copy="now"',
    "cpu": ".cpu() of every tensor",
    "torch_ram": "torch.save into memory",
    "torch": "torch.save to the disk, fsync",
    "dcp": "DCP async_save",
    "dcp_pinned": "DCP async_save, pinned, waits at the update",
}
RESTORES = {
    "memory": "Pawl, from memory",
    "torch_ram": "torch.load, from a file in memory",
    "disk": "Pawl, from the disk, cold",
    "torch": "torch.load, from the disk, cold",
}
Part = Callable[[Report, Any, Path], None]  # called with the report, the options and a folder
Save = dict[str, float]  # "lost", "lost_in_all", "call", and levels: seconds


@dataclass(frozen=True)
class Size:
    shape: str
    options: tuple[str, ...]  # command-line options of _cuda_save.py
    limit_s: float  # longest run; a longer one is a hang
    size_bytes: int  # approximate size of the state


@dataclass(frozen=True)
class Sizes:
    saves: tuple[Size, ...]
    worlds: tuple[int, ...]
    reduces: tuple[int, ...]  # bytes
    runs: int
    ddp: str  # shape of the model
    ranks_limit_s: float


FULL = Sizes(
    saves=(
        Size(
            "1.5",
            ("--durable", "--rare=3", "--seconds=40", "--cold=3", "--restore-seconds=10"),
            limit_s=150,
            size_bytes=1_500_000_000,
        ),
        Size(
            "4",
            ("--steps=3", "--rare=1", "--seconds=40", "--cold=1", "--restore-seconds=15"),
            limit_s=150,
            size_bytes=4_300_000_000,
        ),
        Size(
            "9",
            ("--steps=3", "--rare=1", "--seconds=60", "--cold=1", "--restore-seconds=25"),
            limit_s=240,
            size_bytes=9_300_000_000,
        ),
    ),
    worlds=(2, 4),
    reduces=(4 << 10, 1 << 20, 25 << 20, 256 << 20),
    runs=5,
    ddp="1.5",
    ranks_limit_s=90,
)
QUICK = Sizes(
    saves=(Size("tiny", ("--durable", "--steps=2", "--rounds=2"), 120, 2_000_000),),
    worlds=(2,),
    reduces=(4 << 10, 1 << 20),
    runs=1,
    ddp="tiny",
    ranks_limit_s=120,
)


def median(values: list[float]) -> float:
    return statistics.median(values)


# ---- saves and restores ----


def run_saves(
    size: Size, device: str, folder: Path, ram: str, patient: bool
) -> tuple[dict[str, Any], str]:
    """Runs _cuda_save.py: its results, and the process's error, if any. All its
    files are deleted.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder) as name,
        tempfile.TemporaryDirectory(prefix="pawl-bench-", dir=ram) as memory,
    ):
        options = [*size.options, *(PATIENT if patient else ())]
        if free_bytes(ram) > RAM_SHARE * size.size_bytes:
            options.append(f"--ram={memory}")
        here = Path(name)
        arguments = (here, size.shape, device, *options)
        try:
            limit_s = size.limit_s * (PATIENCE if patient else 1)
            return salvage(
                PROGRAMS / "_cuda_save.py", *arguments, ranks=1, folder=here, limit_s=limit_s
            )
        finally:
            for lock in here.rglob(".pawl-lock"):
                end_agent(lock.parent)


def free_bytes(folder: str) -> int:
    return shutil.disk_usage(folder).free


def say_failures(report: Report, failed: dict[str, str], why: str) -> None:
    for what, reason in failed.items():
        report.title(f"  {what}: FAILED: {reason}")
    if why:
        report.title(f"  the process {why}: what stands here is what it had found")


def say_saves(report: Report, size: Size, found: dict[str, Any]) -> None:
    gb, key = found["size_bytes"] / 1e9, size.shape
    down, up = median(found["link"]["down"]), median(found["link"]["up"])
    link_s = found["size_bytes"] / down
    where = "Pawl's and DCP's into memory" if found["into_memory"] else "all to the disk"
    report.title(f"{gb:.2f} GB, a step {1e3 * median(found['quiet']):.0f} ms: saves, {where}")
    report.bound(f"down_{key}_gb_s", "to the host, page-locked, one copy", down / 1e9, "GB/s")
    report.bound(f"up_{key}_gb_s", "to the device, likewise", up / 1e9, "GB/s")
    report.bound(f"link_{key}_ms", "the state over the link", 1e3 * link_s, "ms")
    for name, title in TITLES.items():
        first, *later = found["saves"].get(name) or [None]
        if first is not None:
            proof = found["proofs"].get(name, "NOT CHECKED") if name in PAWLS else ""
            counted = [first, *later] if name in ANEW or not later else later
            say_way(report, f"{key}_{name}", title, first, counted, proof)
    saves = found["saves"].get("overlap", [])[1:]
    if saves:
        lost = 1e3 * median([one["lost"] for one in saves])
        goal, stretch = 1e3 * OVER_LINK * link_s, 1e3 * STRETCH_S
        report.at_most(f"goal_{key}_ms", "goal: Pawl's loss, overlapped", lost, goal, "ms")
        report.at_most(f"stretch_{key}_ms", "  stretch", lost, stretch, "ms")
        say_peers(report, key, found, lost / 1e3)


def say_way(
    report: Report, key: str, title: str, first: Save, saves: list[Save], proof: str
) -> None:
    def ms(what: str) -> float:
        return 1e3 * median([one[what] for one in saves if what in one])

    levels = [level for level in ("committed", "durable") if any(level in one for one in saves)]
    beside = f"in all {ms('lost_in_all'):.0f}, call {ms('call'):.1f}"
    for level in levels:
        beside += f", {level} {ms(level):.0f}"
    beside += f"; first {1e3 * first['lost']:.0f}; {len(saves)} saves"
    beside += f"; {proof}" if proof else ""
    report.note(f"lost_{key}_ms", title, ms("lost"), "ms", beside)
    report.note(f"call_{key}_ms", "  the call alone", ms("call"), "ms")


def say_peers(report: Report, key: str, found: dict[str, Any], lost_s: float) -> None:
    for name in ("cpu", "torch", "dcp", "dcp_pinned"):
        saves = found["saves"].get(name, [])
        counted = saves if name in ANEW else saves[1:]
        theirs = median([one["lost"] for one in counted]) if counted else 0.0
        if theirs > 0:
            what = f"  Pawl's loss, overlapped, to that of {TITLES[name]}"
            report.note(f"to_{name}_{key}", what, max(0.0, lost_s) / theirs, "x")


def say_restores(report: Report, size: Size, found: dict[str, Any]) -> None:
    if not found["restores"]:
        return
    key = size.shape
    link_s = found["size_bytes"] / median(found["link"]["up"])
    report.title(f"{found['size_bytes'] / 1e9:.2f} GB: restores to the device, all in place")
    report.bound(f"up_{key}_ms", "the state over the link", 1e3 * link_s, "ms")
    for name, title in RESTORES.items():
        took = found["restores"].get(name)
        if took:
            beside = f"{found['size_bytes'] / 1e9 / median(took):.2f} GB/s, median of {len(took)}"
            report.note(f"restore_{key}_{name}_s", title, median(took), "s", beside)
    for mine, theirs in (("memory", "torch_ram"), ("disk", "torch")):
        if mine in found["restores"] and theirs in found["restores"]:
            ratio = median(found["restores"][theirs]) / median(found["restores"][mine])
            what = f"  torch.load's time to Pawl's, from {mine}"
            report.note(f"restore_{key}_{mine}_to_torch", what, ratio, "x")


def measure_saves(report: Report, args: Any, folder: Path, size: Size) -> None:
    found, why = run_saves(size, args.device, folder, args.ram, args.patient)
    if found:
        say_saves(report, size, found)
        say_restores(report, size, found)
    else:
        report.title(f"{size.shape} GB: no figures")
    say_failures(report, found.get("failed", {}), why)


# ---- ranks ----


def measure_ranks(report: Report, args: Any, folder: Path, sizes: Sizes, ranks: int) -> None:
    with_ddp = ranks == sizes.worlds[-1]
    arguments = (args.device, sizes.runs, sizes.ddp if with_ddp else "-", *sizes.reduces)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        found, why = salvage(
            PROGRAMS / "_cuda_ranks.py",
            *arguments,
            ranks=ranks,
            folder=Path(name),
            limit_s=sizes.ranks_limit_s,
        )
    report.title(f"{ranks} ranks on one device: all-reduce")
    for size in sizes.reduces if found else ():
        say_reduce(report, ranks, size, found)
    if with_ddp and found.get("ddp", {}).get("none"):
        say_ddp(report, ranks, found["parameters"], found["ddp"])
    say_failures(report, {}, why)


def say_reduce(report: Report, ranks: int, size: int, found: dict[str, Any]) -> None:
    took = {name: times.get(str(size)) for name, times in found["reduce"].items()}
    if not took.get("pawl") or not took.get("gloo"):
        return
    key = f"{size >> 10}k_{ranks}"
    mine, theirs = (1e3 * median(took[name]) for name in ("pawl", "gloo"))
    link = 1e3 * ranks * size * sum(1 / rate for rate in found["link"])
    what = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
    report.note(f"reduce_{key}_ms", what, mine, "ms", f"Gloo {theirs:.3g} ms")
    report.bound(f"reduce_{key}_link_ms", "  over the link", link, "ms")
    times = ratio_of(took["gloo"], took["pawl"])
    report.note(f"reduce_{key}_to_gloo", "  Gloo's time to ours", times, "x")


def say_ddp(report: Report, ranks: int, parameters: int, found: dict[str, list[float]]) -> None:
    gradients = f"{4 * parameters / 1e6:.0f} MB of gradients"
    report.title(f"{ranks} ranks on one device: a step of DDP, {gradients}")
    alone = 1e3 * median(found["none"])
    report.bound(f"ddp_none_{ranks}_ms", "without communication (no_sync)", alone, "ms")
    for name in ("pawl", "gloo"):
        report.note(f"ddp_{name}_{ranks}_ms", name, 1e3 * median(found[name]), "ms")
    times = ratio_of(found["gloo"], found["pawl"])
    report.note(f"ddp_to_gloo_{ranks}", "  Gloo's step to ours", times, "x")


def list_parts(sizes: Sizes, only: Sequence[str], gb: Sequence[str]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for size in sizes.saves if "saves" in only else ():
        if size.shape in gb or size.shape not in SHAPES_GB:
            parts[f"saves {size.shape}"] = lambda r, a, f, s=size: measure_saves(r, a, f, s)
    for ranks in sizes.worlds if "ranks" in only else ():
        parts[f"{ranks} ranks"] = lambda r, a, f, n=ranks: measure_ranks(r, a, f, sizes, n)
    return parts


def main() -> int:
    parser = make_parser(__doc__, "tiny sizes", "on the disk to be measured", "/var/tmp")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ram", default="/dev/shm", help="folder in memory, for peers")
    parser.add_argument("--patient", action="store_true", help="five of all, not just of Pawl's")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--gb", choices=SHAPES_GB, action="append", help="of saves")
    args = parser.parse_args()
    sizes = QUICK if args.quick else FULL
    setting = describe_machine()
    there = args.device == "cpu" or torch.cuda.is_available()
    if args.device == "cuda" and there:
        setting["device"] = torch.cuda.get_device_name()
    if args.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("cuda", sizes.runs, setting)
    if not there:
        report.title("skipped: no CUDA device here")
        report.finish(args.json)
        return 0
    parts = list_parts(sizes, args.only or PARTS, args.gb or GB)
    with scratch(args.dir) as folder:
        for name, part in parts.items():
            try:
                part(report, args, folder)
            except Exception as why:  # the other parts are measured all the same
                report.title(f"{name}: FAILED: {type(why).__name__}: {why}")
    report.finish(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
