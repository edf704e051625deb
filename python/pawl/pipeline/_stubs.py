"""What stands for the model in the driver's program: units that are called at their owners, and
parameters that are read there.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from pawl.errors import error
from pawl.pipeline import _codec
from pawl.pipeline._divide import _leaves
from pawl.pipeline._divide._trace import spell
from pawl.pipeline._driver import Driver, outside
from pawl.pipeline._fibers import current, modes_now
from pawl.pipeline._owner import Unit
from pawl.pipeline._placeholder import Placeholder, Ref

TEMPLATES_MAX: Final = 4096  # templates that are kept for the next step
_NOTHING: Final = _codec.meta_of(torch.empty(0))  # a value that only says that a call is done


class Template(NamedTuple):
    """What a unit returns for arguments of certain types and shapes."""

    key: Any
    metas: tuple[_codec.Meta, ...]  # results, then the arguments that it changes in place
    grads: tuple[bool, ...]  # whether each has a gradient
    # numbers, among arguments and results, of what may share memory with each
    shares: tuple[tuple[int, ...], ...]


def refuse(units: list[Unit], rank: int) -> None:
    """Makes units of other ranks say so where the program calls them, at a rank that does not
    drive.
    """

    def forward(*_: Any, **__: Any) -> Any:
        raise outside()

    for unit in units:
        if unit.rank != rank:
            unit.module.forward = forward


class Stubs:
    """Replaces the forward of each unit, and the tables of parameters and buffers, of a model."""

    def __init__(self, driver: Driver, units: list[Unit]) -> None:
        self._driver = driver
        self._templates: dict[Any, Template] = {}
        self.backwards: dict[int, int] = {}  # backward calls of each unit in this step
        self._last: dict[int, Placeholder] = {}  # a result of each unit that changes its buffers
        self._anchor = torch.empty(0, requires_grad=True)  # makes each call a node of the graph
        for unit in units:
            unit.module.forward = self._stub(unit)

    def begin(self) -> None:
        """Begins a step."""
        self.backwards.clear()
        self._last.clear()
        if len(self._templates) > TEMPLATES_MAX:
            self._templates.clear()

    def _stub(self, unit: Unit) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if current() is None:
                raise outside()
            return self._call(unit, args, kwargs)

        return forward

    def _call(self, unit: Unit, args: Any, kwargs: Any) -> Any:
        tensors, key = _codec.flatten((args, kwargs), f"an argument of {unit.name}")
        grad = torch.is_grad_enabled() and (
            any(p.requires_grad for _, p in unit.parameters)
            or any(t.requires_grad for t in tensors)
        )
        wants = tuple([grad and t.requires_grad for t in tensors])
        call = _Call(self, unit, key, wants, modes_now(grad))
        call.changed = _changed(unit, args, kwargs) if unit.changes else ()
        for i in call.changed:
            if not isinstance(tensors[i], Placeholder):
                tensors[i] = _refused(unit, tensors[i])
            tensors[i].check_alone(f"{unit.name} changes its argument", views=True)
        if grad:
            made = UnitCall.apply(call, self._anchor, *tensors)
        else:
            made = call.forward(tensors)
            for i, changed in zip(call.changed, made[call.results :], strict=True):
                tensors[i].ref = changed.ref
        _link(unit, call.shares, [*tensors, *made])
        return _codec.unflatten(call.key_out, list(made[: call.results]))

    def template(self, call: _Call, tensors: list[torch.Tensor]) -> tuple[int, Template]:
        """Issues a unit's forward call; returns its number, and what it returns. The first call
        with such arguments asks the owner, and waits.
        """
        unit = call.unit
        metas = tuple([_codec.meta_of(t) for t in tensors])
        signature = (unit.index, call.key, metas, call.wants, call.modes, unit.module.training)
        known = self._templates.get(signature)
        head = ("unit", unit.index, call.key, call.changed, call.wants, call.modes)
        issue = self._driver.issue
        place = unit.rank, unit.chunk
        if unit.updates:
            tensors = [*tensors, *self._behind(unit)]
        if known is not None:
            expected = known.key, _codec.describe(known.metas)
            outs = len(known.metas)
            return issue(*place, (*head, expected), tensors, outs), known
        number = issue(*place, (*head, None), tensors, 1)
        ref = Ref(self._driver, number, *place, 0)
        key, described = _codec.decode(bytes(self._driver.fetch(ref).numpy()))
        known = Template(
            key,
            tuple([(getattr(torch, dtype), *sizes) for dtype, *sizes, _, _ in described]),
            tuple([grad for _, _, _, grad, _ in described]),
            tuple([shares for *_, shares in described]),
        )
        self._templates[signature] = known
        if known.metas:
            call.values = issue(*place, ("take",), [], len(known.metas), of=number)
        return number, known

    def _behind(self, unit: Unit) -> list[torch.Tensor]:
        """What a call of a unit that changes its buffers also needs, so that its calls run in the
        order of microbatches: a result of the one before.
        """
        self._driver.take_turn()
        last = self._last.get(unit.index)
        return [] if last is None else [last]

    def note(self, unit: Unit, made: list[Placeholder]) -> None:
        """Notes the results of a call."""
        if unit.updates and made:
            self._last[unit.index] = made[0]


class _Call:
    """A call of a unit, between the program and autograd."""

    def __init__(self, stubs: Stubs, unit: Unit, key: Any, wants: Any, modes: Any) -> None:
        self.stubs = stubs
        self.unit = unit
        self.key = key
        self.wants = wants
        self.modes = modes
        self.number = 0
        self.changed: tuple[int, ...] = ()  # tensors that it changes in place
        self.values: int | None = None  # number of the first result, if it is not the call's
        self.key_out: Any = None
        self.results = 0  # results, without the arguments that were changed
        self.grads: tuple[bool, ...] = ()
        self.shares: tuple[tuple[int, ...], ...] = ()

    def forward(self, tensors: list[torch.Tensor]) -> list[Placeholder]:
        self.number, template = self.stubs.template(self, tensors)
        self.key_out = template.key
        self.results = len(template.metas) - len(self.changed)
        self.grads, self.shares = template.grads, template.shares
        first = self.number if self.values is None else self.values
        driver = self.stubs._driver
        made = driver.made(first, self.unit.rank, self.unit.chunk, template.metas)
        self.stubs.note(self.unit, made)
        return made


class UnitCall(torch.autograd.Function):
    """A call in autograd's graph at the driver."""

    @staticmethod
    def forward(ctx: Any, call: _Call, anchor: torch.Tensor, *tensors: torch.Tensor) -> Any:
        made: list[torch.Tensor] = list(call.forward(list(tensors)))
        for place, i in enumerate(call.changed, call.results):
            tensors[i].ref = made[place].ref  # type: ignore[attr-defined]
            ctx.mark_dirty(tensors[i])
            made[place] = tensors[i]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *[t for t, grad in zip(made, call.grads, strict=True) if not grad]
        )
        ctx.call = call
        ctx.metas = [_codec.meta_of(t) for t in tensors]
        ctx.devices = [None if isinstance(t, Placeholder) else t.device for t in tensors]
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        call, unit = ctx.call, ctx.call.unit
        stubs = call.stubs
        driver = stubs._driver
        have = tuple([g is not None for g in grads])
        wants = tuple(ctx.needs_input_grad[2:])
        metas = tuple([m for m, want in zip(ctx.metas, wants, strict=True) if want])
        stubs.backwards[unit.index] = stubs.backwards.get(unit.index, 0) + 1
        given = [g for g in grads if g is not None]
        made = iter(_issue_backward(driver, call, (unit.index, have, wants), given, metas))
        # A tensor of this process gets the numbers: what made it is here.
        found = [
            (g if device is None else g.fetch().to(device))
            if want and (g := next(made)) is not None
            else None
            for want, device in zip(wants, ctx.devices, strict=True)
        ]
        return (None, None, *found)


def _issue_backward(
    driver: Driver, call: _Call, what: tuple[Any, ...], grads: list[torch.Tensor], metas: Any
) -> list[Placeholder]:
    """Issues the backward pass of a call, as one or as two; returns the gradients of arguments."""
    unit = call.unit
    place = unit.rank, unit.chunk
    halves = driver.divides and unit.divides
    if halves and metas:
        number = driver.issue(*place, ("inputs", *what), grads, len(metas) + 1, of=call.number)
        *made, done = driver.made(number, *place, (*metas, _NOTHING))
        driver.issue(*place, ("parameters", unit.index), [done], 0, of=call.number, late=True)
        return made
    if halves:
        # Without a call, the list's task for gradients of arguments would be over at once, and
        # forward passes would run ahead of the plan.
        driver.issue(*place, ("arrive",), grads, 0)
    number = driver.issue(
        *place, ("backward", *what), grads, len(metas), of=call.number, late=halves
    )
    return driver.made(number, *place, metas)


def _link(unit: Unit, shares: tuple[tuple[int, ...], ...], tensors: list[torch.Tensor]) -> None:
    """Notes which of a call's arguments and results have memory in common at the owner, and have
    none here. ``shares``: of each result.
    """
    first = len(tensors) - len(shares)
    for result, others in zip(tensors[first:], shares, strict=True):
        for other in [tensors[i] for i in others]:
            if other is not result and isinstance(result, Placeholder):
                result.link(other, unit.name)


def _changed(unit: Unit, args: Any, kwargs: Any) -> tuple[int, ...]:
    """Numbers, among a call's tensors, of the arguments that the unit changes in place."""
    names: list[str] = []

    def note(name: str, tensor: torch.Tensor) -> torch.Tensor:
        names.append(spell(name))
        return tensor

    _leaves.swap((args, kwargs), note)
    return tuple([i for i, name in enumerate(names) if name in unit.changes])


def _refused(unit: Unit, tensor: torch.Tensor) -> torch.Tensor:
    raise error(
        "PAWL_ENOTSUP",
        f"pipeline: {unit.name} changes its argument of shape {tuple(tensor.shape)} in place, and "
        "the argument is a tensor of the step function; pass a copy (x.clone())",
    )


# ---- parameters and buffers that the program reads itself ----


class Reader:
    """Reads parameters and buffers at their owners; ``places``: rank and chunk, metas: of each."""

    def __init__(
        self,
        stubs: Stubs,
        places: dict[str, tuple[int, int]],
        metas: dict[str, _codec.Meta],
    ) -> None:
        self.stubs = stubs
        self.places = places
        self.metas = metas
        self.backwards: dict[int, int] = {}  # gradients sent to each rank in this step

    def parameter(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A parameter of this name, once a microbatch."""
        return self._read("parameter", name, value.requires_grad and torch.is_grad_enabled())

    def buffer(self, name: str, _: torch.Tensor) -> torch.Tensor:
        """A buffer of this name: as it is when the call runs."""
        return self.issue("buffer", name)

    def _read(self, kind: str, name: str, grad: bool) -> torch.Tensor:
        fiber = self.stubs._driver.fiber()
        found = fiber.reads.get((name, grad))
        if found is None:
            found = (
                ParameterRead.apply(self, self.stubs._anchor, name)
                if grad
                else self.issue(kind, name)
            )
            fiber.reads[name, grad] = found
        return found

    def issue(self, kind: str, name: str) -> Placeholder:
        """The placeholder of what an owner reads."""
        place = self.places[name]
        driver = self.stubs._driver
        number = driver.issue(*place, ("read", kind, name), [], 1)
        return driver.made(number, *place, (self.metas[name],))[0]


class ParameterRead(torch.autograd.Function):
    """A parameter in autograd's graph at the driver: its gradient goes to the owner."""

    @staticmethod
    def forward(ctx: Any, reader: Reader, anchor: torch.Tensor, name: str) -> Any:
        ctx.reader, ctx.name = reader, name
        return reader.issue("parameter", name)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        reader = ctx.reader
        place = reader.places[ctx.name]
        reader.backwards[place[0]] = reader.backwards.get(place[0], 0) + 1
        reader.stubs._driver.issue(*place, ("read gradient", ctx.name), [grad], 0)
        return None, None, None
