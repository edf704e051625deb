"""Shared by the tests of the recipes: a user's functions, for plain bytes, and their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pawl
from pawl.recipes import _folder


def enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Makes the working directory that the guide's functions write checkpoints/ in."""
    patch.chdir(folder)
    patch.setattr(_folder, "TICK_S", 0.0)  # except in the test of the tick
    for name in ("RANK", "WORLD_SIZE"):
        patch.delenv(name, raising=False)


class Writer:
    """A user's save function, of plain bytes, that counts its calls."""

    def __init__(self, pattern: str = "checkpoints/model_{}.pt") -> None:
        self.pattern = pattern
        self.calls: list[int] = []

    def __call__(self, step: int, model: Any = None) -> str:
        self.calls.append(step)
        path = Path(self.pattern.format(step))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{step} ".encode() * 100)
        return f"wrote {step}"


class Reader:
    """A user's load function; fails where torch.load would: no file, or an incomplete one."""

    def __init__(self, pattern: str = "checkpoints/model_{}.pt") -> None:
        self.pattern = pattern
        self.calls: list[int] = []

    def __call__(self, step: int, model: Any = None) -> int:
        self.calls.append(step)
        content = Path(self.pattern.format(step)).read_bytes()
        if len(content) != len(f"{step} ") * 100:
            raise RuntimeError("incomplete")
        return step


def names(folder: str | Path = "checkpoints") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def saver(pattern: str = "checkpoints/model_{}.pt", **options: Any) -> tuple[Any, Writer]:
    writer = Writer(pattern)
    return pawl.recipes.save_checkpoint("checkpoints", **options)(writer), writer


def loader(pattern: str = "checkpoints/model_{}.pt", **options: Any) -> tuple[Any, Reader]:
    reader = Reader(pattern)
    return pawl.recipes.load_checkpoint("checkpoints", **options)(reader), reader


def flip(path: str | Path, at: int = 5) -> None:
    content = bytearray(Path(path).read_bytes())
    content[at] ^= 1
    Path(path).write_bytes(content)
