"""The kind of file system a path lies on, to warn of those that do not outlive the machine."""

from __future__ import annotations

import os

_FLEETING = {
    "tmpfs": "in memory (tmpfs): a restart of the machine loses them",
    "ramfs": "in memory (ramfs): a restart of the machine loses them",
    "overlay": "in the container's own layer (overlay): they go with the container",
}


def fleeting(path: str) -> str | None:
    """Why files under path will not last; None if no reason is known.

    Never raises. A path that does not exist yet is judged by its nearest existing parent.
    """
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return None
    real = os.path.realpath(path)
    best, kind = "", ""
    for fields in lines:
        where = fields[1].encode().decode("unicode_escape")
        inside = real == where or real.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):  # the later of two mounts on a directory is visible
            best, kind = where, fields[2]
    return _FLEETING.get(kind)
