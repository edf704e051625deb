"""What the driver's program keeps on its modules (``self.kept = x``), apart for each microbatch.

The program of one microbatch may wait for numbers while that of another runs. In one process they
would run one after another, so that none sees what another has set meanwhile. So what a fiber has
set is taken off the modules while it waits, and put back when it goes on. Once it has finished,
what it has set stays. Plain numbers and texts, such as counters, belong to all.
"""

from __future__ import annotations

from typing import Any, Final

from torch import nn

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_MISSING: Final = object()

Kept = dict[tuple[int, str], Any]  # index of the module, name -> value


class Attributes:
    """Attributes of the modules that the program runs itself."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self._modules = modules
        self._before: list[dict[str, Any]] = []
        self._others: Kept = {}  # values that the fiber has covered with its own

    def enter(self, kept: Kept) -> None:
        """Puts back what a fiber has set, before it goes on."""
        self._others = {}
        for (at, name), value in kept.items():
            table = self._modules[at].__dict__
            self._others[at, name] = table.get(name, _MISSING)
            table[name] = value
        self._before = [dict(module.__dict__) for module in self._modules]

    def leave(self) -> Kept:
        """Takes off what a fiber has set, and returns it; the fiber waits."""
        kept: Kept = {}
        for at, (module, before) in enumerate(zip(self._modules, self._before, strict=True)):
            table = module.__dict__
            for name, value in list(table.items()):
                other = self._others.get((at, name), before.get(name, _MISSING))
                if value is other or isinstance(value, _PLAIN):
                    continue
                kept[at, name] = value
                if other is _MISSING:
                    del table[name]
                else:
                    table[name] = other
        return kept
