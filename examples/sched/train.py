"""A small model, trained by pawl.elastic in steps that take as long as an accelerator's would.

Thus more replicas than the machine has cores are worth having. Without --sample-ms
it trains as fast as it can.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import pawl.elastic as el


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS", "4")))
    parser.add_argument("--sample-ms", type=float, default=0.0, help="of an accelerator, each")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(512, 16)
    y = torch.tanh(x @ torch.randn(16, 1)) + 0.5 * torch.randn(512, 1)
    model: nn.Module = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = el.AdaptiveDataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    loader.autoscale_batch_size(256, local_bsz_bounds=(2, 64), gradient_accumulation=True)
    model = el.AdaptiveDataParallel(model, optimizer)
    for epoch in el.remaining_epochs_until(args.epochs):
        stats = el.Accumulator()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            time.sleep(args.sample_ms / 1e3 * len(inputs))
            loss.backward()
            optimizer.step()
            stats["loss"] += loss.item() * len(inputs)
            stats["seen"] += len(inputs)
        with stats.synchronized():
            loss_mean = stats["loss"] / stats["seen"]
        if torch.distributed.get_rank() == 0:
            ranks = torch.distributed.get_world_size()
            print(f"epoch {epoch}: loss {loss_mean:.3f}, {ranks} ranks", flush=True)


if __name__ == "__main__":
    main()
