"""Compares a pipeline's steps with those of one process; shared by tests and their ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import pawl.pipeline as pp
from pawl.pipeline import StepOutput

Step = Callable[..., Any]  # step(model, *batch); model is called, and has backward(loss)
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = os.environ.get("PIPELINE_DEVICE", "cpu")  # where stages compute
if DEVICE == "mock":
    import mock_device

    mock_device.register()
ROWS = 8  # rows of a microbatch
WIDTH = 6


class Plain(nn.Module):
    """The model in one process."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @staticmethod
    def backward(loss: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        loss.backward(gradient)


@contextlib.contextmanager
def pipeline(**setting: Any) -> Iterator[None]:
    """A pipeline over all ranks; left at the end, so that the next one may follow."""
    setting.setdefault("stages", WORLD)
    setting.setdefault("device", DEVICE)
    pp.init(**setting)
    try:
        yield
        if WORLD > 1:
            dist.barrier()  # no rank leaves while another is still in a step
    finally:
        pp.shutdown()


def seeded(make: Callable[[], nn.Module], seed: int = 5) -> nn.Module:
    """A model whose parameters are the same at all ranks."""
    torch.manual_seed(seed)
    return make().double()


def numbers(*shape: int, seed: int) -> torch.Tensor:
    """Random numbers, the same at all ranks."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(microbatches: int = 4, width: int = WIDTH) -> Callable[[int, int], Any]:
    """A batch of random rows for each step and replica."""
    return lambda at, replica: (numbers(ROWS * microbatches, width, seed=1000 * at + replica + 1),)


def train(model: Any, x: Tensor) -> Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


class Block(nn.Module):
    def __init__(self, width: int = WIDTH, act: Any = torch.tanh) -> None:
        super().__init__()
        self.a = nn.Linear(width, width)
        self.b = nn.Linear(width, width)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.act(self.a(x)))


class Skips(nn.Module):
    """Blocks whose results later blocks take."""

    def __init__(self, n: int = 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(n)])

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        for i, block in enumerate(self.blocks):
            x = block(x) + kept[i // 2]
            kept.append(x)
        return kept[1] * x + kept[-2]


def spread(paths: str, stages: int) -> dict[str, int]:
    """A stage for each of the modules: in order, as many on each stage as possible."""
    names = paths.split()
    return {name: i * stages // len(names) for i, name in enumerate(names)}


@dataclasses.dataclass
class Outcome:
    """A step's results by microbatch, and what the model has after all steps."""

    results: list[list[Any]]  # step, microbatch
    grads: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]
    params: dict[str, torch.Tensor]


def reference(
    make: Callable[[], nn.Module],
    step: Step,
    batch: Callable[[int, int], Any],
    *,
    microbatches: int,
    replicas: int,
    replica: int,
    steps: int,
    optimizer: Callable[..., Any] | None = None,
) -> Outcome:
    """The steps in this process: a model for each replica, whose gradients are averaged."""
    models = [make() for _ in range(replicas)]
    optimizers = [optimizer(m.parameters()) for m in models] if optimizer else []
    results: list[list[Any]] = []
    for at in range(steps):
        for one in optimizers:
            one.zero_grad()
        before = [p.grad for p in models[0].parameters()]
        for other, model in enumerate(models):
            for p in model.parameters():
                p.grad = None
            parts = [split(a, microbatches) for a in batch(at, other)]
            found = [step(Plain(model), *[p[i] for p in parts]) for i in range(microbatches)]
            if other == replica:
                results.append(found)
        _average(models, before, microbatches)
        for one in optimizers:
            one.step()
    mine = models[replica]
    return Outcome(
        results,
        {n: p.grad for n, p in mine.named_parameters()},
        dict(mine.named_buffers()),
        {n: p.detach() for n, p in mine.named_parameters()},
    )


def _average(models: list[nn.Module], before: list[Any], microbatches: int) -> None:
    """Gives all models the mean gradient, added to what was there before the step."""
    for was, *params in zip(before, *[m.parameters() for m in models], strict=True):
        found = [p.grad for p in params if p.grad is not None]
        total = sum(found) / (microbatches * len(models)) if found else None
        if total is not None and was is not None:
            total = total + was
        for p in params:
            p.grad = was if total is None else total.clone()


def split(value: Any, parts: int) -> list[Any]:
    """An argument's parts, as the documentation says."""
    if isinstance(value, torch.Tensor) and value.dim():
        return list(value.split(value.shape[0] // parts))
    if isinstance(value, Mapping):
        columns = {k: split(v, parts) for k, v in value.items()}
        return [{k: v[i] for k, v in columns.items()} for i in range(parts)]
    if type(value) in (list, tuple):
        return [type(value)(c) for c in zip(*[split(v, parts) for v in value], strict=True)]
    return [value] * parts


def compare(
    make: Callable[[], nn.Module],
    step: Step,
    batch: Callable[[int, int], Any],
    *,
    stages: int = WORLD,
    microbatches: int = 4,
    steps: int = 1,
    parts: str = "",
    optimizer: Callable[..., Any] | None = None,
    tolerance: float = 1e-10,
    frozen: tuple[str, ...] = (),
    **setting: Any,
) -> DividedModel:
    """Runs steps on the pipeline and in this process, and compares results, gradients, parameters
    and buffers. ``batch(step, replica)`` makes the arguments; ``parts``: modules to put on the
    stages, in order.
    """
    replicas = WORLD // stages

    def build() -> nn.Module:
        model = seeded(make)
        for name in frozen:
            model.get_parameter(name).requires_grad_(False)
        return model

    if parts:
        setting["partition"] = spread(parts, stages)
    with pipeline(stages=stages, microbatches=microbatches, **setting):
        replica = pp.replica()
        model = pp.DistributedModel(build())
        made = optimizer(model.parameters()) if optimizer else None

        @pp.step
        def run(*args: Any) -> Any:
            return step(model, *args)

        results = []
        for at in range(steps):
            if made:
                made.zero_grad()
            results.append(run(*batch(at, replica)))
            if made:
                made.step()
        wanted = reference(
            build,
            step,
            batch,
            microbatches=microbatches,
            replicas=replicas,
            replica=replica,
            steps=steps,
            optimizer=optimizer,
        )
        for at, found in enumerate(results):
            for i, one in enumerate(wanted.results[at]):
                same(pick(found, i), one, f"result of step {at}, microbatch {i}", tolerance)
        check_model(model, wanted, tolerance)
        return DividedModel(model)


@dataclasses.dataclass
class DividedModel:
    """The model that was compared, after it."""

    model: Any

    def stage_of(self, path: str) -> int:
        return self.model.plan.stage_of(path)


def check_model(model: Any, wanted: Outcome, tolerance: float) -> None:
    """Compares what this rank has of the model with what one process has."""
    mine = dict(model.local_named_parameters())
    assert mine, "a rank without a parameter"
    for name, parameter in mine.items():
        same(parameter.grad, wanted.grads[name], f"the gradient of {name}", tolerance)
        same(parameter.detach(), wanted.params[name], name, tolerance)
    places = model._pipeline.places.buffer
    for name, buffer in model.module.named_buffers():
        if places.get(name, (0,))[0] == pp.rank():
            same(buffer, wanted.buffers[name], f"the buffer {name}", tolerance)


def pick(result: Any, microbatch: int) -> Any:
    """What the function returned for one microbatch."""
    if isinstance(result, StepOutput):
        return result.outputs[microbatch]
    if dataclasses.is_dataclass(result) and not isinstance(result, Mapping):
        fields = dataclasses.fields(result)
        return type(result)(**{f.name: pick(getattr(result, f.name), microbatch) for f in fields})
    if isinstance(result, Mapping):
        return {k: pick(v, microbatch) for k, v in result.items()}
    if isinstance(result, list | tuple):
        return type(result)(pick(v, microbatch) for v in result)
    raise AssertionError(f"a result of type {type(result).__name__}")


def same(found: Any, wanted: Any, what: str, tolerance: float = 0.0) -> None:
    """Compares nested results."""
    if isinstance(wanted, torch.Tensor):
        assert isinstance(found, torch.Tensor), f"{what}: {found!r}, not a tensor"
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (
            f"{what}: {found.dtype} {tuple(found.shape)}, not {wanted.dtype} {tuple(wanted.shape)}"
        )
        off = difference(found.detach().cpu(), wanted.detach())
        assert off <= tolerance, f"{what}: off by {off}"
    elif isinstance(wanted, Mapping):
        assert list(found) == list(wanted), f"{what}: {list(found)}, not {list(wanted)}"
        for key in wanted:
            same(found[key], wanted[key], f"{what}[{key!r}]", tolerance)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted), f"{what}: {len(found)} parts, not {len(wanted)}"
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            same(a, b, f"{what}[{i}]", tolerance)
    elif dataclasses.is_dataclass(wanted):
        for field in dataclasses.fields(wanted):
            name = field.name
            same(getattr(found, name), getattr(wanted, name), f"{what}.{name}", tolerance)
    elif isinstance(wanted, float):
        assert abs(found - wanted) <= max(tolerance, tolerance * abs(wanted)), f"{what}: {found}"
    else:
        assert found == wanted, f"{what}: {found!r}, not {wanted!r}"


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest relative difference; NaN at the same places counts as none."""
    if found.numel() == 0:
        return 0.0
    if not found.is_floating_point() and not found.is_complex():
        return float((found != wanted).any())
    a, b = (t.to(torch.complex128) for t in (found, wanted))
    both = a.isnan() & b.isnan()
    a, b = a.masked_fill(both, 0), b.masked_fill(both, 0)
    return float((a - b).abs().max() / max(float(b.abs().max()), 1e-300))
