"""What smp.init has begun in this process: the configuration, the model and its optimizer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import pawl.pipeline as pp
from pawl.compat.smdistributed.modelparallel.torch import _config, _ranks
from pawl.compat.smdistributed.modelparallel.torch._config import Config
from pawl.errors import error


class Session:
    """From smp.init on."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.model: Any = None
        self.optimizer: Any = None
        self.fresh = False  # weights of transformers are made anew, see model_creation


_found: list[Session] = []


def current() -> Session:
    """The session. Raises PawlError before smp.init."""
    if not _found:
        raise error("PAWL_EINVAL", "smp: call smp.init() first")
    return _found[-1]


def is_initialized() -> bool:
    """Whether smp.init was called."""
    return bool(_found)


def init(config: Mapping[str, Any] | None = None) -> None:
    """Joins the ranks that a launcher has started. ``config``: SMP's keys; None: those of the
    environment's SM_HP_MP_PARAMETERS, a JSON object.

    Raises PawlError naming a key that is unknown, wrong, or not supported.
    """
    made = _config.read(config)
    pp.init(
        stages=made.pipeline_parallel_degree,
        microbatches=made.microbatches,
        schedule=made.schedule,
        memory_weight=made.balance,
        placement="spread" if made.spread else "cluster",
        results_max=1 << 62,
        device=made.device,
        offload=made.offload_activations,
    )
    if pp.replicas() > 1 and not made.ddp:
        replicas = pp.replicas()
        pp.shutdown()
        raise error(
            "PAWL_EINVAL",
            f"smp: {replicas} pipelines of {made.pipeline_parallel_degree} ranks need ddp=True",
        )
    _found[:] = [Session(made)]
    _ranks.make_groups()
    if not torch.cuda.is_available():
        # Scripts select a GPU before anything else; without CUDA torch has no such function.
        torch.cuda.set_device = lambda *_: None  # type: ignore[assignment]


def is_tracing() -> bool:
    """Whether the first step runs to measure the model."""
    return current().model is not None and current().model._profiled is not None


# ---- steps ----


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Makes a function the step function, see pawl.pipeline.step. Results that are no tensors come
    back as lists with one entry for each microbatch. ``detach_outputs`` has no effect: results have
    no graph.
    """

    def make(function: Callable[..., Any]) -> Any:
        stepping = pp.step(function, whole=non_split_inputs or (), axes=input_split_axes)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            config = current().config
            cast = torch.autocast(config.device, config.dtype) if config.dtype else None
            with cast or contextlib.nullcontext():
                return _listed(stepping(*args, **kwargs))

        return run

    return make if function is None else make(function)


def _listed(result: Any) -> Any:
    if isinstance(result, pp.StepOutput):
        first = result.outputs[0]
        return result if hasattr(first, "shape") else result.outputs
    if type(result) in (tuple, list):
        return type(result)(_listed(value) for value in result)
    if isinstance(result, Mapping):
        for key in list(result):
            result[key] = _listed(result[key])  # type: ignore[index]
    return result


# ---- making the model ----


@contextlib.contextmanager
def partition(index: int) -> Iterator[None]:
    """Modules that are made in it go to a partition, if auto_partition is False."""
    if current().config.auto_partition:
        yield
        return
    with pp.partition(index):
        yield


def set_partition(module: nn.Module, index: int) -> None:
    """Puts a module of the DistributedModel on a partition, if auto_partition is False."""
    if not current().config.auto_partition:
        pp.set_partition(module, index)


@contextlib.contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **_: Any
) -> Iterator[None]:
    """Makes parameters of a type, without values if the configuration has
    delayed_parameter_initialization. With ``tensor_parallelism``, the weights of transformers are
    made anew when the model becomes a DistributedModel, and their layers are ``seq_layers``, too.
    Other arguments choose fused kernels, and have no effect.
    """
    session = current()
    session.fresh = session.fresh or tensor_parallelism
    before = torch.get_default_dtype()
    if dtype is not None and not session.config.bf16:  # bf16: see docs/smp.md
        torch.set_default_dtype(dtype)
    try:
        with delay_param_initialization(session.config.delayed_parameter_initialization):
            yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Modules that are made in it get the values of their parameters in the first step, where they
    are needed; see pawl.pipeline.delayed_init.
    """
    with pp.delayed_init() if enabled else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def tensor_parallelism(enabled: bool = True, **_: Any) -> Iterator[None]:
    """Has no effect: the degree is 1."""
    yield


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **_: Any) -> None:
    """Has no effect: the degree is 1."""


def prepare(module: nn.Module) -> None:
    """What SMP does to a model that becomes a DistributedModel."""
    if not current().fresh:
        return
    init = getattr(module, "_init_weights", None)
    if init is not None:
        with torch.no_grad():
            module.apply(init)
        getattr(module, "tie_weights", lambda: None)()  # scripts skip all of init_weights
    for inner in module.modules():
        layers = inner._modules.get("h")
        if isinstance(layers, nn.ModuleList):
            inner.__dict__["seq_layers"] = layers  # no second name of its parameters
