"""How the ranks of a group find each other: by cards that they exchange through torch's store."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch.distributed as dist

from pawl._times import seconds
from pawl.errors import error


def meeting_place(store: dist.Store) -> str | None:
    """The host that the store is at, which all ranks know: others are reached on the way there."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, dist.TCPStore) else os.environ.get("MASTER_ADDR")


def exchange(store: dist.Store, rank: int, ranks: int, card: str, timeout: timedelta) -> list[str]:
    """Hands out a card and takes those of all others.

    A store may be there longer than a group: so the keys carry how often this was done.
    """
    turn = store.add(f"pawl/turn/{rank}", 1)
    store.set(f"pawl/{turn}/{rank}", card)
    end = time.monotonic() + timeout.total_seconds()
    return [_take_card(store, f"pawl/{turn}/{r}", r, end) for r in range(ranks)]


def _take_card(store: dist.Store, key: str, rank: int, end: float) -> str:
    warned = False
    while True:
        left = end - time.monotonic()
        try:
            store.wait([key], timedelta(seconds=max(0.01, min(left, seconds("torch_late")))))
            return str(store.get(key).decode())
        except dist.DistStoreError:
            if left <= seconds("torch_late"):
                raise error(
                    "PAWL_ETIMEDOUT", f"collectives: rank {rank} has not come to the group"
                ) from None
        if not warned:
            print(f"pawl: waiting for rank {rank} to come to the group", file=sys.stderr)
            warned = True
