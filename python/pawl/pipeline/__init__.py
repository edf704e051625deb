"""Pipelines: a PyTorch model that is too big for one device, divided over several ranks.

    import pawl.pipeline as pp

    pp.init(stages=4, microbatches=8)
    model = pp.DistributedModel(model)
    optimizer = torch.optim.AdamW(model.parameters())

    @pp.step
    def train_step(batch):
        loss = model(**batch).loss
        model.backward(loss)
        return loss

    for batch in loader:
        optimizer.zero_grad()
        loss = train_step(batch).reduce_mean()
        optimizer.step()

Every rank runs the whole script. The step function runs at the first stage, once for each
microbatch; other ranks carry out the modules that they have. See docs/pipeline.md.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pawl.errors import error
from pawl.pipeline import _device, _over_stages, _results, _state
from pawl.pipeline._cut import divide
from pawl.pipeline._delayed import delayed_init
from pawl.pipeline._divide._plan import CHUNKS_MAX, SCHEDULES
from pawl.pipeline._model import DistributedModel
from pawl.pipeline._over_stages import GradScaler
from pawl.pipeline._results import StepOutput

__all__ = [
    "DistributedModel",
    "GradScaler",
    "StepOutput",
    "clip_grad_norm_",
    "delayed_init",
    "init",
    "partition",
    "rank",
    "replica",
    "replicas",
    "set_partition",
    "shutdown",
    "stages",
    "step",
    "trace",
]


def init(
    stages: int,
    microbatches: int | None = None,
    schedule: str = "auto",
    *,
    memory: int | None = None,
    memory_weight: float = 0.0,
    partition: Mapping[str, int] | None = None,
    frame: Sequence[str] = (),
    units: Sequence[str] = (),
    tied: str = "auto",
    chunks: int | None = None,
    seed: int = 0,
    placement: str = "cluster",
    results_max: int = 1 << 20,
    device: str | torch.device | None = None,
    offload: bool = False,
) -> None:
    """Joins the ranks that a launcher has started, as pipelines of ``stages`` ranks each.

    Ranks r * stages to (r + 1) * stages - 1 are replica r; with ``placement="spread"``, ranks r,
    r + replicas and so on. torch.distributed is initialised with the backend "pawl", unless it is
    already. All ranks pass the same arguments.

    ``microbatches``: parts of a step's batch; default: 2 * stages. ``schedule``: "simple", "1f1b",
    "interleaved", "zero-bubble", "zbv", "listed", or "auto", the fastest one that fits.
    ``chunks``: parts of the model on each stage, from 2 to 8, if the schedule is interleaved;
    default: the best number. ``memory``: bytes that a stage may use for parameters, their gradients
    and optimizer state, and activations; None: no limit. ``memory_weight``: from 0 (balance time)
    to 1 (balance memory). ``partition``: stages of some modules, by path. ``frame``: paths of
    modules that must not be units. ``tied``: what becomes of parameters that modules of several
    stages share: "replicate", "visit" (one stage runs them all) or "auto". ``seed``: of random
    numbers in the model, which do not depend on the number of stages. ``results_max``: bytes of a
    tensor that the step function returns, at most, if it is to come back at all stages.

    ``device``: where stages compute, such as "cuda": the one with this rank's number on its host
    (LOCAL_RANK), unless there is a number; default: the CPU. The model and the batch stay on the
    CPU, from where each stage takes what is its. ``offload``: what a forward pass on a device keeps
    for the backward pass waits in the host's memory.

    Raises PawlError if the ranks do not divide into pipelines, or cannot be reached, or there is no
    such device.
    """
    if stages < 1:
        raise error("PAWL_EINVAL", f"pipeline: stages={stages}: must be at least 1")
    if microbatches is None:
        microbatches = 2 * stages
    if microbatches < 1:
        raise error("PAWL_EINVAL", f"pipeline: microbatches={microbatches}: must be at least 1")
    if schedule not in ("auto", *SCHEDULES):
        names = ", ".join(f'"{name}"' for name in SCHEDULES)
        raise error(
            "PAWL_EINVAL", f'pipeline: schedule={schedule!r}: must be one of "auto", {names}'
        )
    if chunks is not None and not 2 <= chunks <= CHUNKS_MAX:
        raise error("PAWL_EINVAL", f"pipeline: chunks={chunks}: must be from 2 to {CHUNKS_MAX}")
    if tied not in ("auto", "replicate", "visit"):
        raise error(
            "PAWL_EINVAL", f'pipeline: tied={tied!r}: must be "auto", "replicate" or "visit"'
        )
    if placement not in ("cluster", "spread"):
        raise error(
            "PAWL_EINVAL", f'pipeline: placement={placement!r}: must be "cluster" or "spread"'
        )
    _state.begin(
        _state.Setting(
            stages,
            microbatches,
            schedule,
            memory,
            memory_weight,
            dict(partition or {}),
            tuple(frame),
            tuple(units),
            tied,
            seed,
            placement == "spread",
            chunks or 0,
            results_max,
            _device.find(device),
            offload,
        )
    )
    atexit.register(shutdown)


def shutdown() -> None:
    """Leaves the pipeline; the other ranks are notified. Called at exit."""
    atexit.unregister(shutdown)
    _state.end()


def rank() -> int:
    """This rank's stage, from 0 on."""
    return _state.world().stage


def stages() -> int:
    """Number of stages of a pipeline."""
    return _state.world().stages


def replica() -> int:
    """The number of this rank's pipeline, from 0 on."""
    return _state.world().replica


def replicas() -> int:
    """Number of pipelines."""
    return _state.world().replicas


def set_partition(module: torch.nn.Module, stage: int) -> None:
    """Puts a module of the model on a stage. Call it after DistributedModel, before the first step
    and before a checkpoint is restored, at all ranks.
    """
    model = _state.model()
    if model.plan is not None:
        raise error(
            "PAWL_EINVAL",
            "pipeline: set_partition of a model that has its plan: call it before the first step, "
            "and before a checkpoint is restored",
        )
    for path, found in model.module.named_modules():
        if found is module and path:
            _state.setting().partition[path] = stage
            return
    raise error("PAWL_ENOENT", "pipeline: set_partition of a module that is not in the model")


class partition:
    """Modules that are made in it go to a stage: ``with pp.partition(1): self.head =
    Linear(...)``.
    """

    def __init__(self, stage: int) -> None:
        self._stage = stage

    def __enter__(self) -> None:
        self._plain = torch.nn.Module.__init__
        plain, stage = self._plain, self._stage

        def made(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            plain(module, *args, **kwargs)
            object.__setattr__(module, "_pawl_stage", stage)

        torch.nn.Module.__init__ = made  # type: ignore[method-assign]

    def __exit__(self, *_: Any) -> None:
        torch.nn.Module.__init__ = self._plain  # type: ignore[method-assign]


def step(
    function: Callable[..., Any] | None = None,
    *,
    whole: Sequence[str] = (),
    axes: Mapping[str, int] | None = None,
) -> Any:
    """Makes a function the step function: ``@pp.step`` or ``@pp.step()``.

    The function gets a microbatch: tensors among its arguments, and in lists, tuples and dicts
    there, are divided along their first dimension; other arguments are passed on as they are.
    ``whole``: names of arguments that are not divided; ``axes``: dimension along which those of an
    argument are, by its name. The function runs at rank 0 of a pipeline; other ranks' arguments are
    ignored. What it returns comes back at every rank with a StepOutput in place of each tensor or
    other value. After a step with ``model.backward``, ``.grad`` of ``model.local_parameters()`` has
    the gradients, averaged over microbatches and replicas, added to what was there.

    Raises what the function raises; at other ranks a PawlError that names rank, module and
    exception. PawlError if a rank is lost. A pipeline that has failed cannot go on.
    """
    if function is None:
        return functools.partial(step, whole=whole, axes=axes)
    how = _How(inspect.signature(function), frozenset(whole), dict(axes or {}))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        model = _state.model()
        split = functools.partial(_parts, function, how, args, kwargs)
        if model._pipeline is None:
            model._pipeline = divide(model, split)
            model.divided()
        model.steps += 1
        return model._pipeline.step(model.steps, split)

    return run


class _How(NamedTuple):
    """How a step function's arguments are divided, by their names."""

    signature: inspect.Signature
    whole: frozenset[str]
    axes: dict[str, int]

    def names(self, args: Any) -> list[str]:
        """The names of positional arguments; their numbers if they have none."""
        known = [
            p.name
            for p in self.signature.parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        return known[: len(args)] + [str(i + 1) for i in range(len(known), len(args))]

    def split(self, name: str, value: Any, parts: int) -> list[Any]:
        if name in self.whole:
            return [value] * parts
        return _results.split(value, parts, f"argument {name}", self.axes.get(name, 0))


def _parts(function: Callable[..., Any], how: _How, args: Any, kwargs: Any) -> list[Any]:
    """The function with the arguments of each microbatch."""
    n = _state.setting().microbatches
    split_args = [how.split(k, a, n) for k, a in zip(how.names(args), args, strict=True)]
    split_kwargs = {k: how.split(k, v, n) for k, v in kwargs.items()}
    return [
        functools.partial(
            function, *[a[i] for a in split_args], **{k: v[i] for k, v in split_kwargs.items()}
        )
        for i in range(n)
    ]


def clip_grad_norm_(max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales all gradients of the model so that their norm is at most ``max_norm``; returns the
    norm before. As torch.nn.utils.clip_grad_norm_, over all stages; a parameter that several stages
    have counts once. All ranks call it.
    """
    model = _state.model()
    return _over_stages.clip(_state.world(), model._pipeline, max_norm, norm_type)


def trace(path: str | os.PathLike[str]) -> None:
    """Records the next step, at all ranks, which call it. The first stage of replica 0 writes the
    file, which ``pawl pipe draw``, chrome://tracing and Perfetto read. Call it after the first
    step.
    """
    pipeline = _state.model()._pipeline
    if pipeline is None:
        raise error(
            "PAWL_EINVAL", "pipeline: pp.trace before the first step, which is not like others"
        )
    pipeline.trace_to = Path(path)
