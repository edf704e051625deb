"""Finds the checkpoint to load: the newest one that is whole.

Checkpoints that Pawl wrote are verified byte by byte. Those that the framework wrote itself have no
checksums, but a form: each file that belongs to it must be there and end where its own directory
says. (If the optimizer's file is missing, Trainer starts a new one and logs nothing.) Flipped
bytes inside of safetensors are not detected then.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch.distributed

from pawl import _core
from pawl.engine import beside
from pawl.errors import PawlError, error

log = logging.getLogger("pawl")

_ASIDE_KEPT: Final = 3  # checkpoints put aside that are kept, the newest
_WEIGHTS: Final = ("model", "pytorch_model", "adapter_model")
_ENDINGS: Final = (".safetensors", ".bin")
# Bytes of a safetensors header, at most, as that package limits it.
_HEADER_BYTES_MAX: Final = 100_000_000


def numbered(root: Path, pattern: re.Pattern[str]) -> list[Path]:
    """The folders in root that pattern matches, the highest number first."""
    found = [(pattern.match(path.name), path) for path in root.iterdir()] if root.is_dir() else []
    matched = [(int(match[1]), path) for match, path in found if match and path.is_dir()]
    return [path for _, path in sorted(matched, reverse=True)]


def choose(
    candidates: Callable[[], Sequence[Path]], needed: Sequence[str], rank: int, aside: bool
) -> Path:
    """The first of candidates() that is whole; rank 0 decides for all ranks.

    ``needed``: files that a framework's own checkpoint must have. ``aside``: refused checkpoints
    are put aside, so that nothing takes them for the newest. Raises PawlError (PAWL_ENOENT) with
    all reasons if none is whole.
    """
    answer: list[Any] = [None, []]  # the folder, and the reasons why others are not taken
    if rank == 0:
        for folder in candidates():
            why = why_refused(folder, needed)
            if why is None:
                answer[0] = folder
                break
            log.warning("%s is not loaded: %s", folder, why)
            answer[1].append(f"{folder}: {why}")
            if aside and folder.is_dir():
                _put_aside(folder, why)
    folder, reasons = agree(lambda: answer, rank == 0)
    if folder is None:
        raise error("PAWL_ENOENT", "no checkpoint can be loaded: " + "; ".join(reasons))
    return folder


def agree(look: Callable[[], Any], first: bool) -> Any:
    """The result of look() at rank 0, at all ranks. ``first``: this is rank 0."""
    answer = [look() if first else None]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(answer, src=0)
    return answer[0]


def hide(folder: Path, name: str) -> Path:
    """Takes a checkpoint away from among the others in one instant; returns its new place."""
    hidden = Path(beside(folder.parent))
    hidden.mkdir(exist_ok=True)
    target = hidden / name
    shutil.rmtree(target, ignore_errors=True)
    return folder.rename(target)


def let_go(folder: Path) -> Path:
    """Hides a checkpoint that is to be deleted, under a name that the next agent
    would delete as well.
    """
    return hide(folder, f".pawl.{folder.name}.del")


def _put_aside(folder: Path, why: str) -> None:
    """Puts a checkpoint aside; the last few are kept for inspection."""
    aside = hide(folder, f"{folder.name}.refused")
    (aside / "why.txt").write_text(f"{why}\n", encoding="utf-8")
    old = sorted(aside.parent.glob("*.refused"), key=lambda path: path.stat().st_mtime_ns)
    for path in old[:-_ASIDE_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def why_refused(folder: Path, needed: Sequence[str]) -> str | None:
    """Why a checkpoint is refused, or None. needed: as for choose."""
    if not folder.is_dir():
        return "is not there"
    if (folder / ".pawl").is_dir():
        return _why_damaged(folder)
    return _why_broken(folder, needed)


def _why_damaged(folder: Path) -> str | None:
    """Why a checkpoint is damaged, or None: reads and verifies every byte; one file
    at a time is in memory.
    """
    try:
        at, count = 0, 1
        while at < count:
            found = _core.open_root(str(folder.parent), folder.name)
            try:
                count = len(found.parts)
                found.read([at])
            finally:
                found.close()
            at += 1
    except PawlError as reason:
        return str(reason)
    return None


def _why_broken(folder: Path, needed: Sequence[str]) -> str | None:
    for name in needed:
        if not (folder / name).is_file():
            return f"{name} is missing"
    weights = [folder / f"{stem}{end}" for stem in _WEIGHTS for end in _ENDINGS]
    indices = [path.with_name(f"{path.name}.index.json") for path in weights]
    if not any(path.is_file() for path in [*weights, *indices]):
        return "the weights are missing"
    for path in sorted(folder.iterdir()):
        why = _why_broken_file(path)
        if why is not None:
            return f"{path.name} {why}"
    return None


def _why_broken_file(path: Path) -> str | None:
    if path.suffix == ".json":
        return _why_broken_json(path)
    if path.suffix == ".safetensors":
        return _why_broken_safetensors(path)
    if path.suffix in (".pt", ".pth", ".bin", ".pkl"):
        return _why_broken_zip(path)
    return None


def _why_broken_json(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as reason:
        return f"is cut off or damaged ({reason})"
    if path.name.endswith(".index.json"):
        for name in sorted(set(content["weight_map"].values())):
            if not (path.parent / name).is_file():
                return f"names {name}, which is missing"
    return None


def _why_broken_safetensors(path: Path) -> str | None:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, _HEADER_BYTES_MAX)))
    except (ValueError, struct.error) as reason:
        return f"is cut off or damaged ({reason})"
    tensors = [value for name, value in header.items() if name != "__metadata__"]
    end = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
    return None if size == end else f"has {size} bytes, its header says {end}"


def _why_broken_zip(path: Path) -> str | None:
    """Why a zip is broken, or None. torch.save's files are zips, with a checksum
    for each storage.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, OSError) as reason:
        return f"is cut off or damaged ({reason})"
    return f"is damaged in {bad}" if bad else None
