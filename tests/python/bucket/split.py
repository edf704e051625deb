"""A job of which another one may run at the same time: saves who it is at each step, until it is
refused.

split.py ROOT NUMBER
"""

from __future__ import annotations

import sys

import torch

import pawl


def main() -> None:
    root, number = sys.argv[1], int(sys.argv[2])
    model = torch.nn.Linear(300, 200)
    ckpt = pawl.Checkpointer(root, keep=20, persist_every=0, job="split")
    step = ckpt.restore({"model": model}) or 0
    print(f"start {step}", flush=True)
    with torch.no_grad():
        model.weight.fill_(number)
    saved = True
    while saved:
        step += 1
        saved = ckpt.save(step, {"model": model}).wait("durable", timeout=120)
        print(f"{'durable' if saved else 'refused'} {step}", flush=True)
    ckpt.close()


if __name__ == "__main__":
    main()
