"""This process's rank, and values gathered from all ranks."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from pawl import _core
from pawl._times import seconds

log = logging.getLogger("pawl")


_warned_alone = False


class Ranks:
    """This rank among those of torch.distributed, if that is initialised."""

    def __init__(self) -> None:
        distributed: Any = sys.modules.get("torch.distributed")
        self._distributed = None
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._distributed = distributed
            self.rank: int = distributed.get_rank()
            self.world: int = distributed.get_world_size()
        else:
            env = _core.env()
            self.rank, self.world = env["rank"], env["world"]

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank. Every rank must call it; with one
        rank it is [value].
        """
        if self._distributed is None or self.world == 1:
            self._warn_alone()
            return [value]
        values: list[Any] = [None] * self.world
        late = threading.Timer(seconds("recipe_late"), self._warn_late)
        late.daemon = True
        late.start()
        try:
            self._distributed.all_gather_object(values, value)
        finally:
            late.cancel()
        return values

    def _warn_alone(self) -> None:
        global _warned_alone
        if self.world > 1 and not _warned_alone:
            _warned_alone = True
            log.warning(
                "load_checkpoint: rank %d of %d picks a checkpoint alone: ranks agree on one only "
                "after torch.distributed.init_process_group",
                self.rank,
                self.world,
            )

    def _warn_late(self) -> None:
        log.warning(
            "load_checkpoint: rank %d has waited %.0f s for the others: once torch.distributed is "
            "initialised, every rank must call it",
            self.rank,
            seconds("recipe_late"),
        )
