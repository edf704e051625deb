#!/usr/bin/env python3
"""Sharded state: through torch's distributed checkpoint (DCP), and restored by fewer ranks.

FSDP2 on 4 ranks (gloo, host memory), 1 GiB of parameters and AdamW. Ours beside DCP's own files and
beside the raw disk, in one run, the order alternated; a time is that of the slowest rank.
--quick shows only that it works: its numbers mean nothing.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from shared._agent import end_agent, scratch, settle
from shared._bound import drop_caches, files_under, fill_cache, raw_read, raw_write
from shared._report import Report, describe_machine, make_parser
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

import pawl
from pawl.integrations.dcp import PawlReader, PawlWriter

RANKS, FEWER = 4, 3
GIB = 1 << 30
STEP = 1
Times = dict[str, list[float]]

own: dist.ProcessGroup | None = None  # group for measuring: DCP uses the default one meanwhile


def step(model: nn.Module, optimizer: torch.optim.Optimizer, width: int) -> None:
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def train(layers: int, width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A sharded module and its optimizer, after a step."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer, width)
    return model, optimizer


def slowest(work: Callable[[], Any]) -> float:
    """Seconds that work takes in the slowest rank; all ranks begin together."""
    dist.barrier(own)
    begun = time.perf_counter()
    work()
    took = torch.tensor(time.perf_counter() - begun, dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX, own)
    return float(took)


def by_first(work: Callable[[], Any]) -> None:
    """Does work at the first rank alone."""
    if dist.get_rank() == 0:
        work()
    dist.barrier(own)


def rotate(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


# ---- DCP; what a world measures goes to a file ----


def measure_dcp(folder: Path, layers: int, width: int, rounds: int) -> Times:
    writer = PawlWriter(folder / "ours", keep=1)
    model, optimizer = train(layers, width)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    # Group for saves that go on while the model trains in the default one.
    beside = dist.new_group()
    theirs, raw = folder / "theirs", folder / "raw"
    size = int(sum(p.to_local().nbytes for p in model.parameters()) * 3 * dist.get_world_size())
    numbers = iter(range(1, 1 << 20))

    def ours(save: Callable[..., Any], **options: Any) -> Any:
        return save(state, storage_writer=writer, checkpoint_id=f"step-{next(numbers)}", **options)

    def stock(save: Callable[..., Any], **options: Any) -> Any:
        return save(state, checkpoint_id=theirs, **options)

    def read_ours() -> None:
        dcp.load(state, storage_reader=PawlReader(folder / "ours"))

    def read_stock() -> None:
        dcp.load(state, checkpoint_id=theirs)

    def read_raw() -> None:
        if dist.get_rank() == 0:
            raw_read(raw)

    def write_raw() -> None:
        if dist.get_rank() == 0:
            raw_write(raw, size)

    def emptied() -> None:
        shutil.rmtree(theirs, ignore_errors=True)
        raw.unlink(missing_ok=True)
        # Waits until the agent has deleted the tag before.
        while any((folder / "ours").glob(".pawl.*")):
            time.sleep(0.01)

    times: Times = {}

    def take(ways: dict[str, Callable[[], Any]], before: Callable[[], None]) -> None:
        for number in range(rounds + 1):  # the first one warms up
            for name in rotate(list(ways), number):
                by_first(before)
                took = slowest(ways[name])
                if number > 0:
                    times.setdefault(name, []).append(took)

    take(
        {"save": lambda: ours(dcp.save), "stock_save": lambda: stock(dcp.save), "write": write_raw},
        emptied,
    )
    futures: list[Any] = []
    ways = {
        "stall": lambda: futures.append(ours(dcp.async_save, process_group=beside)),
        "stock_stall": lambda: futures.append(stock(dcp.async_save, process_group=beside)),
        "no_stall": lambda: None,
    }
    for number in range(rounds + 1):
        for name in rotate(list(ways), number):
            took = slowest(ways[name])
            then = slowest(lambda: step(model, optimizer, width))
            while futures:
                futures.pop().result()
            dist.barrier(own)
            if number > 0:
                times.setdefault(name, []).append(took)
                times.setdefault(f"{name}_and_step", []).append(took + then)
    by_first(write_raw)
    cold = {"cold": read_ours, "stock_cold": read_stock, "read": read_raw}
    take(cold, lambda: drop_caches(folder))
    by_first(lambda: fill_cache(theirs, folder / "ours"))
    take({"cached": read_ours, "stock_cached": read_stock}, lambda: None)
    times["size"] = [float(size)]
    writer.engine.close()
    return times


# ---- Checkpointer ----


def save_once(folder: Path, layers: int, width: int) -> Times:
    model, optimizer = train(layers, width)
    with pawl.Checkpointer(folder / "root", persist_every=0) as ckpt:
        settle(ckpt.save(STEP, {"model": model, "optimizer": optimizer}), "durable")
    return {}


def restore_cold(folder: Path, layers: int, width: int) -> Times:
    """Seconds, and bytes that came from the disk, summed over all ranks."""
    model, optimizer = train(layers, width)
    by_first(lambda: (end_agent(folder / "root"), drop_caches(folder)))
    ckpt = pawl.Checkpointer(folder / "root", persist_every=1e9)
    before = bytes_read()
    took = slowest(lambda: ckpt.restore({"model": model, "optimizer": optimizer}, only=PARTS))
    read = torch.tensor(bytes_read() - before, dtype=torch.float64)
    dist.all_reduce(read, group=own)
    ckpt.close()
    return {"seconds": [took], "bytes": [float(read)]}


PARTS = ["model", "optimizer"]  # without the generators, which have no shards


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


# ---- worlds of ranks ----


def run_rank(rank: int, world: int, folder: Path, name: str, args: tuple[int, ...]) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world)
    )
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for quiet in ("pawl", "torch.distributed", "torch.distributed.checkpoint"):
        logging.getLogger(quiet).setLevel(logging.ERROR)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    global own
    own = dist.new_group()
    times = globals()[name](folder, *args)
    if rank == 0:
        (folder / "times").write_text(json.dumps(times))
    dist.destroy_process_group()


def in_world(world: int, folder: Path, name: str, *args: int) -> Times:
    """Runs a function of this module in so many forked ranks; returns its measurements."""
    (folder / "store").unlink(missing_ok=True)
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run_rank(rank, world, folder, name, args)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(codes):
        raise RuntimeError(f"{name}: a rank failed")
    return json.loads((folder / "times").read_text())


def report_dcp(report: Report, times: Times) -> None:
    took = {name: statistics.median(values) for name, values in times.items()}
    rate = {name: took["size"] / GIB / seconds for name, seconds in took.items()}
    report.title(f"torch.distributed.checkpoint, FSDP2 on {RANKS} ranks")
    report.bound("write_gib_s", "O_DIRECT, depth 16, fresh file, fsync", rate["write"], "GiB/s")
    report.bound("read_gib_s", "O_DIRECT, depth 16", rate["read"], "GiB/s")
    report.note("save_gib_s", "dcp.save, durable on return", rate["save"], "GiB/s")
    report.at_least("save_to_raw", "to the bound", rate["save"] / rate["write"], 0.85, "x")
    beside = f"stock {rate['stock_save']:.2f} GiB/s"
    report.at_least("save_to_stock", "to stock", rate["save"] / rate["stock_save"], 2, "x", beside)
    report.note("stall_ms", "stall of async_save", took["stall"] * 1e3, "ms")
    beside = f"stock {took['stock_stall'] * 1e3:.0f} ms"
    ratio = took["stall"] / took["stock_stall"]
    report.at_most("stall_to_stock", "to stock", ratio, 0.2, "x", beside)
    alone = took["no_stall_and_step"]
    beside = f"stock {(took['stock_stall_and_step'] - alone) * 1e3:.0f} ms, of {alone * 1e3:.0f} ms"
    cost = (took["stall_and_step"] - alone) * 1e3
    report.note("step_ms", "async_save, and what it adds to the step after it", cost, "ms", beside)
    report.note("cold_gib_s", "dcp.load, nothing cached", rate["cold"], "GiB/s")
    beside = f"stock {rate['stock_cold']:.2f} GiB/s"
    report.at_least("cold_to_raw", "to the bound", rate["cold"] / rate["read"], 0.85, "x", beside)
    report.note("cached_gib_s", "dcp.load, files cached", rate["cached"], "GiB/s")
    beside = f"stock {rate['stock_cached']:.2f} GiB/s"
    ratio = rate["cached"] / rate["stock_cached"]
    report.at_least("cached_to_stock", "to stock", ratio, 1.8, "x", beside)


def report_reshard(report: Report, same: list[Times], fewer: list[Times], size: int) -> None:
    took = {
        name: statistics.median(one["seconds"][0] for one in times)
        for name, times in (("same", same), ("fewer", fewer))
    }
    report.title(f"Checkpointer.restore of what {RANKS} ranks saved, nothing cached")
    report.note("same_s", f"by {RANKS} ranks, the same layout", took["same"], "s")
    report.note("reshard_s", f"by {FEWER} ranks", took["fewer"], "s")
    ratio = took["fewer"] / took["same"]
    report.at_most("reshard_to_same", "to the same layout", ratio, 1.15, "x")
    read = statistics.median(one["bytes"][0] for one in fewer) / size
    report.at_most("reshard_bytes", "bytes read from the disk, of the files'", read, 1.02, "x")


def main() -> int:
    args = make_parser(
        __doc__, "a small state, few repeats", "on the disk to be measured", "/var/tmp"
    ).parse_args()
    layers, width, rounds = (2, 512, 1) if args.quick else (32, 1672, 5)
    os.environ.update(PAWL_JOB_ID="bench-reshard", OMP_NUM_THREADS="1")
    setting = describe_machine() | {"layers": layers, "width": width, "ranks": RANKS}
    if args.quick:
        setting["quick"] = "yes: these numbers mean nothing"
    report = Report("reshard", rounds, setting)
    with scratch(args.dir) as folder:
        report_dcp(report, in_world(RANKS, folder, "measure_dcp", layers, width, rounds))
        end_agent(folder / "ours")
        for name in ("ours", "theirs"):
            shutil.rmtree(folder / name)
        (folder / "raw").unlink()
        in_world(RANKS, folder, "save_once", layers, width)
        tag = folder / "root" / f"global_step{STEP}"
        size = sum(one.stat().st_size for one in files_under(tag) if "rng" not in one.name)
        taken: dict[int, list[Times]] = {RANKS: [], FEWER: []}
        for number in range(rounds):
            for world in (RANKS, FEWER) if number % 2 else (FEWER, RANKS):
                taken[world].append(in_world(world, folder, "restore_cold", layers, width))
        report_reshard(report, taken[RANKS], taken[FEWER], size)
    report.finish(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
