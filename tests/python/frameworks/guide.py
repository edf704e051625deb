"""The decorators and the basic recipe of SkyPilot's training guide, written anew.

Not the guide's text, but the same decisions in the same order, so that a test can show a defect of
the guide beside what Pawl does. One difference that no test sees: they log.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any


def _number(path: Path) -> int:
    return int(path.stem.split("_")[-1])


def save_checkpoint(
    save_dir: str, max_checkpoints: int = 5, checkpoint_prefix: str = "checkpoint"
) -> Callable[..., Any]:
    folder = Path(save_dir)
    folder.mkdir(parents=True, exist_ok=True)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def save(*args: Any, **kwargs: Any) -> Any:
            step = kwargs.get("step", args[0] if args else None)
            if step is None:
                return function(*args, **kwargs)
            try:
                result = function(*args, **kwargs)
                model = kwargs.get("model", args[1] if len(args) > 1 else None)
                said = {"step": step, "timestamp": datetime.now().isoformat()}
                said["model_type"] = type(model).__name__
                metadata = folder / f"{checkpoint_prefix}_step_{step}_metadata.json"
                metadata.write_text(json.dumps(said))
                held = sorted(folder.glob(f"{checkpoint_prefix}_step_*.pt"), key=_number)
                while len(held) > max_checkpoints:
                    oldest = held.pop(0)
                    oldest.unlink()
                    beside = oldest.with_suffix("_metadata.json")
                    if beside.exists():
                        beside.unlink()
                return result
            except Exception:
                return function(*args, **kwargs)

        return save

    return decorate


def load_checkpoint(save_dir: str, checkpoint_prefix: str = "checkpoint") -> Callable[..., Any]:
    folder = Path(save_dir)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def load(*args: Any, **kwargs: Any) -> Any:
            try:
                pattern = f"{checkpoint_prefix}_step_*.pt"
                for path in sorted(folder.glob(pattern), key=_number, reverse=True):
                    try:
                        if "step" in kwargs:
                            kwargs["step"] = _number(path)
                        elif args:
                            args = (_number(path), *args[1:])
                        return function(*args, **kwargs)
                    except Exception:
                        continue
                return function(*args, **kwargs)
            except Exception:
                return function(*args, **kwargs)

        return load

    return decorate


def basic_load_checkpoint(save_dir: Any = "/checkpoints") -> Any:
    """The basic recipe as printed, with the placeholder call left as it stands."""
    try:
        found = sorted(Path(save_dir).glob("checkpoint_*.pt"), key=_number, reverse=True)
        for path in found:
            try:
                return basic_load_checkpoint(path)
            except Exception:
                continue
    except Exception:
        return None
    return None
