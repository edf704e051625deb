"""What transformers' Trainer reads of SMP's state."""

from __future__ import annotations

from typing import Any

from pawl.compat.smdistributed.modelparallel.torch import _session


class _ModuleManager:
    translate_functions: tuple[Any, ...] = ()  # models keep the names that transformers gives them


module_manager = _ModuleManager()


def __getattr__(name: str) -> Any:
    if name in ("cfg", "model", "optimizer"):
        session = _session.current()
        return session.config if name == "cfg" else getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
