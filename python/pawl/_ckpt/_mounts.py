"""Where a root is: in a bucket, or on a file system that may not outlive the machine."""

from __future__ import annotations

import os
import re

from pawl import _core
from pawl.errors import error

_HALVED = re.compile(r"(s3|gs|azure|abfss?):/[^/]", re.IGNORECASE)
_FLEETING = {
    "tmpfs": "in memory (tmpfs): a restart of the machine loses them",
    "ramfs": "in memory (ramfs): a restart of the machine loses them",
    "overlay": "in the container's own layer (overlay): they go with the container",
}


def root_name(root: str | os.PathLike[str]) -> str:
    """The name by which all processes know a root: an absolute path, or a bucket's address.

    Raises PawlError: PAWL_EINVAL (an address that is wrong), PAWL_ENOTSUP (another scheme).
    """
    path = os.fspath(root)
    if _HALVED.match(path):
        raise error(
            "PAWL_EINVAL",
            f"root {path}: a Path cannot hold a bucket's address, as it joins slashes: pass a str",
        )
    bucket = _core.bucket_name(path)
    if bucket is None and "://" in path:
        raise error(
            "PAWL_ENOTSUP",
            f"root {path}: checkpoints lie in a directory, or in a bucket: s3://BUCKET/PREFIX",
        )
    return os.path.abspath(path) if bucket is None else bucket


def is_bucket(root: str) -> bool:
    """Whether a root, named as root_name does, lies in a bucket."""
    return "://" in root


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
