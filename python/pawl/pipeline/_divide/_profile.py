"""What a model's modules cost: surveys all of them, then measures those that are to be units.

A survey runs the step with every module cut off (see _trace), and says what any choice of units
would cost, roughly. A measurement cuts off the units alone, and looks at each of their calls.
Forward and backward times are measured apart. Both run the step once, and twice or three times
if it is short: what runs for the first time is slow, and the least time of each call counts.

Times are CPU seconds of the calling thread, so that other programs on a busy machine do not count.
With ``clock="wall"``, which suits modules that wait, or on a device, they are seconds of a wall
clock, measured when the device is idle. A survey always computes on the CPU; for a measurement,
each unit is on the device while it is called.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal

import torch
from torch import nn

from pawl.errors import error
from pawl.pipeline._delayed import Delayed
from pawl.pipeline._device import CPU
from pawl.pipeline._divide import _preserve
from pawl.pipeline._divide._scopes import OUTSIDE, Scope, Trace
from pawl.pipeline._divide._trace import ClosedError, Recorder, Sample, cpu_clock, wall_clock
from pawl.pipeline._divide._tree import Node, Tree

SHORT_S: Final = 1.0  # runs that took less than this together are repeated
RUNS_MAX: Final = 3  # runs of the step for one survey, or one measurement
FRAME: Final = ""  # name of what is outside of units, where units are named

Clock = Literal["auto", "cpu", "wall"]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A module that is called as a whole, and what a microbatch costs there."""

    path: str  # first name, as named_modules() has it
    names: tuple[str, ...]  # all names of the same module
    calls: int  # for one microbatch
    forward_s: float  # all calls together
    backward_s: float
    param_bytes: int
    saved_bytes: int  # activations from the forward to the backward pass; parameters do not count
    cut_bytes: int  # alive across a cut before this unit, in both directions
    params: tuple[str, ...]  # names of its parameters
    trains: bool  # some of them require gradients
    no_gradient: tuple[str, ...]  # parameters that require a gradient, and get none
    draws: tuple[str, ...]  # modules in it that draw random numbers of torch's themselves
    changes: tuple[str, ...]  # arguments that it changes in place, as "args[0]" or "kwargs['x']"
    updates: bool  # the unit changes its buffers
    repeated: bool  # called where activations are computed again in the backward pass
    # The backward pass in two parts: gradients of arguments, then those of parameters. 0: it is not
    # divided, or that was not measured.
    inputs_s: float = 0.0
    params_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Frame:
    """What is outside of all units: it runs at the driver, on stage 0."""

    forward_s: float
    backward_s: float
    saved_bytes: int
    param_bytes: int
    params: tuple[str, ...]
    trains: bool
    local: tuple[str, ...]  # modules that could be units, but for parameters that it reads
    buffer_reads: tuple[str, ...]  # buffers of units that it reads
    operators: int = 0  # on results of units: each is a call, as a unit is


@dataclasses.dataclass(frozen=True)
class Tied:
    """Parameters that several units hold, or read."""

    params: tuple[str, ...]
    len_bytes: int
    units: tuple[str, ...]  # paths, in order of execution
    readers: tuple[str, ...]  # units that read the parameters without holding them


@dataclasses.dataclass(frozen=True)
class Costs:
    """A model as a chain of units, in order of their first calls."""

    model: str  # name of the model's class
    units: tuple[Unit, ...]
    frame: Frame
    tied: tuple[Tied, ...]
    never_called: tuple[str, ...]  # modules with parameters that no call reached
    measured: bool  # False: from a survey
    clock: str


class Survey:
    """What one run has shown about all modules of a model."""

    def __init__(self, tree: Tree, trace: Trace, clock: str) -> None:
        self.tree = tree
        self.trace = trace
        self.clock = clock
        self.scopes = trace.scopes
        self._inner: list[list[int]] = [[] for _ in self.scopes]
        for index, scope in enumerate(self.scopes[1:], 1):
            self._inner[scope.caller].append(index)
        self.calls: dict[int, list[int]] = {}  # identity of a module -> its scopes
        for index, scope in enumerate(self.scopes[1:], 1):
            assert scope.node is not None
            self.calls.setdefault(id(scope.node.module), []).append(index)
        self.total_s = trace.total_s

    def children(self, node: Node) -> list[Node]:
        """Modules that a module's calls call, in order."""
        found: dict[int, Node] = {}
        for index in self.calls.get(id(node.module), ()):
            for inner in self._inner[index]:
                child = self.scopes[inner].node
                assert child is not None
                found.setdefault(id(child.module), child)
        return list(found.values())

    def draws(self, node: Node) -> tuple[str, ...]:
        """Paths of the modules in a module's calls that draw random numbers themselves."""
        inside = [self.scopes[i] for i in self.within(self.calls.get(id(node.module), ()))]
        return tuple(sorted({path for scope in inside for path in scope.draws}))

    def within(self, indexes: Iterable[int]) -> list[int]:
        """Scopes, and all that they called."""
        todo = list(indexes)
        found: list[int] = []
        while todo:
            index = todo.pop()
            found.append(index)
            todo.extend(self._inner[index])
        return found

    def time_s(self, node: Node) -> float:
        """Forward and backward time of all calls of a module."""
        inside = self.within(self.calls.get(id(node.module), ()))
        return sum(self.scopes[i].forward_s + self.scopes[i].backward_s for i in inside)

    def own_s(self, node: Node) -> float:
        """The part of that time that is not spent in modules that it calls."""
        scopes = [self.scopes[i] for i in self.calls.get(id(node.module), ())]
        return sum(scope.forward_s + scope.backward_s for scope in scopes)


def survey(
    model: nn.Module, sample: Sample, clock: Clock = "auto", delayed: Delayed | None = None
) -> Survey:
    """Runs ``sample(backward)`` with every module cut off.

    ``sample`` runs the user's step for one microbatch, in which the model's backward function calls
    ``backward(loss)``. Raises what it raises, and PawlError (PAWL_EINVAL) if it never calls
    backward. The model, and random generators, are as before. ``delayed``: its parameters that have
    no values yet; they get some while they are needed.
    """
    tree = Tree(model, delayed)
    name = "cpu" if clock == "auto" else clock
    trace = None
    while trace is None:
        try:
            trace = _runs(tree, tree.open_nodes(), sample, name, survey=True)
        except ClosedError as why:
            tree.close(why.node)
    if trace.backwards == 0:
        raise error(
            "PAWL_EINVAL",
            "pipeline: the first step, which divides the model, must train: it never called "
            "model.backward(loss)",
        )
    return Survey(tree, trace, name)


def measure(
    seen: Survey,
    units: list[Node],
    sample: Sample,
    halves: bool = False,
    device: torch.device = CPU,
) -> Costs:
    """Runs the same step with the units alone cut off, and returns what they cost. ``halves``: also
    what their backward passes cost in two parts. ``device``: on which modules compute; the sample's
    tensors are there.
    """
    analysis = _Analysis(seen, units)
    how = {"halves": halves, "reads": analysis.reads(), "device": device}
    clock = seen.clock if device.type == "cpu" else "wall"
    costs = analysis.measured(_runs(seen.tree, units, sample, clock, survey=False, **how))
    return dataclasses.replace(costs, clock=clock)


def estimate(seen: Survey, units: list[Node]) -> Costs:
    """What units would cost, from a survey alone: without a look at each call."""
    return _Analysis(seen, units).surveyed()


def _runs(
    tree: Tree,
    nodes: list[Node],
    sample: Sample,
    clock: str,
    survey: bool,
    device: torch.device = CPU,
    **how: Any,
) -> Trace:
    timer = cpu_clock if clock == "cpu" else wall_clock(device)
    best: Trace | None = None
    begin = time.perf_counter()
    for _ in range(RUNS_MAX):
        with _preserve.preserved(tree.model):
            recorder = Recorder(tree, nodes, timer, survey, device=device, **how)
            best = _merge(best, recorder.run(sample))
        if time.perf_counter() - begin > SHORT_S:
            break
    assert best is not None
    return best


def _merge(old: Trace | None, new: Trace) -> Trace:
    """The new trace, with the least time of each call in both; alone if the calls differ."""
    if old is None or [s.node for s in old.scopes] != [s.node for s in new.scopes]:
        return new
    for was, scope in zip(old.scopes, new.scopes, strict=True):
        scope.forward_s = min(scope.forward_s, was.forward_s)
        scope.backward_s = min(scope.backward_s, was.backward_s)
        scope.inputs_s = min(scope.inputs_s, was.inputs_s)
        scope.params_s = min(scope.params_s, was.params_s)
    new.total_s = sum(scope.forward_s + scope.backward_s for scope in new.scopes)
    return new


def _halves(calls: list[Scope]) -> tuple[float, float]:
    """Times of a unit's backward passes in two parts; zeros if some cannot be divided."""
    if any(scope.backward_s > 0 and scope.params_s == 0 for scope in calls):
        return 0.0, 0.0
    inputs_s = sum(scope.inputs_s for scope in calls)
    params_s = sum(scope.params_s for scope in calls)
    return (inputs_s, params_s) if params_s > 0 else (0.0, 0.0)


class _Analysis:
    """A survey, seen with a choice of units."""

    def __init__(self, seen: Survey, units: list[Node]) -> None:
        self._seen = seen
        self._tree = seen.tree
        first = {id(node.module): seen.calls[id(node.module)][0] for node in units}
        self._units = sorted(units, key=lambda node: first[id(node.module)])
        self._position = {id(node.module): i for i, node in enumerate(self._units)}
        # position of the unit in which a scope lies; -1: the frame
        self._place = [-1] * len(seen.scopes)
        for index, scope in enumerate(seen.scopes[1:], 1):
            assert scope.node is not None
            caller = self._place[scope.caller]
            mine = self._position.get(id(scope.node.module), -1)
            self._place[index] = caller if caller >= 0 else mine
        self._held = [self._tree.params_of(node) for node in self._units]

    # ---- results ----

    def surveyed(self) -> Costs:
        """Costs from the survey."""
        scopes = self._seen.scopes
        calls = [self._seen.calls[id(node.module)] for node in self._units]
        cuts = self._cut_bytes()
        units = []
        for i, node in enumerate(self._units):
            inside = [scopes[s] for s in self._seen.within(calls[i])]
            saved = sum(self._saved(self._seen.within([call])) for call in calls[i])
            unit = self._unit(i, node, inside, calls[i], saved, cuts[i])
            # A survey does not divide backward passes; parameters mostly take half of the time.
            half_s = unit.backward_s / 2 if unit.trains else 0.0
            units.append(dataclasses.replace(unit, inputs_s=half_s, params_s=half_s))
        outside = [s for i, s in enumerate(scopes) if self._place[i] < 0]
        saved = self._saved([i for i in range(len(scopes)) if self._place[i] < 0])
        return self._costs(units, outside, saved)

    def measured(self, trace: Trace) -> Costs:
        """Costs from a trace in which the units alone were cut off."""
        cuts = self._cut_bytes()
        units = []
        for i, node in enumerate(self._units):
            inside = [s for s in trace.scopes if s.node is node]
            saved = sum(sum(scope.saved.values()) for scope in inside)
            unit = self._unit(i, node, inside, inside, saved, cuts[i])
            inputs_s, params_s = (0.0, 0.0) if self._repeats(node) else _halves(inside)
            reached = {id(trace.scopes[r]) for r in trace.reached}
            wanted = {n for s in inside if id(s) in reached for n in s.wanted}
            units.append(
                dataclasses.replace(
                    unit,
                    no_gradient=tuple(
                        n
                        for n in self._held[i]
                        if self._tree.params[n].requires_grad and n not in wanted
                    ),
                    changes=tuple(sorted({n for scope in inside for n in scope.changes})),
                    updates=any(scope.updates for scope in inside),
                    inputs_s=inputs_s,
                    params_s=params_s,
                )
            )
        outside = [trace.scopes[OUTSIDE]]
        saved = self._saved([i for i, place in enumerate(self._place) if place < 0])
        costs = self._costs(units, outside, saved)
        return dataclasses.replace(costs, measured=True)

    def reads(self) -> dict[int, list[str]]:
        """Parameters that a unit reads and does not hold, by the identity of its module; 0: those
        that no unit holds, or that are read outside of units.
        """
        names: dict[int, set[str]] = {0: set(self._tree.params)}
        names[0] -= {name for held in self._held for name in held}
        for scope, place in zip(self._seen.scopes, self._place, strict=True):
            one = id(self._units[place].module) if place >= 0 else 0
            names.setdefault(one, set()).update(scope.param_reads)
        return {one: sorted(found) for one, found in names.items()}

    def _repeats(self, node: Node) -> bool:
        """Whether the backward pass of a unit, or of a part of it, computes activations again. In
        two parts it would do so for each parameter.
        """
        inside = self._seen.within(self._seen.calls[id(node.module)])
        return node.closed or any(self._seen.scopes[i].repeated for i in inside)

    def _unit(
        self, i: int, node: Node, inside: list[Scope], calls: list, saved: int, cut_bytes: int
    ) -> Unit:
        held = self._held[i]
        return Unit(
            path=node.path,
            names=node.names,
            calls=len(calls),
            forward_s=sum(scope.forward_s for scope in inside),
            backward_s=sum(scope.backward_s for scope in inside),
            param_bytes=self._tree.bytes_of(held),
            saved_bytes=saved,
            cut_bytes=cut_bytes,
            params=held,
            trains=any(self._tree.params[name].requires_grad for name in held),
            no_gradient=(),
            draws=self._seen.draws(node),
            changes=(),
            updates=False,
            repeated=any(scope.repeated for scope in inside),
        )

    def _costs(self, units: list[Unit], outside: list[Scope], saved: int) -> Costs:
        in_units = {name for held in self._held for name in held}
        rest = tuple(name for name in self._tree.params if name not in in_units)
        frame = Frame(
            forward_s=sum(scope.forward_s for scope in outside),
            backward_s=sum(scope.backward_s for scope in outside),
            saved_bytes=saved,
            param_bytes=self._tree.bytes_of(rest),
            params=rest,
            trains=any(self._tree.params[name].requires_grad for name in rest),
            local=self._local(),
            buffer_reads=self._buffer_reads(),
            operators=sum(
                scope.operators
                for scope, place in zip(self._seen.scopes, self._place, strict=True)
                if place < 0
            ),
        )
        model = type(self._tree.model).__name__
        return Costs(
            model,
            tuple(units),
            frame,
            self._tied(),
            self._never_called(rest),
            False,
            self._seen.clock,
        )

    def _local(self) -> tuple[str, ...]:
        """Modules that call nothing, and that only the frame calls."""
        seen = self._seen
        inside = {one for i, s in enumerate(seen.scopes) if self._place[i] >= 0 for one in s.called}
        found = {
            s.node.path: None
            for i, s in enumerate(seen.scopes)
            if s.node is not None
            and self._place[i] < 0
            and not seen.children(s.node)
            and id(s.node.module) not in inside
        }
        return tuple(found)

    def _saved(self, indexes: list[int]) -> int:
        storages: dict[Hashable, int] = {}
        for index in indexes:
            storages.update(self._seen.scopes[index].saved)
        return sum(storages.values())

    # ---- parameters ----

    def _tied(self) -> tuple[Tied, ...]:
        holders: dict[str, dict[int, bool]] = {}  # name -> position of a unit -> it only reads
        for i, held in enumerate(self._held):
            for name in held:
                holders.setdefault(name, {})[i] = False
        for index, scope in enumerate(self._seen.scopes):
            place = self._place[index]
            for name in scope.param_reads if place >= 0 else ():
                holders.setdefault(name, {}).setdefault(place, True)
        groups: dict[tuple[tuple[int, bool], ...], list[str]] = {}
        for name, by in holders.items():
            if len(by) > 1:
                groups.setdefault(tuple(sorted(by.items())), []).append(name)
        return tuple(
            Tied(
                tuple(names),
                self._tree.bytes_of(tuple(names)),
                tuple(self._units[i].path for i, _ in by),
                tuple(self._units[i].path for i, only in by if only),
            )
            for by, names in groups.items()
        )

    def _buffer_reads(self) -> tuple[str, ...]:
        buffers = {
            self._tree.buffer_names[id(b)] for node in self._units for b in node.module.buffers()
        }
        reads = {
            name
            for index, scope in enumerate(self._seen.scopes)
            if self._place[index] < 0
            for name in scope.buffer_reads
        }
        return tuple(sorted(buffers & reads))

    def _never_called(self, rest: tuple[str, ...]) -> tuple[str, ...]:
        """Topmost modules in the frame that have parameters and that nothing called or read."""
        used = {name for scope in self._seen.scopes for name in scope.param_reads}
        mine = set(rest)
        found: list[Node] = []
        for node in self._tree.open_nodes():
            held = self._tree.params_of(node)
            inside = any(id(node.module) in other.inside for other in found)
            called = id(node.module) in self._seen.calls
            idle = mine.issuperset(held) and used.isdisjoint(held)
            if held and idle and not inside and not called:
                found.append(node)
        return tuple(node.path for node in found)

    # ---- transfers ----

    def _resolve(self, number: int) -> tuple[int, int]:
        """The token that a token is another name for, and the place that made it."""
        while True:
            token = self._seen.trace.tokens[number]
            place = self._place[token.scope]
            scope = self._seen.scopes[token.scope]
            outermost = scope.node is not None and id(scope.node.module) in self._position
            if place >= 0 or not token.given or token.source is None or outermost:
                return number, place
            number = token.source

    def _cut_bytes(self) -> list[int]:
        """Bytes alive across the cut before each unit."""
        takers: dict[int, set[int]] = {}  # token -> places that need it
        makers: dict[int, int] = {}
        for index, scope in enumerate(self._seen.scopes):
            place = self._place[index]
            outer = self._place[scope.caller] if scope.node is not None else -1
            enters = place >= 0 and outer < 0
            for number in (*(scope.takes if enters else ()), *(scope.reads if place < 0 else ())):
                token, maker = self._resolve(number)
                if maker != place:
                    takers.setdefault(token, set()).add(place)
                    makers[token] = maker
        return [self._across(i, takers, makers) for i in range(len(self._units))]

    def _across(self, cut: int, takers: dict[int, set[int]], makers: dict[int, int]) -> int:
        total = 0
        for token, places in takers.items():
            maker = makers[token]
            crosses = maker < cut <= max(places) or min(places) < cut <= maker
            total += self._seen.trace.tokens[token].len_bytes if crosses else 0
        return total
