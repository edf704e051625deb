"""A rank of the backend "pawl" under torch's own models and helpers of its distributed tests.

Usage: group_tensor_rank.py [BACKEND [CHECK...]]: the checks of torch_parts.py to run, or none for
all. Prints "> CHECK" for each that held, "! rank R: CHECK: ..." for one that did not, and "> lacks
..." instead of all where torch is too old to have the parts that the checks are made of.
"""

from __future__ import annotations

import importlib
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from group_checks import CHECKS, rank


def lacks() -> str:
    """Returns the message of the import of torch that fails; "" if torch has all that the checks
    need."""
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
