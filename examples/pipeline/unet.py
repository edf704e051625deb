"""Segments volumes with MONAI's U-Net, over several stages and replicas; see README.md beside this.

pawl run -n 4 unet.py [--stages 2] [--steps 100] ...
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from monai.losses import DiceCELoss
from monai.networks.nets import UNet
from torch import Tensor

import pawl
import pawl.pipeline as pp

CLASSES = ("background", "ball", "box")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Segments volumes over several stages.")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4, help="volumes of a step, in each replica")
    parser.add_argument("--size", type=int, default=32, help="voxels of an edge; divisible by 8")
    parser.add_argument("--channels", type=int, default=8, help="of the first level")
    parser.add_argument("--root", default="unet-run", help="where checkpoints go")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--device", help="where stages compute, such as cuda; the CPU if left out")
    return parser.parse_args()


def make_volume(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A ball and a box in noise, and the class of each voxel; both of shape [1, size, size,
    size].
    """
    axis = torch.arange(size, dtype=torch.float32)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"))
    random = torch.rand(10, generator=generator)
    center, radius = random[:3] * size, size * (0.15 + 0.15 * random[3])
    low, edges = random[4:7] * size * 0.7, size * (0.2 + 0.2 * random[7:10])
    ball = ((grid - center[:, None, None, None]) ** 2).sum(0) < radius**2
    beyond = grid - low[:, None, None, None]
    box = ((beyond >= 0) & (beyond < edges[:, None, None, None])).all(0)
    label = torch.where(box, 2, torch.where(ball, 1, 0))[None]
    noise = torch.randn(1, size, size, size, generator=generator)
    return label * 0.5 + noise * 0.4, label


def batches(args: argparse.Namespace, first: int, replica: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Volumes; those of a step and a replica are always the same."""
    for step in range(first, args.steps + 1):
        generator = torch.Generator().manual_seed(1000 * step + replica)
        made = [make_volume(args.size, generator) for _ in range(args.batch)]
        yield torch.stack([volume for volume, _ in made]), torch.stack([label for _, label in made])


def overlap(logits: Tensor, label: Tensor) -> Tensor:
    """The Dice coefficient of each class but the background."""
    found = logits.detach().argmax(1, keepdim=True)
    scores = []
    for number in range(1, len(CLASSES)):
        a, b = found == number, label == number
        scores.append((2 * (a & b).sum() + 1) / (a.sum() + b.sum() + 1))
    return torch.stack(scores)


def main() -> None:
    args = arguments()
    pp.init(stages=args.stages, microbatches=args.microbatches, device=args.device)
    torch.manual_seed(0)
    channels = [args.channels * 2**level for level in range(4)]
    model = pp.DistributedModel(
        UNet(
            spatial_dims=3,
            in_channels=1,
            out_channels=len(CLASSES),
            channels=channels,
            strides=(2, 2, 2),
            num_res_units=2,
            dropout=0.1,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of = DiceCELoss(to_onehot_y=True, softmax=True)

    @pp.step
    def train_step(volume: Tensor, label: Tensor) -> Any:
        logits = model(volume)
        loss = loss_of(logits, label)
        model.backward(loss)
        return {"loss": loss, "overlap": overlap(logits, label)}

    state = {"model": model, "optimizer": optimizer}
    with pawl.Checkpointer(args.root) as ckpt:
        done = ckpt.restore(state) or 0
        for step, batch in enumerate(batches(args, done + 1, pp.replica()), done + 1):
            optimizer.zero_grad()
            result = train_step(*batch)
            optimizer.step()
            if step % args.every == 0 or step == args.steps:
                ckpt.save(step, state)
            if pp.rank() == 0 and pp.replica() == 0:
                scores = result["overlap"].reduce_mean().tolist()
                named = ", ".join(
                    f"{name} {score:.3f}" for name, score in zip(CLASSES[1:], scores, strict=True)
                )
                loss = result["loss"].reduce_mean().item()
                print(f"step {step}: loss {loss:.4f}, dice of {named}", flush=True)


if __name__ == "__main__":
    main()
