"""Saves tensors that claim to lie on a CUDA device, whose driver is made of host memory
(tests/lib/fakecuda.h): its library is in LD_LIBRARY_PATH. Changes the tensors while they are
copied, or afterwards, with no optimizer step in between."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch
from torch import nn

from pawl import Checkpointer

WIDTH = 1024  # one weight takes 4 MiB
driver = ctypes.CDLL("libcuda.so.1")  # the library that pawl finds, too


def claim() -> None:
    """From now on, large storages are on device 0 and all work is on its default stream."""
    storage: Any = torch.UntypedStorage
    storage.is_cuda = property(lambda self: self.nbytes() > 1 << 20)
    storage.device = property(lambda self: torch.device("cuda:0" if self.is_cuda else "cpu"))
    storage.is_pinned = lambda self: False
    torch.cuda.is_initialized = lambda: True  # type: ignore[assignment]
    torch.cuda.current_stream = torch.cuda.default_stream = lambda device=None: "default"


def main() -> None:
    layer = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    claim()
    with Checkpointer(sys.argv[1], persist_every=0) as ckpt:
        state = {"layer": layer, "optim": optimizer}
        for step, changes in enumerate(["never", "afterwards", "meanwhile", "copied"]):
            driver.fakecuda_busy(0, changes != "copied")  # nothing is copied while it is busy
            save = ckpt.save(step, state)
            if changes in ("meanwhile", "copied"):
                layer.weight.detach().add_(1)
            driver.fakecuda_busy(0, False)
            save.wait("durable", 60)
            if changes == "afterwards":
                layer.weight.detach().add_(1)
            print(f"> {changes}: {save.proof}, {save.level} {save.error or ''}", flush=True)


if __name__ == "__main__":
    main()
