"""A rank that times the asynchronous parameter server: _server.py NUMBERS SERVERS STEPS.

Prints, as the first rank, a JSON object: {"wall": seconds of a step in the slowest worker, "cpu":
CPU seconds of all ranks for one}. A step is only what is exchanged: gradients are there already.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from programs._reduce import MAX, SUM, cpu_s, over_ranks
from torch import nn

from pawl.distributed import ParameterServer

WARM, STALENESS = 3, 2


class Vector(nn.Module):
    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(numbers))


def main() -> None:
    torch.set_num_threads(1)
    numbers, servers, steps = map(int, sys.argv[1:])
    dist.init_process_group("gloo")
    world = dist.group.WORLD
    assert world is not None
    model = Vector(numbers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    server = ParameterServer(model, optimizer, servers=servers, staleness=STALENESS)
    begun, used = 0.0, cpu_s()
    if server.serving:
        server.serve()
        wall = 0.0
    else:
        model.weight.grad = torch.ones(numbers)
        for step in range(WARM + steps):
            if step == WARM:
                begun, used = time.perf_counter(), cpu_s()
            server.step()
        wall = (time.perf_counter() - begun) / steps
        server.leave()
    found = {"wall": over_ranks(wall, MAX, world)}
    found["cpu"] = over_ranks((cpu_s() - used) / steps, SUM, world)
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
