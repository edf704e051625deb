"""Operators on placeholders, as torch's dispatcher hands them over: below autograd.

An operator runs at the rank that has the most bytes of its operands; the driver learns the shapes
of its results from torch's meta device. If that cannot tell (results whose shape depends on
numbers, results that are no tensors), the operands are fetched and the driver computes.

An operator that changes a tensor in place makes a new value: a changed copy, and with it each
living view of the copy. So what another rank has, or autograd has saved, never changes.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from pawl.errors import error
from pawl.pipeline import _codec
from pawl.pipeline._placeholder import Placeholder, find

_aten = torch.ops.aten
_ITEM = _aten._local_scalar_dense.default
_DETACH = _aten.detach.default
_ALIASES = (_DETACH, _aten.alias.default)


class Known(NamedTuple):
    """How an operator runs on operands of certain shapes; recipe None: at the driver."""

    recipe: Any
    out: Any  # key of the results
    metas: tuple[Any, ...]  # (dtype, shape, strides) of each result
    view: int  # index of the operand that the results are views of; -1: none


_HERE = Known(None, None, (), -1)


def operate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator, some operand of which is a placeholder."""
    first = find((args, kwargs))
    assert first is not None
    driver = first.ref.driver
    if func is _ITEM:
        return first.fetch().item()
    if func in _ALIASES:
        made = Placeholder(first.ref, *_codec.meta_of(first))
        made.join(first, None)
        return made
    if func._schema.is_mutable:
        return _change(driver, func, args, kwargs)
    tensors, key = _codec.flatten((args, kwargs), str(func))
    signature = (func, key, tuple([_codec.meta_of(t) for t in tensors]))
    known = driver.known.get(signature)
    if known is None:
        known = driver.known[signature] = _learn(func, args, kwargs, key)
    if known.recipe is None:
        return func(*_fetched(args), **_fetched(kwargs))
    made = driver.operate(known.recipe, tensors, known.metas, _is_random(func))
    if known.view >= 0 and isinstance(base := tensors[known.view], Placeholder):
        several = len(made) > 1
        for i, view in enumerate(made):
            view.join(base, (str(func), key, i if several else None))
    return _codec.unflatten(known.out, made)


def _fetched(value: Any) -> Any:
    return pytree.tree_map_only(Placeholder, Placeholder.fetch, value)


@functools.cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _learn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any) -> Known:
    """Runs the operator on tensors without memory."""
    try:
        out = func(*_on_meta(args), **_on_meta(kwargs))
        outs, out_key = _codec.flatten(out, str(func))
    except Exception:  # wrong operands are reported where they are computed
        return _HERE
    if not outs or any(t.device.type != "meta" for t in outs) or not _tensors_only(out_key):
        return _HERE
    metas = tuple([_codec.kept_meta(t) for t in outs])
    return Known(("op", str(func), key, _codec.describe(metas)), out_key, metas, _viewed(func))


def _tensors_only(key: Any) -> bool:
    return key is None or key[0] == "t" or (key[0] in "([" and all(map(_tensors_only, key[1:])))


def _on_meta(value: Any) -> Any:
    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    return pytree.tree_map(convert, value)


@functools.cache
def _viewed(func: Any) -> int:
    """The index of the operand that the operator's results are views of, or -1."""
    returns = func._schema.returns
    if not returns or returns[0].alias_info is None:
        return -1
    return 0  # all of torch's view operators take their base first


# ---- in place ----


def _change(driver: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    changed = _changed(func, args, kwargs)
    if not all(isinstance(c, Placeholder) for c in changed):
        func(*_keep(args, changed), **_keep(kwargs, changed))
        return _result(func, changed)
    if len(changed) != 1 or torch.Tag.inplace_view in func.tags:
        raise error(
            "PAWL_ENOTSUP",
            f"pipeline: {func} changes {'several tensors' if len(changed) > 1 else 'a shape'} in "
            f"place at rank {changed[0].ref.rank}; use the form that returns a new tensor",
        )
    target = changed[0]
    target.check_alone(f"{func} changes")
    tensors, key = _codec.flatten((args, kwargs), str(func))
    slot = next(i for i, t in enumerate(tensors) if t is target)
    members = target.aliases.living() if target.aliases else [target]
    views = [p for p in members if p.chain]
    recipe = ("in place", str(func), key, slot, target.chain, tuple([v.chain for v in views]))
    base = _base(target, members)
    metas = [_codec.meta_of(p) for p in (base, *views)]
    made = driver.operate(recipe, [base, *tensors], tuple(metas), _is_random(func))
    if target.aliases:
        target.aliases.ref = made[0].ref
    for member in members:
        if not member.chain:
            member.ref = made[0].ref
    for view, new in zip(views, made[1:], strict=True):
        view.ref = new.ref
    return _result(func, changed)


def _base(target: Placeholder, members: list[Placeholder]) -> Placeholder:
    """What the target is a view of; the program may have dropped the base's own placeholder."""
    for member in members:
        if not member.chain:
            return member
    assert target.aliases is not None
    return Placeholder(target.aliases.ref, *target.aliases.meta)


def _changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The operands that the operator writes to."""
    found: list[torch.Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if tensor is not None and not any(tensor is f for f in found):
                found.append(tensor)
    return found


def _keep(value: Any, kept: list[torch.Tensor]) -> Any:
    """Operands with placeholders fetched, but for those that change: these cannot be."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, Placeholder):
            if any(leaf is k for k in kept):
                raise error(
                    "PAWL_ENOTSUP",
                    "pipeline: an operator changes tensors of this process and of a rank in place",
                )
            return leaf.fetch()
        return leaf

    return pytree.tree_map(convert, value)


def _result(func: Any, changed: list[torch.Tensor]) -> Any:
    if not func._schema.returns:
        return None
    return changed[0] if len(changed) == 1 else changed
