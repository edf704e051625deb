"""A device for tests, "mock": a stand-in for an accelerator, where there is none.

A tensor on it is a tensor of the CPU that nobody can reach but through torch. As on a real device,
its memory has no address, operators refuse operands of two devices, and torch runs its backward
passes in a thread of their own. It draws the CPU's random numbers, and computes at once.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_aten = torch.ops.aten
_COPY_FROM: Final = _aten._copy_from.default  # from the CPU
_COPIES: Final = (_aten._to_copy.default, _aten.copy_.default, _COPY_FROM)


class MockTensor(torch.Tensor):
    """A tensor on the device, with the content of one of the CPU: ``raw``."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls: type[MockTensor], raw: torch.Tensor) -> MockTensor:
        made: MockTensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(),
            dtype=raw.dtype, device=torch.device("mock", 0),
        )  # fmt: skip
        made.raw = raw
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def untyped_storage(self) -> torch.UntypedStorage:
        """Says which tensors have memory in common."""
        return self.raw.untyped_storage()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.raw.tolist()

    def __format__(self, spec: str) -> str:
        return format(self.raw, spec)

    def __repr__(self, **_: Any) -> str:
        return f"MockTensor({tuple(self.shape)}, {self.dtype})"


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if func not in _COPIES and any(t.device.type != "mock" and t.dim() for t in tensors):
        raise RuntimeError(f"Expected all tensors to be on the same device ({func})")
    raw_args, raw_kwargs = pytree.tree_map(_raw, (args, kwargs))
    if func is _COPY_FROM:
        raw_args[1].copy_(raw_args[0])
        return args[1]
    found = func(*raw_args, **raw_kwargs)
    away = func is _aten._to_copy.default and kwargs.get("device") == torch.device("cpu")
    known = {id(_raw(t)): t for t in tensors}  # what an operator has changed, and returns

    def wrap(made: torch.Tensor) -> torch.Tensor:
        made = made.resolve_conj().resolve_neg()  # the wrapper could not tell
        return known[id(made)] if id(made) in known else made if away else MockTensor(made)

    return pytree.tree_map_only(torch.Tensor, wrap, found)


def _raw(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf.raw if isinstance(leaf, MockTensor) else leaf


class _Module:
    """torch.mock."""

    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    device = staticmethod(nullcontext)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])

    @staticmethod
    def set_device(_: Any) -> None: ...

    @staticmethod
    def synchronize(_: Any = None) -> None: ...

    @staticmethod
    def get_rng_state(_: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, _: Any = None) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    manual_seed_all = manual_seed


_LIBRARY: Final[list[Any]] = []


def register() -> None:
    """Makes torch know the device."""
    if not _LIBRARY:
        _setup_privateuseone_for_python_backend("mock", backend_module=_Module())
        _LIBRARY.append(torch.library.Library("_", "IMPL"))
        _LIBRARY[0].fallback(lambda func, *a, **k: _run(func, a, k), "PrivateUse1")
