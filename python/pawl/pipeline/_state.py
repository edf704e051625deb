"""The one pipeline of this process: what pp.init was told, and the model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from pawl._ckpt import _parts
from pawl.errors import error
from pawl.pipeline._world import World

if TYPE_CHECKING:
    from pawl.pipeline._model import DistributedModel


@dataclasses.dataclass
class Setting:
    """Arguments of pp.init."""

    stages: int
    microbatches: int
    schedule: str
    memory: int | None
    memory_weight: float
    partition: dict[str, int]
    frame: tuple[str, ...]
    units: tuple[str, ...]
    tied: str
    seed: int
    spread: bool  # the ranks of a pipeline are not consecutive
    chunks: int  # parts of the model on a stage, in schedules that have several; 0: the best
    results_max: int  # bytes of a result, at most, that comes back to all ranks
    device: torch.device  # where this rank computes
    offload: bool  # what forward passes keep waits in the host's memory


_found: dict[str, Any] = {}


def begin(setting: Setting) -> None:
    """Makes the world."""
    if "world" in _found:
        raise error("PAWL_EEXIST", "pipeline: pp.init was called before in this process")
    _found["world"] = World(setting.stages, setting.spread)
    _found["setting"] = setting


def end() -> None:
    """Leaves everything; pp.init may be called again."""
    model = _found.pop("model", None)
    if model is not None:
        _parts.forget(model._saved)
    world = _found.pop("world", None)
    _found.pop("setting", None)
    if model is not None and model._pipeline is not None and model._pipeline.driver is not None:
        model._pipeline.driver.close()
    if world is not None:
        world.close()


def world() -> World:
    """This process's world."""
    if "world" not in _found:
        raise error("PAWL_EINVAL", "pipeline: call pp.init() first")
    found: World = _found["world"]
    return found


def setting() -> Setting:
    """What pp.init was told."""
    world()
    found: Setting = _found["setting"]
    return found


def register(model: DistributedModel) -> None:
    """Makes a model that of the step functions."""
    world()
    if "model" in _found:
        raise error(
            "PAWL_EEXIST",
            "pipeline: this process has a DistributedModel already; put both models into one "
            "module, and call the parts of it",
        )
    _found["model"] = model


def model() -> DistributedModel:
    """The model."""
    world()
    if "model" not in _found:
        raise error("PAWL_EINVAL", "pipeline: make a pp.DistributedModel before the first step")
    found: DistributedModel = _found["model"]
    return found
