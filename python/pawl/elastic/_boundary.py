"""Elastic ranks for a plain DDP script, which marks where one step ends and the next one begins."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import logging
import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DistributedSampler

from pawl.elastic import _context, _data, _states
from pawl.elastic._model import SYNC_BUFFERS, AdaptiveDataParallel
from pawl.errors import error

log = logging.getLogger("pawl")

_MIB = 1 << 20


class _Plain(AdaptiveDataParallel):
    """A DistributedDataParallel of the script's, made elastic in place."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad()


class _Loop(_data.AdaptiveDataLoaderHelper):
    """The script's own loop: the script chooses its batch."""

    def _decide(self) -> tuple[int, int]:
        return 0, 0


class _Count(_states.State):
    """The number of steps made."""

    def __init__(self) -> None:
        super().__init__("pawl-steps")
        self.made = 0
        _states.load_state(self)

    def add(self, was_made: bool) -> None:
        """Counts a step that is over."""
        self.made += was_made

    def save(self, fileobj: _states.Writer) -> None:
        fileobj.write(str(self.made).encode())

    def load(self, fileobj: _states.Reader) -> None:
        self.made = int(fileobj.read().decode())


class _Questions:
    """How often the script has asked torch for the number of ranks, or for its rank."""

    def __init__(self) -> None:
        self.asked = 0
        for name in ("get_rank", "get_world_size"):
            setattr(dist, name, self._counted(getattr(dist, name)))

    def _counted(self, plain: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(plain)
        def ask(group: Any = None) -> int:
            self.asked += group is None or group is dist.group.WORLD
            return plain(group)

        return ask


class _Boundary:
    """The boundary between two steps of this process."""

    def __init__(self, in_place: bool | None) -> None:
        self._job = job = _context.job()
        models, *beside = _alive(
            DistributedDataParallel, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler
        )
        for key, model in _by_key(models):
            _convert(key, model, *beside)
        # The other ranks have found out already.
        self._in_place = True if job.newcomer else in_place
        self._count = _Count()
        self._questions = _Questions()
        _context.enter()
        job.fixed = self._in_place is not True  # fixed until its first step has shown otherwise
        self._loop = _Loop()  # the number of samples in a step is not known
        self._loop.train()
        self._open = contextlib.ExitStack()
        self._open.enter_context(self._loop.context())
        atexit.register(self._open.close)
        self._step: Any = None

    def next(self) -> int:
        """Ends a step and begins the next one; returns the number of the latter."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
            if self._in_place is None:
                self._look()
        self._questions.asked = 0
        self._loop.tell_after(self._count.add)
        self._step = self._loop.profile(True)
        self._step.__enter__()
        return self._count.made

    def _look(self) -> None:
        """Behind the first step: finds out whether the script stays right when
        ranks go and come.
        """
        why = ""
        if _alive(DistributedSampler)[0]:
            why = "a DistributedSampler keeps the rank that it was made with"
        elif not self._questions.asked:
            why = "the script does not ask torch for rank or number of ranks in each step"
        found = [reason for reason in self._job.agree_objects(why) if reason]
        self._in_place = not found
        self._job.fixed = bool(found)
        if found and self._job.rank == 0:
            log.warning("elastic: all ranks restart whenever their number changes: %s", found[0])


_boundary: _Boundary | None = None


def step_boundary(in_place: bool | None = None) -> int:
    """Call it at the top of each step of a plain DDP script; returns the number of that step.

        while (step := el.step_boundary()) < 10_000:
            x, y = batch(step, dist.get_rank(), dist.get_world_size())
            ...

    It counts the steps that were made, from 0: also over restarts, at a newcomer, and again where a
    step comes to nothing because a rank is lost in it. At the first call each model in DDP becomes
    elastic in place, with its optimizer, its scheduler and the GradScaler: these are saved, and
    sent to newcomers. Ranks then go and come in place if the script asks torch in each step for its
    rank or for the number of ranks, and has no DistributedSampler; else, when the ranks are to
    change, all start again from the last checkpoint. ``in_place``: whether they may, if the script
    knows better. All ranks call it equally often.

    Raises PawlError for a model that cannot be elastic.
    """
    global _boundary
    if _boundary is None:
        _boundary = _Boundary(in_place)
    return _boundary.next()


def _alive(*kinds: type) -> list[list[Any]]:
    """All objects of each class, or of one of its subclasses. (Uses type(): asking some objects for
    their class runs code of theirs.)
    """
    found: list[list[Any]] = [[] for _ in kinds]
    for one in gc.get_objects():
        for kind, row in zip(kinds, found, strict=True):
            if issubclass(type(one), kind):
                row.append(one)
    return found


def _by_key(models: list[DistributedDataParallel]) -> list[tuple[str, DistributedDataParallel]]:
    """Models by names that are the same at all ranks and in each run."""
    keys = {}
    for model in models:
        shapes = [(name, tuple(p.shape)) for name, p in model.module.named_parameters()]
        keys[f"plain-{zlib.crc32(repr(shapes).encode()):08x}"] = model
    if not models or len(keys) < len(models):
        what = "two models are alike" if models else "there is no model in DistributedDataParallel"
        raise error("PAWL_ENOTSUP", f"step_boundary: {what}: use pawl.elastic's own names")
    return sorted(keys.items())


def _convert(
    key: str,
    model: DistributedDataParallel,
    optimizers: list[Any],
    schedulers: list[Any],
    scalers: list[Any],
) -> None:
    """Makes a model elastic in place. The objects beside it may belong to other models."""
    own = {id(p) for p in model.parameters()}
    optimizers = [
        found
        for found in optimizers
        if any(id(p) in own for group in found.param_groups for p in group["params"])
    ]
    parts = {id(part) for s in schedulers for part in getattr(s, "_schedulers", ())}
    schedulers = [s for s in schedulers if s.optimizer in optimizers and id(s) not in parts]
    for what, n, most in (
        ("optimizers", len(optimizers), 1),
        ("schedulers", len(schedulers), 1),
        ("GradScalers", len(scalers), 1),
        ("communication hooks", len(model._comm_hooks), 0),
    ):
        if n > most:
            raise error("PAWL_ENOTSUP", f"step_boundary: a model has {n} {what}, not {most}")
    for what, has in (
        ("no optimizer", not optimizers),
        ("a static graph", model.static_graph),
        ("DDP's mixed precision", model.mixed_precision is not None),
        ("a process group of its own", model.process_group is not dist.group.WORLD),
    ):
        if has:
            raise error("PAWL_ENOTSUP", f"step_boundary: a model has {what}")
    settings = {
        "device_ids": model.device_ids,
        "output_device": model.output_device,
        "bucket_cap_mb": model.bucket_bytes_cap // _MIB,
    }
    settings |= {name: getattr(model, name) for name in SYNC_BUFFERS if hasattr(model, name)}
    module = model.module
    model.__class__ = _Plain
    _Plain.__init__(  # type: ignore[misc]
        model,  # type: ignore[arg-type]
        module,
        optimizers[0],
        *(schedulers or [None]),
        *(scalers or [None]),
        name=key,
        **settings,
    )
