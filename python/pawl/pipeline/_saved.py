"""What a rank saves and restores of a pipelined model: entries of the module's state_dict, by name.

A save has the plan and its measurements, so that a model is divided anew without a profile, over
any number of stages, when it is restored; then each rank reads only what it will have.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import _IncompatibleKeys

from pawl._ckpt._parts import Here
from pawl.errors import PawlError
from pawl.pipeline import _state, _tables
from pawl.pipeline._cut import lay_out, plan_again
from pawl.pipeline._device import to_host
from pawl.pipeline._divide._plan import Plan
from pawl.pipeline._layout import Places, make_units

if TYPE_CHECKING:
    from pawl.pipeline._model import DistributedModel

log = logging.getLogger("pawl.pipeline")


class Saved:
    """The pawl._ckpt._parts.Divided of a model."""

    def __init__(self, model: DistributedModel) -> None:
        self._model = model
        self._names: dict[int, str] = {}
        self._keys: dict[str, tuple[str, bool] | None] = {}  # see _listed
        self._plan_text: tuple[Plan | None, str | None] = (None, None)  # a plan, as JSON

    def names(self) -> dict[int, str]:
        """See Divided."""
        if self._model._pipeline is None or not self._names:
            listed = _tables.entries(self._model.module, "parameter")
            self._names = {id(value): name for _, _, name, value in listed}
        return self._names

    def mark(self) -> dict[str, Any]:
        """See Divided. ``steps``: how many the model has trained, for its random numbers."""
        world, plan = _state.world(), self._model.plan
        if plan is not self._plan_text[0]:
            self._plan_text = plan, plan.to_json()
        return {
            "layout": [world.stages, world.replicas],
            "plan": self._plan_text[1],
            "steps": self._model.steps,
        }

    def saved_parameters(self) -> frozenset[str]:
        """See Divided. Replicas have equal parameters, which the first one saves."""
        world, places = _state.world(), self._places(self._model.plan)
        if world.replica > 0:
            return frozenset()
        if places is None:
            return frozenset(self.names().values() if world.rank == 0 else ())
        return frozenset([n for n, held in places.held.items() if held.ranks[0] == world.stage])

    def saves(self) -> Here:
        """See Divided."""
        self._model._check_values("a save")
        world, places = _state.world(), self._places(self._model.plan)
        parameters = self.saved_parameters()

        def mine(name: str, is_parameter: bool) -> bool:
            if is_parameter:
                return name in parameters
            if places is None:
                return world.rank == 0
            return places.buffer.get(name, (0, 0))[0] == world.stage

        return self._here(mine)

    def has(self) -> Here:
        """The entries that this rank has, copies included."""
        return self._having(self._model.plan)

    def restores(self, mark: Mapping[str, Any] | None) -> Here:
        """See Divided."""
        return self._having(self._model.plan or self._plan_of(mark))

    def restored(self, mark: Mapping[str, Any] | None) -> None:
        """See Divided."""
        if self._model.plan is None:
            self._model.plan = self._plan_of(mark)
        self._model.delayed.given(self._having(self._model.plan).parameters)
        if mark is not None:
            self._model.steps = int(mark["steps"])

    def _having(self, plan: Plan | None) -> Here:
        stage, places = _state.world().stage, self._places(plan)

        def mine(name: str, is_parameter: bool) -> bool:
            if places is None:
                return True
            if is_parameter:
                return stage in places.held[name].ranks
            return places.buffer.get(name, (0, 0))[0] == stage

        return self._here(mine)

    def _places(self, plan: Plan | None) -> Places | None:
        """Where everything is by a plan; None: it is everywhere, since there is no plan yet."""
        if self._model._pipeline is not None:
            return self._model._pipeline.places
        if plan is None:
            return None
        layout = lay_out(plan)
        return Places(self._model.module, make_units(self._model.module, layout), layout)

    def _here(self, mine: Any) -> Here:
        """Divides the entries of state_dict() by ``mine(name, is_parameter)``."""
        entries = self._model.entries()
        tensors: dict[str, torch.Tensor] = {}
        elsewhere, parameters, strange = set(), set(), []
        for key, found in self._listed(entries).items():
            if found is None:
                strange.append(key)
                continue
            name, is_parameter = found
            if mine(name, is_parameter):
                tensors[key] = entries[key].detach()
                if is_parameter:
                    parameters.add(name)
            else:
                elsewhere.add(key)
        return Here(tensors, frozenset(elsewhere), frozenset(parameters), tuple(strange))

    def _listed(self, entries: Mapping[str, Any]) -> dict[str, tuple[str, bool] | None]:
        """Name in the model of each entry, and whether it is a parameter; None: it is no tensor of
        the model. Once the model is divided, this stays, and so is kept.
        """
        if self._model._pipeline is not None and self._keys.keys() == entries.keys():
            return self._keys
        module = self._model.module
        names = {id(v): (n, True) for _, _, n, v in _tables.entries(module, "parameter")}
        names |= {id(v): (n, False) for _, _, n, v in _tables.entries(module, "buffer")}
        self._keys = {key: names.get(id(value)) for key, value in entries.items()}
        return self._keys

    def _plan_of(self, mark: Mapping[str, Any] | None) -> Plan | None:
        """The plan for this world, of what the saving run had measured. None: the first step
        measures, since nothing was, or what pp.init was told is at odds with it.
        """
        text = None if mark is None else mark["plan"]
        if text is None:
            return None
        try:
            return plan_again(self._model, Plan.from_json(text))
        except (PawlError, AttributeError) as why:
            log.info("the checkpoint's plan is not used: %s", why)
            return None


def load(here: Here, state: Mapping[str, Any], strict: bool) -> Any:
    """Copies this rank's entries of a state_dict, all or none."""
    missing = [key for key in here.tensors if key not in state]
    unexpected = [key for key in state if key not in here.tensors and key not in here.elsewhere]
    found = {key: state[key] for key in here.tensors if key in state}
    wrong = [
        f"{key}: saved {tuple(value.shape)}, live {tuple(here.tensors[key].shape)}"
        for key, value in found.items()
        if value.shape != here.tensors[key].shape
    ]
    problems = [f"of another shape: {', '.join(wrong)}"] if wrong else []
    if strict:
        problems += [f"missing: {', '.join(missing)}"] if missing else []
        problems += [f"unexpected: {', '.join(unexpected)}"] if unexpected else []
    if problems:
        raise RuntimeError(f"pipeline: load_state_dict: {'; '.join(problems)}")
    with torch.no_grad():
        for key, value in found.items():
            here.tensors[key].copy_(value)
    return _IncompatibleKeys(missing, unexpected)


def gather(model: DistributedModel) -> OrderedDict[str, torch.Tensor]:
    """The whole state_dict, at all ranks of a pipeline, which all call it once the model is
    divided. Costs the memory of the whole model at each.
    """
    world, mine = _state.world(), model._saved.has()
    pipeline = model._pipeline
    assert pipeline is not None
    found: OrderedDict[str, torch.Tensor] = OrderedDict()
    names = {id(v): n for k in ("parameter", "buffer")
             for _, _, n, v in _tables.entries(model.module, k)}  # fmt: skip
    for key, value in model.entries().items():
        name = names[id(value)]
        held = pipeline.places.held.get(name)
        owner = pipeline.places.buffer.get(name, (0, 0))[0] if held is None else held.ranks[0]
        meta = pipeline.places.metas.get(name)
        if key in mine.tensors:
            tensor = to_host(mine.tensors[key]).clone(memory_format=torch.contiguous_format)
        else:
            dtype, shape = (value.dtype, value.shape) if meta is None else (meta[0], meta[1])
            tensor = torch.empty(shape, dtype=dtype)
        if world.pipeline is not None:
            with pipeline.telling("state_dict"):
                options = torch.distributed.BroadcastOptions()
                options.rootRank = owner
                world.pipeline.broadcast([tensor], options).wait()
        found[key] = tensor
    return found
