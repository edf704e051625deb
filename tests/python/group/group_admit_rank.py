"""A rank of a group that others leave and join. Usage: group_admit_rank.py FOLDER [join]

Rank 1 kills itself after some steps. The others go on, and admit the newcomer that waits at the
join listener, whose name is in FOLDER/door. All ranks end some steps after the group has its first
size again.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import pawl.distributed
from group_checks import compare, go_back, train

FOLDER, NEWCOMER = Path(sys.argv[1]), sys.argv[2:] == ["join"]
RANKS, MORE = 3, 10
LIMIT = timedelta(seconds=60)


def tell(model: nn.Module, step: int, group: dist.ProcessGroup) -> int:
    """Broadcasts what a newcomer needs: the weights, and the step, which is returned."""
    at = torch.tensor(step)
    for tensor in [at, *(p.detach() for p in model.parameters())]:
        dist.broadcast(tensor, group=group, group_src=0)
    return int(at)


def open_door(group: dist.ProcessGroup) -> None:
    if dist.get_rank(group) == 0:
        (FOLDER / "new").write_text(group.door())  # type: ignore[attr-defined]
        (FOLDER / "new").rename(FOLDER / "door")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(9 if NEWCOMER else 5)
    model = nn.Linear(100, 10)
    step, lost, told = 0, False, not NEWCOMER
    if NEWCOMER:
        group = pawl.distributed.join((FOLDER / "door").read_text(), LIMIT)
        assert dist.get_rank() == RANKS - 1 and dist.get_backend() == "pawl"
    else:
        dist.init_process_group("pawl", timeout=LIMIT)
        assert dist.group.WORLD is not None
        group = dist.group.WORLD
    groups = [group]
    end = MORE if NEWCOMER else None
    while end != 0:
        if not told:
            step, told = tell(model, step, group), True
        states = {step: {k: v.clone() for k, v in model.state_dict().items()}}
        try:
            if dist.get_rank() == 1 and not NEWCOMER and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            train(model, group)
        except RuntimeError as error:
            print(f"> NAMED {error}", flush=True)
            lost = True
        if lost:
            group = group.shrink(least=1)  # type: ignore[attr-defined]
            groups.append(group)
            lost = False
            step = go_back(step, group)
            model.load_state_dict(states[step])
            open_door(group)
            continue
        step += 1
        end = end and end - 1
        if step > 5 and dist.get_world_size(group) < RANKS:
            grown = group.admit(most=RANKS)  # type: ignore[attr-defined]
            if grown is not group:
                group, told, end = grown, False, MORE
                groups = [group]
    compare(model, group)


if __name__ == "__main__":
    main()
