"""DeepSpeed's checkpoints through Pawl: ``install(engine)`` after ``deepspeed.initialize``.

`engine.save_checkpoint(dir)` returns when the state is in memory that outlives the process; files
of the same names and formats as DeepSpeed's own appear under `dir` in the background, each tag
whole or not at all, and `latest` names a tag only once it is durable. `engine.load_checkpoint(dir)`
takes the newest complete checkpoint, in memory or in the directory, the same on all ranks,
verified.

Releases up to 0.19.6 have a `nebula` block in their configuration, which works unmodified through
`pawl.compat.nebula`; `install` works with those releases, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from pawl import _start
from pawl.engine import AsIs, Building, Engine
from pawl.errors import PawlError

log = logging.getLogger("pawl.deepspeed")

_LIGHTNING_TAG: Final = "checkpoint"  # Lightning's tag, the same in every directory
_REMEDY: Final = "call load_checkpoint() of DeepSpeed's engine before save_checkpoint()"
_BLOAT: Final = 1.1  # a storage this many times as large as its saved part is cut to size first


def install(
    engine: Any, root: str | os.PathLike[str] | None = None, **options: Any
) -> PawlCheckpointEngine:
    """Makes a DeepSpeedEngine save and load through Pawl; returns the checkpoint
    engine that does so.

    ``root``: directory of all checkpoints; None: the directory given to ``save_checkpoint``, each
    with a connection of its own. With a root, checkpoints that have the same tag in several
    directories (Lightning's) are named by the directory. ``options``: of pawl.engine.Engine
    (``persist_every``, ``keep``, ``memory``, ...).
    """
    ours = PawlCheckpointEngine(root, **options)
    engine.checkpoint_engine = ours
    engine.save_checkpoint = _saving(engine.save_checkpoint, ours)
    engine.load_checkpoint = _loading(engine.load_checkpoint, ours)
    return ours


class PawlCheckpointEngine(CheckpointEngine):  # type: ignore[misc]  # deepspeed has no types
    """The object that DeepSpeed calls for each file; see ``install``."""

    def __init__(self, root: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        self.name = "PawlCheckpointEngine"
        self._fixed = None if root is None else os.path.abspath(os.fspath(root))
        self._options = options
        self._engines: dict[str, Engine] = {}  # by root
        self._building: Building | None = None
        self._tag: str | None = None  # the tag being saved; None: none is
        self._theirs = ""  # DeepSpeed's name of the tag
        self._root = ""  # root of the tag being saved
        self.inside = False  # True: in save_checkpoint

    def engine(self, root: str) -> Engine:
        """The connection for a root, made at first use."""
        root = os.path.abspath(root)
        if root not in self._engines:
            self._engines[root] = Engine(root, **{"copy": "now", **self._options})
            self._engines[root].tell_starts(_REMEDY)
        return self._engines[root]

    def place(self, directory: str, tag: str | None) -> tuple[str, str | None]:
        """Root and tag for DeepSpeed's tag in directory; tag None: the newest."""
        if self._fixed is None:
            return directory, tag
        if tag is None or tag == _LIGHTNING_TAG:
            tag = os.path.basename(os.path.abspath(directory))
        return self._fixed, tag

    def has(self, directory: str) -> bool:
        """Whether there is a checkpoint that load_checkpoint(directory) would take."""
        root, tag = self.place(directory, None)
        return self.engine(root).find(tag) is not None

    # ---- called by DeepSpeed: parameters must keep these names ----

    def create(self, info: Any) -> None:
        """Begins a tag. info: CheckpointCommitInfo."""
        self._building = None
        self._tag = None
        if self.inside:  # else it is save_16bit_model
            self._root, self._tag = self.place(str(info.save_dir), str(info.tag))
        self._theirs = str(info.tag)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory, unless it is that of a tag, which appears when it is whole."""
        if self._tag is None or os.path.basename(os.path.abspath(path)) != self._theirs:
            os.makedirs(path, exist_ok=exist_ok)

    def save(self, state_dict: Any, path: str) -> None:
        """Saves one file; the state may be changed when this returns."""
        if self._tag is None:  # save_16bit_model: a file of the user's own
            temporary = f"{path}.pawl"
            torch.save(state_dict, temporary)
            os.replace(temporary, path)
            return
        self._open().add(os.path.basename(path), AsIs(_cut_to_size(state_dict)))

    def commit(self, info: Any) -> bool:
        """Marks this rank's files as complete. False, and a line in the
        log, if saving failed.
        """
        try:
            if self._tag is not None:
                self._open().commit()  # also without files: other ranks have some
        except PawlError as reason:
            log.error("%s is not saved: %s", info.tag, reason)
            return False
        finally:
            self._building = self._tag = None
        return True

    def _open(self) -> Building:
        if self._building is None:
            assert self._tag is not None
            self._building = self.engine(self._root).begin(self._tag)
        return self._building

    def load(self, path: str, map_location: Any = None) -> Any:
        """Reads one file, verified; a file that Pawl did not write, as torch does."""
        directory, name = os.path.split(os.path.abspath(path))
        root, tag = os.path.split(directory)
        found = self.engine(root).find(tag)
        if found is None or name not in found.names:
            return torch.load(path, map_location=map_location, weights_only=False)
        return found.load(name, map_location)

    def preserves_storage_sharing(self) -> bool:
        """False: DeepSpeed need not clone every tensor first; see _cut_to_size."""
        return False


def _saving(original: Callable[..., Any], ours: PawlCheckpointEngine) -> Callable[..., Any]:
    """Wraps engine.save_checkpoint so that `latest` is written only when its tag is durable."""

    def save_checkpoint(
        save_dir: str, tag: Any = None, *args: Any, save_latest: bool = True, **kwargs: Any
    ) -> Any:
        if len(args) > 1:  # client_state, save_latest
            save_latest, args = bool(args[1]), (args[0], *args[2:])
        engine = ours.engine(ours.place(save_dir, None)[0])
        ours.inside = True
        try:
            result = original(save_dir, tag, *args, save_latest=False, **kwargs)
        finally:
            ours.inside = False
        save = engine.newest
        if save_latest and engine.rank == 0 and save is not None:
            threading.Thread(
                target=_write_latest, args=(save, save_dir), name="pawl-latest", daemon=True
            ).start()
        return result

    return save_checkpoint


def _write_latest(save: Any, save_dir: str) -> None:
    """Writes DeepSpeed's `latest`, whole or not at all, once the save is durable."""
    with contextlib.suppress(PawlError, OSError):  # superseded, or the process is ending
        if save.wait("durable"):
            path = os.path.join(save_dir, "latest")
            with open(f"{path}.pawl", "w", encoding="utf-8") as file:
                file.write(save.tag)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.pawl", path)


def _loading(original: Callable[..., Any], ours: PawlCheckpointEngine) -> Callable[..., Any]:
    """Wraps engine.load_checkpoint so that without a tag it loads the newest complete one.

    DeepSpeed looks for files before it loads any, so a checkpoint that is only in
    memory is made durable first.
    """

    def load_checkpoint(load_dir: str, tag: Any = None, *args: Any, **kwargs: Any) -> Any:
        root, name = ours.place(load_dir, None if tag is None else str(tag))
        engine = ours.engine(root)
        found = engine.find(name)
        if found is not None:
            if found.source == "memory":
                engine.flush(tag=found.tag)
            load_dir, tag = root, found.tag
        result = original(load_dir, tag, *args, **kwargs)
        if engine.rank == 0:
            # Path of the files that DeepSpeed loaded.
            path = result[0] if isinstance(result, tuple) else None
            if path is None:  # if the missing tag was named, DeepSpeed says so itself
                if name is None:
                    _start.nothing(root)
            elif found is not None:
                _start.restored(root, found.tag, found.size, found.source)
            else:
                _start.resumed(str(path))
        return result

    return load_checkpoint


def _cut_to_size(state: Any) -> Any:
    """The same state, without storages of which most is not saved (views of large flat buffers)."""
    tensors: list[torch.Tensor] = []
    _collect(state, tensors)
    used: dict[int, int] = {}  # storage -> saved bytes in it
    whole: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        used[storage.data_ptr()] = used.get(storage.data_ptr(), 0) + tensor.nbytes
        whole[storage.data_ptr()] = storage.nbytes()
    if sum(whole.values()) <= _BLOAT * sum(used.values()):
        return state
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save

    return clone_tensors_for_torch_save(state)


def _collect(value: Any, tensors: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided:
            tensors.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, tensors)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, tensors)
