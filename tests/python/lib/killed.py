"""A trainer to be killed: its state is a function of the step, so what it saves can be checked.

`python killed.py train ROOT STEPS` trains from the newest checkpoint and prints "start N",
"committed N" and "durable N" lines, each only once it is true. `python killed.py check ROOT` prints
"step N SHA256" of what it restores.
"""

from __future__ import annotations

import hashlib
import os
import sys

import torch

import pawl

JOB = os.environ.get("KILLED_JOB", "killed")
# Elements: below and above the size that is watched; and of one more parameter, if it is wanted.
LARGE = os.environ.get("KILLED_LARGE")
SIZES = (*([int(LARGE)] if LARGE else []), 3, 70_000, 300_000, 1_000)


def make(step: int) -> dict[str, torch.Tensor]:
    """Returns the state after a step."""
    generator = torch.Generator().manual_seed(step)
    return {str(n): torch.randn(n, generator=generator) for n in SIZES}


def sha256(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


class Model(torch.nn.Module):
    """A module whose parameters and buffer take their values from `make`."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterDict({f"w{n}": torch.zeros(n) for n in SIZES[:-1]})
        self.register_buffer("last", torch.zeros(SIZES[-1]))

    def parts(self) -> dict[str, torch.Tensor]:
        return {str(n): self.weights[f"w{n}"].data for n in SIZES[:-1]} | {
            str(SIZES[-1]): self.last
        }

    def become(self, step: int) -> None:
        for name, value in make(step).items():
            self.parts()[name].copy_(value)


class Setter(torch.optim.Optimizer):
    """An optimizer whose step gives all parameters their values of the next step."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.parameters(), {})
        self.model = model
        self.next = 0

    def step(self, closure: None = None) -> None:
        self.model.become(self.next)


def train(root: str, steps: int) -> None:
    model = Model()
    optimizer = Setter(model)
    ckpt = pawl.Checkpointer(root, keep=2, persist_every=0.05, job=JOB)
    state = {"model": model, "optimizer": optimizer}
    first = ckpt.restore(state) or 0
    print(f"start {first}", flush=True)
    for step in range(first + 1, first + steps + 1):
        optimizer.next = step
        optimizer.step()
        save = ckpt.save(step, state)
        if step % 3 == 0 and save.wait("committed", timeout=10):
            print(f"committed {step}", flush=True)
        if step % 7 == 0 and save.wait("durable", timeout=10):
            print(f"durable {step}", flush=True)
    ckpt.close()


def check(root: str) -> None:
    model = Model()
    ckpt = pawl.Checkpointer(root, job=JOB)
    step = ckpt.restore({"model": model})
    print("nothing" if step is None else f"step {step} {sha256(model.parts())}", flush=True)
    ckpt.close()


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]))
    else:
        check(sys.argv[2])
