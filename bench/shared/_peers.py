"""The ways that Pawl is compared with: torch.save with fsync, and torch's
distributed checkpoint (DCP).
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from shared._state import State


def torch_save(state: State, path: Path) -> float:
    """Seconds until the state is durable in a fresh file."""
    path.unlink(missing_ok=True)
    begun = time.perf_counter()
    with path.open("wb") as file:
        torch.save(state.dicts(), file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - begun


def init_dcp(folder: Path) -> None:
    """DCP saves asynchronously only in a process group; this one has one rank."""
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="torch.distributed")
    dist.init_process_group("gloo", f"file://{folder}/ranks", rank=0, world_size=1)


def dcp_save(state: State, path: Path) -> float:
    shutil.rmtree(path, ignore_errors=True)
    begun = time.perf_counter()
    dcp.save(state.dicts(), checkpoint_id=path)
    return time.perf_counter() - begun


class DcpAsync:
    """One async_save, and how much longer the steps take that go on meanwhile."""

    def __init__(self, state: State, path: Path, step: Callable[[], float], plain_s: float) -> None:
        """plain_s: seconds of a step while nothing is saved."""
        shutil.rmtree(path, ignore_errors=True)
        begun = time.perf_counter()
        future: Any = dcp.async_save(state.dicts(), checkpoint_id=path)
        assert isinstance(future, Future)
        self.return_s = time.perf_counter() - begun
        self.seen_s = self.return_s  # how much longer the steps took than without the save
        while not future.done():
            self.seen_s += step() - plain_s
        future.result()
        self.durable_s = time.perf_counter() - begun
