"""A tensor whose bytes are at another rank, or are not computed yet.

The driver's program works on placeholders. They have a shape, a dtype and a place in torch's
autograd graph, but no memory: each operator on them becomes a call to the rank that has the most
bytes of its operands (_operators.py). What needs the numbers themselves (``item()``, ``if``,
``print``) fetches them, and lets other microbatches run meanwhile.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from pawl.errors import error
from pawl.pipeline import _codec

if TYPE_CHECKING:
    from pawl.pipeline._driver import Driver


class Ref:
    """A value's number, and the ranks that have it or will have it; freed there when it goes."""

    __slots__ = ("bytes", "chunk", "driver", "fetched", "holders", "id", "rank", "step")

    def __init__(self, driver: Driver, number: int, rank: int, chunk: int, nbytes: int) -> None:
        self.driver = driver
        self.step = driver.step
        self.id = number
        self.rank = rank  # the rank that makes the value
        self.chunk = chunk  # the chunk that makes it
        self.bytes = nbytes
        self.holders = 1 << rank  # a bit for each rank
        self.fetched: torch.Tensor | None = None  # the numbers, once they were asked for

    def __del__(self) -> None:
        self.driver.dead.append((self.step, self.id, self.holders))


class Aliases:
    """Placeholders that share memory: a base and views of it."""

    def __init__(self, base: Placeholder) -> None:
        self.ref = base.ref  # the base's value
        self.meta = _codec.meta_of(base)
        self.members: list[weakref.ref[Placeholder]] = []
        # What has memory in common with these in one process: other aliases, or a tensor of the
        # step function's own; and the unit by whose call. Weak: values go with their last user.
        self.linked: list[tuple[weakref.ref[Aliases] | weakref.ref[torch.Tensor], str]] = []

    def living(self) -> list[Placeholder]:
        """The placeholders that somebody still refers to."""
        found = [p for member in self.members if (p := member()) is not None]
        self.members = [weakref.ref(p) for p in found]
        return found


class Placeholder(torch.Tensor):
    """See the head of this file. ``chain``: operators that make this view of its base."""

    ref: Ref
    aliases: Aliases | None
    chain: tuple[Any, ...]

    @staticmethod
    def __new__(
        cls: type[Placeholder],
        ref: Ref,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> Placeholder:
        made: Placeholder = torch.Tensor._make_wrapper_subclass(
            cls, shape, strides=strides, dtype=dtype
        )
        made.ref = ref
        made.aliases = None
        made.chain = ()
        return made

    def __init__(self, *_: Any) -> None:
        pass

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from pawl.pipeline._operators import operate

        return operate(func, args, kwargs or {})

    def join(self, base: Placeholder, step: tuple[Any, ...] | None) -> None:
        """Makes this a view of ``base`` by one more step; None: all of it."""
        self.aliases = base._family()
        self.chain = base.chain if step is None else (*base.chain, step)
        self.aliases.members.append(weakref.ref(self))

    def link(self, other: torch.Tensor, unit: str) -> None:
        """Notes that this one and another have memory in common in one process, by a unit's
        call.
        """
        mine = self._family()
        if isinstance(other, Placeholder):
            theirs = other._family()
            mine.linked.append((weakref.ref(theirs), unit))
            theirs.linked.append((weakref.ref(mine), unit))
        else:
            mine.linked.append((weakref.ref(other), unit))

    def _family(self) -> Aliases:
        if self.aliases is None:
            self.aliases = Aliases(self)
            self.aliases.members.append(weakref.ref(self))
        return self.aliases

    def check_alone(self, what: str, views: bool = False) -> None:
        """Refuses a change in place that tensors which the program has would not see.

        ``views``: nor would views.
        """
        if self.aliases is None:
            return
        units = [unit for link, unit in self.aliases.linked if _is_alive(link())]
        if units or (views and len(self.aliases.living()) > 1):
            why = f"which {units[0]} has returned or taken" if units else "of which there are views"
            raise error(
                "PAWL_ENOTSUP",
                f"pipeline: {what} in place, a tensor of shape {tuple(self.shape)} {why}: the "
                "change would not be seen by all that share its memory; change a copy (x.clone())",
            )

    def fetch(self) -> torch.Tensor:
        """The numbers: a tensor of this process, without a graph. Waits until they are computed."""
        return self.ref.driver.fetch(self.ref).clone()

    def backward(self, gradient: torch.Tensor | None = None, *_: Any, **__: Any) -> None:
        """As ``model.backward(loss)``."""
        self.ref.driver.backward(self, gradient)

    def numpy(self, **kwargs: Any) -> Any:
        return self.fetch().numpy(**kwargs)

    def tolist(self) -> Any:
        return self.fetch().tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fetch().__array__(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.fetch().clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.fetch().__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:  # must not wait: debuggers and error texts call it
        return (
            f"Placeholder({tuple(self.shape)}, {self.dtype}, at rank {self.ref.rank}; "
            "print(x.fetch()) shows the numbers)"
        )

    def __format__(self, spec: str) -> str:
        return self.fetch().__format__(spec)


def _is_alive(linked: Aliases | torch.Tensor | None) -> bool:
    return bool(linked.living()) if isinstance(linked, Aliases) else linked is not None


def find(values: Any) -> Placeholder | None:
    """The first placeholder in a nested list, tuple or dict."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Placeholder):
            return value
        if isinstance(value, list | tuple | dict) and (found := find(value)) is not None:
            return found
    return None
