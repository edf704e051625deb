#!/usr/bin/env python3
"""How much saving costs a GPT-2-shaped training: stalls, seconds to durable, and a run's wall time.

Each way (torch.save with fsync, torch.distributed.checkpoint's async_save, Pawl) runs in processes
of its own, in turns, the order alternated. Sizes: model and AdamW state of 0.5, 1.5 and 6 GB, the
first save of a process and later ones apart; a save's cost to training is all that its steps take
longer than usual until the save is durable. 20.6 GB, of which no copy fits into memory: Pawl
streams it, as torch.save does; left out where memory or disk is too small. Runs: 20 steps with four
checkpoints, on 1, 2 and 4 ranks, against the same run without any. --quick shows only that it
works: its numbers mean nothing.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared._agent import end_agent, scratch
from shared._bound import raw_write
from shared._process import run_script
from shared._report import Report, describe_machine, make_parser

SCRIPT = Path(__file__).parent / "programs/_headline.py"
PARTS = ("sizes", "streamed", "run")
WAYS = ("torch", "dcp", "pawl")
TITLES = {"torch": "torch.save", "dcp": "DCP async_save", "pawl": "pawl"}
SPARE_BYTES = 1_200_000_000  # memory, and space on the disk, that must remain free
PROCESS_S_MAX = 1200.0  # longest run of one process; a longer one is a hang


@dataclass(frozen=True)
class Sizes:
    shapes: dict[str, tuple[int, int]]  # GB -> blocks and width, as in GPT-2
    rounds: int  # processes of each way
    saves: int  # saves in each process, the first included
    streamed: tuple[int, int]  # blocks and width
    run: tuple[int, int, int]  # blocks, width and steps of a run
    worlds: tuple[int, ...]  # ranks of runs
    runs: int  # runs of each way


FULL = Sizes(
    {"0.5": (6, 768), "1.5": (18, 768), "6": (25, 1280)},
    rounds=2,
    saves=4,
    streamed=(56, 1600),
    run=(2, 768, 20),
    worlds=(1, 2, 4),
    runs=5,
)
QUICK = Sizes(
    {"0.01": (1, 256)},
    rounds=1,
    saves=2,
    streamed=(1, 256),
    run=(1, 64, 10),
    worlds=(1, 2),
    runs=1,
)


def run_way(folder: Path, what: str, way: str, numbers: tuple[int, ...], ranks: int = 0) -> Any:
    """Runs one way in a process, or as so many ranks; returns the measurements."""
    folder.mkdir()
    arguments = (what, way, folder, *numbers)
    job = f"headline-{folder.name}"
    found = run_script(SCRIPT, *arguments, ranks=ranks, limit_s=PROCESS_S_MAX, PAWL_JOB_ID=job)
    end_agent(folder / "root")
    shutil.rmtree(folder)
    return found


def measure_size(report: Report, sizes: Sizes, folder: Path, gb: str) -> None:
    found: dict[str, list[Any]] = {way: [] for way in WAYS}
    raw: list[float] = []
    for round_ in range(sizes.rounds):
        for way in WAYS[:: -1 if round_ % 2 else 1]:
            numbers = (*sizes.shapes[gb], sizes.saves)
            result = run_way(folder / f"{way}{gb}-{round_}", "sizes", way, numbers)
            found[way].append(result)
            if not raw:
                raw.append(raw_write(folder / "raw", result["bytes"]))
                (folder / "raw").unlink()
    size_bytes = found["pawl"][0]["bytes"]
    report.title(f"{size_bytes / 1e9:.2f} GB, GPT-2-shaped with AdamW")
    report.bound(f"raw_{gb}_s", "raw write of as many bytes, O_DIRECT and fsync", raw[0], "s")
    for key, what in (("seen", "training sees"), ("durable", "until durable")):
        first: dict[str, float] = {}
        later: dict[str, float] = {}
        for way, results in found.items():
            first[way] = statistics.median(result[key][0] for result in results)
            later[way] = statistics.median(s for result in results for s in result[key][1:])
            report.note(
                f"{key}_{gb}_{way}_first_s", f"{what}: {TITLES[way]}, first", first[way], "s"
            )
            report.note(f"{key}_{gb}_{way}_s", f"{what}: {TITLES[way]}, later", later[way], "s")
        for way in WAYS[:-1]:
            for name, took in (("first", first), ("later", later)):
                ratio = max(0.0, took["pawl"]) / took[way]
                label = f"{what}, {name}: pawl to {TITLES[way]}"
                report.note(f"{key}_{gb}_{name}_to_{way}", label, ratio, "x")


def fits(size_bytes: int, folder: Path) -> bool:
    """Whether memory has room for a state, and the disk for two of its checkpoints."""
    available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert available
    memory, disk = int(available[1]) << 10, shutil.disk_usage(folder).free
    return memory > size_bytes + SPARE_BYTES and disk > 2 * size_bytes + SPARE_BYTES


def measure_streamed(report: Report, sizes: Sizes, folder: Path) -> None:
    blocks, width = sizes.streamed
    size_bytes = 12 * 12 * blocks * width**2  # matrices in 32 bits, and AdamW's two moments
    title = f"{size_bytes / 1e9:.3g} GB, without a copy in memory"
    if not fits(size_bytes, folder):
        report.title(f"{title}: left out, memory or disk is too small here")
        return
    report.title(f"{title}: until durable")
    took = {}
    for way in ("torch", "pawl"):
        numbers = (*sizes.streamed, sizes.saves)
        result = run_way(folder / f"{way}-streamed", "streamed", way, numbers)
        took[way] = statistics.median(result["durable"])
        if way == "torch":
            raw = raw_write(folder / "raw", result["bytes"])
            (folder / "raw").unlink()
            report.bound("raw_streamed_s", "raw write of as many bytes", raw, "s")
        report.note(f"streamed_{way}_s", f"{TITLES[way]}, median of {sizes.saves}", took[way], "s")
    report.note("streamed_to_torch", "pawl to torch.save", took["pawl"] / took["torch"], "x")
    report.note("streamed_to_raw", "raw write to pawl", raw / took["pawl"], "x")


def measure_runs(report: Report, sizes: Sizes, folder: Path) -> None:
    ways = ("none", *WAYS)
    for world in sizes.worlds:
        found: dict[str, list[Any]] = {way: [] for way in ways}
        for number in range(sizes.runs):
            for way in ways[:: -1 if number % 2 else 1]:
                path = folder / f"run{world}-{way}-{number}"
                found[way].append(run_way(path, "run", way, sizes.run, world))
        mb = found["pawl"][0]["bytes"] / 1e6
        ranks = "rank" if world == 1 else "ranks"
        report.title(f"{sizes.run[2]} steps with 4 checkpoints of {mb:.0f} MB, {world} {ranks}")
        plain = statistics.median(result["trained"][0] for result in found["none"])
        report.note(f"run{world}_none_s", "without any", plain, "s")
        for way in WAYS:
            trained = statistics.median(result["trained"][0] for result in found[way])
            durable = statistics.median(result["all_durable"][0] for result in found[way])
            report.note(f"run{world}_{way}_s", f"{TITLES[way]}: to the last step", trained, "s")
            report.note(f"run{world}_{way}_durable_s", "until all are durable", durable, "s")
            label = "to the last step, to none"
            report.note(f"run{world}_{way}_to_none", label, trained / plain, "x")


def main() -> int:
    parser = make_parser(
        __doc__, "a small model, one round", "on the disk to be measured", "/var/tmp"
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument(
        "--gb", choices=FULL.shapes, action="append", help="of the sizes only these"
    )
    args = parser.parse_args()
    sizes = QUICK if args.quick else FULL
    setting = describe_machine()
    if args.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("headline", sizes.rounds * (sizes.saves - 1), setting)
    only = args.only or PARTS
    with scratch(args.dir) as folder:
        if "sizes" in only:
            for gb in sizes.shapes if args.quick else args.gb or sizes.shapes:
                measure_size(report, sizes, folder, gb)
        if "streamed" in only and not args.gb:
            measure_streamed(report, sizes, folder)
        if "run" in only:
            measure_runs(report, sizes, folder)
    report.finish(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
