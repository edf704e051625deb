"""Handwritten digits, as AdaptDL's MNIST example has them; the data is scikit-learn's own."""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import pawl.elastic as el

TRAINED = 1500  # samples for training; the rest of the 1797 is for validation
Part = tuple[torch.Tensor, torch.Tensor]  # images of 1 x 8 x 8, digits


def load() -> tuple[Part, Part]:
    """Images and digits for training and for validation, the same in each run."""
    found = load_digits()
    x = torch.tensor(found.images / 16, dtype=torch.float32)[:, None]
    y = torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, valid = order[:TRAINED], order[TRAINED:]
    return (x[train], y[train]), (x[valid], y[valid])


class Digits(nn.Sequential):
    """Two convolutions and two layers behind them."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 9, 64), nn.ReLU(), nn.Linear(64, 10)),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32, help="of all ranks, at first")
    parser.add_argument("--max-batch", type=int, default=512, help="0: it stays as it is")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=0.05, help="for --batch")
    parser.add_argument("--logdir", help="where TensorBoard's files go")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    el.init_process_group()

    train, valid = load()
    loader = el.AdaptiveDataLoader(TensorDataset(*train), args.batch, shuffle=True)
    if args.max_batch:
        loader.autoscale_batch_size(args.max_batch, (8, 256), gradient_accumulation=True)
    checker = el.AdaptiveDataLoader(TensorDataset(*valid), batch_size=len(valid[0]))

    model: nn.Module = Digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    model = el.AdaptiveDataParallel(model, optimizer, schedule)
    writer = None
    if args.logdir and torch.distributed.get_rank() == 0:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(args.logdir)

    for epoch in el.remaining_epochs_until(args.epochs):
        model.train()
        for images, digits in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(images), digits).backward()
            optimizer.step()
            if writer is not None:
                loader.to_tensorboard(writer, epoch, "data")
                model.to_tensorboard(writer, epoch, "model")
        schedule.step()
        model.eval()
        stats = el.Accumulator()
        for images, digits in checker:
            with torch.no_grad():
                out = model(images)
            stats["right"] += int((out.argmax(1) == digits).sum())
            stats["seen"] += len(digits)
        with stats.synchronized():
            right = stats["right"] / stats["seen"]
        if torch.distributed.get_rank() == 0:
            print(f"epoch {epoch}: {right:.1%} right", flush=True)


if __name__ == "__main__":
    main()
