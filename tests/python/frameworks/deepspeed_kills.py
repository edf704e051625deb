"""A job of test_deepspeed.py. Usage: deepspeed_kills.py ROOT KILLS SEED KEEP

Kills two ranks that train with DeepSpeed and save after every step, KILLS times, at random moments:
with the agent, as if the machine died; or without it, so that the agent goes on making its
checkpoints durable. Then torch alone loads the tag that `latest` names, and the next two ranks go
on from the newest checkpoint, with the weights it was saved with. The ranks are forked from this
process: importing DeepSpeed takes longer than all else together.

Prints one line for each kill, and how often `latest` named a tag that could not be loaded.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import deepspeed
import deepspeed.ops
import torch

import pawl
import pawl.integrations.deepspeed
import program
import ranks
import waits

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # DeepSpeed compiles nothing
torch.set_num_threads(1)

WORLD = 2
WIDTH = 256
AFTER_MOST_S = 0.5  # most seconds from the first save to the kill
AGENT_MOST_S = 1.0  # most seconds that the agent goes on alone


def train(rank: int, root: Path, told: Path, keep: int) -> None:
    """Goes on from the newest checkpoint until it is killed. Appends what it saves and finds to the
    file `told`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
    )
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 1},
        "steps_per_print": 10**9,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    pawl.integrations.deepspeed.install(engine, keep=keep)
    with told.open("a") as file:
        engine.load_checkpoint(str(root))
        print("found", engine.global_steps, weights(engine), file=file, flush=True)
        while True:
            source = torch.Generator().manual_seed(1000 + engine.global_steps * 10 + rank)
            engine.backward(engine(torch.randn(4, WIDTH, generator=source)).pow(2).mean())
            engine.step()
            print("saves", engine.global_steps, weights(engine), file=file, flush=True)
            engine.save_checkpoint(str(root))


def weights(engine: Any) -> float:
    return sum(p.detach().double().abs().sum().item() for p in engine.module.parameters())


def fork_rank(rank: int, port: int, root: Path, told: Path, keep: int) -> int:
    pid = os.fork()
    if pid == 0:
        os.environ.update(ranks.rank_env(rank, WORLD, port, "kills"))
        try:
            train(rank, root, told, keep)
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # skips this process's own exit handlers
    return pid


def wait_for_save(told: Path, seen: int) -> None:
    """Waits until a rank has written of a save, after byte seen of the file."""
    program.wait_until(lambda: "saves" in told.read_text()[seen:], "a save")


def kill_agent(root: Path) -> None:
    match = re.search(r"\(pid (\d+) on ", (root / ".pawl-lock").read_text())
    if match is None:
        sys.exit(f"{root}: nobody in the lock file")
    os.kill(int(match[1]), signal.SIGKILL)


def load_latest(root: Path) -> str:
    """Loads the tag that `latest` names. Returns the outcome as a line of text."""
    if not (root / "latest").exists():
        return "nothing"
    tag = (root / "latest").read_text()
    try:
        files = list((root / tag).glob("*.pt"))
        for file in files:
            torch.load(file, weights_only=False)
        if len(files) != 1 + WORLD:
            return f"BROKEN {tag}: {len(files)} files"
    except Exception as reason:
        return f"BROKEN {tag}: {reason}"
    return tag


def check_told(told: list[Path]) -> None:
    """Checks that the ranks found, to the bit, what was saved."""
    saved: dict[str, set[str]] = {}
    for line in told[0].read_text().splitlines():
        what, step, value = line.split()
        if what == "saves":
            saved.setdefault(step, set()).add(value)
        elif step != "0" and value not in saved[step]:
            sys.exit(f"step {step} has weights {value}, saved were {saved[step]}")
    found = [[x for x in t.read_text().splitlines() if x.startswith("found")] for t in told]
    if found[0] != found[1]:
        sys.exit("the ranks found different checkpoints")


def main() -> None:
    root, kills, seed, keep = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    chance = random.Random(seed)
    told = [Path(f"{root}-{rank}") for rank in range(WORLD)]
    for file in told:
        file.touch()
    broken = 0
    for number in range(kills):
        seen = told[0].stat().st_size
        port = ranks.free_port()
        pids = [fork_rank(rank, port, root, told[rank], keep) for rank in range(WORLD)]
        wait_for_save(told[0], seen)
        waits.any_moment(chance, 0, AFTER_MOST_S)
        alone = number % 3 != 2
        if not alone:
            kill_agent(root)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        if alone:
            waits.any_moment(chance, 0, AGENT_MOST_S)
        named = load_latest(root)
        broken += named.startswith("BROKEN")
        print(f"{number}: {named}", flush=True)
    check_told(told)
    print(f"> {broken} of {kills}", flush=True)


if __name__ == "__main__":
    main()
