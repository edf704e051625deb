"""Checkpoints to and from other formats: safetensors, torch.distributed.checkpoint, torch.save.

These are `pawl ckpt export` and `pawl ckpt import`, run in processes of their own: their output
appears when all of it is whole and durable, and on any failure nothing is left. docs/ckpt.md says
what each format can hold.

``root`` is a directory of checkpoints, ``tag`` the name of one or its step (None: the newest
complete one), ``dest`` a directory, which may exist if none of its files has to be replaced
(``force=True`` replaces them). ``partition`` takes only the partition of that name.

All raise PawlError: PAWL_ENOENT (nothing there), PAWL_ECORRUPT (damaged), PAWL_EBUSY (a job is
using the root), PAWL_EINVAL, and PAWL_EIO for all other failures, with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pawl._agent import find_program
from pawl.errors import error

__all__ = ["from_dcp", "from_safetensors", "from_torch", "to_dcp", "to_safetensors", "to_torch"]

Where = str | os.PathLike[str]
_ERRORS: Final = {2: "PAWL_EINVAL", 3: "PAWL_ENOENT", 4: "PAWL_ECORRUPT", 75: "PAWL_EBUSY"}


def to_safetensors(
    root: Where,
    dest: Where,
    tag: str | int | None = None,
    *,
    partition: str | None = None,
    force: bool = False,
) -> list[str]:
    """Writes ``<partition>.safetensors`` for each partition. Returns the names of the files.

    The values beside the tensors, and the nesting, stand in each file's metadata.
    """
    return _export("safetensors", root, dest, tag, partition, force)


def to_dcp(
    root: Where,
    dest: Where,
    tag: str | int | None = None,
    *,
    partition: str | None = None,
    force: bool = False,
) -> list[str]:
    """Writes one DCP checkpoint, with the partitions as its top keys. Returns the
    names of the files.
    """
    return _export("dcp", root, dest, tag, partition, force)


def to_torch(
    root: Where,
    dest: Where,
    tag: str | int | None = None,
    *,
    partition: str | None = None,
    force: bool = False,
) -> list[str]:
    """Copies the files, which ``torch.load`` reads as they are. Returns their names."""
    return _export("torch", root, dest, tag, partition, force)


def from_safetensors(
    source: Where, root: Where, step: int, *, partition: str | None = None, force: bool = False
) -> str:
    """Makes the checkpoint of ``step`` from a file, or all files of a directory. Returns its tag.

    A file becomes the partition of its name; ``model-00001-of-00002.safetensors`` and the like
    become one. ``force`` replaces a checkpoint of that step.
    """
    return _import("safetensors", source, root, step, partition, force)


def from_dcp(
    source: Where,
    root: Where,
    step: int,
    *,
    partition: str | None = None,
    trust: bool = False,
    force: bool = False,
) -> str:
    """Makes the checkpoint of ``step`` from a DCP checkpoint. Returns its tag.

    The top keys become partitions; with ``partition`` the whole becomes that one. ``trust`` lets
    pickled objects in it run code.
    """
    return _import("dcp", source, root, step, partition, force, trust=trust)


def from_torch(
    source: Where,
    root: Where,
    step: int,
    *,
    partition: str | None = None,
    split: bool = False,
    trust: bool = False,
    force: bool = False,
) -> str:
    """Makes the checkpoint of ``step`` from files of torch.save. Returns its tag.

    Arguments as of ``from_safetensors``. ``split``: the keys of a file's dict become partitions;
    ``trust`` lets pickled objects run code.
    """
    return _import("torch", source, root, step, partition, force, trust=trust, split=split)


def _export(
    to: str,
    root: Where,
    dest: Where,
    tag: str | int | None,
    partition: str | None,
    force: bool,
) -> list[str]:
    arguments = ["export", "--to", to, *_options(partition, force=force), "--", os.fspath(root)]
    if tag is not None:
        arguments.append(str(tag))
    return list(_run([*arguments, os.fspath(dest)])["files"])


def _import(
    kind: str,
    source: Where,
    root: Where,
    step: int,
    partition: str | None,
    force: bool,
    **flags: bool,
) -> str:
    options = ["--from", kind, "--step", str(step), *_options(partition, force=force, **flags)]
    return str(_run(["import", *options, "--", os.fspath(source), os.fspath(root)])["tag"])


def _options(partition: str | None, **flags: bool) -> list[str]:
    named = [f"--partition={partition}"] if partition is not None else []
    return named + [f"--{name}" for name, on in flags.items() if on]


def _run(arguments: list[str]) -> Any:
    """Runs `pawl ckpt`, and returns the document that it prints."""
    program = find_program()
    if program is None:
        raise error("PAWL_ENOENT", "the pawl program was not found: set PAWL_PROGRAM to its path")
    # Directory in which the interpreter finds this package.
    package_dir = str(Path(__file__).parent.parent)
    path = os.environ.get("PYTHONPATH")
    done = subprocess.run(
        [program, "ckpt", arguments[0], "--json", "--python", sys.executable, *arguments[1:]],
        env={
            **os.environ,
            "PYTHONPATH": f"{package_dir}{os.pathsep}{path}" if path else package_dir,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise error(_ERRORS.get(done.returncode, "PAWL_EIO"), done.stderr.strip())
    return json.loads(done.stdout)
