"""The model of a pipeline, and the step function."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pawl._ckpt import _parts
from pawl.errors import PawlError, error
from pawl.pipeline import _record, _results, _stubs, _tables
from pawl.pipeline._attributes import Attributes
from pawl.pipeline._delayed import Delayed
from pawl.pipeline._device import Device, move
from pawl.pipeline._driver import Driver, outside
from pawl.pipeline._gradients import FRAME, Gradients
from pawl.pipeline._layout import Layout, Places, make_units
from pawl.pipeline._owner import Owner, failure
from pawl.pipeline._state import Setting
from pawl.pipeline._stubs import Reader, Stubs
from pawl.pipeline._world import World


class Pipeline:
    """A model that is divided, at one rank."""

    def __init__(
        self, world: World, model: nn.Module, layout: Layout, setting: Setting, delayed: Delayed
    ) -> None:
        self.world = world
        self.results_max = setting.results_max
        self.layout = layout
        self.ahead = layout.ahead
        world.channel.expect(layout.busy_s[world.stage])
        self.model = model
        self.failed: BaseException | None = None
        self.trace_to: Path | None = None  # where the next step's trace goes
        self.gradients = Gradients(world.stage, setting.microbatches, world.copies, world.pipeline)
        seed = f"{setting.seed}/{world.replica}"
        device = Device(setting.device, world.channel, setting.offload)
        self.owner = Owner(world.channel, model, self.gradients, seed, device)
        self.units = make_units(model, layout)
        self.owner.take(self.units, world.stage)
        self.places = Places(model, self.units, layout)
        self.driver: Driver | None = None
        self._hold(model, delayed)
        move(model, setting.device)
        if world.stage == 0:
            self._drive(model)
        else:
            _stubs.refuse(self.units, world.stage)

    def _hold(self, model: nn.Module, delayed: Delayed) -> None:
        """Makes what several ranks have equal, and drops what this one has not."""
        mine = {n: h for n, h in self.places.held.items() if self.world.stage in h.ranks}
        delayed.keep(mine)
        for name, held in self.places.held.items():
            self._copy(held)
            if name not in mine:
                held.parameter.data = torch.empty(0, dtype=held.parameter.dtype)
        self.gradients.hold(mine, [u.index for u in self.units if u.rank == self.world.stage])
        self.held = mine
        if self.world.stages > 1:
            model.register_state_dict_pre_hook(_refuse_whole)

    def _copy(self, held: Any) -> None:
        """The first holder's numbers for all stages that have the parameter; then the first
        replica's for all replicas.
        """
        world = self.world
        ranks = sorted(set(held.ranks))
        data = held.parameter.data
        if world.stage not in ranks:
            return
        dense = data.contiguous()
        if len(ranks) > 1:
            first = held.ranks[0]
            if world.stage == first:
                for rank in ranks:
                    if rank != first:
                        world.pipeline.send([dense], rank, 1).wait()
            else:
                world.pipeline.recv([dense], first, 1).wait()
        if world.copies is not None:
            options = torch.distributed.BroadcastOptions()
            options.rootRank = 0
            world.copies.broadcast([dense], options).wait()
        if dense.data_ptr() != data.data_ptr():
            data.copy_(dense)

    def _drive(self, model: nn.Module) -> None:
        self.driver = Driver(self.world.channel, self.world.stages, self.owner, self.layout.divides)
        self._stubs = Stubs(self.driver, self.units)
        self._reader = Reader(
            self._stubs, {**self.places.parameter, **self.places.buffer}, self.places.metas
        )
        for kind, known, read in (
            ("parameter", self.places.parameter, self._reader.parameter),
            ("buffer", self.places.buffer, self._reader.buffer),
        ):
            names: dict[nn.Module, dict[str, str]] = {}
            for module, name, whole, _ in _tables.entries(model, kind):
                if whole in known:
                    names.setdefault(module, {})[name] = whole
            for module, of in names.items():
                plain = getattr(module, f"_{kind}s")
                module.__dict__[f"_{kind}s"] = _tables.Table(plain, of, read)
        self.driver.counts = self._counts
        inside = {id(m) for unit in self.units for m in unit.module.modules()}
        self.driver.attributes = Attributes([m for m in model.modules() if id(m) not in inside])

    def _counts(self, rank: int) -> list[list[int]]:
        """Pairs of holder and number of backward calls of this step at a rank."""
        counts = [
            [u.index, self._stubs.backwards[u.index]]
            for u in self.units
            if u.rank == rank and u.index in self._stubs.backwards
        ]
        if rank in self._reader.backwards:
            counts.append([FRAME, self._reader.backwards[rank]])
        return counts

    def step(self, number: int, split: Callable[[], list[Callable[[], Any]]]) -> Any:
        """One step. ``number`` chooses its random numbers; ``split`` makes the function for each
        microbatch, at the first stage.
        """
        if self.failed is not None:
            raise error(
                "PAWL_ECANCELED",
                f"pipeline: it has failed ({self.failed}); start again from a checkpoint",
            )
        path, self.trace_to = self.trace_to, None
        self.owner.recorder = _record.Recorder() if path else None
        try:
            with _without_inference():
                results = self._run(number, split)
            with self.telling("the sum of gradients"):
                self.gradients.finish()
                self.world.meet()  # a step counts at all ranks, or at none
            if path and self.owner.recorder:
                _record.write(path, self.world, self.owner.recorder)
        except BaseException as raised:
            self.failed = raised
            raise
        finally:
            if self.failed is not None:
                self.world.leave()
        return _results.merge(results)

    def _run(self, number: int, split: Callable[[], list[Callable[[], Any]]]) -> Any:
        self.owner.begin(number)
        with self.telling("a step" if self.driver is None else "the step function"):
            self.world.channel.begin(self.layout.tasks[self.world.stage])
            if self.driver is None:
                return _results.decode(self.owner.serve())
            self.driver.begin(number)
            self._stubs.begin()
            self._reader.backwards.clear()
            settled = [functools.partial(_settled, call) for call in split()]
            results = self.driver.run(settled, self.ahead)
            self.driver.finish(_results.encode(results, self.results_max))
            return results

    @contextlib.contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Tells an exception to all ranks. Raises instead of it what another rank has told, if that
        rank has left meanwhile.
        """
        try:
            yield
        except BaseException as raised:
            if hasattr(raised, "trace"):  # another rank has told it to all
                raise
            if getattr(raised, "name", "") == "PAWL_EPEER":
                self.owner.explain()
            with contextlib.suppress(PawlError):  # a rank is lost, or this one has left
                self.world.channel.fail(failure(raised, what))
            raise


@contextlib.contextmanager
def _without_inference() -> Iterator[None]:
    """In torch's inference mode: no gradients, and tensors that can be followed."""
    grad = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        yield


def _settled(call: Callable[[], Any]) -> Any:
    return _results.settle(call())


class DistributedModel(nn.Module):
    """A module as a pipeline. It is divided in the first step, by what a microbatch costs.

    ``module``: the module, which stays as it is. Every rank makes it alike; its parameters are on
    the CPU. After the first step, parameters that another rank has are empty; the objects stay, so
    an optimizer may be made before.

    ``initialize``: of a module that was made in ``delayed_init``: gives the parameters of one of
    its modules their first values, in place. It is called for modules inside before those around
    them, each with random numbers of its own, and not for modules of other ranks. Default: the
    module's ``_init_weights``, as transformers' models have it, or each module's own
    ``reset_parameters``.

    Raises PawlError for a module that cannot be divided: one in DDP, or on another device.
    """

    def __init__(
        self, model: nn.Module, initialize: Callable[[nn.Module], Any] | None = None
    ) -> None:
        from pawl.pipeline import _saved, _state

        super().__init__()
        _refuse(model)
        self.module = model
        self.delayed = Delayed(model, initialize, _state.setting().seed)
        self.plan: Any = None  # ``text()``, ``units``, ``save_model(path)``; None: not made yet
        self.steps = 0  # trained so far; a step's random numbers depend on it
        self._pipeline: Pipeline | None = None
        self._profiled: Callable[..., None] | None = None  # backward pass while a profile is made
        _state.register(self)
        self._saved = _saved.Saved(self)
        _parts.register((self, model), self._saved)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, inside of a step function."""
        if self._pipeline is not None and self._pipeline.driver is None:
            raise outside()
        return self.module(*args, **kwargs)

    def backward(self, loss: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """The backward pass of this microbatch; instead of ``loss.backward()``."""
        if self._profiled is not None:
            self._profiled(loss, gradient)
            return
        if self._pipeline is None or self._pipeline.driver is None:
            raise error("PAWL_EINVAL", "pipeline: model.backward works in a @pp.step function only")
        self._pipeline.driver.backward(loss, gradient)

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Name in the module, and parameter, of those that this rank has and trains. Before the
        first step, all.
        """
        if self._pipeline is None:
            yield from self.module.named_parameters()
            return
        for name, held in self._pipeline.held.items():
            yield name, held.parameter

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, under its own names. Once a model is divided over several stages, it is
        refused: it would have empty tensors.
        """
        self._check_values("state_dict()")
        return self.module.state_dict(*args, **kwargs)

    def _check_values(self, what: str) -> None:
        if self.delayed.waiting:
            raise error(
                "PAWL_EINVAL",
                f"pipeline: {what} of a model that was made in delayed_init: its parameters get "
                "their values in the first step",
            )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads a state_dict of the module, whole or of this rank; once the model is divided, what
        this rank has of it. As torch's, it raises RuntimeError if names or shapes do not fit.
        """
        if self._pipeline is None:
            found = self.module.load_state_dict(state_dict, strict=strict, assign=assign)
            names = self._saved.names()
            listed = self.module.named_parameters(remove_duplicate=False)
            self.delayed.given([names[id(p)] for name, p in listed if name in state_dict])
            return found
        from pawl.pipeline import _saved

        return _saved.load(self._saved.has(), state_dict, strict)

    def local_state_dict(self) -> dict[str, torch.Tensor]:
        """Entries of the module's state_dict that this rank has, without copies. Buffers outside of
        units are the first stage's.
        """
        return self._saved.has().tensors

    def entries(self) -> dict[str, torch.Tensor]:
        """All entries of the module's state_dict, parameters and buffers themselves; those of
        other ranks are empty.
        """
        _LISTING.append(True)
        try:
            return dict(self.module.state_dict(keep_vars=True))
        finally:
            _LISTING.pop()

    def divided(self) -> None:
        """Called once the model is divided, at all ranks, before the first step goes on."""

    def local_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that this rank has."""
        for _, parameter in self.local_named_parameters():
            yield parameter


_LISTING: Final[list[bool]] = []  # not empty while entries() is at work


def _refuse_whole(*_: Any) -> None:
    if not _LISTING:
        raise error(
            "PAWL_ENOTSUP",
            "pipeline: state_dict() of a divided model would have empty tensors for other stages; "
            "use model.local_state_dict() at each rank, or give the model to a pawl.Checkpointer",
        )


def _refuse(model: nn.Module) -> None:
    if isinstance(model, DistributedDataParallel):
        raise error(
            "PAWL_EINVAL",
            "pipeline: the model is in DistributedDataParallel; give the module itself, replicas "
            "are averaged by the pipeline",
        )
    for name, value in model.named_buffers():
        if value.device.type == "meta":
            raise error(
                "PAWL_ENOTSUP",
                f"pipeline: the buffer {name} has no memory; make the model in pp.delayed_init() "
                'instead of torch.device("meta")',
            )
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.device.type not in ("cpu", "meta"):
            raise error(
                "PAWL_ENOTSUP",
                f"pipeline: {name} is on {value.device}; leave the model on the CPU and use "
                f'pp.init(device="{value.device.type}"): each stage takes there what it has',
            )


def check_alike(world: World, model: nn.Module) -> None:
    """Refuses models that differ between ranks, by the first difference."""
    listing = [
        (name, str(p.dtype), list(p.shape), p.requires_grad) for name, p in model.named_parameters()
    ]
    text = json.dumps(listing)
    digest = int.from_bytes(
        hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True
    )
    found = world.gather(digest)
    other = [rank for rank, d in enumerate(found) if d != found[0]]
    if not other:
        return
    theirs = json.loads(world.broadcast(text.encode() if world.rank == 0 else None))
    message = f"pipeline: the model of rank {other[0]} is not that of rank 0"
    for mine, first in zip(json.loads(text), theirs, strict=False):
        if mine != first:
            message += f": rank {world.rank} has {mine[:3]}, rank 0 has {first[:3]}"
            break
    raise error("PAWL_EMISMATCH", message)
