"""Compares a loaded state with the live objects and plans how each gets its bytes.

Nothing here changes a live object. A plan has three parts, carried out by _restore in this order:
storages of loaded tensors to be filled; calls of load_state_dict, which may fail and are undone if
anything does; and what cannot fail: raw copies straight into live memory, and assignments.
"""

from __future__ import annotations

import copy
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeGuard

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from pawl._partitions import has_state

_PLAIN: Final = (torch.Tensor, nn.Parameter)
_SCALARS: Final = (str, int, float, bool, complex, bytes, type(None))
_NAMED_MAX: Final = 8  # keys that an error lists before it only counts


class Loaded:
    """A partition as unpickled: its tensors lie on storages that are allocated, not yet filled."""

    def __init__(self, part: int, where: str, sizes: list[int]) -> None:
        self.part = part  # its index in the restore
        self.where = where  # "global_step500/model"
        self.value: Any = None
        self.sizes = sizes  # bytes of each storage
        self.storages: dict[int, torch.UntypedStorage] = {}  # key -> storage
        self.keys: dict[int, int] = {}  # identity of a storage -> key
        self.to_fill: set[int] = set()  # keys of storages whose bytes are wanted

    def fetch(self, key: int) -> torch.UntypedStorage:
        """Storage key, allocated at the first call."""
        if key not in self.storages:
            storage = torch.UntypedStorage(self.sizes[key])
            self.storages[key] = storage
            self.keys[storage._cdata] = key
        return self.storages[key]

    def key_of(self, tensor: torch.Tensor) -> int:
        return self.keys[tensor.untyped_storage()._cdata]

    def need(self, value: Any) -> None:
        """Notes the storages of all tensors in value for filling."""
        seen: set[int] = set()
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, _SCALARS) or id(item) in seen:
                continue
            seen.add(id(item))
            if isinstance(item, torch.Tensor) and is_simple(item):
                self.to_fill.add(self.key_of(item))
            elif type(item) in (dict, OrderedDict):
                stack.extend(item.values())
            elif type(item) in (list, tuple):
                stack.extend(item)
            else:
                self.to_fill.update(self.storages)


class Call(NamedTuple):
    """A load_state_dict to be made."""

    where: str
    make: Callable[[], None]
    remember: Callable[[], Callable[[], None]]  # called before make; what it returns undoes make


class Plan:
    """What a restore will do to the live objects."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.problems: list[str] = []  # if any, nothing is done
        self.calls: list[Call] = []
        # by destination (address, bytes): part, storage, offset, address, bytes
        self.copies: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}
        self.touched: list[torch.Tensor] = []  # destinations of copies
        self.assignments: list[Callable[[], Any]] = []
        self.placed: dict[int, Any] = {}  # id of a loaded container -> the live one it goes into

    def spec(self) -> array[int]:
        """The raw copies, as Restore.copy takes them."""
        spec = array("Q")
        for one in self.copies.values():
            spec.extend(one)
        return spec

    def overlaps(self) -> bool:
        """Whether two destinations share bytes, so that the order of copies matters."""
        end = 0
        for _, _, _, address, size in sorted(self.copies.values(), key=lambda one: one[3]):
            if address < end:
                return True
            end = address + size
        return False


def match(plan: Plan, state: MutableMapping[str, Any], name: str, loaded: Loaded) -> None:
    """Plans how state[name] becomes what was loaded."""
    where = f"state[{name!r}]"
    live = state[name]
    if isinstance(live, nn.Module):
        _match_module(plan, where, live, loaded)
    elif isinstance(live, Optimizer):
        _match_optimizer(plan, where, live, loaded)
    elif has_state(live):
        _match_object(plan, where, live, loaded)
    else:
        value = _match_value(plan, where, live, loaded.value, loaded)
        if value is not live:
            if isinstance(state, MutableMapping):
                plan.assignments.append(partial(state.__setitem__, name, value))
            else:
                plan.problems.append(f"{where} cannot be assigned: state is read-only")


def is_simple(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but strides over bytes."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not tensor.is_conj()
        and tensor.device.type != "meta"
    )


def _match_tensor(plan: Plan, live: torch.Tensor, saved: torch.Tensor, loaded: Loaded) -> None:
    """Plans live[:] = saved, both simple and of one shape."""
    size = saved.numel() * saved.element_size()
    if size == 0:
        return
    if live.is_cpu and live.dtype == saved.dtype and _same_order(live, saved):
        offset = int(saved.storage_offset()) * saved.element_size()
        address = live.data_ptr()
        plan.copies[address, size] = (loaded.part, loaded.key_of(saved), offset, address, size)
        plan.touched.append(live)
    else:
        loaded.need(saved)
        plan.assignments.append(partial(_copy_into, live, saved))


def _same_order(live: torch.Tensor, saved: torch.Tensor) -> bool:
    """Whether both fill a gapless run of memory in the same order of elements."""
    if live.is_contiguous():
        return saved.is_contiguous()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    order = formats.get(live.dim())
    return (
        order is not None
        and live.is_contiguous(memory_format=order)
        and saved.is_contiguous(memory_format=order)
    )


def _copy_into(live: torch.Tensor, saved: torch.Tensor) -> None:
    with torch.inference_mode(live.is_inference()), torch.no_grad():
        live.copy_(saved)


def _match_module(plan: Plan, where: str, module: nn.Module, loaded: Loaded) -> None:
    saved = loaded.value
    if not isinstance(saved, Mapping):
        plan.problems.append(f"{where} is a module, {loaded.where} is not a state_dict")
        return
    live = None if _loads_specially(module) else _plain_tensors(module)
    if live is None or not all(_is_simple_tensor(value) for value in saved.values()):
        loaded.need(saved)
        load = partial(module.load_state_dict, saved, strict=plan.strict)
        plan.calls.append(Call(where, load, partial(_remember_object, module)))
        return
    missing = [key for key in live if key not in saved]
    unexpected = [key for key in saved if key not in live]
    if plan.strict:
        _complain(plan, f"{where}: not in {loaded.where}", missing)
        _complain(plan, f"{where}: only in {loaded.where}", unexpected)
    both = [key for key in live if key in saved]
    shapes = [
        f"{key} (saved {tuple(saved[key].shape)}, live {tuple(live[key].shape)})"
        for key in both
        if saved[key].shape != live[key].shape
    ]
    _complain(plan, f"{where}: of another shape", shapes)
    for key in both:
        if saved[key].shape == live[key].shape:
            _match_tensor(plan, live[key], saved[key], loaded)


def _complain(plan: Plan, what: str, keys: list[str]) -> None:
    if keys:
        more = f" and {len(keys) - _NAMED_MAX} more" if len(keys) > _NAMED_MAX else ""
        plan.problems.append(f"{what}: {', '.join(map(str, keys[:_NAMED_MAX]))}{more}")


def _is_simple_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and is_simple(value)


def _loads_specially(module: nn.Module) -> bool:
    """Whether load_state_dict of this module does more than copy tensors."""
    if type(module).load_state_dict is not nn.Module.load_state_dict:
        return True
    for inner in module.modules():
        if inner._load_state_dict_pre_hooks or inner._load_state_dict_post_hooks:
            return True
        load = type(inner)._load_from_state_dict
        # Batch norm's own version only adds a key that checkpoints of old releases lack.
        if load is not nn.Module._load_from_state_dict and not load.__module__.startswith(
            "torch.nn.modules.batchnorm"
        ):
            return True
    return False


def _plain_tensors(module: nn.Module) -> dict[str, torch.Tensor] | None:
    """state_dict(), if each entry is a parameter or buffer itself; else None."""
    named: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    named.update(module.named_buffers(remove_duplicate=False))
    live = module.state_dict()
    for key, tensor in live.items():
        own = named.get(key)
        if own is None or not _is_simple_tensor(tensor) or not is_simple(own):
            return None
        same_place = tensor.data_ptr() == own.data_ptr() and tensor.stride() == own.stride()
        if not same_place or tensor.shape != own.shape or tensor.dtype != own.dtype:
            return None
    return dict(live)


def _match_optimizer(plan: Plan, where: str, optimizer: Optimizer, loaded: Loaded) -> None:
    saved = loaded.value
    if type(optimizer).load_state_dict is not Optimizer.load_state_dict:
        _match_object(plan, where, optimizer, loaded)
        return
    if not isinstance(saved, dict) or not {"state", "param_groups"} <= saved.keys():
        plan.problems.append(f"{where} is an optimizer, {loaded.where} is not its state_dict")
        return
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    ours = [len(group["params"]) for group in optimizer.param_groups]
    if theirs != ours:
        plan.problems.append(f"{where}: parameters of each group: saved {theirs}, live {ours}")
        return
    live = optimizer.state_dict()
    if _has_hooks(optimizer) or not _same_entries(live["state"], saved["state"]):
        loaded.need(saved)
        load = partial(optimizer.load_state_dict, saved)
        plan.calls.append(Call(where, load, partial(_remember_optimizer, optimizer)))
        return
    # The entries of live["state"] are the optimizer's own dicts, and the groups are its own below.
    for index, entry in live["state"].items():
        _match_entry(plan, where, entry, saved["state"][index], loaded)
    for group, other in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        options = {key: value for key, value in other.items() if key != "params"}
        _match_entry(plan, where, group, options, loaded)


def _match_entry(
    plan: Plan, where: str, live: dict[Any, Any], saved: dict[Any, Any], loaded: Loaded
) -> None:
    """Plans live.update(saved), tensors in place."""
    for key, value in saved.items():
        old = live.get(key)
        if (
            _is_simple_tensor(value)
            and _is_simple_tensor(old)
            and old.shape == value.shape
            and old.dtype == value.dtype
        ):
            _match_tensor(plan, old, value, loaded)
        else:
            loaded.need(value)
            plan.assignments.append(partial(live.__setitem__, key, value))


def _has_hooks(optimizer: Optimizer) -> bool:
    return any(
        getattr(optimizer, f"_optimizer_{name}_hooks", None)
        for name in (
            "state_dict_pre",
            "state_dict_post",
            "load_state_dict_pre",
            "load_state_dict_post",
        )
    )


def _same_entries(live: dict[Any, Any], saved: dict[Any, Any]) -> bool:
    """Whether both states have the same keys, and tensors of the same shapes and dtypes there."""
    if live.keys() != saved.keys():
        return False
    for index, entry in live.items():
        other = saved[index]
        if not isinstance(entry, dict) or not isinstance(other, dict):
            return False
        if entry.keys() != other.keys():
            return False
        for key, value in entry.items():
            if isinstance(value, torch.Tensor) != isinstance(other[key], torch.Tensor):
                return False
            if isinstance(value, torch.Tensor) and (
                not is_simple(value)
                or not is_simple(other[key])
                or value.shape != other[key].shape
                or value.dtype != other[key].dtype
            ):
                return False
    return True


def _match_object(plan: Plan, where: str, obj: Any, loaded: Loaded) -> None:
    if not callable(getattr(obj, "load_state_dict", None)):
        plan.problems.append(
            f"{where} is a {type(obj).__qualname__}, which has state_dict but no load_state_dict"
        )
        return
    loaded.need(loaded.value)
    load = partial(obj.load_state_dict, loaded.value)
    plan.calls.append(Call(where, load, partial(_remember_object, obj)))


def _remember_object(obj: Any) -> Callable[[], None]:
    return partial(obj.load_state_dict, copy.deepcopy(obj.state_dict()))


def _remember_optimizer(optimizer: Optimizer) -> Callable[[], None]:
    """load_state_dict gives an optimizer new containers, so the old ones are a cheap way back."""
    state, groups = optimizer.state, optimizer.param_groups

    def undo() -> None:
        optimizer.state, optimizer.param_groups = state, groups

    return undo


def _match_value(plan: Plan, where: str, live: Any, saved: Any, loaded: Loaded) -> Any:
    """What will stand where live stands: live itself, changed in place, or what was loaded."""
    if id(saved) in plan.placed:
        return plan.placed[id(saved)]
    if _is_simple_tensor(live) and _is_simple_tensor(saved):
        if live.shape == saved.shape:
            _match_tensor(plan, live, saved, loaded)
            return live
        if plan.strict:
            shapes = f"saved {tuple(saved.shape)}, live {tuple(live.shape)}"
            plan.problems.append(f"{where}: of another shape: {shapes}")
            return live
    elif type(live) in (dict, OrderedDict) and type(live) is type(saved):
        plan.placed[id(saved)] = live
        merged = {
            key: _match_value(plan, f"{where}[{key!r}]", live[key], value, loaded)
            if key in live
            else _take(value, loaded)
            for key, value in saved.items()
        }
        plan.assignments.append(partial(_refill, live, merged))
        return live
    elif type(live) is list and type(saved) is list:
        plan.placed[id(saved)] = live
        items = [
            _match_value(plan, f"{where}[{index}]", live[index], value, loaded)
            if index < len(live)
            else _take(value, loaded)
            for index, value in enumerate(saved)
        ]
        plan.assignments.append(partial(live.__setitem__, slice(None), items))
        return live
    return _take(saved, loaded)


def _take(saved: Any, loaded: Loaded) -> Any:
    loaded.need(saved)
    return saved


def _refill(live: dict[Any, Any], items: dict[Any, Any]) -> None:
    live.clear()
    live.update(items)
