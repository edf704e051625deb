"""A job of one rank for test_notice.py: trains slowly, until it is told to stop.

`pawl run spot_job.py ROOT STEPS HOW LOG`: HOW is "always", which saves every step, or "due", which
saves only when ckpt.due() says so, and at the end. It appends "word step" lines to LOG.
"""

from __future__ import annotations

import sys
import time

import torch

import pawl


def main() -> None:
    root, steps, how, log = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.manual_seed(0)
    model = torch.nn.Linear(100, 100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}
    ckpt = pawl.Checkpointer(root, persist_every=3600, on_exit="warn")
    first = ckpt.restore(state) or 0
    with open(log, "a", buffering=1) as file:
        print("start", first, file=file)
        for step in range(first + 1, steps + 1):
            x = torch.randn(8, 100, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            stops = ckpt.stopping
            if how == "always" or stops or step == steps or ckpt.due():
                save = ckpt.save(step, state)
                print("saved", step, file=file)
                save.wait("committed", timeout=60)
                print("committed", step, file=file)
            if stops:
                print("stopping", step, file=file)
                break
            print("step", step, file=file)
            time.sleep(0.05)  # pace
    ckpt.close()


if __name__ == "__main__":
    main()
