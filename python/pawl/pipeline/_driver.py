"""The driver: runs the user's function at rank 0, and issues the calls that it is made of.

The function computes nothing on placeholders. It runs ahead of the pipeline, and each rank carries
out its calls in the order of the plan. The driver begins the function for the next microbatch when
its own rank's list comes to it, or when its rank has nothing else to do.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import torch

from pawl import _core
from pawl.errors import PawlError, error
from pawl.pipeline import _codec, _device
from pawl.pipeline._attributes import Attributes
from pawl.pipeline._fibers import Fiber, Fibers, current
from pawl.pipeline._notes import (
    BACKWARD,
    CALL_HEAD,
    FORWARD,
    INPUTS,
    NOTE_FINAL,
    NOTE_FORGET,
    NOTE_RECIPE,
    NOTE_RESULT,
    PARAMETERS,
    RECIPE_HEAD,
)
from pawl.pipeline._owner import Owner
from pawl.pipeline._placeholder import Placeholder, Ref

_RECIPES_MAX: Final = 65536  # recipes of one step
_KEPT_MAX: Final = 4096  # recipes that are kept for the next step
_BEGUN_MAX: Final = 64  # microbatches that have begun and wait; each has a thread


def outside() -> PawlError:
    """The error for what is used outside of the step function."""
    return error(
        "PAWL_EINVAL",
        "pipeline: the model and its tensors work inside of a function with @pp.step only; return "
        "from it what is needed outside",
    )


class Driver:
    """Of one pipeline; used by the thread that steps, and by its fibers, one at a time."""

    def __init__(self, stage: _core.Stage, ranks: int, owner: Owner, divides: bool) -> None:
        self.step = 0
        self.divides = divides  # gradients of parameters have tasks of their own
        self.dead: deque[tuple[int, int, int]] = deque()  # values that nobody refers to
        self.known: dict[Any, Any] = {}  # operators by their operands' shapes; see _operators.py
        self._stage = stage
        self._ranks = ranks
        self._owner = owner
        self._next_id = 1
        self._recipes: dict[Any, tuple[int, bytes]] = {}
        self._next_recipe = 0
        self._sent: set[tuple[int, int]] = set()  # recipes that ranks have
        self._fibers = Fibers()
        self._waiting: dict[int, Fiber] = {}  # value -> fiber
        self._begun: list[Fiber] = []  # fibers of this step, by microbatch
        self._parked: list[Fiber] = []  # fibers that wait for their turn
        self.attributes = Attributes([])
        self.counts: Callable[[int], list[list[int]]] = lambda _: []  # see Gradients.finalise

    # ---- a step ----

    def begin(self, step: int) -> None:
        """Begins a step. Recipes are forgotten if there are many: a program whose plain numbers
        change with each step makes new ones all the time.
        """
        self.step = step
        if max(len(self._recipes), len(self.known)) > _KEPT_MAX:
            self._recipes.clear()
            self._sent.clear()
            self.known.clear()
            for rank in range(self._ranks):
                self._stage.note(rank, bytes((NOTE_FORGET,)))

    def run(self, calls: list[Callable[[], Any]], ahead: int) -> list[Any]:
        """Runs the function for each microbatch; returns its results.

        ``ahead``: how many microbatches may have begun while all of them wait for numbers, before
        their backward pass.
        """
        self._begun = fibers = []
        while len(fibers) < len(calls) or not all(f.finished for f in fibers):
            parked = next((f for f in self._parked if self._is_turn(f)), None)
            if parked is not None:
                self._parked.remove(parked)
                self._resume(parked)
                continue
            event = self._stage.next(0)
            if event is None and self._may_begin(fibers, len(calls), ahead):
                fibers.append(Fiber(len(fibers), calls[len(fibers)]))
                self._resume(fibers[-1])
                continue
            self._handle(event or self._stage.next(None))
        self._finalise()
        return [f.result for f in fibers]

    def _is_turn(self, fiber: Fiber) -> bool:
        return all(f.backward or f.finished for f in self._begun[: fiber.microbatch])

    def take_turn(self) -> None:
        """Waits until the forward passes of all microbatches before this one are issued. The first
        one never waits, so that all have their turn.
        """
        fiber = self.fiber()
        if not self._is_turn(fiber):
            self._parked.append(fiber)
            fiber.wait()

    def _handle(self, event: Any) -> None:
        if event[0] == _core.STAGE_ARRIVED:
            fiber = self._waiting.pop(event[1])
            fiber.arrived = _device.host_tensor(event[2], event[3])
            self._resume(fiber)
        else:
            self._owner.handle(event)

    def _may_begin(self, fibers: list[Fiber], microbatches: int, ahead: int) -> bool:
        if len(fibers) == microbatches:
            return False
        task = self._stage.current()
        if task is None or (task[0] == FORWARD and task[2] >= len(fibers)):
            return True
        # Nothing is ready, so what runs now does not keep this rank from its calls later. Behind
        # its backward pass, a function waits for results only.
        waiting = [f for f in fibers if not f.finished]
        return len(waiting) < _BEGUN_MAX and sum(not f.backward for f in waiting) < ahead

    def _resume(self, fiber: Fiber) -> None:
        self.attributes.enter(fiber.kept)
        self._fibers.resume(fiber)
        if not fiber.finished:
            fiber.kept = self.attributes.leave()
        if fiber.error is not None:
            raise fiber.error
        if fiber.finished:
            fiber.reals.clear()
            fiber.reads.clear()
        self._stage.flush(FORWARD, fiber.microbatch)
        if fiber.backward or fiber.finished:
            self._stage.flush(BACKWARD, fiber.microbatch)
        self._stage.send()

    def _finalise(self) -> None:
        """Tells each rank how many backward calls it gets in this step."""
        for rank in range(self._ranks):
            counts = json.dumps(self.counts(rank)).encode()
            self._stage.note(rank, bytes((NOTE_FINAL,)) + counts)
        self._stage.send()

    def finish(self, result: bytes) -> None:
        """Tells all ranks the step's results, and ends it; carries out what is left at this
        rank.
        """
        for rank in range(1, self._ranks):
            self._stage.note(rank, bytes((NOTE_RESULT,)) + result)
        self._stage.end()
        self._stage.send()
        while not self._owner.handle(self._stage.next(None)):
            pass
        self.dead.clear()
        self._waiting.clear()
        self._begun = []

    def close(self) -> None:
        """Ends the fibers' threads."""
        self._fibers.close()

    # ---- calls ----

    def fiber(self) -> Fiber:
        """The fiber that runs, with what is freed sent on its way."""
        fiber = current()
        if fiber is None:
            raise outside()
        while self.dead:
            step, number, holders = self.dead.popleft()
            if step == self.step:
                for rank in range(self._ranks):
                    if holders >> rank & 1:
                        self._stage.free(rank, number)
        return fiber

    def issue(
        self,
        rank: int,
        chunk: int,
        recipe: Any,
        tensors: list[torch.Tensor],
        outs: int,
        of: int = 0,
        random: int = 0,
        late: bool = False,
    ) -> int:
        """Issues a call for a rank; returns its number, which is that of its first value. ``late``:
        nobody waits for it but the step's end.
        """
        fiber = self.fiber()
        known = self._recipes.get(recipe)
        if known is None:
            known = self._learn(recipe)
        if (rank, known[0]) not in self._sent:
            self._sent.add((rank, known[0]))
            self._stage.note(rank, RECIPE_HEAD.pack(NOTE_RECIPE, known[0]) + known[1])
        needs = tuple([self._need(t, rank, fiber) for t in tensors])
        number = self._next_id
        self._next_id += max(outs, 1)
        kind = FORWARD
        if fiber.backward:
            kind = BACKWARD if not self.divides else PARAMETERS if late else INPUTS
        blob = CALL_HEAD.pack(known[0], of, random)
        self._stage.call(rank, number, outs, kind, chunk, fiber.microbatch, needs, blob)
        return number

    def _learn(self, recipe: Any) -> tuple[int, bytes]:
        if len(self._recipes) >= _RECIPES_MAX:
            raise error(
                "PAWL_ELIMIT",
                f"pipeline: the step function has issued {_RECIPES_MAX} different operators in a "
                "step; an operator whose plain numbers change can take them as tensors",
            )
        known = (self._next_recipe, _codec.encode(recipe))
        self._next_recipe = (self._next_recipe + 1) % (1 << 32)
        self._recipes[recipe] = known
        return known

    def _need(self, tensor: torch.Tensor, rank: int, fiber: Fiber) -> int:
        """A tensor's number at a rank, to which it is sent unless it is there."""
        ref = tensor.ref if isinstance(tensor, Placeholder) else self._real(tensor, fiber)
        self._send_to(ref, rank)
        return ref.id

    def _send_to(self, ref: Ref, rank: int) -> None:
        if ref.step != self.step:
            raise error(
                "PAWL_EINVAL",
                "pipeline: a tensor was computed in an earlier step; return from the step "
                "function what is needed later",
            )
        if not ref.holders >> rank & 1:
            self._stage.push(ref.rank, ref.id, rank)
            ref.holders |= 1 << rank

    def _real(self, tensor: torch.Tensor, fiber: Fiber) -> Ref:
        """The value of a tensor of this process. A tensor that several calls take is put once."""
        kept = fiber.reals.get(id(tensor))
        version = -1 if tensor.is_inference() else tensor._version
        if kept is not None and kept[1] == version:
            return kept[2]
        plain = _device.to_host(_codec.settle(tensor))
        if plain.data_ptr() == tensor.data_ptr():
            plain = plain.clone()  # the program may change its tensor before the call runs
        ref = Ref(self, self._next_id, 0, 0, 0)  # 0 bytes: it does not decide where calls run
        self._next_id += 1
        meta = _codec.pack_meta(*_codec.meta_of(plain))
        self._stage.put(ref.id, meta, plain.data_ptr(), plain.nbytes, plain)
        fiber.reals[id(tensor)] = (tensor, version, ref)
        return ref

    def made(
        self, number: int, rank: int, chunk: int, metas: tuple[_codec.Meta, ...]
    ) -> list[Placeholder]:
        """Placeholders for the values of a call."""
        made = []
        for i, (dtype, shape, strides) in enumerate(metas):
            nbytes = math.prod(shape) * dtype.itemsize
            ref = Ref(self, number + i, rank, chunk, nbytes)
            made.append(Placeholder(ref, dtype, shape, strides))
        return made

    def operate(
        self, recipe: Any, tensors: list[torch.Tensor], metas: tuple[_codec.Meta, ...], random: bool
    ) -> list[Placeholder]:
        """Runs an operator at the rank that has most of its operands."""
        sizes: dict[tuple[int, int], int] = {}
        for tensor in tensors:
            if isinstance(tensor, Placeholder):
                place = tensor.ref.rank, tensor.ref.chunk
                sizes[place] = sizes.get(place, 0) + tensor.ref.bytes
        rank, chunk = max(sizes, key=lambda place: (sizes[place], place))
        seed = 0
        if random:
            fiber = self.fiber()
            fiber.random += 1
            seed = fiber.random
        number = self.issue(rank, chunk, recipe, tensors, len(metas), random=seed)
        return self.made(number, rank, chunk, metas)

    # ---- numbers ----

    def fetch(self, ref: Ref) -> torch.Tensor:
        """The numbers of a value; the fiber waits for them. They must not be changed."""
        if ref.fetched is None:
            fiber = self.fiber()
            self._send_to(ref, 0)
            self._stage.watch(ref.id)
            self._waiting[ref.id] = fiber
            fiber.wait()
            ref.fetched, fiber.arrived = fiber.arrived, None
        assert ref.fetched is not None
        return ref.fetched

    def backward(self, loss: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """The backward pass of this microbatch."""
        fiber = self.fiber()
        self._stage.flush(FORWARD, fiber.microbatch)
        fiber.backward = True
        torch.autograd.backward(loss, gradient)
