"""Drop-in names: the provider of each of them here, and how to change it.

The names and their finders are in ``_pawl_compat``; the modules that stand in lie beside this file.
"""

from __future__ import annotations

import importlib.metadata
import os
import site
import sys
from typing import NamedTuple

import _pawl_compat

STUBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stubs")


class Name(NamedTuple):
    """A drop-in name as it stands in this interpreter."""

    name: str
    provider: str  # "pawl", "other", or "none"
    path: str | None  # file of the module, if another package provides it, or could
    package: str | None  # name and version of the other package, if it was installed as one
    choice: str | None  # "pawl", "other", "off"; None: no choice was made
    chosen_in: str | None  # the file, or the variable's name


def names() -> list[Name]:
    """All drop-in names, in alphabetical order. Imports none of them."""
    chosen = _pawl_compat.choices()
    return [_describe(name, *chosen.get(name, (None, None))) for name in sorted(_pawl_compat.NAMES)]


def _describe(name: str, choice: str | None, chosen_in: str | None) -> Name:
    other = _pawl_compat.find_other(name)
    path = _pawl_compat.where(other) if other is not None else None
    package = _package(name) if other is not None else None
    if other is not None and choice != "pawl":
        provider = "other"
    else:
        provider = "none" if choice == "off" else "pawl"
    return Name(name, provider, path, package, choice, chosen_in)


def _package(name: str) -> str | None:
    found = importlib.metadata.packages_distributions().get(name, [])
    return ", ".join(f"{each} {importlib.metadata.version(each)}" for each in found) or None


def found_by() -> str | None:
    """How a script finds the names: ``"start"``, ``"stubs"``, or None: not before
    ``import pawl``.
    """
    if _pawl_compat.at_start:
        return "start"
    stubs = os.path.realpath(STUBS)
    return "stubs" if any(os.path.realpath(entry) == stubs for entry in sys.path) else None


# Stands in a .pth file after the line with our folder, and installs the finders.
LINE = "import _pawl_compat; _pawl_compat.install(starting=True)"


def named_by() -> str | None:
    """The .pth file of this Python installation that names the folder of Pawl; None: there is none.

    A folder that such a file adds to sys.path is no site directory, so .pth files
    in it are not read.
    """
    ours = os.path.realpath(os.path.dirname(_pawl_compat.FILE))
    for folder in [*site.getsitepackages(), site.getusersitepackages()]:
        if os.path.realpath(folder) == ours or not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".pth") and ours in _folders_in(path):
                return path
    return None


def _folders_in(path: str) -> list[str]:
    """The folders that a .pth file names, as real paths."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    above = os.path.dirname(path)
    return [os.path.realpath(os.path.join(above, line.rstrip())) for line in lines if line.strip()]


def use(name: str, choice: str) -> None:
    """Chooses the provider of a name from the next start of Python on, for this
    installation of Pawl.

    ``"pawl"``: Pawl, even where another package has the name. ``"other"``: that package; Pawl where
    there is none. ``"off"``: never Pawl. PAWL_COMPAT in the environment takes precedence.

    Raises ValueError, OSError.
    """
    if name not in _pawl_compat.NAMES:
        raise ValueError(f"{name} is none of {', '.join(sorted(_pawl_compat.NAMES))}")
    if choice not in _pawl_compat.CHOICES:
        raise ValueError(f"{choice} is none of {', '.join(_pawl_compat.CHOICES)}")
    file = _pawl_compat.FILE
    in_file = {key: kept for key, kept, source in _pawl_compat.settings() if source == file}
    in_file[name] = choice
    lines = [f"{key}={value}\n" for key, value in sorted(in_file.items())]
    temporary = f"{file}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as out:
            out.write("".join(lines))
        os.replace(temporary, file)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def strange() -> list[str]:
    """Meaningless entries in the file or the variable, as "PAWL_COMPAT: nebulaml=on"."""
    known = ("", *_pawl_compat.NAMES)
    return [
        f"{source}: {name}={choice}" if name else f"{source}: {choice}"
        for name, choice, source in _pawl_compat.settings()
        if choice not in _pawl_compat.CHOICES or name not in known
    ]
