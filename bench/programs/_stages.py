"""What the programs of pipeline.py share: our pipeline and torch's, and steps that are timed."""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import pawl.pipeline as pp

Loss = Callable[..., torch.Tensor]
CPU = torch.device("cpu")


def join() -> tuple[int, int]:
    """Joins the ranks; returns this one's number, and how many there are."""
    faulthandler.register(signal.SIGUSR1)
    torch.set_num_threads(1)
    dist.init_process_group("pawl")
    return dist.get_rank(), dist.get_world_size()


def over_ranks(value: float) -> list[float]:
    """Each rank's value, at all ranks."""
    mine = torch.tensor([value], dtype=torch.float64)
    found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(found, mine)
    return [float(one) for one in found]


class Ours:
    """A model as our pipeline. ``loss_of(model, *batch)``: the loss of a microbatch. One at a time:
    close it before the next one is made.
    """

    def __init__(
        self, module: nn.Module, microbatches: int, loss_of: Loss, schedule: str, **options: Any
    ) -> None:
        pp.init(dist.get_world_size(), microbatches, schedule, **options)
        self.model = model = pp.DistributedModel(module)

        @pp.step
        def step(*batch: torch.Tensor) -> torch.Tensor:
            loss = loss_of(model, *batch)
            model.backward(loss)
            return loss.detach()

        self._step = step

    @property
    def pipeline(self) -> Any:
        """Its inside, after the first step."""
        return self.model._pipeline

    def step(self, *batch: torch.Tensor) -> float:
        """Gradients of a batch, and its loss."""
        for parameter in self.model.local_parameters():
            parameter.grad = None
        return float(self._step(*batch).reduce_mean())

    def stats(self) -> dict[str, int]:
        """Totals of this rank's calls and values."""
        return self.pipeline.world.channel.stats()

    def close(self) -> None:
        dist.barrier()
        pp.shutdown()


class Theirs:
    """torch.distributed.pipelining. ``module``: this rank's part of the model, or several by their
    number in it, or a stage that torch has made.
    """

    def __init__(self, module: Any, microbatches: int, loss_of: Loss, schedule: str) -> None:
        from torch.distributed import pipelining

        self._rank, ranks = dist.get_rank(), dist.get_world_size()
        made = module
        if isinstance(module, nn.Module):
            made = pipelining.PipelineStage(module, self._rank, ranks, CPU)
        elif isinstance(module, dict):
            made = [
                pipelining.PipelineStage(part, number, len(module) * ranks, CPU)
                for number, part in module.items()
            ]
        parts = made if isinstance(made, list) else [made]
        self._last = any(part.is_last for part in parts)
        self.submod = parts[0].submod
        self.parameters = [p for part in parts for p in part.submod.parameters()]
        self._schedule = getattr(pipelining, schedule)(made, microbatches, loss_fn=loss_of)

    def step(self, batch: torch.Tensor, target: torch.Tensor) -> float:
        """Gradients of a batch, and its loss: 0 but at the last rank."""
        for parameter in self.parameters:
            parameter.grad = None
        losses: list[torch.Tensor] = []
        given: tuple[torch.Tensor, ...] = (batch,) if self._rank == 0 else ()
        named: dict[str, Any] = {"target": target, "losses": losses} if self._last else {}
        self._schedule.step(*given, **named)
        return float(torch.stack(losses).detach().mean()) if losses else 0.0


def timed(step: Callable[..., Any], *batch: torch.Tensor) -> float:
    """Seconds of a step of all ranks."""
    dist.barrier()
    begun = time.perf_counter()
    step(*batch)
    dist.barrier()
    return time.perf_counter() - begun


def race(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of steps that take turns, each first as often as the others; a round before does not
    count.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(-1, rounds):
        for name in list(ways) if round_ % 2 else reversed(ways):
            seconds = timed(ways[name])
            if round_ >= 0:
                found[name].append(seconds)
    return found
