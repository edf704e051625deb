"""Tables of a module's parameters and buffers that the driver's program reads at their owners.

Inside of the step function ``module.weight`` gives a placeholder, whose gradient goes to the owner.
Everywhere else the tables are the plain ones: optimizers, ``state_dict`` and the units themselves
see parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from pawl.pipeline._fibers import current


class Table(dict[str, Any]):
    """A module's table. ``read``: makes the placeholder of an entry by its name in the model."""

    def __init__(
        self, plain: dict[str, Any], names: dict[str, str], read: Callable[..., Any]
    ) -> None:
        super().__init__(plain)
        self._names = names
        self._read = read

    def _entry(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is None or name not in self._names or current() is None:
            return value
        return self._read(self._names[name], value)

    def __getitem__(self, name: str) -> Any:
        return self._entry(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self._entry(name) if name in self else default

    def values(self) -> Any:
        return [self._entry(name) for name in self] if current() is not None else super().values()

    def items(self) -> Any:
        if current() is None:
            return super().items()
        return [(name, self._entry(name)) for name in self]

    def __reduce__(self) -> Any:
        return dict, (dict(super().items()),)


def entries(model: torch.nn.Module, kind: str) -> Iterator[tuple[torch.nn.Module, str, str, Any]]:
    """Module, name in it, name in the model, value of all parameters or buffers; what is shared
    has one name in the model, that of its first holder.
    """
    first: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, value in getattr(module, f"_{kind}s").items():
            if value is not None:
                whole = f"{path}.{name}" if path else name
                yield module, name, first.setdefault(id(value), whole), value
