"""A rank of the backend "pawl" under torch's own models and helpers of its distributed tests.

Usage: group_tensor_rank.py [BACKEND [CHECK...]]: of torch_parts.py, or none for all. Prints
"> CHECK" for each that held, "! rank R: CHECK: ..." for one that did not, and "> lacks ..." in
place of all where torch is too old to have what they are made of.
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from group_checks import CHECKS, rank


def lacks() -> str:
    """What torch has no name for; "" if it has all."""
    try:
        importlib.import_module("torch_parts")
    except ImportError as error:
        if not (error.name or "").startswith("torch."):
            raise
        return str(error)
    return ""


def main(backend: str = "pawl", *names: str) -> None:
    torch.set_num_threads(1)
    if missing := lacks():
        print(f"> lacks {missing}")
        return
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    for name in names or CHECKS:
        try:
            CHECKS[name]()
        except BaseException as error:
            print(f"! rank {rank()}: {name}: {type(error).__name__}: {error}", flush=True)
            raise
        print(f"> {name}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
