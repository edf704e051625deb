"""Carries out the calls that come to this rank: units forward and backward, and operators.

A unit runs on leaves: its arguments, cut off from whatever made them. Its graph stays here until
the driver asks for its backward pass, or the step ends. Gradients of parameters stay here, too.
"""

from __future__ import annotations

import functools
import json
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pawl import _core
from pawl.errors import PawlError, error
from pawl.pipeline import _codec, _split
from pawl.pipeline._device import Device
from pawl.pipeline._draws import Draws
from pawl.pipeline._fibers import in_modes
from pawl.pipeline._gradients import FRAME, Gradients
from pawl.pipeline._notes import (
    CALL_HEAD,
    NOTE_FINAL,
    NOTE_FORGET,
    NOTE_RECIPE,
    NOTE_RESULT,
    RECIPE_HEAD,
)
from pawl.pipeline._record import Recorder

EXPLAIN_S: Final = 1.0  # a rank that fails tells why before it leaves; its leave may come sooner


class Unit:
    """A module that is called as a whole, at the rank that owns it."""

    def __init__(self, index: int, name: str, module: nn.Module, rank: int, chunk: int) -> None:
        self.index = index
        self.name = name
        self.module = module
        self.rank = rank
        self.chunk = chunk
        self.forward: Callable[..., Any] = module.forward
        self.parameters: list[tuple[str, nn.Parameter]] = []  # with names in the model
        self.draws: tuple[str, ...] = ()  # modules in it that draw random numbers themselves
        self.changes: tuple[str, ...] = ()  # arguments that it changes in place, as "args[0]"
        self.updates = False  # the unit changes its buffers
        self.repeated = False  # the backward pass computes activations again
        self.divides = False  # gradients of parameters can be computed later than others


class _Graph(NamedTuple):
    outs: list[torch.Tensor]
    leaves: list[torch.Tensor]


class _Ends(NamedTuple):
    """Of a backward pass: results that have a graph, their gradients, arguments and parameters."""

    outs: list[torch.Tensor]
    grads: list[torch.Tensor]
    leaves: list[torch.Tensor]
    names: list[str]
    params: list[nn.Parameter]


class _Half(NamedTuple):
    """A backward pass of which the gradients of inputs are done."""

    divided: _split.Divided
    names: list[str]  # names of the parameters


class Owner:
    """Of one rank. One thread at a time."""

    def __init__(
        self,
        stage: _core.Stage,
        model: nn.Module,
        gradients: Gradients,
        seed: str,
        device: Device,
    ) -> None:
        self.units: list[Unit] = []
        self._rank = 0
        self.result: bytes | None = None
        self.recorder: Recorder | None = None
        self._stage = stage
        self._model = model
        self._gradients = gradients
        self._recipes: dict[int, Callable[..., list[torch.Tensor]]] = {}
        self._graphs: dict[int, _Graph] = {}
        self._halves: dict[int, _Half] = {}  # backward passes that lack gradients of parameters
        self._asked: dict[int, list[torch.Tensor]] = {}
        self._doing = ""  # name of the unit or operator that runs, for errors
        self._device = device
        self._draws = Draws(seed, device.device)

    def serve(self) -> bytes:
        """Carries out calls until the step ends; returns its results, as the driver sent them."""
        while not self.handle(self._stage.next(None)):
            pass
        assert self.result is not None
        return self.result

    def explain(self) -> None:
        """Raises what another rank has told of its failure, or which rank is lost, if that is known
        here, or is soon: whoever learns of it first leaves, which others see in their other groups.
        """
        until = time.monotonic() + EXPLAIN_S
        while (left := until - time.monotonic()) > 0:
            try:
                event = self._stage.next(left)
            except PawlError as why:
                if why.name == "PAWL_EPEER":
                    raise
                return
            if event is not None and event[0] == _core.STAGE_FAILED:
                raise_failure(event[1], event[2])

    def begin(self, step: int) -> None:
        """Prepares for a step."""
        self.result = None
        self._draws.begin(step, self._rank)

    def end(self) -> None:
        """Drops what the step has left: graphs whose backward pass nobody asked for."""
        self._graphs.clear()
        self._halves.clear()
        self._asked.clear()
        self._draws.end()

    def handle(self, event: Any) -> bool:
        """Carries out one event of the stage. Returns whether the step has ended."""
        kind = event[0]
        if kind == _core.STAGE_CALL:
            self._call(*event[1:])
        elif kind == _core.STAGE_NOTE:
            self._note(event[1])
        elif kind == _core.STAGE_WANTED:
            self._device.supply(event[1], event[3])
        elif kind == _core.STAGE_END:
            self.end()
            return True
        elif kind == _core.STAGE_FAILED:
            raise_failure(event[1], event[2])
        return False

    def _note(self, note: bytes) -> None:
        if note[0] == NOTE_RECIPE:
            _, number = RECIPE_HEAD.unpack_from(note)
            self._recipes[number] = self._prepare(_codec.decode(note[RECIPE_HEAD.size :]))
        elif note[0] == NOTE_RESULT:
            self.result = note[1:]
        elif note[0] == NOTE_FORGET:
            self._recipes.clear()
        elif note[0] == NOTE_FINAL:
            self._gradients.finalise(json.loads(note[1:]))

    def _call(self, number: int, task: tuple[int, int, int], blob: bytes, values: Any) -> None:
        recipe, of, random_number = CALL_HEAD.unpack(blob)
        self._draws.microbatch = task[2]
        self._doing = "a call"
        begun_ns = time.time_ns() if self.recorder else 0
        try:
            tensors = self._device.take(values)
            outs = self._recipes[recipe](tensors, of or number, random_number)
            made = [_codec.settle(t) for t in outs]
        except BaseException as raised:
            with suppress(PawlError):  # a rank is lost: the exception says more
                self._stage.fail(failure(raised, self._doing))
            raise
        self._stage.done(number, [self._device.made(t) for t in made])
        if self.recorder:
            self.recorder.add(task, begun_ns)

    def _prepare(self, recipe: Any) -> Callable[..., list[torch.Tensor]]:
        """What carries out a recipe: takes tensors, the number of the call, a random number."""
        kind, *rest = recipe
        return _KINDS[kind](self, *rest)

    # ---- units ----

    def take(self, units: list[Unit], rank: int) -> None:
        """Takes the units of all ranks; those of this rank draw their random numbers by name. Where
        the program has a checkpoint around a unit, it is the owner that computes it again.
        """
        self.units = units
        self._rank = rank
        for unit in units:
            for path in unit.draws if unit.rank == rank else ():
                if path == unit.name:
                    unit.forward = self._draws.drawing(path, unit.forward)
                else:
                    module = self._model.get_submodule(path)
                    module.forward = self._draws.drawing(path, module.forward)
            if unit.rank == rank and unit.repeated:
                unit.forward = functools.partial(checkpoint, unit.forward, use_reentrant=False)

    def _unit(
        self, index: int, key: Any, changed: Any, wants: Any, modes: Any, expected: Any
    ) -> Callable[..., list[torch.Tensor]]:
        """A forward pass. ``changed``: numbers of the tensors that it changes in place.
        ``wants``: whether the gradient of each tensor will be asked for. ``expected``: key and
        (type, shape) of the results; None: the driver asks for them. A last tensor, without an
        entry in ``wants``, is what the call runs behind.
        """
        unit = self.units[index]
        grad = modes[0]

        def run(tensors: list[torch.Tensor], number: int, _: int) -> list[torch.Tensor]:
            self._doing = unit.name
            leaves = [
                t.detach().requires_grad_() if want else t.detach()
                for t, want in zip(tensors, wants, strict=False)
            ]
            given = [t.clone() if i in changed else t for i, t in enumerate(leaves)]
            versions = [t._version for t in given]
            args, kwargs = self._device.unflatten(key, given)
            counted = self._draws.counted(bool(unit.draws))
            with in_modes(modes), counted, self._device.keeping():
                result = unit.forward(*args, **kwargs)
            outs, out_key = _codec.flatten(result, f"the result of {unit.name}")
            _check_unchanged(unit, changed, given, versions)
            outs += [given[i] for i in changed]
            outs = _apart(outs, unit.module)
            if grad:
                self._graphs[number] = _Graph(outs, leaves)
            if expected is None:
                self._asked[number] = outs
                return [_answer(out_key, outs, given)]
            _compare(unit.name, expected, out_key, outs)
            return outs

        return run

    def _take(self) -> Callable[..., list[torch.Tensor]]:
        """The results of a forward pass that the driver has asked about."""
        return lambda tensors, number, _: self._asked.pop(number)

    def _backward(self, index: int, have: Any, wants: Any) -> Callable[..., list[torch.Tensor]]:
        """A backward pass. ``have``: which results' gradients are given; ``wants``: which
        arguments' gradients are returned, zeros if there is none.
        """
        unit = self.units[index]

        def run(tensors: list[torch.Tensor], number: int, _: int) -> list[torch.Tensor]:
            self._doing = f"{unit.name} (backward)"
            ends = _ends(unit, self._graphs.pop(number), have, wants, tensors)
            n = len(ends.leaves)
            found: list[Any] = [None] * (n + len(ends.params))
            if ends.outs and found:
                inputs = [*ends.leaves, *ends.params]
                with self._draws.counted(bool(unit.draws), again=True):
                    found = list(
                        torch.autograd.grad(ends.outs, inputs, ends.grads, allow_unused=True)
                    )
            self._add(unit, ends.names, found[n:])
            return [_like(leaf, g) for leaf, g in zip(ends.leaves, found[:n], strict=True)]

        return run

    def _inputs(self, index: int, have: Any, wants: Any) -> Callable[..., list[torch.Tensor]]:
        """As _backward, but gradients of parameters come later, where that is possible. A last
        result is what the later call needs.
        """
        unit = self.units[index]
        whole = self._backward(index, have, wants)

        def run(tensors: list[torch.Tensor], number: int, _: int) -> list[torch.Tensor]:
            self._doing = f"{unit.name} (backward)"
            ends = _ends(unit, self._graphs[number], have, wants, tensors)
            divided = _split.divide(ends.outs, ends.leaves, ends.params)
            if divided is None:
                return [*whole(tensors, number, 0), torch.empty(0)]
            del self._graphs[number]
            with self._draws.counted(bool(unit.draws), again=True):
                found = divided.inputs(ends.outs, ends.grads)
            self._halves[number] = _Half(divided, ends.names)
            return [*map(_like, ends.leaves, found), torch.empty(0)]

        return run

    def _parameters(self, index: int) -> Callable[..., list[torch.Tensor]]:
        """The gradients of parameters that a backward pass has left."""
        unit = self.units[index]

        def run(_: list[torch.Tensor], number: int, __: int) -> list[torch.Tensor]:
            self._doing = f"{unit.name} (backward, parameters)"
            half = self._halves.pop(number, None)
            if half is not None:
                with self._draws.counted(bool(unit.draws), again=True):
                    found = half.divided.parameters()
                self._add(unit, half.names, found)
            return []

        return run

    def _arrive(self) -> Callable[..., list[torch.Tensor]]:
        """Nothing, once the tensors that it takes are there."""
        return lambda *_: []

    def _add(self, unit: Unit, names: list[str], grads: list[Any]) -> None:
        """Adds the gradients of one backward call to those of the step."""
        for name, grad in zip(names, grads, strict=True):
            if grad is not None:
                self._gradients.add(unit.index, name, grad)
        self._gradients.count(unit.index)

    # ---- operators and parameters ----

    def _operator(self, name: str, key: Any, expected: Any) -> Callable[..., list[torch.Tensor]]:
        func = find_operator(name)

        def run(tensors: list[torch.Tensor], _: int, seed: int) -> list[torch.Tensor]:
            self._doing = name
            args, kwargs = self._device.unflatten(key, tensors)
            with torch.no_grad(), self._draws.stream("operator", seed):
                outs, _ = _codec.flatten(func(*args, **kwargs), name)
            _compare_tensors(name, expected, outs)
            return outs

        return run

    def _in_place(
        self, name: str, key: Any, slot: int, chain: Any, views: Any
    ) -> Callable[..., list[torch.Tensor]]:
        func = find_operator(name)

        def run(tensors: list[torch.Tensor], _: int, seed: int) -> list[torch.Tensor]:
            self._doing = name
            base = tensors[0].clone()
            operands = list(tensors[1:])
            with torch.no_grad(), self._draws.stream("operator", seed):
                operands[slot] = _view(base, chain)
                args, kwargs = self._device.unflatten(key, operands)
                func(*args, **kwargs)
                return [base, *[_view(base, v) for v in views]]

        return run

    def _read(self, kind: str, name: str) -> Callable[..., list[torch.Tensor]]:
        """A parameter or buffer that the program reads outside of its module."""
        get = self._model.get_parameter if kind == "parameter" else self._model.get_buffer
        # A buffer may change before the value is used.
        return lambda *_: [get(name).detach() if kind == "parameter" else get(name).clone()]

    def _read_gradient(self, name: str) -> Callable[..., list[torch.Tensor]]:
        def run(tensors: list[torch.Tensor], _: int, __: int) -> list[torch.Tensor]:
            self._doing = f"the gradient of {name}"
            self._gradients.add(FRAME, name, tensors[0])
            self._gradients.count(FRAME)
            return []

        return run


_KINDS: Final[dict[str, Any]] = {
    "unit": Owner._unit,
    "take": Owner._take,
    "backward": Owner._backward,
    "inputs": Owner._inputs,
    "parameters": Owner._parameters,
    "arrive": Owner._arrive,
    "op": Owner._operator,
    "in place": Owner._in_place,
    "read": Owner._read,
    "read gradient": Owner._read_gradient,
}


def _check_unchanged(
    unit: Unit, changed: Any, given: list[torch.Tensor], versions: list[int]
) -> None:
    for i, (tensor, version) in enumerate(zip(given, versions, strict=True)):
        if tensor._version != version and i not in changed:
            raise error(
                "PAWL_ENOTSUP",
                f"pipeline: {unit.name} changes its argument of shape {tuple(tensor.shape)} in "
                "place, which it did not do while the model was profiled",
            )


def _ends(unit: Unit, graph: _Graph, have: Any, wants: Any, grads: list[torch.Tensor]) -> _Ends:
    """Where a unit's backward pass begins and ends; see Owner._backward."""
    given = [out for out, has in zip(graph.outs, have, strict=True) if has]
    pairs = [(o, g) for o, g in zip(given, grads, strict=True) if o.requires_grad]
    trained = [(name, p) for name, p in unit.parameters if p.requires_grad]
    return _Ends(
        [out for out, _ in pairs],
        [grad for _, grad in pairs],
        [leaf for leaf, want in zip(graph.leaves, wants, strict=True) if want],
        [name for name, _ in trained],
        [p for _, p in trained],
    )


def _like(leaf: torch.Tensor, grad: torch.Tensor | None) -> torch.Tensor:
    """A gradient in the layout that the driver has promised."""
    if grad is None:
        return torch.zeros_like(leaf)
    if grad.stride() == leaf.stride():
        return grad
    return grad.new_empty_strided(leaf.shape, leaf.stride()).copy_(grad)


def _view(base: torch.Tensor, chain: Any) -> torch.Tensor:
    for name, key, index in chain:
        # The base is the first tensor of a view's arguments, and the only one.
        args, kwargs = _codec.unflatten(key, [base])
        made = find_operator(name)(*args, **kwargs)
        base = made if index is None else made[index]
    return base


def find_operator(name: str) -> Any:
    """torch's operator of a name such as aten.add.Tensor."""
    namespace, operator, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload)


# ---- results ----


def _answer(key: Any, outs: list[torch.Tensor], given: list[torch.Tensor]) -> torch.Tensor:
    """What the driver asks about a unit's results, as the bytes of a tensor."""
    holders = [*given, *outs]
    at = len(given)
    metas = []
    for out in outs:
        meta = _codec.kept_meta(out)
        dtype, shape = _codec.describe([meta])[0]
        shares = tuple([i for i, t in enumerate(holders[:at]) if _share(out, t)])
        metas.append((dtype, shape, meta[2], out.requires_grad, shares))
        at += 1
    data = bytearray(_codec.encode((key, tuple(metas))))
    return torch.frombuffer(data, dtype=torch.uint8)


def _apart(outs: list[torch.Tensor], module: nn.Module) -> list[torch.Tensor]:
    """Results, of which those that are buffers, or views of them, are copied: the module may change
    its buffers in a later call, before the results are used.
    """
    buffers = list(module.buffers())
    if not buffers:
        return outs
    return [t.clone() if any(_share(t, b) for b in buffers) else t for t in outs]


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether tensors have memory in common, or may have."""
    return a.nbytes > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _compare(name: str, expected: Any, key: Any, outs: list[torch.Tensor]) -> None:
    if expected[0] != key:
        raise error(
            "PAWL_EMISMATCH",
            f"pipeline: {name} returned {key}, and {expected[0]} before for arguments of the same "
            f"types and shapes; {_REMEDY}",
        )
    _compare_tensors(name, expected[1], outs)


_REMEDY: Final = (
    "a module whose results depend on numbers must not be a unit: name it, or a module in it, in "
    'pp.init(frame=["..."])'
)


def _compare_tensors(name: str, expected: Any, outs: list[torch.Tensor]) -> None:
    found = _codec.describe([_codec.meta_of(t) for t in outs])
    if found != expected:
        raise error(
            "PAWL_EMISMATCH",
            f"pipeline: {name} returned tensors {found}, where {expected} were expected; {_REMEDY}",
        )


# ---- failures ----


def failure(raised: BaseException, doing: str) -> bytes:
    """An exception as the text that other ranks get."""
    kind = type(raised)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    lines = traceback.format_exception(kind, raised, raised.__traceback__)
    document = {"type": name, "text": str(raised), "doing": doing, "trace": "".join(lines)[-20000:]}
    return json.dumps(document).encode()


def raise_failure(rank: int, text: bytes) -> None:
    """Raises what another rank has raised, as a PawlError that names rank, module and exception.
    The other rank's traceback is its attribute ``trace``.
    """
    found = json.loads(text)
    message = f"pipeline: stage {rank} failed in {found['doing']}: {found['type']}: {found['text']}"
    raised: PawlError = error("PAWL_EPEER", message)
    raised.trace = found["trace"]  # type: ignore[attr-defined]
    raise raised
