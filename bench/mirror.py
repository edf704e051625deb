#!/usr/bin/env python3
"""Checkpoints of a program that knows nothing of Pawl: `pawl mirror` beside mounted buckets.

A process of its own writes them as the Trainer of transformers does: 4 files, a third of the bytes
the model. In each round another way begins, and the next one begins once all is in the bucket. The
first rows are of files that are synced, and of a model that is renamed, as by safetensors 0.8; the
others of neither, since mounts rename by copying. Mounts are SkyPilot's, which claims that its
MOUNT_CACHED writes up to 9 times as fast as its MOUNT: rclone with its flags for MOUNT_CACHED;
rclone without any for MOUNT, as it is where goofys does not run; and s3fs. The stand-in
(bucket_server.c) takes bytes at a speed that is known; since it keeps no MD5s and no times, rclone
is told to compare sizes alone. Times until a checkpoint is committed begin when the mirror has
sealed it, 2 s after the last change. --quick shows only that it works, and mounts only what is
installed already.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared import _bucket_mounts as mounts
from shared._agent import scratch
from shared._bucket_clients import (
    PACKAGES,
    REGION,
    Clients,
    Place,
    find_peers,
    find_program,
    forget_keys,
)
from shared._bucket_mirror import Hung, Mirror, Plain, Way, mirrored, write
from shared._bucket_saving import HOLD_MS
from shared._bucket_server import StandIn, no_seaweedfs, seaweedfs, stand_in
from shared._report import Report, describe_machine, make_parser, ratio_of

CONN_MIB = 40  # speed of a connection of the stand-in
ORDER_LINK_MIB = 40  # speed of all connections together while the order is watched
ORDER_MIB, SHARDS = 48, 2
WARM_MIB = 8  # what is written to each directory before anything counts
CLAIM = 9  # how many times as fast as MOUNT
LAG_GOAL, LAG_GOAL_MIB = 1.2, 1024
LOOK_S = 0.005
PACED = f"the stand-in: {CONN_MIB} MiB/s a connection, answers after {HOLD_MS} ms"
PLAIN, MIRROR = "a plain directory", "a mirrored one"
MOUNT, S3FS, CACHED = "rclone as MOUNT", "s3fs", "rclone as MOUNT_CACHED"
PARTS = ("synced", "paced", "weed", "order")

median = statistics.median


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    synced_mib: int
    paced_mib: int
    weed_mib: int
    orders: int  # rounds in which the order is watched


FULL = Sizes(rounds=5, synced_mib=1024, paced_mib=512, weed_mib=256, orders=10)
QUICK = Sizes(rounds=1, synced_mib=24, paced_mib=24, weed_mib=24, orders=1)


@dataclass
class Costs:
    """What the rounds of one way took; seconds."""

    writes: list[float] = field(default_factory=list)  # from the first call to the last close
    disks: list[float] = field(default_factory=list)  # from the first call until on this disk
    lags: list[float] = field(default_factory=list)  # from sealed until in the bucket
    waits: list[float] = field(default_factory=list)  # from the last close until in the bucket


# ---- turns ----


class Turns:
    """Ways to write checkpoints, and an upload of as many bytes, each once in a round."""

    def __init__(
        self, stack: contextlib.ExitStack, folder: Path, upload: Callable[[str, int], float]
    ) -> None:
        self.folder = folder  # has all directories
        self.uploads: list[float] = []
        self.costs: dict[str, Costs] = {}
        self._stack = stack
        self._upload = upload
        self._ways: dict[str, Way] = {}
        self._step = 0

    def add(self, name: str, way: Way) -> None:
        self._ways[name] = way
        self.costs[name] = Costs()

    def mount(self, name: str, why: str, mount: AbstractContextManager[mounts.Mount]) -> None:
        """Adds a mount, unless there is a reason why there is none."""
        try:
            if why:
                raise RuntimeError(why)
            self.add(name, self._stack.enter_context(mount))
        except (RuntimeError, TimeoutError) as error:
            print(f"  {name} is not measured: {error}")

    def run(self, rounds: int, mib: int, *flags: str) -> None:
        for round_ in range(-1, rounds):
            self._step += 1
            names = [*self._ways, ""]
            turn = round_ % len(names)
            for name in names[turn:] + names[:turn]:
                if name:
                    self._take(name, mib if round_ >= 0 else WARM_MIB, flags, round_ >= 0)
                elif round_ >= 0:
                    self.uploads.append(self._upload(f"upload-{self._step}", mib))

    def _take(self, name: str, mib: int, flags: tuple[str, ...], counts: bool) -> None:
        way, costs = self._ways[name], self.costs[name]
        try:
            said = write(way, self._step, mib, *flags)
            whole, there = way.settle(self._step)
        except (Hung, OSError) as why:
            if not isinstance(way, mounts.Mount):
                raise
            print(f"  {name} is not measured: {why}")
            del self._ways[name], self.costs[name]
            return
        if counts:
            costs.writes.append(said["s"])
            costs.disks.append(said.get("disk_s", said["s"]))
            costs.lags.append(there - whole)
            costs.waits.append(there - said["ended"])


@contextlib.contextmanager
def turns(place: Place, mover: Path, folder: Path) -> Iterator[Turns]:
    """A plain directory and a mirrored one; they and what is added are gone at the end."""

    def upload(key: str, mib: int) -> float:
        os.sync()
        return Clients(place, mover, None, mib).pawl("put", key, folder)[0]

    folder.mkdir()
    try:
        with contextlib.ExitStack() as stack:
            found = Turns(stack, folder, upload)
            found.add(PLAIN, Plain(folder / "plain"))
            found.add(MIRROR, stack.enter_context(mirrored(place, folder / "mirrored")))
            yield found
    finally:
        shutil.rmtree(folder)


def report_plain(report: Report, key: str, writes: dict[str, list[float]]) -> None:
    """Rows: what the mirror costs the program."""
    plain, mirror = writes[PLAIN], writes[MIRROR]
    report.bound(f"{key}_plain_s", "written to a plain directory", median(plain), "s")
    what, beside = "to a mirrored one, to that", f"{median(mirror):.2f} s"
    report.at_most(f"{key}_to_plain", what, ratio_of(mirror, plain), 1.05, "x", beside)


def report_lag(report: Report, key: str, found: Turns, mib: int) -> None:
    """Rows: from when a checkpoint is known to be whole until it is in the bucket. Files are
    uploaded one after the other, so that the goal is one of large files."""
    mirror, uploads = found.costs[MIRROR], found.uploads
    report.bound(f"{key}_upload_s", "one object of as many bytes, uploaded", median(uploads), "s")
    lag = ratio_of(mirror.lags, uploads)
    what, beside = "from sealed to committed, to that", f"{median(mirror.lags):.2f} s"
    if mib >= LAG_GOAL_MIB:
        report.at_most(f"{key}_lag", what, lag, LAG_GOAL, "x", beside)
    else:
        report.note(f"{key}_lag", what, lag, "x", beside)
    cached = found.costs.get(CACHED)
    beside = f"{CACHED}: {median(cached.waits):.1f} s" if cached else ""
    waits = median(mirror.waits)
    report.note(f"{key}_wait_s", "from the last close to committed", waits, "s", beside)


# ---- files that are synced ----


def report_cached(report: Report, cached: Costs, mirror: Costs) -> None:
    """rclone says at once that it has synced: nothing is on the disk then."""
    ratio = ratio_of(cached.disks, mirror.disks)
    beside = f"{median(cached.disks):.2f} s"
    what = f"to {CACHED}, until it is on this disk"
    report.at_least("cached_to_mirror", what, ratio, 1.0, "x", beside)
    ratio = ratio_of(cached.writes, mirror.writes)
    beside = f"{median(cached.writes):.2f} s; its sync does nothing"
    report.note("cached_said", "  until it says that it has synced", ratio, "x", beside)


def measure_synced(
    report: Report, server: StandIn, mover: Path, folder: Path, sizes: Sizes
) -> None:
    """Rows: what the mirror costs a program that syncs what it writes."""
    place, mib = server.place, sizes.synced_mib
    server.pace(conn_mib=CONN_MIB, hold_ms=HOLD_MS)
    report.title(f"{mib} MiB, each file synced, the model renamed; {PACED}")
    with turns(place, mover, folder / "synced") as found:
        cached = mounts.rclone(place, found.folder / "cached", mounts.CACHED)
        found.mount(CACHED, mounts.why_not(mounts.RCLONE), cached)
        found.run(sizes.rounds, mib, "--sync", "--rename")
        report_plain(report, "synced", {name: one.writes for name, one in found.costs.items()})
        if CACHED in found.costs:
            report_cached(report, found.costs[CACHED], found.costs[MIRROR])
        report_lag(report, "synced", found, mib)


# ---- mounts ----


def measure_mounts(
    report: Report, key: str, place: Place, mover: Path, folder: Path, rounds: int, mib: int
) -> None:
    """Rows: the claim of SkyPilot's guide."""
    with turns(place, mover, folder / key) as found:
        why = mounts.why_not(mounts.RCLONE)
        found.mount(MOUNT, why, mounts.rclone(place, found.folder / "mount"))
        found.mount(S3FS, mounts.why_not("s3fs"), mounts.s3fs(place, found.folder / "s3fs"))
        found.mount(CACHED, why, mounts.rclone(place, found.folder / "cached", mounts.CACHED))
        found.run(rounds, mib)
        writes = {name: costs.writes for name, costs in found.costs.items()}
        mirror = writes[MIRROR]
        report_plain(report, key, writes)
        for name, short in ((MOUNT, "mount"), (S3FS, "s3fs")):
            if name in writes:
                ratio = ratio_of(writes[name], mirror)
                beside = f"{median(writes[name]):.2f} s"
                what = f"to {name}, to a mirrored one"
                report.at_least(f"{key}_{short}_to_mirror", what, ratio, CLAIM, "x", beside)
        if CACHED in writes:
            ratio = ratio_of(writes[CACHED], mirror)
            beside = f"{median(writes[CACHED]):.2f} s"
            what = f"to {CACHED}, to a mirrored one"
            report.at_least(f"{key}_cached_to_mirror", what, ratio, 1.0, "x", beside)
        if CACHED in writes and MOUNT in writes:
            ratio = ratio_of(writes[MOUNT], writes[CACHED])
            report.note(f"{key}_mount_to_cached", f"to {MOUNT}, to {CACHED}", ratio, "x")
        report_lag(report, key, found, mib)


def measure_paced(report: Report, server: StandIn, mover: Path, folder: Path, sizes: Sizes) -> None:
    server.pace(conn_mib=CONN_MIB, hold_ms=HOLD_MS)
    report.title(f"{sizes.paced_mib} MiB, nothing synced; {PACED}")
    place, mib = server.place, sizes.paced_mib
    measure_mounts(report, "paced", place, mover, folder, sizes.rounds, mib)


def measure_weed(report: Report, mover: Path, folder: Path, sizes: Sizes) -> None:
    why = no_seaweedfs()
    if why:
        report.title(f"SeaweedFS: not measured: {why}")
        return
    report.title(f"{sizes.weed_mib} MiB, nothing synced; SeaweedFS on the same disk")
    with seaweedfs(folder) as place:
        measure_mounts(report, "weed", place, mover, folder, sizes.rounds, sizes.weed_mib)


# ---- the order of files in the bucket ----

Keys = set[str]


@contextlib.contextmanager
def looking(place: Place) -> Iterator[list[Keys]]:
    """Lists the stand-in's objects all the time, from outside; the list grows meanwhile."""
    looks: list[Keys] = []
    stop = threading.Event()
    key = f"AWS4-HMAC-SHA256 Credential={place.key_id}/day/{REGION}/s3/aws4_request"

    def look() -> None:
        server = http.client.HTTPConnection(urllib.parse.urlsplit(place.url).netloc)
        with contextlib.closing(server):
            while not stop.is_set():  # the stand-in checks no signature
                now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
                asked = {"Authorization": key, "X-Amz-Date": now}
                server.request("GET", f"/{place.bucket}?list-type=2", headers=asked)
                text = server.getresponse().read().decode()
                assert "<ListBucketResult" in text, text
                looks.append(set(re.findall("<Key>([^<]*)</Key>", text)))
                stop.wait(LOOK_S)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield looks
    finally:
        stop.set()
        thread.join()


def judge(looks: list[Keys], way: Way, step: int) -> tuple[int, int]:
    """Looks that saw a part of a checkpoint's files, and those of them in which a reader would take
    it for whole: by its manifest, or by files that name or follow the others."""
    name = f"checkpoint-{step}"
    files = {path.name for path in (way.folder / name).iterdir()}
    parts = early = 0
    for keys in looks:
        there = {key.rpartition("/")[2] for key in keys if f"{way.folder.name}/{name}/" in key}
        if isinstance(way, Mirror):
            marked = f"{way.folder.name}/.pawl/tags/{name}" in keys
            missing = files - there
        else:
            marked = any(one.endswith(".json") for one in there)
            missing = {one for one in files - there if not one.endswith(".json")}
        parts += bool(there & files) and there != files
        early += marked and bool(missing)
    return parts, early


def measure_order(report: Report, server: StandIn, folder: Path, sizes: Sizes) -> None:
    """Rows: rounds in which a checkpoint seemed to be whole, and was not."""
    server.pace(link_mib=ORDER_LINK_MIB, hold_ms=HOLD_MS)
    place = server.place
    report.title(
        f"{ORDER_MIB} MiB, the model in {SHARDS} shards, on a link of {ORDER_LINK_MIB} MiB/s: "
        f"rounds of {sizes.orders} in which it seemed to be in the bucket too early"
    )
    (folder / "order").mkdir()
    with contextlib.ExitStack() as stack:
        ways: dict[str, Way] = {
            MIRROR: stack.enter_context(mirrored(place, folder / "order/mirrored"))
        }
        if not mounts.why_not(mounts.RCLONE):
            cached = mounts.rclone(place, folder / "order/cached", mounts.CACHED)
            ways[CACHED] = stack.enter_context(cached)
        counts = {name: [0, 0, 0, 0] for name in ways}  # rounds, looks, looks at parts, too early
        for round_ in range(sizes.orders):
            for name in ways if round_ % 2 else reversed(ways):
                with looking(place) as looks:
                    write(ways[name], round_ + 1, ORDER_MIB, f"--shards={SHARDS}")
                    ways[name].settle(round_ + 1)
                parts, early = judge(looks, ways[name], round_ + 1)
                for i, value in enumerate((early > 0, len(looks), parts, early)):
                    counts[name][i] += value
    for name, (rounds, looks_n, parts, early) in counts.items():
        beside = f"{looks_n} looks, {parts} saw a part, {early} were wrong"
        if name == MIRROR:
            report.at_most("order_mirror", "its manifest before all files", rounds, 0, "", beside)
        else:
            what = f"{name}: a .json before other files"
            report.note("order_cached", what, rounds, "", beside)


# ---- the benchmark ----


def describe_mounts() -> dict[str, str]:
    """The versions of what is compared."""
    found = {}
    if not mounts.why_not(mounts.RCLONE):
        found["rclone"] = next(one for one in PACKAGES if "rclone" in one).rpartition("=")[2]
    if not mounts.why_not("s3fs"):
        said = subprocess.run(["s3fs", "--version"], capture_output=True, text=True, check=False)
        found["s3fs"] = (re.findall(r"V(\S+)", said.stdout) or ["unknown"])[0]
    return found


def parse_options() -> argparse.Namespace:
    parser: Any = make_parser(__doc__, "small, once", "disk of the directories", "/var/tmp")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="parts of it")
    options = parser.parse_args()
    forget_keys()
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # mounts end first
    sizes = QUICK if options.quick else FULL
    mover, program = (
        find_program(path, options.quick)
        for path in ("bench/bucket_move", "tests/lib/bucket_server")
    )
    if not options.quick:
        find_peers()  # rclone
    setting = {**describe_machine(), **describe_mounts()}
    if options.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("mirror", sizes.rounds, setting)
    with scratch(options.dir) as folder:
        if "synced" in options.only:
            with stand_in(program) as server:
                measure_synced(report, server, mover, folder, sizes)
        if "paced" in options.only:
            with stand_in(program) as server:
                measure_paced(report, server, mover, folder, sizes)
        if "weed" in options.only and not options.quick:
            measure_weed(report, mover, folder, sizes)
        if "order" in options.only:
            with stand_in(program) as server:
                measure_order(report, server, folder, sizes)
        report.finish(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
