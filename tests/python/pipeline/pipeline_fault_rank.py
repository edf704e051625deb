"""A rank of pipelines that fail: by the model, by the step function, or by what they are given.

Usage: pipeline_fault_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import pawl.pipeline as pp
from group_checks import check, run_checks
from pawl.errors import PawlError
from pipeline_checks import ROWS, WORLD, numbers, pipeline, seeded, spread

WIDTH = 6
LAST = WORLD - 1


FAILING: list[int] = []  # not empty: what is to fail does


def error_of(call: Callable[[], Any]) -> BaseException:
    """The exception that a call raises."""
    try:
        found = call()
    except Exception as raised:
        return raised
    raise AssertionError(f"no error, but {found!r}")


class Layers(nn.Module):
    """A linear layer for each rank, and in front of the last one a part that a test makes."""

    def __init__(self, part: nn.Module | None = None, n: int = WORLD + 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(n)])
        self.part = part if part is not None else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x)
        return self.layers[-1](self.part(x))


PARTS = " ".join([*(f"layers.{i}" for i in range(WORLD)), "part", f"layers.{WORLD}"])


def placed(part: bool = True) -> dict[str, int]:
    """Each layer on a stage of its own, the part and the last layer on the last stage."""
    names = spread(PARTS, WORLD)
    names = {f"layers.{i}": i for i in range(WORLD)} | {f"layers.{WORLD}": LAST}
    return names | ({"part": LAST} if part else {})


class Outer:
    """What a pipeline fails by, in its steps."""

    def __init__(self, part: nn.Module | None = None, **setting: Any) -> None:
        setting.setdefault("partition", placed(part is not None))
        self.setting = {"microbatches": 2 * WORLD} | setting
        self.part = part

    def fail(
        self, step: Callable[..., Any] | None = None, after: int = 1, x: Tensor | None = None
    ) -> tuple[BaseException, BaseException]:
        """Runs steps of which the last one fails. Returns the error of the step, and that of a step
        after it, at this rank."""
        with pipeline(**self.setting):
            model = pp.DistributedModel(seeded(lambda: Layers(self.part)))
            rows = ROWS * self.setting["microbatches"]
            given = numbers(rows, WIDTH, seed=3) if x is None else x

            @pp.step
            def run(x: Tensor, n: int) -> Any:
                if step is not None:
                    return step(model, x, n)
                loss = model(x).square().mean()
                model.backward(loss)
                return loss

            for n in range(after):
                run(given, n)
            settle()
            FAILING.append(1)
            first = error_of(lambda: run(given, after))
            FAILING.clear()
            again = error_of(lambda: run(given, after + 1))
            return first, again


def settle() -> None:
    """Waits for all ranks: a failure may reach a rank before it has ended the last step."""
    if WORLD > 1:
        dist.barrier()


def named(found: BaseException, *texts: str) -> None:
    """Checks a one-line PawlError with all of these texts."""
    assert isinstance(found, PawlError), repr(found)
    assert all(text in str(found) for text in texts), found
    assert "\n" not in str(found), found


def checked(errors: tuple[BaseException, BaseException], *texts: str) -> BaseException:
    """Checks both errors of Outer.fail: the second one has the first one's text."""
    named(errors[0], *texts)
    named(errors[1], "it has failed", *texts)
    return errors[0]


class Raises(nn.Module):
    """Raises when it is to fail."""

    def __init__(self, backward: bool = False) -> None:
        super().__init__()
        self.backward = backward

    def forward(self, x: Tensor) -> Tensor:
        if self.backward:
            return Late.apply(x)
        if FAILING:
            raise KeyError("no such thing")
        return x * 1.0


class Late(torch.autograd.Function):
    """Raises in its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if FAILING:
            raise ZeroDivisionError("in the backward pass")
        return grad


@check
def a_module_raises() -> None:
    """Its exception is raised where it is, and its type, text and path at the driver."""
    errors = Outer(Raises()).fail()
    if pp_rank() == LAST:
        assert isinstance(errors[0], KeyError), repr(errors[0])
        named(errors[1], "it has failed", "no such thing")
    else:
        found = checked(errors, f"stage {LAST} failed in part", "KeyError", "no such thing")
        assert "pipeline_fault_rank.py" in found.trace and "raise KeyError" in found.trace


@check
def a_backward_pass_raises() -> None:
    errors = Outer(Raises(backward=True)).fail()
    if pp_rank() == LAST:
        assert isinstance(errors[0], ZeroDivisionError), repr(errors[0])
    else:
        texts = f"stage {LAST} failed in part (backward)", "ZeroDivisionError", "in the backward"
        checked(errors, *texts)


@check
def the_step_function_raises() -> None:
    for when in ("before", "between", "after"):

        def step(model: Any, x: Tensor, n: int, when: str = when) -> Any:
            if n == 1 and when == "before":
                raise LookupError("of the driver")
            loss = model(x).square().mean()
            if n == 1 and when == "between":
                raise LookupError("of the driver")
            model.backward(loss)
            if n == 1 and when == "after":
                raise LookupError("of the driver")
            return loss

        errors = Outer().fail(step)
        if pp_rank() == 0:
            assert isinstance(errors[0], LookupError), repr(errors[0])
            named(errors[1], "it has failed", "of the driver")
        else:
            checked(errors, "stage 0 failed in the step function", "LookupError", "of the driver")


@check
def the_first_step_raises() -> None:
    def step(model: Any, x: Tensor, n: int) -> Any:
        raise LookupError("at once")

    with pipeline(**Outer().setting):
        pp.DistributedModel(seeded(Layers))
        run = pp.step(lambda x: step(None, x, 0))
        found = error_of(lambda: run(numbers(ROWS * 2 * WORLD, WIDTH, seed=1)))
        if pp_rank() == 0:
            assert isinstance(found, LookupError)
        else:
            named(found, "rank 0 could not divide the model", "LookupError", "at once")


@check
def a_batch_does_not_divide() -> None:
    for after in (0, 1):
        with pipeline(**Outer().setting):
            model = pp.DistributedModel(seeded(Layers))

            @pp.step
            def run(x: Tensor, model: Any = model) -> Any:
                loss = model(x).square().mean()
                model.backward(loss)
                return loss

            for _ in range(after):
                run(numbers(2 * WORLD, WIDTH, seed=1))
            settle()
            found = error_of(lambda: run(numbers(2 * WORLD + 1, WIDTH, seed=1)))
            named(found, f"{2 * WORLD + 1} rows, which do not divide into {2 * WORLD} microbatches")


class Says(nn.Module):
    """Returns what a function makes of its argument."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class DynamicCache:
    """What transformers pass between layers; no other rank could have it."""


@check
def an_object_that_cannot_cross() -> None:
    class Caches(nn.Module):
        def forward(self, x: Tensor, cache: Any) -> Tensor:
            return x * 1.0

    class Model(Layers):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers[:-1]:
                x = layer(x)
            return self.layers[-1](self.part(x, DynamicCache()))

    with pipeline(**Outer(nn.Identity()).setting):
        model = pp.DistributedModel(seeded(lambda: Model(Caches())))

        @pp.step
        def run(x: Tensor) -> Any:
            loss = model(x).square().mean()
            model.backward(loss)
            return loss

        found = error_of(lambda: run(numbers(2 * WORLD, WIDTH, seed=1)))
        named(found, "an argument of part is a", "DynamicCache", "use_cache=False")


@check
def a_result_that_cannot_cross() -> None:
    for value, text in ((DynamicCache(), "DynamicCache"), ({1, 2}, "builtins.set")):
        part = Says(lambda x, value=value: (x * 1.0, value))

        class Model(Layers):
            def forward(self, x: Tensor) -> Tensor:
                for layer in self.layers[:-1]:
                    x = layer(x)
                return self.layers[-1](self.part(x)[0])

        with pipeline(**Outer(part).setting):
            model = pp.DistributedModel(seeded(lambda part=part, kind=Model: kind(part)))

            @pp.step
            def run(x: Tensor, model: Any = model) -> Any:
                loss = model(x).square().mean()
                model.backward(loss)
                return loss

            found = error_of(lambda: run(numbers(2 * WORLD, WIDTH, seed=1)))
            named(found, "the result of part is a" if WORLD == 1 else "the result of part", text)


@check
def a_step_result_that_is_no_value() -> None:
    def step(model: Any, x: Tensor, n: int) -> Any:
        loss = model(x).square().mean()
        model.backward(loss)
        return DynamicCache() if n else loss

    found = Outer().fail(step)[0]
    named(found, "the step function's result is a", "DynamicCache")


@check
def results_that_change() -> None:
    """A unit whose results are of another shape or kind than before is named."""

    def cut(x: Tensor) -> Tensor:
        return x[: 4 if FAILING else 5]

    errors = Outer(Says(cut)).fail()
    named(errors[0], "part returned tensors", "(4, 6)", "(5, 6)", "must not be a unit")


@check
def an_argument_changed_in_place_later() -> None:
    def change(x: Tensor) -> Tensor:
        return x.mul_(1.0) if FAILING else x * 1.0

    errors = Outer(Says(change)).fail()
    assert "in-place operation" in str(errors[0]), errors[0]
    if pp_rank() != LAST:
        named(errors[0], f"stage {LAST} failed in part: RuntimeError: a leaf")


@check
def a_saved_tensor_changed_in_place() -> None:
    """torch's own error, raised at the driver."""

    def step(model: Any, x: Tensor, n: int) -> Any:
        y = model(x).exp()
        if FAILING:
            y.add_(1)
        loss = y.square().mean()
        model.backward(loss)
        return loss

    errors = Outer().fail(step)
    if pp_rank() == 0:
        assert "modified by an inplace operation" in str(errors[0]), errors[0]
    else:
        checked(errors, "stage 0 failed in the step function", "modified by an inplace operation")


@check
def a_tensor_of_an_earlier_step() -> None:
    kept: list[Tensor] = []

    def step(model: Any, x: Tensor, n: int) -> Any:
        y = model(x)
        if n > 1:
            y = y + kept[-1]
        kept.append(y)
        loss = y.square().mean()
        model.backward(loss)
        return loss

    errors = Outer().fail(step, after=2)
    named(errors[0], "a tensor was computed in an earlier step")


@check
def what_works_in_a_step_only() -> None:
    """The model, its units and tensors, outside of the step function."""
    kept: list[Tensor] = []
    with pipeline(**Outer().setting):
        model = pp.DistributedModel(seeded(Layers))

        @pp.step
        def run(x: Tensor) -> Any:
            y = model(x)
            kept.append(y.detach())
            loss = y.square().mean()
            model.backward(loss)
            return loss

        x = numbers(2 * WORLD, WIDTH, seed=1)
        run(x)
        run(x)
        if pp_rank() == 0:
            inside = "inside of a function with @pp.step only"
            named(error_of(lambda: model(x)), inside)
            named(error_of(lambda: model.module.layers[0](x)), inside)
            assert "Placeholder" in repr(kept[-1])
            for use in (
                lambda t: t + 1, lambda t: t.sum().item(), lambda t: t.fetch(), lambda t: t.numpy(),
                lambda t: t.tolist(), lambda t: f"{t}", lambda t: t.add_(1),
                lambda t: bool(t.sum()), lambda t: t.sum().backward(),
            ):  # fmt: skip
                named(error_of(lambda use=use: use(kept[-1])), "@pp.step")
        else:
            named(error_of(lambda: model(x)), "@pp.step")
        named(error_of(lambda: model.backward(torch.ones(()))), "@pp.step")
        run(x)


@check
def begins_in_the_wrong_order() -> None:
    named(error_of(pp.rank), "call pp.init() first")
    named(error_of(lambda: pp.DistributedModel(nn.Linear(2, 2))), "call pp.init() first")
    run = pp.step(lambda x: x)
    named(error_of(lambda: run(torch.ones(2))), "call pp.init() first")
    named(error_of(lambda: pp.init(stages=WORLD + 1)), f"{WORLD} ranks do not divide")
    named(error_of(lambda: pp.init(stages=0)), "stages=0: must be at least 1")
    named(error_of(lambda: pp.init(WORLD, microbatches=0)), "microbatches=0")
    named(error_of(lambda: pp.init(WORLD, schedule="gpipe")), "gpipe", "zero-bubble")
    named(error_of(lambda: pp.init(WORLD, chunks=1)), "chunks=1")
    named(error_of(lambda: pp.init(WORLD, tied="no")), "tied")
    with pipeline():
        named(error_of(lambda: pp.init(stages=WORLD)), "called before")
        named(error_of(lambda: run(torch.ones(2 * WORLD))), "make a pp.DistributedModel")
        named(error_of(lambda: pp.clip_grad_norm_(1.0)), "DistributedModel")
        first = pp.DistributedModel(nn.Linear(2, 2))
        named(error_of(lambda: pp.DistributedModel(nn.Linear(2, 2))), "DistributedModel already")
        named(error_of(lambda: pp.clip_grad_norm_(1.0)), "before the first step")
        named(error_of(lambda: pp.set_partition(nn.Linear(2, 2), 0)), "not in the model")
        named(error_of(lambda: first.backward(torch.ones(()))), "@pp.step")


@check
def models_that_cannot_be_divided() -> None:
    with pipeline():
        if WORLD > 1:
            wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
            named(error_of(lambda: pp.DistributedModel(wrapped)), "DistributedDataParallel")
        with torch.device("meta"):
            named(error_of(lambda: pp.DistributedModel(nn.BatchNorm1d(2))), "has no memory")
    if WORLD > 1:
        for change in ("shape", "names", "frozen", "more"):
            with pipeline():
                model = seeded(Layers)
                if pp_rank() == LAST:
                    if change == "shape":
                        model.layers[0] = nn.Linear(WIDTH, WIDTH + 1)
                    elif change == "names":
                        model.other = model.part = nn.Linear(2, 2)
                    elif change == "frozen":
                        model.layers[0].weight.requires_grad_(False)
                    else:
                        model.layers.append(nn.Linear(2, 2))
                pp.DistributedModel(model)
                found = error_of(lambda: pp.step(lambda x: x)(torch.ones(2 * WORLD)))
                named(found, f"the model of rank {LAST} is not that of rank 0")
    with pipeline(memory=300):
        model = pp.DistributedModel(seeded(Layers))
        run = pp.step(lambda x: model.backward(model(x).sum()))
        found = error_of(lambda: run(numbers(2 * WORLD, WIDTH, seed=1)))
        named(found, "layers.", "needs")
    with pipeline():
        model = pp.DistributedModel(seeded(Layers))
        run = pp.step(lambda x: model.backward(model(x).sum()))
        pp.set_partition(model.module.layers[0], 7)
        found = error_of(lambda: run(numbers(2 * WORLD, WIDTH, seed=1)))
        named(found, "layers.0 is wanted on stage 7")


def pp_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def main() -> None:
    torch.set_num_threads(1)
    run_checks()


if __name__ == "__main__":
    main()
