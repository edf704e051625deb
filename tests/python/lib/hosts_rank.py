"""A rank of a job that spans hosts, for hosts.py: obeys commands on its standard input.

Each line is a command; each is answered by one line. The state of a rank at a step follows from its
number and the step, so that restored values show which rank and step saved them.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pawl
from pawl.engine import Engine

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def fill(state: dict[str, Any], step: int, wrong: bool) -> None:
    """Sets the state that this rank has at a step; wrong: one that differs from the other ranks'
    state."""
    with torch.no_grad():
        for i, weight in enumerate(state["model"].parameters()):
            weight.copy_(torch.arange(weight.numel()).view_as(weight) * (i + 1) + step + wrong)
    state["own"] = {"step": step, "rank": RANK, "values": torch.arange(3000.0) * (RANK + 1) + step}


def differs(state: dict[str, Any], step: int) -> str:
    """Returns the names of partitions that are not as they were saved at a step."""
    want = make()
    fill(want, step, False)
    wrong = []
    for a, b in zip(state["model"].parameters(), want["model"].parameters(), strict=True):
        if not torch.equal(a, b):
            wrong.append("model")
    own = state["own"]
    if (own["step"], own["rank"]) != (step, RANK) or not torch.equal(
        own["values"], want["own"]["values"]
    ):
        wrong.append("own")
    return " ".join(wrong)


def make() -> dict[str, Any]:
    model = DistributedDataParallel(torch.nn.Linear(300, 40))
    return {"model": model, "own": {}}


class Rank:
    """The only checkpointer of this process, and its newest save."""

    def __init__(self) -> None:
        self.state = make()
        self.ckpt: pawl.Checkpointer | Engine | None = None
        self.saved: pawl.Save | None = None

    def open(self, root: str, memory: str = "") -> str:
        # the process group is this process alone, for DistributedDataParallel
        limit = int(memory) if memory else None
        self.ckpt = pawl.Checkpointer(root, rank=RANK, world_size=WORLD, memory=limit)
        return "open"

    def engine(self, root: str, memory: str = "") -> str:
        limit = int(memory) if memory else None
        self.ckpt = Engine(root, rank=RANK, world_size=WORLD, memory=limit)
        return "open"

    def put(self, tag: str, how: str = "") -> str:
        """Saves by tag. how: at once, in pieces, nothing, all ranks under the same name, or this
        rank alone."""
        assert isinstance(self.ckpt, Engine)
        part = {"tag": tag, "rank": RANK, "values": torch.arange(3000.0) + RANK}
        name = "same" if how == "same" else f"part-{RANK}"
        if how in ("pieces", "nothing"):
            building = self.ckpt.begin(tag)
            for one in (name, f"{name}-too") if how == "pieces" else ():
                building.add(one, part)
            self.saved = building.commit()
        else:
            self.saved = self.ckpt.save(tag, {name: part}, alone=how == "alone")
        return "saving"

    def find(self, tag: str = "") -> str:
        """Returns the tag and the names of its files; reads each of them."""
        assert isinstance(self.ckpt, Engine)
        found = self.ckpt.find(tag or None)
        if found is None:
            return "nothing"
        for name in found.names:
            part = found.load(name)
            own = int(part["rank"])
            assert part["tag"] == found.tag and name.startswith(("same", f"part-{own}")), part
            assert torch.equal(part["values"], torch.arange(3000.0) + own), name
        return f"{found.tag} {' '.join(found.names)}"

    def remove(self, tag: str) -> str:
        assert isinstance(self.ckpt, Engine)
        self.ckpt.remove(tag)
        return "removed"

    def save(self, step: str, wrong: str = "") -> str:
        assert isinstance(self.ckpt, pawl.Checkpointer)
        fill(self.state, int(step), wrong == "wrong")
        self.saved = self.ckpt.save(int(step), self.state)
        return "saving"

    def wait(self, seconds: str = "60", level: str = "durable") -> str:
        assert self.saved
        return level if self.saved.wait(level, float(seconds)) else f"{self.saved.error}"

    def restore(self, step: str = "") -> str:
        assert isinstance(self.ckpt, pawl.Checkpointer)
        got = self.ckpt.restore(self.state, int(step) if step else None)
        return "nothing" if got is None else f"{got} {differs(self.state, got)}".strip()

    def pin(self, step: str) -> str:
        assert isinstance(self.ckpt, pawl.Checkpointer)
        self.ckpt.pin(int(step))
        return "pinned"

    def stopping(self) -> str:
        assert self.ckpt
        return str(self.ckpt.stopping)

    def close(self) -> str:
        assert self.ckpt
        return str(self.ckpt.close())


def main() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank = Rank()
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *args = line.split()
        try:
            answer = getattr(rank, verb)(*args)
        except (pawl.PawlError, AssertionError) as reason:
            answer = f"error {reason}"
        print(answer.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
