"""The process that reads and writes other formats for `pawl ckpt export` and `import`.

Run as `python -m pawl._convert export FORMAT ROOT TAG DIR PARTITION` or `... import FORMAT SOURCE
PARTITION SPLIT TRUST`, where an empty argument stands for none. It reports on descriptor 3, a JSON
object a line; src/cli/ckpt/convert.h and src/cli/ckpt/ckpt_import.c have the other end.

safetensors: a file a partition. The values beside the tensors, and how all is nested, stand in the
file's metadata (_structure), so that importing it gives back the object that was exported; files
without such metadata become a dict of name -> tensor.

DCP: one checkpoint, whose top keys are the partitions, nested as they are: torch itself would write
the same. The same structure stands under one more key, because DCP makes every key a str, forgets
empty dicts and does not know tied tensors.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import enum
import json
import logging
import os
import pathlib
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch.serialization import _get_restore_location

from pawl import _core
from pawl._ckpt import _safe
from pawl._ckpt._skeleton import Partition
from pawl._ckpt._structure import flatten, rebuild
from pawl.errors import PawlError, error
from pawl.loading import load_part

CHANNEL_FD: Final = 3
METADATA_KEY: Final = "pawl"  # key in a safetensors file's metadata
STRUCTURE_KEY: Final = ".pawl"  # key in a DCP checkpoint: no partition has such a name
STRUCTURE_VERSION: Final = 1
HEADER_MAX: Final = 100_000_000  # bytes of a header, at most, that safetensors reads
WRITE_BYTES: Final = 1 << 24  # bytes written at a time
_SUFFIX: Final = re.compile(r"\.(pt|pth|bin|ckpt|safetensors)$")


class Channel:
    """The descriptor from which the program reads messages."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, **message: Any) -> None:
        self.write((json.dumps(message) + "\n").encode())

    def write(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view[:WRITE_BYTES]) :]


def main() -> int:
    """Executes the command line. Returns the exit code."""
    channel = Channel(CHANNEL_FD)
    warnings.simplefilter("ignore")  # torch's warnings about itself; failures are reported below
    logging.disable(logging.CRITICAL)
    try:
        if sys.argv[1] == "export":
            _export(channel, *sys.argv[2:])
        else:
            _import(channel, *sys.argv[2:])
    except PawlError as reason:
        channel.send(error=reason.name, message=str(reason))
        return 1
    except FileNotFoundError as reason:
        channel.send(error="PAWL_ENOENT", message=f"{reason.filename}: {reason.strerror}")
        return 1
    except MemoryError:
        channel.send(error="PAWL_ENOMEM", message="not enough memory for a partition")
        return 1
    except Exception as reason:  # other packages raise all kinds of exceptions
        text = str(reason).strip().splitlines()
        channel.send(
            error="PAWL_EIO",
            message=f"{type(reason).__name__}: {text[0] if text else 'no reason given'}",
        )
        return 1
    channel.send(done=True)
    return 0


# ---- export ----


def _export(channel: Channel, to: str, root: str, tag: str, folder: str, partition: str) -> None:
    values = _read_partitions(channel, root, tag, partition)
    if to == "safetensors":
        for name, value in values:
            path = os.path.join(folder, f"{name}.safetensors")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _write_safetensors(channel, name, value, path)
            channel.send(file=f"{name}.safetensors")
    else:
        _write_dcp(dict(values), folder)
        for name in sorted(os.listdir(folder)):
            channel.send(file=name)


def _read_partitions(
    channel: Channel, root: str, tag: str, partition: str
) -> Iterator[tuple[str, Any]]:
    """(file name, object) of each file, verified; only the last one given is in memory."""
    found = _core.open_root(root, tag)
    rows = list(enumerate(zip(found.parts, found.files, strict=True)))
    found.close()
    wanted = [row for row in rows if not partition or row[1][0][0] == partition]
    total = sum(size for _, ((_, _, size), _) in wanted)
    done = 0
    for index, ((_, _, size), (file, raw)) in wanted:
        channel.send(progress=[done, total], name=file)
        if raw:
            channel.send(note=f"{file} is not a Python object, and is left out")
        else:
            yield file, _read_partition(root, tag, index, file)
        done += size
    channel.send(progress=[done, total], name="")


def _read_partition(root: str, tag: str, index: int, file: str) -> Any:
    found = _core.open_root(root, tag)
    try:
        found.read([index])
        return load_part(found, index, f"{tag}/{file}", _get_restore_location("cpu"), False)
    finally:
        found.close()


def _write_safetensors(channel: Channel, name: str, value: Any, path: str) -> None:
    torch_format = _safetensors()
    flat = flatten(value, name)
    for key, tensor in flat.tensors.items():
        if not _is_supported(tensor.dtype):
            raise error(
                "PAWL_ENOTSUP",
                f"{name}: {key} is of {tensor.dtype}, which safetensors does not support",
            )
    if flat.overlaps:
        listed = ", ".join(flat.overlaps[:8]) + (", ..." if len(flat.overlaps) > 8 else "")
        channel.send(note=f"{name}: {listed} share memory, and are written separately")
    apart = set(flat.overlaps)
    tensors = {
        key: tensor.clone(memory_format=torch.contiguous_format)
        if key in apart
        else tensor.contiguous()
        for key, tensor in flat.tensors.items()
    }
    structure = json.dumps({"version": STRUCTURE_VERSION, "value": flat.structure})
    if len(structure) > HEADER_MAX // 2:
        raise error(
            "PAWL_ENOTSUP",
            f"{name}: its values beside the tensors take {len(structure)} bytes as text, which is "
            "too much for the header of a safetensors file",
        )
    torch_format.save_file(tensors, path, {"format": "pt", METADATA_KEY: structure})
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, 0o666 & ~umask)  # safetensors makes it readable for its owner alone


def _is_supported(dtype: torch.dtype) -> bool:
    """Whether the installed safetensors can hold the dtype."""
    try:
        _safetensors().save({"x": torch.empty(0, dtype=dtype, device="cpu")})
    except Exception:  # KeyError or SafetensorError, depending on the version
        return False
    return True


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as reason:
        raise error(
            "PAWL_ENOTSUP", f"safetensors is not installed for {sys.executable}"
        ) from reason
    return safetensors.torch


def _write_dcp(values: dict[str, Any], folder: str) -> None:
    import torch.distributed.checkpoint as dcp

    structure = {name: flatten(value, name).structure for name, value in values.items()}
    text = json.dumps({"version": STRUCTURE_VERSION, "value": structure})
    try:
        dcp.save(
            {**values, STRUCTURE_KEY: text},
            storage_writer=dcp.FileSystemWriter(folder),
            no_dist=True,
        )
    except dcp.CheckpointException as reason:  # not an Exception; its text is complete
        raise error("PAWL_EIO", f"DCP cannot write it: {_last_line(reason)}") from reason


# ---- import ----


def _import(
    channel: Channel, kind: str, source: str, partition: str, split: str, trust: str
) -> None:
    kind = kind or _guess(source)
    if kind == "dcp":
        channel.send(total=sum(entry.stat().st_size for entry in os.scandir(source)))
        found = _top_keys(_read_dcp(source, bool(trust)), source, partition)
    else:
        is_wanted = _is_safetensors if kind == "safetensors" else _is_torch
        files = _list_files(channel, source, is_wanted)
        channel.send(total=sum(os.path.getsize(path) for path in files))
        read = _read_safetensors if kind == "safetensors" else _read_torch
        groups = _group(files)
        if partition and len(groups) > 1:
            raise error(
                "PAWL_EINVAL", f"{source} has {len(groups)} files: they cannot be one partition"
            )
        found = ((name, read(paths, bool(trust))) for name, paths in groups.items())
        if partition:
            found = ((partition, value) for _, value in found)
        elif split:
            found = _split(found, source)
    for name, value in found:
        _send(channel, name, value, bool(trust))


def _guess(source: str) -> str:
    if os.path.exists(os.path.join(source, ".metadata")):
        return "dcp"
    if os.path.isdir(source):
        names = os.listdir(source)
        return "safetensors" if any(n.endswith(".safetensors") for n in names) else "torch"
    return "safetensors" if _is_safetensors(source) else "torch"


def _is_safetensors(path: str) -> bool:
    return path.endswith(".safetensors")


def _is_torch(path: str) -> bool:
    if zipfile.is_zipfile(path):
        return True
    with open(path, "rb") as file:  # files of torch before 1.6 begin with a pickle
        return file.read(2) in (b"\x80\x02", b"\x80\x03", b"\x80\x04")


def _list_files(channel: Channel, source: str, is_wanted: Callable[[str], bool]) -> list[str]:
    if not os.path.isdir(source):
        os.stat(source)
        return [source]
    paths = []
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.name.startswith(".") or not entry.is_file() or entry.name == "complete.txt":
            continue
        if is_wanted(entry.path):
            paths.append(entry.path)
        elif not entry.name.endswith(".index.json"):
            channel.send(note=f"{entry.path} is left out")
    return paths


def _group(paths: list[str]) -> dict[str, list[str]]:
    """Files by partition: "model-00001-of-00002.safetensors" and the like belong to one."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        stem = _SUFFIX.sub("", os.path.basename(path))
        groups.setdefault(re.sub(r"-\d{5}-of-\d{5}$", "", stem), []).append(path)
    return groups


def _read_torch(paths: list[str], trust: bool) -> Any:
    values = [_load_torch(path, trust) for path in paths]
    return values[0] if len(values) == 1 else _merge(values, paths)


def _load_torch(path: str, trust: bool) -> Any:
    mapped = zipfile.is_zipfile(path)  # older files are read into memory
    with contextlib.nullcontext() if trust else _safe.extended_globals():
        try:
            return torch.load(path, map_location="cpu", weights_only=not trust, mmap=mapped)
        except pickle.UnpicklingError as refusal:
            reason = re.search(r"GLOBAL (\S+)", str(refusal))
            what = f"{reason[1]} in it" if reason else "it"
            raise error(
                "PAWL_ENOTSUP", f"{path}: {what} would run code, which --trust allows"
            ) from refusal
        except (OSError, MemoryError):
            raise
        except Exception as reason:  # any exception: the damaged bytes decide which
            raise error("PAWL_ECORRUPT", f"{path}: torch cannot read it: {reason!r}") from reason


def _read_safetensors(paths: list[str], trust: bool) -> Any:
    values = [_load_safetensors(path) for path in paths]
    return values[0] if len(values) == 1 else _merge(values, paths)


def _load_safetensors(path: str) -> Any:
    module = _safetensors()
    import safetensors

    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
        tensors = module.load_file(path)
    except safetensors.SafetensorError as reason:
        raise error("PAWL_ECORRUPT", f"{path}: safetensors cannot read it: {reason}") from reason
    if METADATA_KEY not in metadata:
        return tensors
    return rebuild(_structure(metadata[METADATA_KEY], path), tensors, path)


def _structure(text: str, where: str) -> Any:
    try:
        document = json.loads(text)
        version = document["version"]
        value = document["value"]
    except (ValueError, TypeError, KeyError) as reason:
        raise error("PAWL_ECORRUPT", f"{where}: its structure is damaged") from reason
    if version != STRUCTURE_VERSION:
        raise error(
            "PAWL_ENOTSUP",
            f"{where}: structure of version {version}; this Pawl knows {STRUCTURE_VERSION}",
        )
    return value


def _merge(values: list[Any], paths: list[str]) -> dict[str, Any]:
    """Merges the dicts of several files into one: sharded models are stored that way."""
    merged: dict[str, Any] = {}
    for value, path in zip(values, paths, strict=True):
        if not isinstance(value, dict) or not merged.keys().isdisjoint(value):
            raise error(
                "PAWL_EINVAL",
                f"{path} cannot be merged with {paths[0]}: both must be dicts without a common key",
            )
        merged.update(value)
    return merged


def _split(found: Any, source: str) -> Iterator[tuple[str, Any]]:
    for name, value in found:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise error(
                "PAWL_EINVAL", f"{source}: {name} is not a dict with str keys: cannot split it"
            )
        yield from value.items()


# ---- DCP ----


def _enum_member(kind: Any, name: str) -> Any:
    """Called in place of getattr, which pickles use for a member of an enum."""
    if not (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        raise error("PAWL_ENOTSUP", ".metadata: getattr of something other than an enum")
    return kind[name]


class _MetadataUnpickler(pickle.Unpickler):
    """Reads .metadata, which DCP pickles, without calling anything but DCP's own classes."""

    _MODULES: Final = (
        "torch.distributed.checkpoint.metadata",
        "torch.distributed.checkpoint.filesystem",
    )
    _NAMES: Final = {
        ("torch", "Size"): torch.Size,
        ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("collections", "defaultdict"): collections.defaultdict,
        ("builtins", "getattr"): _enum_member,
        ("builtins", "set"): set,
        ("pathlib", "PosixPath"): pathlib.PurePosixPath,
        ("pathlib._local", "PosixPath"): pathlib.PurePosixPath,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._NAMES:
            return self._NAMES[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module in self._MODULES:
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise error(
            "PAWL_ENOTSUP", f".metadata: {module}.{name} would run code, which --trust allows"
        )


def _read_metadata(source: str) -> Any:
    from torch.distributed.checkpoint.metadata import StorageMeta

    try:
        with open(os.path.join(source, ".metadata"), "rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
    except (PawlError, OSError):
        raise
    except Exception as reason:  # any exception: the damaged bytes decide which
        raise error("PAWL_ECORRUPT", f"{source}/.metadata: {reason!r}") from reason
    return metadata


def _read_dcp(source: str, trust: bool) -> dict[str, Any]:
    """Reads a whole DCP checkpoint, nested, by torch's own reader and planner,
    which runs no code.
    """
    from torch.distributed.checkpoint import CheckpointException, FileSystemReader
    from torch.distributed.checkpoint._nested_dict import set_element
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    metadata = None if trust else _read_metadata(source)

    class Reader(FileSystemReader):
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            if metadata is None:
                return super().read_metadata(*args, **kwargs)
            metadata.storage_meta.load_id = self.load_id
            return metadata

    class Planner(_EmptyStateDictLoadPlanner):
        def load_bytes(self, read_item: Any, value: Any) -> None:
            if trust:
                super().load_bytes(read_item, value)
            else:
                path = self.mappings[read_item.dest_index.fqn]
                set_element(self.original_state_dict, path, torch.load(value, weights_only=True))

    state: dict[str, Any] = {}
    with contextlib.nullcontext() if trust else _safe.extended_globals():
        try:
            _load_state_dict(state, storage_reader=Reader(source), planner=Planner(), no_dist=True)
        except (CheckpointException, Exception) as reason:  # CheckpointException is no Exception
            raise _blame_dcp(source, reason) from reason
    return state


def _blame_dcp(source: str, reason: BaseException) -> Exception:
    text = str(reason)
    refused = re.search(r"GLOBAL (\S+)", text)
    if refused:
        return error(
            "PAWL_ENOTSUP", f"{source}: {refused[1]} in it would run code, which --trust allows"
        )
    return error("PAWL_ECORRUPT", f"{source}: DCP cannot read it: {_last_line(reason)}")


def _last_line(reason: BaseException) -> str:
    """The last line of a message that ends with a traceback."""
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    return lines[-1] if lines else repr(reason)


def _top_keys(state: dict[str, Any], source: str, partition: str) -> Iterator[tuple[str, Any]]:
    """The partitions of a DCP checkpoint: those that were exported, else the
    values of its top keys.
    """
    text = state.pop(STRUCTURE_KEY, None)
    if partition:
        yield partition, state
    elif text is not None:
        for name, structure in _structure(text, source).items():
            tensors = flatten(state.get(name, {}), name).tensors
            yield name, rebuild(structure, tensors, f"{source}: {name}")
    elif any(isinstance(value, Mapping) for value in state.values()):
        yield from state.items()
    else:
        raise error(
            "PAWL_EINVAL",
            f"{source} has no dicts under its top keys: --partition NAME makes all of it one "
            "partition",
        )


# ---- to the program ----


def _send(channel: Channel, name: str, value: Any, trust: bool) -> None:
    skeleton = Partition(name, trust).build(value)
    sizes = [storage.nbytes() for storage in skeleton.storages]
    channel.send(
        partition=name, table=len(skeleton.table), storages=sizes, pickle=len(skeleton.pickle)
    )
    channel.write(skeleton.table)
    for storage, size in zip(skeleton.storages, sizes, strict=True):
        if size:
            channel.write((ctypes.c_char * size).from_address(storage.data_ptr()))
    channel.write(skeleton.pickle)


if __name__ == "__main__":
    sys.exit(main())
