"""SMP's configuration, as arguments of pawl.pipeline.init."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

import torch

from pawl.errors import error

log = logging.getLogger("pawl.smp")

# Keys that change nothing here.
_WITHOUT_EFFECT: Final = (
    "activation_loading_horizon",
    "contiguous",
    "ddp_dist_backend",
    "deterministic_server",
    "fast_mode",
    "prescaled_batch",
    "skip_tracing",
    "static_mode",
)
# Keys that only save memory: results are the same without them.
_NOT_YET: Final = ("shard_optimizer_state",)
_ONE_ONLY: Final = ("tensor_parallel_degree", "sharded_data_parallel_degree")
_TYPES: Final = ("fp16", "fp16_params", "bf16")
_KNOWN: Final = (
    "active_microbatches",
    "auto_partition",
    "ddp",
    "default_partition",
    "delayed_parameter_initialization",
    "memory_weight",
    "microbatches",
    "offload_activations",
    "optimize",
    "partitions",
    "pipeline",
    "pipeline_parallel_degree",
    "placement_strategy",
)
_SCHEDULES: Final = {"interleaved": "1f1b", "simple": "simple"}


@dataclasses.dataclass
class Config:
    """What smp.init was told; ``smp.state.cfg``."""

    pipeline_parallel_degree: int = 1
    microbatches: int = 1
    pipeline: str = "interleaved"
    active_microbatches: int | None = None
    optimize: str | None = None
    memory_weight: float | None = None
    auto_partition: bool = True
    default_partition: int | None = None
    placement_strategy: str = "cluster"
    ddp: bool = False
    delayed_parameter_initialization: bool = False
    offload_activations: bool = False
    prescaled_batch: bool = False
    shard_optimizer_state: bool = False
    fp16: bool = False
    fp16_params: bool = False
    bf16: bool = False
    tensor_parallel_degree: int = 1
    sharded_data_parallel_degree: int = 1

    @property
    def spread(self) -> bool:
        """Whether the ranks of a pipeline are far from each other, not consecutive."""
        order = {"cluster": "DPT", "spread": "TPD"}.get(
            self.placement_strategy, self.placement_strategy
        )
        if sorted(order) != ["D", "P", "T"]:
            raise _bad("placement_strategy", self.placement_strategy, "cluster, spread, or a "
                       "permutation of D, P and T")  # fmt: skip
        return order.index("P") < order.index("D")

    @property
    def balance(self) -> float:
        """pawl.pipeline's memory_weight."""
        if self.memory_weight is not None:
            return self.memory_weight
        return {None: 0.0, "speed": 0.2, "memory": 0.8}[self.optimize]

    @property
    def half(self) -> bool:
        """Whether the model computes in float16, with a scaled loss."""
        return self.fp16 or self.fp16_params

    @property
    def dtype(self) -> torch.dtype | None:
        """What the model computes in; None: in the type of its parameters."""
        return torch.float16 if self.half else torch.bfloat16 if self.bf16 else None

    @property
    def device(self) -> str:
        """pawl.pipeline's device: SMP trains on GPUs."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def schedule(self) -> str:
        """pawl.pipeline's schedule."""
        return _SCHEDULES[self.pipeline]


def read(config: Mapping[str, Any] | None) -> Config:
    """The configuration of a dict, or of SM_HP_MP_PARAMETERS. Raises PawlError naming a key."""
    given = dict(_from_environment() if config is None else config)
    if "partitions" in given:
        given.setdefault("pipeline_parallel_degree", given.pop("partitions"))
    for key in list(given):
        if key.startswith("sdp_"):  # sharded data parallelism is refused below
            del given[key]
        elif key not in (*_WITHOUT_EFFECT, *_NOT_YET, *_ONE_ONLY, *_TYPES, *_KNOWN):
            known = ", ".join(sorted((*_WITHOUT_EFFECT, *_NOT_YET, *_ONE_ONLY, *_TYPES, *_KNOWN)))
            raise error("PAWL_EINVAL", f"smp: there is no key {key}; the keys are {known}")
    for key in _ONE_ONLY:
        if given.get(key, 1) != 1:
            raise error(
                "PAWL_ENOTSUP",
                f"smp: {key}={given[key]}: only 1; Pawl divides models between modules, not "
                "within them. Use more pipeline stages, or PyTorch's FSDP over the backend pawl",
            )
    for key in _NOT_YET:
        if given.get(key):
            log.warning("smp: %s has no effect yet; numbers are the same, memory is not", key)
    names = {field.name for field in dataclasses.fields(Config)}
    made = Config(**{key: value for key, value in given.items() if key in names})
    _check(made)
    return made


def _from_environment() -> dict[str, Any]:
    text = os.environ.get("SM_HP_MP_PARAMETERS")
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as why:
        raise error("PAWL_EINVAL", f"smp: SM_HP_MP_PARAMETERS is not JSON: {why}") from why
    if not isinstance(found, dict):
        raise error("PAWL_EINVAL", "smp: SM_HP_MP_PARAMETERS is no JSON object")
    return found


def _bad(key: str, value: Any, wanted: str) -> Exception:
    return error("PAWL_EINVAL", f"smp: {key}={value!r}: must be {wanted}")


def _check(config: Config) -> None:
    for key in ("pipeline_parallel_degree", "microbatches"):
        value = getattr(config, key)
        if not isinstance(value, int) or value < 1:
            raise _bad(key, value, "an integer of at least 1")
    if config.pipeline not in _SCHEDULES:
        raise _bad("pipeline", config.pipeline, '"interleaved" or "simple"')
    if config.optimize not in (None, "speed", "memory"):
        raise _bad("optimize", config.optimize, '"speed" or "memory"')
    if config.memory_weight is not None and not 0 <= config.memory_weight <= 1:
        raise _bad("memory_weight", config.memory_weight, "from 0 to 1")
    if config.half and config.bf16:
        raise error("PAWL_EINVAL", "smp: fp16 and bf16: only one of them")
    if not config.auto_partition and config.default_partition is None:
        raise error("PAWL_EINVAL", "smp: auto_partition=False needs a default_partition")
    stage = config.default_partition or 0
    if not 0 <= stage < config.pipeline_parallel_degree:
        raise _bad("default_partition", stage, "a partition")
    _ = config.spread
