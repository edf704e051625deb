"""Histories of a root in a bucket: its small files, copied so that they are read as others are."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from pawl import _core
from pawl._report import _history, _training

_FILES = (
    _history.HISTORY_FILE,
    _history.EVENTS_FILE,
    *(name.replace(".csv", ".old.csv") for name in (_history.HISTORY_FILE, _history.EVENTS_FILE)),
    _training.FILE,
)
_addresses: dict[str, str] = {}  # folder of copies -> address


def place(text: str) -> Path:
    """The directory of a root: a path, or that of the copies, gone when the process ends.

    Raises PawlError: the address is wrong, or the bucket cannot be read.
    """
    address = _core.bucket_name(text)
    if address is None:
        return Path(text)
    above = Path(tempfile.mkdtemp(prefix="pawl-report-")).resolve()
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    folder = above / address.partition("?")[0].rpartition("/")[2]
    folder.mkdir()
    for name in _FILES:
        content = _core.read_file(address, name)
        if content is not None:
            (folder / name).write_bytes(content)
    _addresses[str(folder)] = address
    return folder


def named(text: object) -> str:
    """The text with addresses in place of the folders of their copies."""
    said = str(text)
    for folder, address in _addresses.items():
        said = said.replace(folder, address)
    return said
