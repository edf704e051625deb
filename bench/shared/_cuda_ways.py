"""Ways to save a training on a device, for _cuda_save.py: Pawl's two, torch.save's, and DCP's.

A way begins a save and then reports the levels that the save has reached: "copied" to host memory,
"committed" (Pawl: in memory that outlives the process), "durable" in its file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import staging

import pawl
from shared._agent import NEVER, end_agent
from shared._cuda_model import Training

LIMIT_S = 120.0  # longest wait for anything; a longer one is a hang
TIERS = 2.2  # memory tier for Pawl, in sizes of the state: room for two checkpoints
# Room for small checkpoints beside them; with less memory, saves would be streamed.
TIER_BYTES = 64 << 20

Look = Callable[[], set[str]]  # the levels that a save has reached


class Way:
    """A way to save; last: the level at which a save is over."""

    last = "durable"

    def save(self, step: int) -> Look:
        raise NotImplementedError

    def before_update(self) -> None:
        """Waits until the optimizer may change what is being saved."""

    def close(self) -> None:
        """Waits until nothing is under way any more, and deletes the files."""


class Pawl(Way):
    def __init__(self, training: Training, root: Path, copy: str, durable: bool) -> None:
        """durable: make each save durable, else only committed."""
        self.last = "durable" if durable else "committed"
        self.root = root
        self._training = training
        size_bytes = sum(t.nbytes for t in training.tensors())
        self._options: dict[str, Any] = {
            "keep": 1,
            "copy": copy,
            "memory": round(TIERS * size_bytes) + TIER_BYTES,
            "persist_every": 0 if durable else NEVER,
            "job": f"bench:{root}",
        }
        self.open()

    def open(self) -> None:
        self.checkpointer = pawl.Checkpointer(self.root, **self._options)

    def save(self, step: int) -> Look:
        save = self.checkpointer.save(step, self._training.parts)

        def look() -> set[str]:
            if save.error:
                raise RuntimeError(save.error)
            levels = {"committed": {"committed"}, "durable": {"committed", "durable"}}
            return levels.get(save.level, set())

        return look

    def forget(self) -> None:
        """Ends the agent, so that nothing of the root stays in memory."""
        self.checkpointer.close(LIMIT_S)
        end_agent(self.root)

    def close(self) -> None:
        self.forget()
        shutil.rmtree(self.root, ignore_errors=True)


class Torch(Way):
    """torch.save, and fsync."""

    def __init__(self, training: Training, path: Path) -> None:
        self._training = training
        self.path = path

    def save(self, step: int) -> Look:
        self.path.unlink(missing_ok=True)
        with self.path.open("wb") as file:
            torch.save(self._training.dicts(), file)
            file.flush()
            os.fsync(file.fileno())
        return lambda: {"durable"}

    def close(self) -> None:
        self.path.unlink(missing_ok=True)


class Cpu(Way):
    """Copies every tensor by .cpu(); the copies are written nowhere."""

    last = "copied"

    def __init__(self, training: Training) -> None:
        self._training = training

    def save(self, step: int) -> Look:
        for_nobody = [tensor.cpu() for tensor in self._training.tensors()]
        return lambda: {"copied"} if for_nobody else set()


class Stager(staging.DefaultStager):
    """A stager that stays open: torch 2.11 closes the stager it was given after each save."""

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()


class Dcp(Way):
    """torch.distributed.checkpoint's async_save.

    pinned: copies into page-locked memory that is kept, while training goes on until the
    optimizer's step, which waits for the copy.
    """

    def __init__(self, training: Training, path: Path, pinned: bool) -> None:
        self._training = training
        self._path = path
        self._options: dict[str, Any] = {}
        self._staged: Any = None
        self._written: Any = None
        if pinned:
            options = staging.StagingOptions(
                use_pinned_memory=True,
                use_shared_memory=False,
                use_async_staging=True,
                use_non_blocking_copy=True,
            )
            self._options["async_stager"] = Stager(options)

    def save(self, step: int) -> Look:
        shutil.rmtree(self._path, ignore_errors=True)
        begun: Any = dcp.async_save(
            self._training.dicts(), checkpoint_id=self._path, **self._options
        )
        self._staged = getattr(begun, "staging_completion", None)
        self._written = getattr(begun, "upload_completion", begun)
        return self._look

    def _look(self) -> set[str]:
        if not self._written.done():
            return set()
        self._written.result()
        return {"durable"}

    def before_update(self) -> None:
        if self._staged is not None:
            self._staged.result(LIMIT_S)

    def close(self) -> None:
        if self._written is not None:
            self._written.exception(LIMIT_S)
        if "async_stager" in self._options:
            self._options["async_stager"].end()
        shutil.rmtree(self._path, ignore_errors=True)


def make_ways(
    training: Training, folder: Path, ram: Path | None, durable: bool
) -> dict[str, Callable[[], Way]]:
    """The constructor of each way.

    ram: a folder in memory, if one is large enough, else None. durable: Pawl's saves are made
    durable, and DCP writes to the disk, else into memory.
    """
    written = folder if durable or ram is None else ram
    ways: dict[str, Callable[[], Way]] = {
        "overlap": lambda: Pawl(training, folder / "overlap", "overlap", durable),
        "now": lambda: Pawl(training, folder / "now", "now", durable),
        "cpu": lambda: Cpu(training),
        "torch": lambda: Torch(training, folder / "state.pt"),
        "dcp": lambda: Dcp(training, written / "dcp", False),
    }
    if ram is not None:
        ways["torch_ram"] = lambda: Torch(training, ram / "state.pt")
    if training.device == "cuda" and hasattr(staging, "DefaultStager"):
        ways["dcp_pinned"] = lambda: Dcp(training, written / "dcp_pinned", True)
    return ways
