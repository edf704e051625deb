"""How a framework's class is made to use Pawl: a method of it is wrapped in ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Makes owner.name(self, ...) call around(self, original, ...); original is bound to self."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(self, functools.partial(original, self), *args, **kwargs)

    setattr(owner, name, method)
