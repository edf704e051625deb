"""Runs a rank's script with its tensors on a device: on_device.py SCRIPT ARG...

Whatever the script makes without naming a device is made on it; random numbers come from a
generator on the CPU, with its values; meshes "cpu" become the device's. All ranks share one device,
as ranks of several hosts with one device each do. TEST_DEVICE names another device than "cuda", to
try tests out.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from typing import Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

DEVICE = torch.device(os.environ.get("TEST_DEVICE", "cuda:0"))


class OnDevice(DeviceContext):
    """Works like torch.set_default_device, except for generators on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            func in _device_constructors()
            and kwargs.get("generator") is not None
            and kwargs.get("device") is None
        ):
            return func(*args, **{**kwargs, "device": "cpu"}).to(self.device)
        return super().__torch_function__(func, types, args, kwargs)


def share() -> None:
    """Uses the device that all ranks share where torch would look for one per rank."""
    torch.set_num_threads(1)
    if DEVICE.type == "cuda":
        torch.cuda.init()


def meshes_of_the_device() -> None:
    from torch.distributed import device_mesh

    original = device_mesh.init_device_mesh

    def init_device_mesh(_: str, *args: Any, **kwargs: Any) -> Any:
        return original(DEVICE.type, *args, **kwargs)

    device_mesh.init_device_mesh = init_device_mesh  # type: ignore[assignment]


if __name__ == "__main__":
    share()
    meshes_of_the_device()
    plain = "PLAIN" in os.environ
    if plain:  # scripts that take their local rank's device
        os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    del sys.argv[0]
    with contextlib.nullcontext() if plain else OnDevice(DEVICE):
        runpy.run_path(sys.argv[0], run_name="__main__")
