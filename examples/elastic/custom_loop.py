"""A loader of one's own: text is read in order, as recurrent networks need it.

It has what AdaptiveDataLoader has for data sets: it adapts, ranks may go and come, and it goes on
where it was.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import pawl.elastic as el


class Reader(el.AdaptiveDataLoaderMixin):
    """Windows of a text, in order: the next ones for all ranks are the next in the text."""

    def __init__(self, text: torch.Tensor, length: int, batch_size: int) -> None:
        super().__init__(batch_size)
        self.windows = text[: len(text) // length * length].view(-1, length)

    def __iter__(self) -> Iterator[torch.Tensor]:
        helper = self._elastic
        with helper.context():
            if helper.skipdone():  # True: this loop was finished before a restart
                return
            n = 0
            while helper.current_index < len(self.windows):
                with helper.profile(self.training and n > 0):
                    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
                    each = helper.current_local_bsz
                    # Computed before the step: there may be fewer ranks after it.
                    taken = ranks * each
                    first = (helper.current_index + rank * each) % len(self.windows)
                    yield self.windows[first : first + each].long()
                    helper.current_index += taken
                n += 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, 64)
        self.gru = nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.bytes(x))[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16, help="windows of all ranks, at first")
    parser.add_argument("--max-batch", type=int, default=128, help="0: it stays as it is")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    el.init_process_group()

    text = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()
    loader = Reader(torch.frombuffer(bytearray(text), dtype=torch.uint8), 33, args.batch)
    if args.max_batch:
        loader.autoscale_batch_size(args.max_batch, (2, 64), gradient_accumulation=True)
    model: nn.Module = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model = el.AdaptiveDataParallel(model, optimizer)

    for epoch in el.remaining_epochs_until(args.epochs):
        stats = el.Accumulator()
        for x in loader:
            optimizer.zero_grad()
            logits = model(x[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            stats["loss"] += loss.item() * len(x)
            stats["seen"] += len(x)
        with stats.synchronized():
            loss = stats["loss"] / stats["seen"]
        if torch.distributed.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.3f} nats a byte", flush=True)


if __name__ == "__main__":
    main()
