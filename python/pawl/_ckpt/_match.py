"""Compares a loaded state with the live objects and plans how each gets its bytes.

Nothing here changes a live object. A plan has four parts, carried out by _restore in this order:
new memory to be filled; checks of its contents; calls of load_state_dict, which may fail and are
undone if anything does; and the steps that cannot fail: raw copies straight into live memory, and
assignments. So every possible failure of these is found while the plan is made (see _fill).

A tensor that was saved in shards, or is sharded live, gets the box that this rank holds of it,
assembled from any shards there are. The loaded tensor then only identifies the tensor.
"""

from __future__ import annotations

import copy
import logging
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeGuard

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from pawl._ckpt import _parts
from pawl._ckpt._fill import loses, no_copy, no_memory, once, repeats
from pawl._ckpt._names import for_names, strip_names
from pawl._ckpt._partitions import has_state
from pawl._ckpt._shards import Shape, assemble, box_of, is_dtensor, local_of

log = logging.getLogger("pawl")

_PLAIN: Final = (torch.Tensor, nn.Parameter)
_SCALARS: Final = (str, int, float, bool, complex, bytes, type(None))
_NAMED_MAX: Final = 8  # keys that an error lists; more are only counted
_OF_SHAPES: Final = (
    " (strict=False is about names: build the module of the saved shapes, or leave it out by only=)"
)


class Loaded:
    """A partition as unpickled: its tensors lie on storages that are allocated, not yet filled."""

    def __init__(self, part: int, where: str, sizes: list[int]) -> None:
        self.part = part  # index of the partition in the restore
        self.where = where  # partition for messages: "global_step500/model"
        self.value: Any = None
        self.sizes = sizes  # bytes of each storage
        self.storages: dict[int, torch.UntypedStorage] = {}  # key -> storage
        self.keys: dict[int, int] = {}  # identity of a storage -> its key
        self.to_fill: set[int] = set()  # keys of storages whose bytes are wanted
        # Id of a shard -> name and shape of the whole tensor.
        self.shards: dict[int, tuple[str, Shape]] = {}
        self.reshard: Callable[..., bytes] = _no_shards  # Restore.reshard, for this partition
        self.joined = False  # the model is divided by names: each shard is a whole tensor

    def fetch(self, key: int) -> torch.UntypedStorage:
        """Storage key, allocated at the first call."""
        if key not in self.storages:
            storage = torch.UntypedStorage(self.sizes[key])
            self.storages[key] = storage
            self.keys[storage._cdata] = key
        return self.storages[key]

    def key_of(self, tensor: torch.Tensor) -> int:
        return self.keys[tensor.untyped_storage()._cdata]

    def shape(self, tensor: torch.Tensor) -> Shape:
        """The shape of the whole tensor."""
        shard = self.shards.get(id(tensor))
        return tuple(tensor.shape) if shard is None else shard[1]

    def copies(self, shard: torch.Tensor, start: Shape, box: Shape, address: int) -> array[int]:
        """The copies that put a box of the whole tensor at an address."""
        name, whole = self.shards[id(shard)]
        dtype = str(shard.dtype).removeprefix("torch.")
        spec = array("Q")
        spec.frombytes(self.reshard(name, dtype, shard.element_size(), whole, start, box, address))
        return spec

    def need(self, value: Any) -> None:
        """Marks the storages of all tensors in value to be filled."""
        seen: set[int] = set()
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, _SCALARS) or id(item) in seen:
                continue
            seen.add(id(item))
            if id(item) in self.shards:
                continue  # assembled from shards
            if isinstance(item, torch.Tensor) and is_simple(item):
                self.to_fill.add(self.key_of(item))
            elif type(item) in (dict, OrderedDict):
                stack.extend(item.values())
            elif type(item) in (list, tuple):
                stack.extend(item)
            else:
                self.to_fill.update(self.storages)


def _no_shards(*_: Any) -> bytes:
    raise AssertionError("nothing here is sharded")


class Call(NamedTuple):
    """A call of the user's code, which may fail."""

    where: str  # "state['model']"
    make: Callable[[], None]
    # Called before make; returns a function that undoes make.
    remember: Callable[[], Callable[[], None]]
    method: str = ".load_state_dict"  # the called method, as an error spells it
    hint: str = ""  # text after the error


class Plan:
    """What a restore will do to the live objects."""

    def __init__(self, strict: bool, strip: tuple[str, ...] = ()) -> None:
        self.strict = strict
        self.strip = strip  # parts of a module's names that are ignored
        # Plain tensors for the log, restored with a conversion to a type that does
        # not hold all of their numbers.
        self.converted: list[str] = []
        # Plain tensors for the log, replaced by others of another shape.
        self.replaced: list[str] = []
        self.problems: list[str] = []  # errors; if there is any, nothing is done
        # Called once new memory is filled; each returns an error or None.
        self.checks: list[Callable[[], str | None]] = []
        self.calls: list[Call] = []
        # By destination (address, bytes): part, storage, offset, address, bytes.
        self.copies: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}
        self.fills: array[int] = array("Q")  # copies into new memory, before the calls
        self.boxes: array[int] = array("Q")  # copies of shards into live memory
        self.touched: list[torch.Tensor] = []  # destinations of copies and boxes
        self.assignments: list[Callable[[], Any]] = []
        # Id of a loaded container -> the live container it goes into.
        self.placed: dict[int, Any] = {}

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
    """Plans the restore of state[name] from the loaded partition."""
    where = f"state[{name!r}]"
    live = _parts.unwrap(state[name])
    if isinstance(live, nn.Module):
        _match_module(plan, where, live, loaded)
    elif isinstance(live, Optimizer):
        _match_optimizer(plan, where, live, loaded)
    elif has_state(live):
        _match_object(plan, where, live, loaded)
    else:
        value = _match_value(plan, where, live, loaded.value, loaded)
        if value is live:
            return
        if type(state) in (dict, OrderedDict):
            plan.assignments.append(partial(state.__setitem__, name, value))
        elif isinstance(state, MutableMapping):
            assign = partial(state.__setitem__, name, value)
            put_back = partial(state.__setitem__, name, live)
            plan.calls.append(Call(where, assign, lambda: put_back, method=""))
        else:
            plan.problems.append(f"{where} cannot be assigned: state is read-only")


def is_simple(tensor: torch.Tensor) -> bool:
    """Whether a tensor is strides over bytes and nothing else."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not tensor.is_conj()
        and tensor.device.type != "meta"
    )


def _match_tensor(
    plan: Plan, where: str, live: torch.Tensor, saved: torch.Tensor, loaded: Loaded
) -> None:
    """Plans live[:] = saved, both simple, or made of simple parts, and of one shape."""
    local = local_of(live)
    why = no_memory(local)
    if why is not None:
        plan.problems.append(f"{where} {why}")
        return
    if id(saved) in loaded.shards:
        _match_shard(plan, where, live, saved, loaded)
        return
    if is_dtensor(live):
        loaded.need(saved)
        _plan_copy(plan, where, local, _cut(saved, live))
        return
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
        _plan_copy(plan, where, live, saved)


def _match_shard(
    plan: Plan, where: str, live: torch.Tensor, saved: torch.Tensor, loaded: Loaded
) -> None:
    """Plans that live, or this rank's part of it, gets its box of the whole tensor."""
    start, box = box_of(live)
    local = local_of(live)
    if local.is_cpu and local.dtype == saved.dtype and local.is_contiguous():
        plan.boxes.extend(loaded.copies(saved, start, box, local.data_ptr()))
        plan.touched.append(local)
    else:
        _plan_copy(plan, where, local, _fill_box(plan, saved, start, box, loaded))


def _fill_box(
    plan: Plan, saved: torch.Tensor, start: Shape, box: Shape, loaded: Loaded
) -> torch.Tensor:
    """New memory that will have a box of the whole tensor."""
    buffer = torch.empty(box, dtype=saved.dtype, device="cpu")
    plan.fills.extend(loaded.copies(saved, start, box, buffer.data_ptr()))
    return buffer


def _plan_copy(plan: Plan, where: str, live: torch.Tensor, saved: torch.Tensor) -> None:
    """Plans live[:] = saved by torch. Of elements that share memory, one is filled, if all were
    saved with the same value.
    """
    if repeats(live):
        few = once(saved, live)
        plan.checks.append(partial(_check_alike, where, saved, few))
        live, saved = once(live, live), few
    why = no_copy(live, saved)
    if why is not None:
        plan.problems.append(f"{where} {why}")
    plan.assignments.append(partial(_copy_into, live, saved))


def _check_alike(where: str, saved: torch.Tensor, few: torch.Tensor) -> str | None:
    if torch.equal(saved, few.expand_as(saved)):
        return None
    return (
        f"{where} repeats itself (expand), so it cannot take saved elements that differ: clone() it"
    )


def _cut(saved: torch.Tensor, live: torch.Tensor) -> torch.Tensor:
    """The part of a tensor, saved whole, that live's rank holds."""
    start, box = box_of(live)
    for dim, (first, length) in enumerate(zip(start, box, strict=True)):
        saved = saved.narrow(dim, min(first, saved.shape[dim]), length)
    return saved


def _lay_out(plan: Plan, where: str, saved: Any, like: Any, loaded: Loaded) -> Any:
    """saved, with every tensor in it laid out as the one of the same path in like, for objects that
    load themselves. A shard without a counterpart in like is an error, since the wanted part is
    unknown.
    """
    if isinstance(saved, torch.Tensor):
        return _lay_out_tensor(plan, where, saved, like, loaded)
    if type(saved) in (dict, OrderedDict):
        paths = like if isinstance(like, Mapping) else {}
        items = {
            key: _lay_out(plan, f"{where}[{key!r}]", value, paths.get(key), loaded)
            for key, value in saved.items()
        }
        if any(items[key] is not saved[key] for key in items):
            saved = copy.copy(saved)
            saved.update(items)
    elif type(saved) in (list, tuple):
        alike = like if isinstance(like, (list, tuple)) else ()
        rest = [*alike[: len(saved)], *[None] * (len(saved) - len(alike))]
        ones = [
            _lay_out(plan, f"{where}[{index}]", value, rest[index], loaded)
            for index, value in enumerate(saved)
        ]
        if any(a is not b for a, b in zip(ones, saved, strict=True)):
            saved = type(saved)(ones)
    return saved


def _lay_out_tensor(
    plan: Plan, where: str, saved: torch.Tensor, like: Any, loaded: Loaded
) -> torch.Tensor:
    is_shard = id(saved) in loaded.shards
    whole = loaded.shape(saved)
    if not isinstance(like, torch.Tensor) or tuple(like.shape) != whole:
        if is_shard and loaded.joined:
            return _fill_box(plan, saved, (0,) * len(whole), whole, loaded)
        if is_shard:
            has = f"of shape {tuple(like.shape)}" if isinstance(like, torch.Tensor) else "nothing"
            plan.problems.append(
                f"{where}: saved in shards of {whole}, live is {has}: put a tensor or DTensor "
                "of that shape there, to show which part this rank holds"
            )
        return saved
    if not is_shard and not is_dtensor(like):
        return saved
    part = _fill_box(plan, saved, *box_of(like), loaded) if is_shard else _cut(saved, like)
    return assemble(like, part.to(local_of(like).device)) if is_dtensor(like) else part


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
    if plan.strip:
        names = module.state_dict().keys()
        saved = strip_names(saved, names, plan.strip)
        if saved is None:
            plan.problems.append(f"{where}: two names become one without {plan.strip}")
            return
    divided = _parts.find(module)
    if divided is not None:
        _match_divided(plan, where, divided, saved, loaded)
        return
    is_special = _loads_specially(module)
    if not is_special and _complain_of_memory(plan, where, module, saved):
        return
    live = None if is_special else _plain_tensors(module)
    if live is None or not all(_is_simple_tensor(value) for value in saved.values()):
        loaded.need(saved)
        like = module.state_dict()
        if loaded.shards or any(map(is_dtensor, like.values())):
            saved = _lay_out(plan, where, saved, like, loaded)
        load = partial(module.load_state_dict, saved, strict=plan.strict)
        hint = for_names(like, saved)
        plan.calls.append(Call(where, load, partial(_remember_object, module), hint=hint))
        return
    _match_tensors(plan, where, live, saved, loaded)


def _match_divided(
    plan: Plan, where: str, divided: _parts.Divided, saved: Mapping[str, Any], loaded: Loaded
) -> None:
    """A model of which this rank has, or will have, some of the tensors."""
    mark = _parts.mark_of(loaded.value)
    here = divided.restores(mark)
    if here.strange:
        plan.problems.append(f"{where}: {_parts.strangeness(here)}")
    elif not all(_is_simple_tensor(value) for value in saved.values()):
        plan.problems.append(f"{where}: {loaded.where} has values that are no dense tensors")
    if plan.problems:
        return
    _match_tensors(plan, where, here.tensors, saved, loaded, here.elsewhere)
    plan.assignments.append(partial(divided.restored, mark))


def _match_tensors(
    plan: Plan,
    where: str,
    live: Mapping[str, torch.Tensor],
    saved: Mapping[str, Any],
    loaded: Loaded,
    elsewhere: frozenset[str] = frozenset(),
) -> None:
    """Plans live[key][:] = saved[key]. ``elsewhere``: keys that other ranks restore."""
    missing = [key for key in [*live, *sorted(elsewhere)] if key not in saved]
    unexpected = [key for key in saved if key not in live and key not in elsewhere]
    if plan.strict:
        hint = for_names(live, saved) if missing and unexpected else ""
        _complain(plan, f"{where}: not in {loaded.where}{hint}", missing)
        _complain(plan, f"{where}: only in {loaded.where}", unexpected)
    elif missing and unexpected:
        _warn_unmatched(where, loaded.where, live, saved)
    both = [key for key in live if key in saved]
    shapes = [
        f"{key} (saved {loaded.shape(saved[key])}, live {tuple(live[key].shape)})"
        for key in both
        if loaded.shape(saved[key]) != live[key].shape
    ]
    _complain(plan, f"{where}: of another shape{_OF_SHAPES if not plan.strict else ''}", shapes)
    for key in both:
        if loaded.shape(saved[key]) == live[key].shape:
            _match_tensor(plan, f"{where}: {key}", live[key], saved[key], loaded)


def _warn_unmatched(where: str, saved_in: str, live: Iterable[str], saved: Iterable[str]) -> None:
    """Warns if no name fits: with strict=False torch would load nothing, silently."""
    hint = for_names(live, saved)
    if hint:
        log.warning("%s: none of its names is in %s%s", where, saved_in, hint)


def _complain_of_memory(
    plan: Plan, where: str, module: nn.Module, names: Mapping[str, Any]
) -> bool:
    """Adds an error for tensors of these names that have no memory; returns
    whether there is any.
    """
    bad: dict[str, list[str]] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        why = no_memory(local_of(tensor)) if name in names else None
        if why is not None:
            bad.setdefault(why, []).append(name)
    for why, those in bad.items():
        _complain(plan, f"{where}: a tensor of it {why}", those)
    return bool(bad)


def _complain(plan: Plan, what: str, keys: list[str]) -> None:
    if keys:
        more = f" and {len(keys) - _NAMED_MAX} more" if len(keys) > _NAMED_MAX else ""
        plan.problems.append(f"{what}: {', '.join(map(str, keys[:_NAMED_MAX]))}{more}")


def _is_simple_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and is_simple(value)


def _has_simple_part(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether value, or this rank's part of it, is simple."""
    return isinstance(value, torch.Tensor) and is_simple(local_of(value))


def _loads_specially(module: nn.Module) -> bool:
    """Whether load_state_dict of this module does more than copy tensors."""
    if type(module).load_state_dict is not nn.Module.load_state_dict:
        return True
    for inner in module.modules():
        hooks = [*inner._load_state_dict_pre_hooks.values()]
        hooks += inner._load_state_dict_post_hooks.values()
        if not all(map(_only_gathers_shards, hooks)):
            return True
        load = type(inner)._load_from_state_dict
        # Batch norm's own version only adds a key that checkpoints of old releases lack.
        if load is not nn.Module._load_from_state_dict and not load.__module__.startswith(
            "torch.nn.modules.batchnorm"
        ):
            return True
    return False


def _only_gathers_shards(hook: Any) -> bool:
    """Whether hook is FSDP2's own, which puts parameters into shards, as state_dict() does, too."""
    hook = getattr(hook, "hook", hook)
    return getattr(hook, "__module__", "").startswith("torch.distributed.fsdp._fully_shard.")


def _plain_tensors(module: nn.Module) -> dict[str, torch.Tensor] | None:
    """state_dict(), if each entry is a parameter or buffer itself; else None."""
    live = module.state_dict()  # called first: it makes FSDP2 put its shards in place
    named: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    named.update(module.named_buffers(remove_duplicate=False))
    for key, tensor in live.items():
        own = named.get(key)
        if own is None or not _has_simple_part(tensor) or not _has_simple_part(own):
            return None
        part, mine = local_of(tensor), local_of(own)
        same_place = part.data_ptr() == mine.data_ptr() and part.stride() == mine.stride()
        if not same_place or part.shape != mine.shape or part.dtype != mine.dtype:
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
    divided = _parts.find(optimizer)
    if divided is not None or _parts.mark_of(saved) is not None:
        try:
            saved = _parts.fit(saved, optimizer, divided)
        except _parts.Unfit as why:
            plan.problems.append(f"{where}: {why}")
            return
    theirs = [len(group["params"]) for group in saved["param_groups"]]
    ours = [len(group["params"]) for group in optimizer.param_groups]
    if theirs != ours:
        plan.problems.append(f"{where}: parameters of each group: saved {theirs}, live {ours}")
        return
    live = optimizer.state_dict()
    if _has_hooks(optimizer) or not _same_entries(live["state"], saved["state"], loaded):
        loaded.need(saved)
        params = [param for group in optimizer.param_groups for param in group["params"]]
        if loaded.shards or any(map(is_dtensor, params)):
            saved = _lay_out(plan, where, saved, _like_params(saved, params, loaded), loaded)
        load = partial(optimizer.load_state_dict, saved)
        plan.calls.append(Call(where, load, partial(_remember_optimizer, optimizer)))
        return
    # The entries of live["state"] are the optimizer's own dicts, as are the groups below.
    for index, entry in live["state"].items():
        _match_entry(plan, where, entry, saved["state"][index], loaded)
    for group, other in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        options = {key: value for key, value in other.items() if key != "params"}
        _match_entry(plan, where, group, options, loaded)


def _like_params(saved: Any, params: list[torch.Tensor], loaded: Loaded) -> dict[str, Any]:
    """The tensors whose layout an optimizer's state gets: those of a parameter's
    shape, the parameter's.
    """
    like: dict[Any, Any] = {}
    for index, entry in saved["state"].items():
        if isinstance(entry, dict):
            like[index] = {
                key: params[index]
                for key, value in entry.items()
                if isinstance(value, torch.Tensor) and loaded.shape(value) == params[index].shape
            }
    return {"state": like}


def _match_entry(
    plan: Plan, where: str, live: dict[Any, Any], saved: dict[Any, Any], loaded: Loaded
) -> None:
    """Plans live.update(saved), with tensors changed in place."""
    for key, value in saved.items():
        old = live.get(key)
        if (
            _is_simple_tensor(value)
            and _has_simple_part(old)
            and old.shape == loaded.shape(value)
            and old.dtype == value.dtype
            and not repeats(local_of(old))
        ):
            _match_tensor(plan, f"{where}[{key!r}]", old, value, loaded)
        else:
            loaded.need(value)
            if loaded.shards:
                value = _lay_out(plan, f"{where}[{key!r}]", value, old, loaded)
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


def _same_entries(live: dict[Any, Any], saved: dict[Any, Any], loaded: Loaded) -> bool:
    """Whether both states have the same keys, and there tensors of the same shapes and dtypes."""
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
                not is_simple(local_of(value))
                or not is_simple(other[key])
                or value.shape != loaded.shape(other[key])
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
    saved = loaded.value
    if loaded.shards:
        saved = _lay_out(plan, where, saved, obj.state_dict(), loaded)
    load = partial(obj.load_state_dict, saved)
    plan.calls.append(Call(where, load, partial(_remember_object, obj)))


def _remember_object(obj: Any) -> Callable[[], None]:
    return partial(obj.load_state_dict, copy.deepcopy(obj.state_dict()))


def _remember_optimizer(optimizer: Optimizer) -> Callable[[], None]:
    """Keeps the optimizer's containers: load_state_dict gives it new ones, so
    putting these back undoes it.
    """
    state, groups = optimizer.state, optimizer.param_groups

    def undo() -> None:
        optimizer.state, optimizer.param_groups = state, groups

    return undo


def _match_value(plan: Plan, where: str, live: Any, saved: Any, loaded: Loaded) -> Any:
    """Returns the value that will stand in live's place: live itself, changed in
    place, or saved.
    """
    if id(saved) in plan.placed:
        return plan.placed[id(saved)]
    if _has_simple_part(live) and _is_simple_tensor(saved):
        if live.shape == loaded.shape(saved):
            if repeats(live):
                return _take(plan, where, saved, loaded)
            if loses(saved.dtype, live.dtype):
                plan.converted.append(f"{where} ({saved.dtype} to {live.dtype})")
            _match_tensor(plan, where, live, saved, loaded)
            return live
        if plan.strict:
            shapes = f"saved {loaded.shape(saved)}, live {tuple(live.shape)}"
            plan.problems.append(f"{where}: of another shape: {shapes}")
            return live
        plan.replaced.append(f"{where} (of shape {tuple(live.shape)}, now {loaded.shape(saved)})")
    elif type(live) in (dict, OrderedDict) and type(live) is type(saved):
        plan.placed[id(saved)] = live
        merged = {
            key: _match_value(plan, f"{where}[{key!r}]", live[key], value, loaded)
            if key in live
            else _take(plan, f"{where}[{key!r}]", value, loaded)
            for key, value in saved.items()
        }
        plan.assignments.append(partial(_refill, live, merged))
        return live
    elif type(live) is list and type(saved) is list:
        plan.placed[id(saved)] = live
        items = [
            _match_value(plan, f"{where}[{index}]", live[index], value, loaded)
            if index < len(live)
            else _take(plan, f"{where}[{index}]", value, loaded)
            for index, value in enumerate(saved)
        ]
        plan.assignments.append(partial(live.__setitem__, slice(None), items))
        return live
    return _take(plan, where, saved, loaded)


def _take(plan: Plan, where: str, saved: Any, loaded: Loaded) -> Any:
    loaded.need(saved)
    return _lay_out(plan, where, saved, None, loaded) if loaded.shards else saved


def _refill(live: dict[Any, Any], items: dict[Any, Any]) -> None:
    live.clear()
    live.update(items)
