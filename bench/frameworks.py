#!/usr/bin/env python3
"""How much saves cost training in the frameworks: each one's own way, its
asynchronous one, and Pawl.

Each way runs in processes of its own, in turns, the order alternated. Trainer and Lightning train
in blocks of 10 steps, every second one with a save in it: the time that a block takes beyond the
one before it is the cost of `save_steps=10`. DeepSpeed, ZeRO-1 with 2 ranks: how long
save_checkpoint takes in the slower rank. Nebula's calls: how long a query takes where a thousand
tags lie. Incremental saves of a state of which half is frozen: bytes that go to the disk; also to
XFS and Btrfs, mounted from files, if run as root. --quick shows only that it works: its numbers
mean nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from shared._agent import bytes_written, scratch
from shared._process import run_script
from shared._report import Report, describe_machine, make_parser

import pawl
from pawl.compat import nebula

HERE = Path(__file__).parent
PARTS = ("trainer", "lightning", "deepspeed", "tags", "incremental")
PROCESS_S_MAX = 900.0  # longest run of one process; a longer one is a hang


@dataclass(frozen=True)
class Sizes:
    rounds: int  # processes of each way
    saves: int  # measured in each process
    trainer: tuple[int, int]  # layers and width of the model
    lightning: tuple[int, int]  # blocks and width
    deepspeed: tuple[int, int]  # blocks and width
    tags: int  # tags in a root whose list is requested
    frozen: int  # bytes of the frozen half of a state


FULL = Sizes(
    3, 5, trainer=(4, 512), lightning=(10, 608), deepspeed=(10, 608), tags=1000, frozen=256 << 20
)
QUICK = Sizes(1, 1, trainer=(1, 64), lightning=(1, 64), deepspeed=(1, 64), tags=20, frozen=8 << 20)
ASKED = 15  # repetitions of each query


class Ways:
    """The processes of a framework's ways to save, and what they measured."""

    def __init__(self, script: str, names: tuple[str, ...], ranks: int = 0) -> None:
        self.names = names
        self._script = HERE / script
        self._ranks = ranks
        self.size_bytes = 0.0
        self._found: dict[str, dict[str, list[float]]] = {name: {} for name in names}

    def run(self, sizes: Sizes, shape: tuple[int, int], folder: Path) -> None:
        for round_ in range(sizes.rounds):
            for name in self.names[:: -1 if round_ % 2 else 1]:
                result = run_script(
                    self._script,
                    *(name, folder, *shape, sizes.saves),
                    ranks=self._ranks,
                    limit_s=PROCESS_S_MAX,
                    DS_ACCELERATOR="cpu",
                )
                self.size_bytes = result.pop("bytes")
                for key, values in result.items():
                    self._found[name].setdefault(key, []).extend(values)

    def extra_s(self, name: str) -> list[float]:
        """For each pair: seconds that the block with a save took beyond the one without."""
        found = self._found[name]
        return [b - a for a, b in zip(found["plain"], found["saved"], strict=True)]

    def stall_s(self, name: str) -> list[float]:
        return self._found[name]["stall"]

    def plain_s(self) -> float:
        """Seconds of a block without a save, whatever the way."""
        return statistics.median(s for found in self._found.values() for s in found["plain"])


def measure_blocks(
    report: Report, key: str, title: str, ways: Ways, goals: dict[str, float]
) -> None:
    """Rows of a framework that trains in blocks. goals: largest ratio of Pawl's
    cost to each other way's.
    """
    *others, ours = ways.names
    mb = ways.size_bytes / 1e6
    report.title(f"{title}, {mb:.0f} MB: seconds that 10 steps with a save take more than without")
    report.note(f"{key}_block_s", "10 steps without a save", ways.plain_s(), "s")
    extra = {name: statistics.median(ways.extra_s(name)) for name in ways.names}
    for name, seconds in extra.items():
        count = len(ways.extra_s(name))
        report.note(f"{key}_{name}_s", f"{name}, median of {count}", seconds, "s")
    for name in others:
        # Where noise makes Pawl's cost negative, it counts as 0.
        ratio = max(0.0, extra[ours]) / extra[name]
        report.at_most(f"{key}_to_{name}", f"ours to {name}", ratio, goals[name], "x")


def measure_deepspeed(report: Report, ways: Ways) -> None:
    theirs, ours = (statistics.median(ways.stall_s(name)) for name in ways.names)
    count = len(ways.stall_s("pawl"))
    mb = ways.size_bytes / 1e6
    report.title(f"DeepSpeed, ZeRO-1, 2 ranks, {mb:.0f} MB: how long save_checkpoint stalls")
    report.note("deepspeed_torch_s", f"its torch.save engine, median of {count}", theirs, "s")
    report.note("deepspeed_pawl_s", f"pawl, median of {count}", ours, "s")
    report.at_least("deepspeed_torch_to_pawl", "its engine's to ours", theirs / ours, 4, "x")


def measure_tags(report: Report, folder: Path, count: int) -> None:
    """Listing count tags of 2 partitions each, and opening one of them that is on disk alone."""
    os.environ["PAWL_KEEP"] = str(count)
    nebula.init(persistent_storage_path=str(folder / "tags"), persistent_time_interval=0)
    for step in range(count):
        building = nebula.Checkpoint(f"global_step{step}", 2)
        building.save("model.pt", {"weight": torch.full((64,), float(step))})
        building.save("optimizer.pt", {"moment": torch.full((64,), float(step))})
        building.commit()
    if not nebula.flush_persistence(timeout=PROCESS_S_MAX):
        sys.exit("frameworks: the tags do not become durable")
    listed = []
    opened = []
    for number in range(ASKED):
        begun = time.perf_counter()
        tags = nebula.list_checkpoints()
        listed.append(time.perf_counter() - begun)
        if len(tags) != count:
            sys.exit(f"frameworks: {len(tags)} tags of {count}")
        step = number * count // ASKED
        begun = time.perf_counter()
        found = nebula.get_checkpoint(f"global_step{step}")
        opened.append(time.perf_counter() - begun)
        if found.load("model.pt")["weight"][0] != step:
            sys.exit(f"frameworks: global_step{step} holds another step")
    report.title(f"{count} tags of 2 partitions, small: Nebula's list_checkpoints, get_checkpoint")
    report.at_most("list_ms", "all tags listed", statistics.median(listed) * 1e3, 50, "ms")
    report.at_most("get_ms", "a tag opened", statistics.median(opened) * 1e3, 5, "ms")


@contextlib.contextmanager
def mounted(kind: str, folder: Path, size_bytes: int) -> Iterator[Path | None]:
    """A disk with that file system, in a file of folder; None where it cannot be mounted."""
    image, disk = folder / f"{kind}.image", folder / kind
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)

    def works(*command: object) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return subprocess.run([*map(str, command)], capture_output=True).returncode == 0
        return False

    ready = works(f"mkfs.{kind}", "-q", image) and works("mount", "-o", "loop", image, disk)
    try:
        yield disk if ready else None
    finally:
        if ready and not (works("umount", disk) or works("umount", "-l", disk)):
            print(f"frameworks: {disk} stays mounted", file=sys.stderr)
        image.unlink()


def measure_incremental(report: Report, folder: Path, half_bytes: int, disk: str = "") -> None:
    """Rows: bytes that the agent writes for incremental saves of a state half
    unchanged, and for full ones.
    """
    written: dict[int, list[float]] = {1: [], 100: []}
    took: dict[int, list[float]] = {1: [], 100: []}
    frozen = torch.randn(half_bytes // 4)
    live = torch.zeros(half_bytes // 4)
    for full_every in written:
        root = folder / f"every{full_every}"
        with pawl.Checkpointer(root, keep=2, persist_every=0, full_every=full_every) as ckpt:
            for step in range(7):
                live += 1
                before = bytes_written(root)
                save = ckpt.save(step, {"state": {"frozen": frozen, "live": live}})
                begun = time.perf_counter()
                if not save.wait("durable", PROCESS_S_MAX):
                    sys.exit(f"frameworks: step {step} does not become durable: {save.error}")
                if step > 1:  # the first save is a full one, and its pages are new
                    took[full_every].append(time.perf_counter() - begun)
                    written[full_every].append(bytes_written(root) - before)
            ckpt.restore({"state": (state := {"frozen": frozen * 0, "live": live * 0})})
        if not (state["frozen"].equal(frozen) and state["live"].equal(live)):
            sys.exit("frameworks: what was restored is not what was saved")
        shutil.rmtree(root)
    whole, part = (statistics.median(written[n]) for n in written)
    key = f"incremental{disk and '_'}{disk}"
    size = f"half of {2 * half_bytes / 1e6:.0f} MB unchanged"
    report.title(f"full_every=100, {size}, {disk or 'the disk'}")
    report.note(f"{key}_whole_mb", "bytes to the disk, all written", whole / 1e6, "MB")
    report.at_most(f"{key}_bytes", "what changed alone, to it", part / whole, 0.55, "x")
    report.note(f"{key}_whole_s", "until durable, all", statistics.median(took[1]), "s")
    report.note(f"{key}_s", "what changed alone", statistics.median(took[100]), "s")


def main() -> int:
    parser = make_parser(
        __doc__, "small models, one save each", "on the disk to be measured", "/var/tmp"
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    args = parser.parse_args()
    sizes = QUICK if args.quick else FULL
    for name in ("transformers", "lightning", "deepspeed"):
        if importlib.util.find_spec(name) is None:
            sys.exit(f"frameworks: {name} is not here: tools/integrations.sh installs it")
    setting = describe_machine()
    if args.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("frameworks", sizes.rounds * sizes.saves, setting)
    only = args.only or PARTS
    with scratch(args.dir) as folder:
        if "trainer" in only:
            ways = Ways("programs/_trainer.py", ("stock", "thread", "pawl"))
            ways.run(sizes, sizes.trainer, folder)
            goals = {"stock": 0.1, "thread": 1.0}
            measure_blocks(report, "trainer", "transformers' Trainer", ways, goals)
        if "lightning" in only:
            ways = Ways("programs/_lightning.py", ("stock", "async", "pawl"))
            ways.run(sizes, sizes.lightning, folder)
            goals = {"stock": 0.1, "async": 0.5}
            measure_blocks(report, "lightning", "Lightning", ways, goals)
        if "deepspeed" in only:
            ways = Ways("programs/_deepspeed.py", ("torch", "pawl"), ranks=2)
            ways.run(sizes, sizes.deepspeed, folder)
            measure_deepspeed(report, ways)
        if "tags" in only:
            measure_tags(report, folder, sizes.tags)
        if "incremental" in only:
            measure_incremental(report, folder, sizes.frozen)
            for kind in ("xfs", "btrfs"):
                with mounted(kind, folder, 12 * sizes.frozen + (512 << 20)) as disk:
                    if disk:
                        measure_incremental(report, disk, sizes.frozen, kind)
                    else:
                        report.title(f"{kind}: not measured, which takes root and mkfs.{kind}")
    report.finish(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
