"""What the ranks of test_group.py share: named checks, run in order or as the command line says."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch.distributed as dist

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def run_checks() -> None:
    """Those that the command line names, or all; prints "> NAME" for each that held."""
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]()
        print(f"> {name}", flush=True)


def rank() -> int:
    return dist.get_rank()


def world() -> int:
    return dist.get_world_size()
