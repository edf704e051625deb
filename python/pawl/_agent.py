"""Finds the `pawl` program, which the C library starts as the agent of a plain script.

Order: $PAWL_PROGRAM, the file that this package's installation recorded, the interpreter's own
scripts directory, $PATH.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator

from pawl.errors import error


def find_program() -> str | None:
    """Absolute path of the program, or None if there is none.

    Raises PawlError (PAWL_EINVAL) if $PAWL_PROGRAM names something else.
    """
    named = os.environ.get("PAWL_PROGRAM")
    if named:
        if not _is_program(named):
            raise error("PAWL_EINVAL", f"PAWL_PROGRAM={named} is not an executable file")
        return os.path.abspath(named)
    return next((path for path in _candidates() if _is_program(path)), None)


def _candidates() -> Iterator[str]:
    yield from _recorded()
    yield os.path.join(sysconfig.get_path("scripts"), "pawl")
    on_path = shutil.which("pawl")
    if on_path:
        yield os.path.abspath(on_path)


def _recorded() -> Iterator[str]:
    """The program as listed in the installed package's RECORD, wherever pip put it."""
    import importlib.metadata  # 10 ms, so not with the package

    try:
        files = importlib.metadata.files("pawl") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "pawl" and file.parent.name == "bin":
            yield os.path.realpath(str(file.locate()))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
