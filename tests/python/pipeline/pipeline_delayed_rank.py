"""A rank of a pipeline whose model is made in delayed_init.

Usage: pipeline_delayed_rank.py [large]. Prints "> NAME SUM" of each parameter that it has after the
first step. large: prints "> SHARE UNIT GROWN" instead: bytes of its parameters, and of the largest
unit's, and by how much its memory grew at most until then. Weights are frozen: the allocator keeps
some of the memory of gradients, now more and now less.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import pawl.pipeline as pp
from pipeline_checks import pipeline
from test_pipeline_delayed import WIDTH, Block, make

LARGE, LAYERS = 2304, 12  # 20 MiB a layer


def peak_bytes() -> int:
    """The most memory that this process has had since reset_peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def small() -> None:
    with pp.delayed_init(least_bytes=1024):
        module = make(Block(), Block())
    model = pp.DistributedModel(module)

    @pp.step
    def step(x: Tensor) -> None:
        model.backward(model(x).square().mean())

    step(torch.ones(4, WIDTH))
    for name, p in model.local_named_parameters():
        print(f"> {name} {p.detach().sum().item().hex()}", flush=True)


def large() -> None:
    with pp.delayed_init():
        module = nn.Sequential(*[nn.Linear(LARGE, LARGE) for _ in range(LAYERS)])
    for layer in module:
        layer.weight.requires_grad_(False)
    model = pp.DistributedModel(module)

    @pp.step
    def step(x: Tensor) -> None:
        model.backward(model(x).square().mean())

    reset_peak()
    before = peak_bytes()
    step(torch.ones(4, LARGE))
    grown = peak_bytes() - before
    share = sum(p.nbytes for p in model.local_parameters())
    print(f"> {share} {4 * LARGE**2} {grown}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["large"]:
        with pipeline(microbatches=4):
            large()
    else:
        with pipeline(microbatches=2, seed=3, units=["0", "1", "2"]):
            small()


if __name__ == "__main__":
    main()
