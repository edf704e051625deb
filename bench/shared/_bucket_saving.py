"""What saves to a bucket cost the training, the agent's memory, and the service."""

from __future__ import annotations

import math
import os
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pawl
from shared._agent import (
    arena_bytes,
    count_fds,
    memory_of,
    opened,
    opened_in_bucket,
    settle,
)
from shared._bucket_clients import Place, told
from shared._bucket_server import StandIn
from shared._report import Report, ratio_of
from shared._state import State, Training

MIB = 1 << 20
LINK_MIB = 100  # speed of the link while training is watched
HOLD_MS = 20  # how soon the stand-in answers
SLACK_MIB = 64  # memory of the agent beside its arenas
SAMPLE_S = 0.1
QUIET_S = 0.5  # without a request, after which none belongs to a save
PATIENCE = 3  # an upload may take so many times as long as its bytes do
KEEP = 3  # checkpoints that a Checkpointer keeps by default
FILES = 3  # files of a checkpoint: model, optimizer, random numbers
MANY_PARTS = (2, 1024)  # blocks and width of a state with more parts than connections
TAGS_PAGE = 1000  # names on a page of a list: S3's limit

median = statistics.median


@dataclass(frozen=True)
class Sizes:
    """How much is measured. Widths and blocks are those of State."""

    rounds: int  # rounds of uploads, and of searches
    cycles: int  # saves of each kind while training is watched
    blocks: int
    width: int
    steps: int  # from one save to the next, longer than the upload takes
    compute_s: float  # time of a step without the optimizer
    big_blocks: int  # state that is uploaded slowly
    big_width: int
    slow_mib: float  # speed of that upload, MiB a second
    saves: int  # saves of a small state
    tags: int


FULL = Sizes(
    rounds=5, cycles=11, blocks=7, width=512, steps=60, compute_s=0.05,
    big_blocks=7, big_width=1024, slow_mib=16, saves=300, tags=100_000,
)  # fmt: skip
LONG = replace(FULL, big_blocks=28, slow_mib=1, saves=2000)
QUICK = Sizes(
    rounds=1, cycles=1, blocks=2, width=256, steps=20, compute_s=0.01,
    big_blocks=2, big_width=256, slow_mib=16, saves=30, tags=3000,
)  # fmt: skip


def use_place(place: Place) -> None:
    """Makes the agents of this process use a bucket: they inherit its environment."""
    os.environ.update(place.env())


def size_mib(state: State) -> float:
    return sum(tensor.nbytes for tensor in state.tensors()) / MIB


# ---- what training sees ----


@dataclass
class Seen:
    """Cycles of one save and a fixed number of steps; seconds."""

    calls: list[float] = field(default_factory=list)  # save() alone
    cycles: list[float] = field(default_factory=list)  # save() and the steps behind it
    steps: list[float] = field(default_factory=list)  # a step between committed and durable
    busy: list[float] = field(default_factory=list)  # a step between save() and durable
    durable: list[float] = field(default_factory=list)  # from save() to that


def run_cycle(
    checkpointer: pawl.Checkpointer, step: int, state: State, training: Training, steps: int
) -> tuple[float, float, float, float, float]:
    """One value for each list of Seen."""
    begun = time.perf_counter()
    save = checkpointer.save(step, state.parts)
    called = time.perf_counter()
    durable = math.inf
    staging, uploading = [], []
    for _ in range(steps):
        level = save.level
        if level == "durable":
            durable = min(durable, time.perf_counter() - begun)
            training.step()
        else:
            (uploading if level == "committed" else staging).append(training.step())
    cycle = time.perf_counter() - begun
    settle(save, "durable")
    durable = min(durable, time.perf_counter() - begun)
    all_busy = statistics.fmean(staging + uploading)
    return called - begun, cycle, statistics.fmean(uploading or staging), all_busy, durable


def measure_training(report: Report, server: StandIn, sizes: Sizes, folder: Path) -> None:
    """Rows: saves to a bucket behind a link against saves to a directory, in turns."""
    state = State(sizes.blocks, sizes.width)
    training = Training(state)
    training.calibrate(sizes.compute_s)
    mib = size_mib(state)
    seen = {"bucket": Seen(), "local": Seen()}
    plain = []
    server.pace(link_mib=LINK_MIB, hold_ms=HOLD_MS)
    use_place(server.place)
    options = {"persist_every": 0, "keep": 1}
    with (
        opened(folder / "local", **options) as local,
        opened_in_bucket("s3://bucket/training", **options) as (bucket, _),
    ):
        ways = {"bucket": bucket, "local": local}
        for round_ in range(-1, sizes.cycles):  # arenas are made in the first, which is not counted
            window = [training.step() for _ in range(sizes.steps)]
            order = list(ways) if round_ % 2 else list(reversed(ways))
            for way in order:
                costs = run_cycle(ways[way], round_ + 2, state, training, sizes.steps)
                if round_ >= 0:
                    one = seen[way]
                    for values, value in zip(
                        (one.calls, one.cycles, one.steps, one.busy, one.durable),
                        costs,
                        strict=True,
                    ):
                        values.append(value)
            if round_ >= 0:
                plain.append(statistics.fmean(window))
    report_training(report, sizes, mib, seen, plain)


def report_training(
    report: Report, sizes: Sizes, mib: float, seen: dict[str, Seen], plain: list[float]
) -> None:
    bucket, local = seen["bucket"], seen["local"]
    report.title(
        f"training: {mib:.0f} MiB to the stand-in, a link of {LINK_MIB} MiB/s, answers after "
        f"{HOLD_MS} ms; or to a directory"
    )
    report.bound("link_s", "the bytes on that link", mib / LINK_MIB, "s")
    report.note("durable_s", "save() to durable in the bucket", median(bucket.durable), "s")
    calls = ratio_of(bucket.calls, local.calls)
    beside = f"{1e3 * median(bucket.calls):.1f} ms and {1e3 * median(local.calls):.1f} ms"
    report.at_most("save_to_local", "save(), to that to a directory", calls, 1.05, "x", beside)
    cycles = ratio_of(bucket.cycles, local.cycles)
    beside = f"{median(bucket.cycles):.2f} s and {median(local.cycles):.2f} s"
    what = f"save() and {sizes.steps} steps, to the same"
    report.at_most("cycle_to_local", what, cycles, 1.05, "x", beside)
    while_uploading = ratio_of(plain, bucket.steps)
    beside = f"{1 / median(bucket.steps):.1f} and {1 / median(plain):.1f} steps/s"
    what = "steps/s while uploading, from committed on, to those without a save"
    report.at_least("steps_uploading", what, while_uploading, 0.98, "x", beside)
    what = "from save() on: with the copy of the state"
    report.note("steps_saving", what, ratio_of(plain, bucket.busy), "x")
    what = "the same while it is written to a directory"
    report.note("steps_local", what, ratio_of(plain, local.busy), "x")


# ---- the agent ----


def own_bytes(pid: int) -> float:
    """Memory of the agent beside its arenas, which are shared and may not be mapped whole."""
    shared = memory_of(pid, "RssShmem") - arena_bytes(pid)
    return memory_of(pid, "RssAnon") + memory_of(pid, "RssFile") + max(0, shared)


def watch_upload(pid: int, save: pawl.Save, limit_s: float) -> list[float]:
    """Samples of the agent's own memory until a save is durable. That it takes long is an error to
    the agent, but no end."""
    end = time.monotonic() + limit_s
    samples = [own_bytes(pid)]
    while save.level != "durable":
        if time.monotonic() > end:
            raise RuntimeError(f"save {save.step} is not durable: {save.error or 'time ran out'}")
        time.sleep(SAMPLE_S)
        samples.append(own_bytes(pid))
    return samples


def measure_memory(report: Report, server: StandIn, sizes: Sizes) -> None:
    """Rows: the agent's memory while a link is slow, and after many saves."""
    state = State(sizes.big_blocks, sizes.big_width)
    mib = size_mib(state)
    use_place(server.place)
    server.pace(link_mib=sizes.slow_mib, hold_ms=HOLD_MS)
    report.title(f"the agent's memory beside its arenas, {mib:.0f} MiB at {sizes.slow_mib} MiB/s")
    with opened_in_bucket("s3://bucket/slow", persist_every=0, keep=1) as (bucket, pid):
        limit_s = PATIENCE * mib / sizes.slow_mib + 60
        samples = watch_upload(pid, bucket.save(1, state.parts), limit_s)
        arena_mib = arena_bytes(pid) / MIB
    beside = f"arenas {arena_mib:.0f} MiB; at the beginning {samples[0] / MIB:.0f} MiB"
    peak = max(samples) / MIB
    report.at_most("agent_mib", f"most of {len(samples)} samples", peak, SLACK_MIB, "MiB", beside)
    server.pace()
    measure_growth(report, sizes)


def measure_growth(report: Report, sizes: Sizes) -> None:
    state = State(1, 64)
    fds, memory = [], []
    with opened_in_bucket("s3://bucket/many", persist_every=0, keep=3) as (bucket, pid):
        # Opens all connections that the agent keeps: later saves open none, whatever they overlap.
        settle(bucket.save(0, State(*MANY_PARTS).parts), "durable")
        for step in range(1, sizes.saves + 1):
            settle(bucket.save(step, state.parts), "durable")
            if step >= sizes.saves // 10:  # by then all has been opened that stays open
                fds.append(count_fds(pid))
                memory.append(own_bytes(pid))
    fifth = max(1, len(memory) // 5)
    beside = f"{min(fds)} to {max(fds)}"
    grown = median(fds[-fifth:]) - median(fds[:fifth])
    what = f"descriptors more after {sizes.saves} saves of a small state"
    report.at_most("agent_grown_fds", what, grown, 0, "", beside)
    drift = 100 * (median(memory[-fifth:]) / median(memory[:fifth]) - 1)
    beside = f"{median(memory[-fifth:]) / MIB:.1f} MiB"
    report.at_most("agent_drift", "memory more", drift, 1, "%", beside)


# ---- requests ----


def spell(requests: dict[str, int]) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in requests.items() if kind != "all")


def count_all(server: StandIn) -> dict[str, int]:
    """All requests so far, with those that the agent still makes."""
    last: dict[str, int] = {}
    while last != (last := server.counts()["requests"]):
        time.sleep(QUIET_S)
    return last


def measure_requests(report: Report, server: StandIn) -> None:
    """Rows: what the service is asked for a save."""
    report.title("requests of one save that others came before")
    use_place(server.place)
    small, large = State(1, 128), State(2, 512)
    ways = {"small": (small, 0), "keep": (small, KEEP), "large": (large, 0)}
    for way, (state, keep) in ways.items():
        root = f"s3://bucket/requests-{way}"
        with opened_in_bucket(root, persist_every=0, keep=keep) as (bucket, _):
            before = after = {}
            for step in range(1, KEEP + 3):  # the last one removes the oldest that was kept
                before = after
                settle(bucket.save(step, state.parts), "durable")
                after = count_all(server)
        made = {kind: n - before[kind] for kind, n in after.items() if n > before[kind]}
        kept = f", keep={keep}, the default" if keep else ", all kept"
        what = f"{FILES} files, {size_mib(state):.1f} MiB{kept}"
        report.note(f"requests_{way}", what, made["all"], "", spell(made))


def measure_newest(report: Report, server: StandIn, sizes: Sizes, mover: Path) -> None:
    """Rows: what finding the newest of very many checkpoints takes."""
    root = "s3://bucket/tags"
    use_place(server.place)
    with opened_in_bucket(root, persist_every=0) as (bucket, _):
        settle(bucket.save(sizes.tags, State(1, 64).parts), "durable")
    server.command(f"fill {sizes.tags - 1} tags/.pawl/tags")
    server.pace(hold_ms=HOLD_MS)
    report.title(f"the newest of {sizes.tags:,} checkpoints, answers after {HOLD_MS} ms")
    took = []
    for _ in range(sizes.rounds):
        server.command("reset")
        took.append(told([mover, "newest", root], server.place.env())[0])
    made = server.requests()
    pages = math.ceil(sizes.tags / TAGS_PAGE)
    what = "LIST requests: a page for each 1,000, and a look at the root"
    report.at_most("newest_lists", what, made["list"], pages + 1, "", spell(made))
    report.at_most("newest_gets", "GET requests", made["get"], 1, "")
    report.bound("newest_bound_s", "the pages, one after the other", pages * HOLD_MS / 1e3, "s")
    report.at_most("newest_s", "found", median(took), 3, "s")
