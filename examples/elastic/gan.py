"""A generative adversarial network: two models, each with an optimizer, in one loop.

It learns points on a ring. The two models need names; the noise of their gradients counts together.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import pawl.elastic as el

RADIUS = 2.0


def points(n: int) -> torch.Tensor:
    angle = 2 * math.pi * torch.rand(n)
    ring = RADIUS * torch.stack([angle.cos(), angle.sin()], 1)
    return ring + 0.05 * torch.randn(n, 2)


def layers(width: int, out: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(width, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2)),
        nn.Linear(64, out),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="points of all ranks, at first")
    parser.add_argument("--max-batch", type=int, default=512, help="0: it stays as it is")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    el.init_process_group()

    loader = el.AdaptiveDataLoader(TensorDataset(points(4096)), args.batch, shuffle=True)
    if args.max_batch:
        loader.autoscale_batch_size(args.max_batch, (8, 256))
    maker, judge = layers(8, 2), layers(2, 1)
    optimizers = [
        torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.5, 0.9)) for net in (maker, judge)
    ]
    makes = el.AdaptiveDataParallel(maker, optimizers[0], name="maker")
    judges = el.AdaptiveDataParallel(judge, optimizers[1], name="judge")

    torch.seed()  # the ranks' seeds differ: each draws noise of its own
    for epoch in el.remaining_epochs_until(args.epochs):
        for (real,) in loader:
            made = makes(torch.randn(len(real), 8))
            both = judges(torch.cat([real, made.detach()]))
            truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
            optimizers[1].zero_grad()
            functional.binary_cross_entropy_with_logits(both, truth).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            # By the plain model: through `judges` its gradients would be reduced, for nothing.
            functional.softplus(-judge(made)).mean().backward()
            optimizers[0].step()
        with torch.no_grad():
            radius = maker(torch.randn(1000, 8)).norm(dim=1)
        if torch.distributed.get_rank() == 0:
            print(f"epoch {epoch}: radius {radius.mean():.2f} of {RADIUS}", flush=True)


if __name__ == "__main__":
    main()
