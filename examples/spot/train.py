"""Trains on a machine that may be taken away at any time: docs/spot.md.

pawl run --notice auto --preempted-code 34 train.py s3://my-bucket/runs/first 100000
"""

from __future__ import annotations

import sys

import torch

import pawl


def main(root: str, steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}
    with pawl.Checkpointer(root, keep=3, persist_every=300) as ckpt:
        first = ckpt.restore(state) or 0  # 0: nothing is there yet
        for step in range(first + 1, steps + 1):
            x = torch.randn(16, 64, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            stopping = ckpt.stopping  # a notice or a signal has come
            if stopping or step == steps or ckpt.due():
                ckpt.save(step, state)
            if step % 100 == 0 or stopping:
                print(f"step {step}: loss {loss.item():.4f}")
            if stopping:
                return  # the last save is made durable on the way out


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
