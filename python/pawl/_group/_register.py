"""Makes torch know the backend "pawl". Nothing else of ours is loaded before a group is made."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

NAME = "pawl"
SMDDP = "smddp"  # the backend's name under SMDDP, once SMDDP's module was imported
OURS = (NAME, SMDDP)
# Names the backend that replaces torch's; set by `pawl run --backend pawl`.
VARIABLE = "PAWL_BACKEND"
REPLACED = {"gloo", "nccl"}  # backends that are replaced then
JOIN = "PAWL_ELASTIC_JOIN"  # if set, this process joins a running job, as number N


def autoload() -> None:
    """Called when torch is imported; see _pawl_torch.py."""
    register()
    boot = sys.modules.get("pawl._boot")
    if boot is None or not boot.forks:  # in the template, each worker calls it for itself
        join()
    if os.environ.get(VARIABLE) == NAME:
        replace()


def join() -> None:
    """Prepares a process that is to join a running job, before it has a group."""
    if os.environ.get(JOIN):
        begin_alone()


def create(options: Any, pg_options: Any) -> Any:
    """Makes a group of the backend; torch calls it."""
    from pawl._group._process_group import create

    return create(options, pg_options)


def register(name: str = NAME, create: Callable[[Any, Any], Any] = create) -> None:
    """Registers the backend under one of its names, once."""
    import torch.distributed as dist

    if dist.is_available() and name.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu", "cuda"])


def replace() -> None:
    """Makes init_process_group use our backend in place of torch's own, and where none is named."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    original = c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        named = {part.rpartition(":")[2] for part in (backend or "").lower().split(",")}
        original(NAME if named <= REPLACED | {""} else backend, *args, **kwargs)

    c10d.init_process_group = dist.init_process_group = init_process_group


def begin_alone() -> None:
    """Makes init_process_group make a group of this process alone if a script names no store: the
    process joins a running group later.
    """
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    original = c10d.init_process_group
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        if bound.arguments.get("store") is None:
            bound.arguments.pop("init_method", None)
            bound.arguments |= {"rank": 0, "world_size": 1, "store": dist.HashStore()}
        original(*bound.args, **bound.kwargs)

    c10d.init_process_group = dist.init_process_group = init_process_group


def enroll(made: Any, like: Any, ranks: list[int], store: Any) -> None:
    """Registers a group with torch, with the backend and store of the known group ``like``.

    ``ranks``: members, as torch numbers them among all ranks. Does the same as torch's
    _register_pg_in_world, which not every version has.
    """
    from torch.distributed import distributed_c10d as c10d

    world = c10d._world
    if like not in world.pg_map:
        return
    name = f"{world.pg_names[like]}/{'.'.join(map(str, ranks))}"
    _enter(made, name, world.pg_map[like][0], world.pg_backend_config[like], ranks, store)


def enroll_first(made: Any, store: Any) -> None:
    """Registers a group where none has been initialized: it becomes the default group."""
    from torch.distributed import distributed_c10d as c10d

    _enter_new(made, "joined", list(range(made.size())), store)
    c10d._update_default_pg(made)


def enroll_alone(made: Any, store: Any) -> None:
    """Registers a group of this process alone, which no other rank knows."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    _enter_new(made, f"alone/{len(c10d._world.pg_map)}", [dist.get_rank()], store)


def _enter_new(made: Any, name: str, ranks: list[int], store: Any) -> None:
    """Registers a group that follows no other one."""
    from torch.distributed import distributed_c10d as c10d

    _enter(made, name, NAME, str(c10d.BackendConfig(c10d.Backend(NAME))), ranks, store)


def replace_default(was: Any, made: Any) -> None:
    """Makes a group torch's default one, if ``was`` is."""
    from torch.distributed import distributed_c10d as c10d

    if c10d.GroupMember.WORLD is was:
        c10d._update_default_pg(made)


def _enter(made: Any, name: str, backend: str, config: Any, ranks: list[int], store: Any) -> None:
    from torch.distributed import distributed_c10d as c10d

    world = c10d._world
    made._set_group_name(name)
    c10d._register_process_group(name, made)
    world.pg_map[made] = (backend, store)
    world.pg_names[made] = name
    world.pg_group_ranks[made] = {rank: i for i, rank in enumerate(ranks)}
    world.pg_backend_config[made] = config
    world.tags_to_pg.setdefault(f"ptd:{name}", []).append(made)
    world.pg_to_tag[made] = f"ptd:{name}"


def numbers(group: Any) -> list[int]:
    """Numbers of the group's ranks among all ranks; empty if torch does not know the group."""
    from torch.distributed import distributed_c10d as c10d

    known = c10d._world.pg_group_ranks.get(group, {})
    return sorted(known, key=known.__getitem__)
