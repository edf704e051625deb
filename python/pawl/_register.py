"""Makes torch know the backend "pawl". Nothing else of ours is loaded before a group is made."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

NAME = "pawl"
SMDDP = "smddp"  # the same under SMDDP's name, once its module was imported
OURS = (NAME, SMDDP)
VARIABLE = "PAWL_BACKEND"  # set by `pawl run --backend pawl`
REPLACED = {"gloo", "nccl"}  # by ours, then


def autoload() -> None:
    """For torch's import; see _pawl_torch.py."""
    register()
    if os.environ.get(VARIABLE) == NAME:
        replace()


def create(options: Any, pg_options: Any) -> Any:
    """What torch calls for a group of the backend."""
    from pawl._process_group import create

    return create(options, pg_options)


def register(name: str = NAME, create: Callable[[Any, Any], Any] = create) -> None:
    """Registers the backend under one of its names, once."""
    import torch.distributed as dist

    if dist.is_available() and name.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu", "cuda"])


def replace() -> None:
    """Makes init_process_group give ours for torch's own backends, and for none."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    original = c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        named = {part.rpartition(":")[2] for part in (backend or "").lower().split(",")}
        original(NAME if named <= REPLACED | {""} else backend, *args, **kwargs)

    c10d.init_process_group = dist.init_process_group = init_process_group
