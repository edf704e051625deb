"""Takes the files that a framework writes into a checkpoint's folder, before they are written.

Frameworks write tensors by torch.save and safetensors.torch.save_file, and everything else (JSON,
vocabularies) by other means, as small files. So the two functions are replaced for the length of a
save: objects that they are to write into the folder are kept, whose tensors are still the live
ones, and the other files are read from the folder, which is a temporary one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

from pawl.engine import AsIs, Raw, Safetensors
from pawl.errors import PawlError

Files = dict[str, Any]  # path in the folder -> AsIs (of torch.save), Safetensors, or Raw

# Modules that have save_file of safetensors under a name of their own.
_ALIASES: Final = {
    "safetensors.torch": "save_file",
    "transformers.modeling_utils": "safe_save_file",
    "accelerate.utils.other": "safe_save_file",
}


@contextlib.contextmanager
def capture(folder: Path) -> Iterator[Files]:
    """Fills the dict with the files that are written into folder until the end of the block.

    Only calls of this thread are taken. Files in folders of the folder have names like
    "adapter/config.json". Links are followed. An empty folder leaves no trace.

    Raises PawlError if the folder holds anything that cannot be part of a
    checkpoint, such as a FIFO.
    """
    files: Files = {}
    thread = threading.get_ident()

    def taken(path: Any, value: Any) -> bool:
        if threading.get_ident() != thread or not isinstance(path, (str, os.PathLike)):
            return False
        target = Path(os.path.normpath(path))
        if not target.is_relative_to(folder):
            return False
        files[target.relative_to(folder).as_posix()] = value
        return True

    with contextlib.ExitStack() as undo:
        _replace_torch_save(undo, taken)
        _replace_save_file(undo, taken)
        yield files
    for path in _walk(folder, ()):
        files[path.relative_to(folder).as_posix()] = Raw(path.read_bytes())


def _walk(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """The files in a folder; above: the folders that it lies in."""
    real = folder.resolve()
    if real in above:
        raise PawlError(f"{folder}: a link to a folder that it lies in cannot be saved")
    for path in folder.iterdir():
        if path.is_dir():
            yield from _walk(path, (*above, real))
        elif path.is_file():
            yield path
        else:
            raise PawlError(
                f"{path}: neither a file nor a folder, nor a link to one: cannot be saved"
            )


def _replace_torch_save(undo: contextlib.ExitStack, taken: Any) -> None:
    original = torch.save

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if not taken(f, AsIs(obj)):
            original(obj, f, *args, **kwargs)

    torch.save = save
    undo.callback(setattr, torch, "save", original)


def _replace_save_file(undo: contextlib.ExitStack, taken: Any) -> None:
    import safetensors.torch

    original = safetensors.torch.save_file

    def save_file(tensors: Any, filename: Any, metadata: dict[str, str] | None = None) -> None:
        try:
            done = taken(filename, Safetensors(tensors, metadata))
        except PawlError:  # a dtype that only safetensors itself knows
            done = False
        if not done:
            original(tensors, filename, metadata)

    for name, attribute in _ALIASES.items():
        module = sys.modules.get(name)
        if module is not None and getattr(module, attribute, None) is original:
            setattr(module, attribute, save_file)
            undo.callback(setattr, module, attribute, original)
