"""A folder of checkpoints that the user's own functions write, and the records beside them.

A record is the guide's {prefix}_step_{step}_metadata.json (a rank r > 0: …_rank{r}_metadata.json)
with the size and CRC-32 of each file. The files have their names from the start, so it is the
record that publishes: it is written when they are synced, and what has none, or does not match it,
is no checkpoint. Files are never renamed: on a mounted bucket a rename is a copy, or impossible.
They are deleted before their record, so that a deletion that was cut short leaves a record that
matches nothing, and the next one ends it.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pawl.recipes import _steps

log = logging.getLogger("pawl")

FORMAT = 1  # version of the format of records
FILES_MAX = 100_000  # files below a folder, at most
TICK_S = 0.02  # longer than any tick of a local file system's clock
READ_BYTES = 1 << 20
SEALS_MAX = 3  # times that a file is read, at most, while its times change

_RECORD = re.compile(r"(.+)_step_(\d+)(?:_rank(\d+))?_metadata\.json")
_RANK = re.compile(r"rank[-_=]?(\d+)")
# Errors of a file system that lacks the operation.
_NO_SUCH_CALL = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM}

Stamp = tuple[int, int, int, int]  # inode, bytes, nanoseconds of modification and of change


class Unrecorded(Exception):
    """The files written are no checkpoint; the message says why."""


class File(NamedTuple):
    """A file of a checkpoint."""

    name: str  # relative to the folder
    size: int  # bytes
    crc32: str  # 8 hexadecimal digits
    writer: str  # the function that wrote it


class Record(NamedTuple):
    """The content of a metadata file."""

    step: int
    files: tuple[File, ...]
    ours: bool  # False: the guide's own decorator wrote it, without sizes and checksums


class Candidate(NamedTuple):
    """A step that may be loadable."""

    step: int
    names: tuple[str, ...]  # names of its files, as far as they are known
    record: Record | None  # None: there are only files whose names contain the step
    reason: str | None  # why it is no checkpoint; None: it may be one


class Owner(NamedTuple):
    """The owner of records: folder, prefix and rank."""

    folder: Path
    prefix: str
    rank: int


def look(folder: Path) -> dict[str, Stamp]:
    """Every file below folder except records and hidden ones, with the stamp that
    a write changes.
    """
    found: dict[str, Stamp] = {}
    for top, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(".") or _RECORD.fullmatch(name):
                continue
            path = os.path.join(top, name)
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                status = os.stat(path)
                found[os.path.relpath(path, folder)] = (
                    status.st_ino,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                )
        if len(found) > FILES_MAX:
            raise Unrecorded(
                f"more than {FILES_MAX} files lie below {folder}: give checkpoints a folder of "
                "their own"
            )
    return found


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def settle(before: dict[str, Stamp]) -> None:
    """Waits until a write to any of these files would change its stamp: clocks have ticks."""
    newest = max((stamp[3] for stamp in before.values()), default=0)
    if newest > time.time_ns() - TICK_S * 1e9:
        time.sleep(TICK_S)


def written(
    before: dict[str, Stamp], after: dict[str, Stamp], step: int | None, rank: int
) -> list[str]:
    """New or changed files, as far as this call wrote them.

    If some names contain the step, only those files: the rest is a log, or somebody else's. If some
    of these names contain the rank, files that name only other ranks are left out: these write at
    the same time.
    """
    changed = sorted(name for name, stamp in after.items() if before.get(name) != stamp)
    named = [name for name in changed if step is not None and _steps.has_step(name, step)]
    names = named or changed
    ranks = {name: {int(number) for number in _RANK.findall(name)} for name in names}
    if any(rank in numbers for numbers in ranks.values()):
        return [name for name in names if not ranks[name] or rank in ranks[name]]
    return names


# ---- records ----


def save(owner: Owner, step: int, names: list[str], writer: str, model_type: str | None) -> None:
    """Makes files durable, and then records them as a checkpoint. Files of the same step that
    another call wrote stay part of it. Raises OSError; Unrecorded if none of the files is there.
    """
    files = [file for name in names if (file := _seal(owner.folder, name, writer)) is not None]
    if not files:
        raise Unrecorded(f"no file was written below {owner.folder}")
    for folder in {parent for file in files for parent in _folders(owner.folder, file.name)}:
        _sync_folder(folder)
    path = owner.folder / _record_name(owner, step)
    names_written = {file.name for file in files}
    with contextlib.suppress(Unrecorded, FileNotFoundError):
        for file in read(path).files:
            kept = file.writer != writer or _mismatch(owner.folder, file) is None
            if file.name not in names_written and kept and (owner.folder / file.name).exists():
                files.append(file)
    _write_record(path, step, files, model_type)


def _seal(folder: Path, name: str, writer: str) -> File | None:
    """Syncs a file and computes its checksum; None if its content keeps changing: a
    process is writing to it.

    New times alone do not show that: a mounted bucket sets them when it has uploaded the file.
    """
    path = folder / name
    last: File | None = None
    for _ in range(SEALS_MAX):
        with open(path, "rb", buffering=0) as opened:
            before = os.fstat(opened.fileno())
            os.fsync(opened.fileno())
            file = File(name, before.st_size, _checksum(opened), writer)
        after = os.stat(path)
        if file == last or (before.st_size, before.st_mtime_ns) == (
            after.st_size,
            after.st_mtime_ns,
        ):
            return file
        last = file
    log.debug("%s is being written to: not part of the checkpoint", path)
    return None


def _checksum(file: Any) -> str:
    crc = 0
    while piece := file.read(READ_BYTES):
        crc = zlib.crc32(piece, crc)
    return f"{crc:08x}"


def _folders(folder: Path, name: str) -> Iterator[Path]:
    """The folder and the folders in it on the way to a file."""
    for parent in Path(name).parents:
        yield folder / parent


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as reason:  # without folder syncs, entries are as safe as they can be
        if reason.errno not in _NO_SUCH_CALL:
            raise
    finally:
        os.close(fd)


def _record_name(owner: Owner, step: int) -> str:
    rank = f"_rank{owner.rank}" if owner.rank > 0 else ""
    return f"{owner.prefix}_step_{step}{rank}_metadata.json"


def _write_record(
    path: Path, step: int, files: Iterable[File], model_type: str | None = None
) -> None:
    document = {
        "step": step,
        "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "model_type": model_type,
        "pawl": FORMAT,
        "files": [file._asdict() for file in files],
    }
    text = json.dumps(document, indent=1)
    temporary = path.with_name(f".{path.name}.new")  # one left by a crash is overwritten
    try:
        _write_synced(temporary, text)
        os.replace(temporary, path)
    except OSError as reason:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if reason.errno not in _NO_SUCH_CALL:
            raise
        _write_synced(path, text)  # no renaming here; a file that is cut short is not JSON
    _sync_folder(path.parent)


def _write_synced(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> Record:
    """Reads a record. Raises Unrecorded, saying why it is none; OSError."""
    match = _RECORD.fullmatch(path.name)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        step = document["step"]
        version = document.get("pawl")
        if not isinstance(step, int) or match is None or int(match[2]) != step:
            raise Unrecorded(f"{path.name} says step {step}")
        if version is None:
            return Record(step, (), ours=False)
        if version != FORMAT:
            raise Unrecorded(f"{path.name} is of version {version}, this Pawl knows {FORMAT}")
        files = tuple(
            File(str(f["name"]), int(f["size"]), str(f["crc32"]), str(f["writer"]))
            for f in document["files"]
        )
    except (ValueError, LookupError, TypeError, AttributeError) as reason:
        raise Unrecorded(f"{path.name} is damaged, or was not written to its end") from reason
    for file in files:
        if os.path.isabs(file.name) or ".." in Path(file.name).parts or not file.name:
            raise Unrecorded(f"{path.name} names {file.name!r}, outside of the folder")
    if not files:
        raise Unrecorded(f"{path.name} names no file")
    return Record(step, files, ours=True)


def _records(folder: Path, prefix: str) -> dict[int, dict[int, Path]]:
    """rank -> step -> metadata file."""
    found: dict[int, dict[int, Path]] = {}
    for name in os.listdir(folder):
        match = _RECORD.fullmatch(name)
        if match is not None and match[1] == prefix:
            found.setdefault(int(match[3] or 0), {})[int(match[2])] = folder / name
    return found


# ---- loading ----


def candidates(owner: Owner) -> list[Candidate]:
    """All steps, newest first: those of this rank's records, or the lowest rank's if it has none.

    Files without a record count only in a folder without records of Pawl's; elsewhere a save that
    did not end has left them.
    """
    if not owner.folder.is_dir():
        return []
    by_rank = _records(owner.folder, owner.prefix)
    paths = by_rank.get(owner.rank) or (by_rank[min(by_rank)] if by_rank else {})
    names = sorted(look(owner.folder))
    found = {step: _candidate(owner.folder, path, step, names) for step, path in paths.items()}
    ours = any(each.record is not None and each.record.ours for each in found.values())
    newest = max(found, default=-1)
    for step, files in _loose(owner, names).items():
        if step not in found and not ours:
            found[step] = Candidate(step, files, None, None)
        elif step > newest:
            reason = f"{files[0]} has no metadata: its save did not end"
            found[step] = Candidate(step, files, None, reason)
    return [found[step] for step in sorted(found, reverse=True)]


def _candidate(folder: Path, path: Path, step: int, names: list[str]) -> Candidate:
    try:
        record = read(path)
    except (Unrecorded, OSError) as reason:
        return Candidate(step, (), None, str(reason))
    if record.ours:
        recorded = tuple(file.name for file in record.files)
        return Candidate(step, recorded, record, _incomplete(folder, record))
    of_step = tuple(name for name in names if _steps.has_step(name, step))
    reason = None if of_step else f"{path.name} is there, but no file of this step"
    return Candidate(step, of_step, record, reason)


def _loose(owner: Owner, names: list[str]) -> dict[int, tuple[str, ...]]:
    """step -> files whose names end with it: {prefix}_step_5.pt, or else model_5.pt."""
    exact: dict[int, tuple[str, ...]] = {}
    other: dict[int, tuple[str, ...]] = {}
    recorded = _recorded(owner.folder)
    for name in names:
        step = _steps.trailing(name)
        if step is None or not name.endswith(".pt") or name in recorded:
            continue
        stem = Path(name).stem
        if re.fullmatch(rf"{re.escape(owner.prefix)}_step_\d+", stem):
            exact[step] = (*exact.get(step, ()), name)
        elif re.fullmatch(r".+_step_\d+", stem) is None:  # has another prefix
            other[step] = (*other.get(step, ()), name)
    return exact or other


def _recorded(folder: Path, but: tuple[str, int] | None = None) -> set[str]:
    """Every file that a record in the folder names, without those of the prefix
    and step ``but``.
    """
    found: set[str] = set()
    for name in os.listdir(folder):
        match = _RECORD.fullmatch(name)
        if match is not None and (match[1], int(match[2])) != but:
            with contextlib.suppress(Unrecorded, OSError):
                found.update(file.name for file in read(folder / name).files)
    return found


def _incomplete(folder: Path, record: Record) -> str | None:
    """Which files are missing, by names and sizes alone; None if none is."""
    return next((why for file in record.files if (why := _mismatch(folder, file))), None)


def _mismatch(folder: Path, file: File) -> str | None:
    try:
        size = os.stat(folder / file.name).st_size
    except OSError as reason:
        return f"{file.name}: {reason.strerror}"
    return None if size == file.size else f"{file.name} has {size} bytes, {file.size} were written"


def damage(folder: Path, candidate: Candidate) -> str | None:
    """Reads all of a checkpoint; returns the damage found, or None. Without a
    record it is accepted.
    """
    for file in candidate.record.files if candidate.record is not None else ():
        try:
            with open(folder / file.name, "rb", buffering=0) as opened:
                crc = _checksum(opened)
        except OSError as reason:
            return f"{file.name}: {reason.strerror}"
        if crc != file.crc32:
            return f"{file.name} is damaged: its checksum is {crc}, written was {file.crc32}"
    return None


# ---- retention ----


def prune(owner: Owner, world: int, step: int, writer: str, keep: int) -> None:
    """Deletes files that a function wrote for steps before the newest ``keep`` that every rank has.

    Never deletes those of ``step``, the one just saved; only files that their
    record names, and no other step's does.
    """
    by_rank = _records(owner.folder, owner.prefix)
    mine: dict[int, tuple[Path, Record]] = {}
    for at, path in by_rank.get(owner.rank, {}).items():
        with contextlib.suppress(Unrecorded, OSError):
            record = read(path)
            if any(file.writer == writer for file in record.files):
                mine[at] = (path, record)
    common = {at for at, (_, record) in mine.items() if _incomplete(owner.folder, record) is None}
    for rank, paths in by_rank.items():
        if rank < world:
            common &= paths.keys()
    newest = sorted(common)[-keep:]
    if len(newest) == keep:
        for at in sorted(mine):
            if at < newest[0] and at != step:
                _drop(owner, *mine[at], writer)


def _drop(owner: Owner, path: Path, record: Record, writer: str) -> None:
    """Deletes a step of one rank. Records of other ranks for this step protect
    nothing: all are to go.
    """
    shared = _recorded(owner.folder, but=(owner.prefix, record.step))
    rest = [file for file in record.files if file.writer != writer]
    for file in record.files:
        if file.writer == writer and file.name not in shared:
            (owner.folder / file.name).unlink(missing_ok=True)
            for parent in Path(file.name).parents[:-1]:
                try:
                    (owner.folder / parent).rmdir()
                except OSError:  # not empty: other files lie there
                    break
    if rest:
        _write_record(path, record.step, rest)
    else:
        path.unlink(missing_ok=True)
