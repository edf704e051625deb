"""A rank of replicate.py. Usage: _replicate.py MODE ROOT FOLDER MIB STEPS.

MODE rate: saves MIB of state in each turn, and notes when the save was committed and replicated.
MODE slow: saves in one of two roots, with replicas or without, then takes STEPS steps, and notes
what they took. The file N.go in FOLDER begins turn N, and says what to do in it; what a rank notes
goes into N.RANK, and N.RANK-durable says that the turn's save is durable. MODE lost: makes one save
durable, and once FOLDER/go is there another one replicated or durable, as STEPS says; ranks that
restore say when they have made their first step, and whether each byte is right.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import pawl

LIMIT_S = 300.0
MIB = 1 << 20
STEP_S = 0.1  # time of a step of training
LIGHT = 0.1  # share that the CPU has in a step, if an accelerator does the rest
GRADIENT = MIB // 4  # numbers that all ranks sum up in a step
TICKS_S = os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    sys.stdout.write(f"> {text}\n")


def agent_cpu_s() -> float:
    """CPU seconds of `pawl run`, which is this rank's parent and has the agent in it."""
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def await_file(path: Path) -> str:
    while not path.exists():
        time.sleep(0.002)  # pace
    return path.read_text()


def note(path: Path, found: object) -> None:
    part = path.with_suffix(f"{path.suffix}-part")
    part.write_text(json.dumps(found))
    part.rename(path)


def make_state(mib: int, rank: int) -> dict[str, torch.Tensor]:
    """Random numbers, of which the ranks have different ones."""
    numbers = torch.empty(mib * MIB // 4)
    return {"mine": numbers.random_(generator=torch.Generator().manual_seed(rank + 1))}


def settle(save: pawl.Save, level: str) -> None:
    if not save.wait(level, LIMIT_S):
        raise RuntimeError(f"save {save.step} is {save.level}, not {level}: {save.error}")


# ---- modes ----


def save_in_turns(root: str, folder: Path, mib: int) -> None:
    rank = dist.get_rank()
    state = make_state(mib, rank)
    ckpt = pawl.Checkpointer(root, replicas=1, copy="now")
    for turn in range(1, 1 << 30):
        await_file(folder / f"{turn}.go")
        dist.barrier()
        save = ckpt.save(turn, state)
        settle(save, "committed")
        committed, cpu_s = time.monotonic(), agent_cpu_s()
        settle(save, "replicated")
        replicated = time.monotonic()
        found = {"committed": committed, "replicated": replicated, "level": save.level}
        note(folder / f"{turn}.{rank}", {**found, "cpu_s": agent_cpu_s() - cpu_s})
        settle(save, "durable")
        note(folder / f"{turn}.{rank}-durable", {})


class Steps:
    """Steps of training, all of one length: products of matrices, and a sum over all ranks."""

    def __init__(self) -> None:
        self._a, self._b = torch.rand(256, 256), torch.rand(256, 256)
        self._gradient = torch.zeros(GRADIENT)
        begun = time.perf_counter()
        for _ in range(100):
            self._product()
        self._count = STEP_S / (time.perf_counter() - begun) * 100

    def _product(self) -> None:
        torch.mm(self._a, self._b)

    def run(self, busy: bool) -> None:
        end = time.perf_counter() + STEP_S
        for _ in range(int(self._count * (1 if busy else LIGHT))):
            self._product()
        if not busy:
            time.sleep(max(0.0, end - time.perf_counter()))  # the accelerator's part
        dist.all_reduce(self._gradient)


def train_in_turns(root: str, folder: Path, mib: int, steps: int) -> None:
    rank = dist.get_rank()
    state = make_state(mib, rank)
    ways = {
        str(replicas): pawl.Checkpointer(f"{root}-{replicas}", replicas=replicas, copy="now")
        for replicas in (1, 0)
    }
    training = Steps()
    for turn in range(1, 1 << 30):
        replicas, load = await_file(folder / f"{turn}.go").split()
        dist.barrier()
        save = ways[replicas].save(turn, state)
        settle(save, "committed")
        dist.barrier()
        begun, within = time.perf_counter(), 0.0
        for _ in range(steps):
            training.run(load == "busy")
            if within == 0.0 and save.level == "replicated":
                within = time.perf_counter() - begun
        found = {"took": time.perf_counter() - begun, "replicated_s": within}
        note(folder / f"{turn}.{rank}", found)
        settle(save, "durable")
        note(folder / f"{turn}.{rank}-durable", {})


def lose_one(root: str, folder: Path, mib: int, level: str) -> None:
    rank = dist.get_rank()
    state = {"mine": torch.empty(mib * MIB // 4)}
    ckpt = pawl.Checkpointer(root, replicas=1 if level == "replicated" else 0)
    first = ckpt.restore(state) or 0
    if first:
        dist.all_reduce(torch.zeros(GRADIENT))
        say(f"first {first} {time.monotonic()}")
        restored, right = state["mine"], make_state(mib, rank)["mine"]
        say(f"right {torch.equal(restored.view(torch.int32), right.view(torch.int32))}")
        return
    state = make_state(mib, rank)
    settle(ckpt.save(1, {"mine": state["mine"] + 1}), "durable")
    say("saved 1")
    await_file(folder / "go")
    settle(ckpt.save(2, state), level)
    say("saved 2")
    while True:
        dist.all_reduce(torch.zeros(GRADIENT))
        time.sleep(STEP_S)  # pace


def main() -> None:
    mode, root, folder, mib, steps = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if mode == "rate":
        save_in_turns(root, Path(folder), int(mib))
    elif mode == "slow":
        train_in_turns(root, Path(folder), int(mib), int(steps))
    else:
        lose_one(root, Path(folder), int(mib), steps)


if __name__ == "__main__":
    main()
