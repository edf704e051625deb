"""The step among the arguments of a call, and the step in a file's name."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Call = tuple[tuple[Any, ...], dict[str, Any]]  # args, kwargs

_LAST_NUMBER = re.compile(r"(\d+)(\.[A-Za-z]\w*)*$")  # followed by suffixes


class StepArgument:
    """The step among the arguments of a function.

    It is the argument ``step``, by keyword or by the position of that parameter (second in
    methods); else the first positional one.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # some builtins have no signature
            parameters = []
        self._named = next((p for p in parameters if p.name == "step"), None)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        before = [p.name for p in parameters if p.kind in positional]
        self._index = before.index("step") if "step" in before else None

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """The step that a call names; None if it names none, or something that is no number."""
        if "step" in kwargs:
            return as_step(kwargs["step"])
        if self._named is None:
            return as_step(args[0]) if args else None
        if self._index is not None and self._index < len(args):
            return as_step(args[self._index])
        return as_step(self._named.default)

    def has_place(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call has a place for a step."""
        return bool(args) or "step" in kwargs or self._named is not None

    def put(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], step: int) -> Call:
        """The call with another step, if it has a place for one."""
        if self._named is None and "step" not in kwargs:
            return (step, *args[1:]), dict(kwargs)
        index = self._index
        if "step" not in kwargs and index is not None and index < len(args):
            return (*args[:index], step, *args[index + 1 :]), dict(kwargs)
        return args, {**kwargs, "step": step}


def as_step(value: Any) -> int | None:
    """An int of at least 0 (also NumPy's, or a tensor of one element), else None."""
    if isinstance(value, bool):
        return None
    try:
        step = operator.index(value)
    except Exception:  # a module, a tensor of several elements, ...: no step, whatever it raised
        return None
    return step if step >= 0 else None


def has_step(name: str, step: int) -> bool:
    """Whether a step stands in a path, as a whole number: 5 in step_5/a.pt and a_005.pt."""
    return re.search(rf"(?<!\d)0*{step}(?!\d)", name) is not None


def trailing(name: str) -> int | None:
    """The number at the end of a name: 500 of "model_1.5_500.pt"; None for "model_500_best.pt"."""
    match = _LAST_NUMBER.search(name)
    return int(match[1]) if match else None


def common_step(names: Iterable[str]) -> int | None:
    """The step at the end of all those names that have a number there, if it is the same."""
    steps = {trailing(name) for name in names} - {None}
    return steps.pop() if len(steps) == 1 else None
