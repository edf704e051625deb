"""How the ranks of a group find each other: they exchange endpoints through torch's store."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch.distributed as dist

from pawl._times import seconds
from pawl.errors import error


def meeting_place(store: dist.Store) -> str | None:
    """The host of the store. All ranks know it; the route to it is the route to other ranks."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, dist.TCPStore) else os.environ.get("MASTER_ADDR")


def exchange(
    store: dist.Store, rank: int, ranks: int, endpoint: str, timeout: timedelta
) -> list[str]:
    """Publishes this rank's endpoint and returns the endpoints of all ranks.

    A store may outlive a group, so the keys contain the number of the exchange.
    """
    turn = store.add(f"pawl/turn/{rank}", 1)
    store.set(f"pawl/{turn}/{rank}", endpoint)
    end = time.monotonic() + timeout.total_seconds()
    return [_receive_endpoint(store, f"pawl/{turn}/{r}", r, end) for r in range(ranks)]


def _receive_endpoint(store: dist.Store, key: str, rank: int, end: float) -> str:
    warned = False
    while True:
        left = end - time.monotonic()
        try:
            store.wait([key], timedelta(seconds=max(0.01, min(left, seconds("torch_late")))))
            return str(store.get(key).decode())
        except dist.DistStoreError:
            if left <= seconds("torch_late"):
                raise error(
                    "PAWL_ETIMEDOUT", f"collectives: rank {rank} did not join the group in time"
                ) from None
        if not warned:
            print(f"pawl: waiting for rank {rank} to join the group", file=sys.stderr)
            warned = True
