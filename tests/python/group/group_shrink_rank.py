"""A rank that goes on without the lost ranks. Usage: group_shrink_rank.py HOW VICTIM...

Victims end by HOW ("kill", "stop") one after another, some steps apart. Every other rank trains on,
and prints "> NAMED ERROR" of each failure and "> RANK of RANKS: SUM" of its weights at the end.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from group_checks import compare, go_back, train

HOW, VICTIMS = sys.argv[1], [int(word) for word in sys.argv[2:]]
STEPS = 30


def end_if_victim(step: int) -> None:
    rank = dist.get_rank()
    if rank in VICTIMS and step == 5 * (1 + VICTIMS.index(rank)):
        os.kill(os.getpid(), signal.SIGKILL if HOW == "kill" else signal.SIGSTOP)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("pawl", timeout=timedelta(seconds=60))
    group = dist.group.WORLD
    assert group is not None
    groups = [group]  # a group must live as long as the groups that it was shrunk to
    model = nn.Linear(100, 10)
    states = {}  # weights before each step
    step, lost = 0, False
    while step < STEPS:
        try:
            if lost:
                group = groups[-1].shrink(least=1)  # type: ignore[attr-defined]
                groups.append(group)
                lost = False
                step = go_back(step, group)
                model.load_state_dict(states[step])
            states[step] = {name: value.clone() for name, value in model.state_dict().items()}
            end_if_victim(step)
            train(model, group)
            step += 1
        except RuntimeError as error:
            print(f"> NAMED {error}", flush=True)
            lost = True
    assert dist.get_world_size(group) == dist.get_world_size() - len(VICTIMS)
    assert dist.get_process_group_ranks(group)[dist.get_rank(group)] == dist.get_rank()
    compare(model, group)


if __name__ == "__main__":
    main()
