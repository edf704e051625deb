"""A rank of elastic.py: the CPU time that measuring the gradient's noise costs, for a GPT.

Usage: _norms.py FOLDER PAIRS STEPS. Blocks of so many steps with the norms of gradients and without
them, in turns; FOLDER/RANK gets a JSON list of pairs, CPU seconds with and without.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional

import pawl.elastic as el

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "elastic"))

from gpt import Gpt, Text

WIDTH, LAYERS, LENGTH, BATCH = 256, 4, 128, 32  # BATCH: samples of all ranks


def main() -> None:
    folder, pairs, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    el.init_process_group()
    plain = Gpt(WIDTH, LAYERS, LENGTH)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    model = el.AdaptiveDataParallel(plain, optimizer)
    blocks = 1 + 2 * pairs  # the first one warms up
    loader = el.AdaptiveDataLoader(Text(LENGTH, blocks * steps * BATCH), BATCH)
    norms = model._norms
    own = norms.add_local, norms.add_total
    took: list[float] = []
    for _ in el.remaining_epochs_until(1):
        begin = time.process_time()
        for number, x in enumerate(loader):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            if (number + 1) % steps == 0:
                dist.barrier()
                now = time.process_time()
                took.append(now - begin)
                begin = now
                # with, without, without, with, …
                on = len(took) % 4 in (0, 1)
                norms.add_local, norms.add_total = own if on else (_nothing, _nothing)
    found = []
    for pair in range(pairs):
        first, second = took[1 + 2 * pair : 3 + 2 * pair]
        found.append((first, second) if pair % 2 == 0 else (second, first))
    (folder / str(dist.get_rank())).write_text(json.dumps(found))


def _nothing(*of: object) -> None:
    """Stands in for the functions that measure norms."""


if __name__ == "__main__":
    main()
