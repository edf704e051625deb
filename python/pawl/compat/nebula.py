"""Azure Nebula's module, `nebulaml` and `torch_nebula`, on Pawl's engine.

Behaviour that its documentation and its public callers (DeepSpeed, MainzTrain, azureml-examples)
rely on is kept; behaviour that was never published is decided here, and described in
docs/nebula.md:

- A checkpoint is complete when every rank that takes part committed it. A rank takes part from its
  first `Checkpoint` on; a rank that never opens one is not waited for once another goes on.
- `Checkpoint(tag, -2)`: complete by `commit()`. `Checkpoint(tag, N)`, N > 0: after N partitions of
  this process. Otherwise, and at the latest: when this process opens another tag, reads, flushes or
  ends. A tag that was opened with -2 and not committed is given up when another tag is opened.
- Opening a tag again adds to it.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pawl import _core, _start
from pawl._ckpt._mounts import is_bucket, root_name
from pawl._ckpt._saver import at_exit
from pawl.engine import AsIs, Building, Engine, Found, step_of
from pawl.errors import PawlError, error

if TYPE_CHECKING:
    from pawl._ckpt._saver import Save
    from pawl.loading import MapLocation

log = logging.getLogger("pawl.nebula")

__version__ = _core.version
__all__ = [
    "Checkpoint",
    "NebulaCallback",  # noqa: F822  these three by __getattr__
    "NebulaCheckpointIO",  # noqa: F822
    "NebulaDeepspeedStrategy",  # noqa: F822
    "flush_persistence",
    "get_checkpoint",
    "get_latest_checkpoint",
    "get_latest_checkpoint_path",
    "init",
    "list_checkpoints",
]

EXPLICIT: Final = -2  # second argument of Checkpoint: complete by commit() alone
INTERVAL_S: Final = 100.0  # seconds between durable checkpoints, as in DeepSpeed's configuration
_STATES: Final = {"durable": "persisted", "committed": "committed", "broken": "broken"}


class NebulaSaveError(OSError):
    """A partition could not be saved; callers catch OSError."""


class _Open:
    """The tag that this process is putting together."""

    def __init__(self, tag: str, files: int) -> None:
        self.tag = tag
        self.files = files  # the caller's second argument
        self.saved = 0  # number of partitions so far
        self.building: Building | None = None  # made with the first partition
        self.failed = ""  # why no more partitions are saved; "": they are


class _Service:
    """The state that init() sets up: settings, the engine once it is needed, the open tag."""

    def __init__(self, path: str | None, interval_s: float) -> None:
        self.path = path
        self.interval_s = interval_s
        self._engine: Engine | None = None
        self.open: _Open | None = None
        self.saves: dict[str, Save] = {}  # saves that this process has committed, by tag
        self.unnamed = 0  # number of the last tag that was made up
        self.logged_nothing = False  # True: it was logged that there is no checkpoint

    @property
    def engine(self) -> Engine:
        """Connected at first use: rank and world size may become known only after init()."""
        if self._engine is None:
            root = self.path
            if root is None:
                root = tempfile.mkdtemp(prefix="pawl-nebula-")
                log.warning(
                    "no persistent_storage_path: checkpoints stay in memory; those left "
                    "at the end are written to %s",
                    root,
                )
            rank, world = _rank()
            self._engine = Engine(
                root,
                persist_every=self.interval_s,
                copy="now",
                memory=_env_int("NEBULA_MEMORY_BUFFER_SIZE"),
                trust=not os.environ.get("PAWL_NEBULA_SAFE"),
                rank=rank,
                world_size=world,
            )
            self._engine.tell_starts("call get_latest_checkpoint() before Checkpoint.save()")
        return self._engine

    def log_nothing(self) -> None:
        """Logs once that there is no checkpoint: some callers ask for one until it comes."""
        if not self.logged_nothing and self.engine.rank == 0:
            _start.nothing(self.engine.root)
        self.logged_nothing = True

    def connect_early(self) -> None:
        """Connects now, so that a rank that dies later is known to have been there."""
        import torch

        distributed = torch.distributed
        if (distributed.is_available() and distributed.is_initialized()) or (
            _core.env()["source"] != "none"
        ):
            _ = self.engine

    def enter(self, tag: str, files: int) -> None:
        """Called when this process is about to save tag: ends the one before."""
        if self.open is not None and self.open.tag != tag:
            if self.open.files == EXPLICIT:
                self.give_up(f"{tag} was opened before it was committed")
            else:
                self.finish()
        if self.open is None:
            self.open = _Open(tag, files)

    def finish(self) -> bool:
        """Commits the open tag, if there is one, even if it is empty. False if it failed."""
        open_, self.open = self.open, None
        if open_ is None:
            return True
        if open_.failed:
            log.error("%s is not saved: %s", open_.tag, open_.failed)
            return False
        try:
            building = open_.building or self.engine.begin(open_.tag)
            self.saves[open_.tag] = building.commit()
        except PawlError as reason:
            log.error("%s is not saved: %s", open_.tag, reason)
            return False
        return True

    def finish_implicit(self) -> None:
        """Called before reading: completes a tag that is complete without commit()."""
        if self.open is not None and self.open.files != EXPLICIT:
            self.finish()

    def give_up(self, why: str) -> None:
        open_, self.open = self.open, None
        if open_ is not None and open_.building is not None and open_.building.open:
            log.warning("%s is given up: %s", open_.tag, why)
            open_.building.drop(why)

    def put(self, open_: _Open, name: str, obj: Any) -> None:
        """Saves one partition of the open tag. Raises PawlError."""
        if open_.building is None:
            open_.building = self.engine.begin(open_.tag)
        if name in open_.building.names:  # saved anew: the tag is complete as it was until now
            self.saves[open_.tag] = open_.building.commit()
            open_.building = self.engine.begin(open_.tag)
        try:
            open_.building.add(name, AsIs(obj))
        except PawlError as reason:
            if not open_.building.open:
                open_.failed = str(reason)
            raise
        open_.saved += 1

    def fresh_tag(self) -> str:
        """A tag for Checkpoint(): one step after the newest. The same on ranks in step."""
        if self.unnamed == 0:
            self.unnamed = max((entry["step"] for entry in self.engine.list()), default=0)
        if self.open is not None:
            self.unnamed = max(self.unnamed, step_of(self.open.tag) or 0)
        self.unnamed += 1
        return f"global_step{self.unnamed}"

    def close(self) -> bool:
        """Closes the service. A tag that should have been committed explicitly, but
        was not, is given up.
        """
        if self._engine is None:
            return True
        if self.open is not None and self.open.files == EXPLICIT:
            self.give_up("the process ends before it was committed")
        self.finish()
        engine, self._engine = self._engine, None
        return engine.close()


_service: _Service | None = None


def _current() -> _Service:
    global _service
    if _service is None:
        _service = _Service(_env_path(), _env_float("NEBULA_PERSISTENT_TIME_INTERVAL", INTERVAL_S))
    return _service


def init(
    persistent_storage_path: str | os.PathLike[str] | tuple[str] | None = None,
    persistent_time_interval: float | str | None = None,
    num_of_version_in_retention: int | None = None,
) -> None:
    """Starts the service; calling it again with the same path changes nothing.

    ``persistent_storage_path``: directory that checkpoints are made durable in, or the address of a
    bucket (``s3://BUCKET/PREFIX``); None: from
    NEBULA_PERSISTENT_STORAGE_PATH, else they stay in memory. ``persistent_time_interval``: seconds
    between two durable checkpoints (100); 0: every one is made durable.
    ``num_of_version_in_retention``: versions kept in memory; Pawl keeps two, whatever the value.
    Nothing in the directory is ever deleted.
    """
    global _service
    path = _path(persistent_storage_path) or _env_path()
    if persistent_time_interval is None:
        interval_s = _env_float("NEBULA_PERSISTENT_TIME_INTERVAL", INTERVAL_S)
    else:
        interval_s = float(persistent_time_interval)
    if num_of_version_in_retention not in (None, 2):
        log.info(
            "num_of_version_in_retention=%s: two versions are kept in memory",
            num_of_version_in_retention,
        )
    if _service is not None and _service.path == path:
        return
    if _service is not None:
        _service.close()
    _service = _Service(path, interval_s)
    _service.connect_early()


class Checkpoint:
    """A tag of this rank: to save to, or as found by get_checkpoint."""

    def __init__(self, tag: str = "", num_of_files: int | None = None) -> None:
        service = _current()
        self.tag = _tag(tag) or service.fresh_tag()
        self._files = 0 if num_of_files is None else int(num_of_files)
        self._found: Found | None = None
        self._start_logged = False  # True: it was logged that this process starts from it
        service.enter(self.tag, self._files)

    @classmethod
    def _of(cls, found: Found) -> Checkpoint:
        checkpoint = cls.__new__(cls)
        checkpoint.tag = found.tag
        checkpoint._files = 0
        checkpoint._found = found
        checkpoint._start_logged = False
        return checkpoint

    def save(self, partition_name: str, obj: Any) -> None:
        """Saves an object as torch.save would; it may be changed when this returns.

        Raises OSError (NebulaSaveError) if it cannot be pickled. A failure of the storage, or of
        the agent that keeps the checkpoint in memory, is a line in the log, and commit() returns
        False.
        """
        service = _current()
        service.enter(self.tag, self._files)
        open_ = service.open
        assert open_ is not None
        if open_.failed:
            return  # the failure was logged when it happened
        try:
            service.put(open_, partition_name, obj)
        except PawlError as reason:
            if open_.failed:
                log.warning("%s/%s is not saved: %s", self.tag, partition_name, reason)
                return
            raise NebulaSaveError(f"{self.tag}/{partition_name}: {reason}") from reason
        if 0 < open_.files <= open_.saved:
            service.finish()

    def load(self, partition_name: str, map_location: MapLocation = None) -> Any:
        """The object of a partition, verified; ``map_location`` as for torch.load.

        Raises FileNotFoundError (no such partition), OSError naming file and offset of damage.
        """
        if self._found is None:
            service = _current()
            if service.open is not None and service.open.saved == 0:
                service.open = None  # opened to be read
            service.finish_implicit()
            self._found = _current().engine.find(self.tag)
        if self._found is None:
            raise FileNotFoundError(f"there is no complete checkpoint {self.tag}")
        safe = bool(os.environ.get("PAWL_NEBULA_SAFE"))
        value = self._found.load(partition_name, map_location, trust=not safe)
        if not self._start_logged and _current().engine.rank == 0:
            _start.restored(self._found.root, self.tag, self._found.size, self._found.source)
        self._start_logged = True
        return value

    def commit(self) -> bool:
        """Marks this rank's part of the tag as whole. False, and a line in the
        log, if it failed.
        """
        service = _current()
        if service.open is None and self.tag in service.saves and self._files != EXPLICIT:
            return service.saves[self.tag].error is None  # complete already, without commit()
        service.enter(self.tag, self._files)
        return service.finish()

    def __repr__(self) -> str:
        return f"<Checkpoint {self.tag}>"


def save_alone(tag: str, parts: Mapping[str, Any]) -> None:
    """Saves a checkpoint of this rank alone, complete at once. Nebula has no such function.

    Unlike Checkpoint.save it may return before parameters are copied; the next
    optimizer step waits for the copy.
    """
    service = _current()
    service.finish_implicit()
    wrapped = {name: AsIs(obj) for name, obj in parts.items()}
    service.saves[tag] = service.engine.save(tag, wrapped, alone=True)


def get_checkpoint(
    tag: str = "", persist_path: str | os.PathLike[str] | tuple[str] | None = None
) -> Checkpoint | None:
    """The complete checkpoint of this name, or None."""
    return _find(_tag(tag), persist_path)


def get_latest_checkpoint(
    persist_path: str | os.PathLike[str] | tuple[str] | None = None,
) -> Checkpoint | None:
    """The newest complete checkpoint, in memory or durable, or None."""
    return _find(None, persist_path)


def get_latest_checkpoint_path(
    partition_name: str, persist_path: str | os.PathLike[str] | tuple[str] | None = None
) -> str | None:
    """The file of a partition of the newest checkpoint, made durable; torch.load reads it.

    None if there is no checkpoint, or the newest has no such partition.
    """
    found = _find(None, persist_path)
    if found is None or found._found is None or partition_name not in found._found.names:
        return None
    root = _path(persist_path) or _current().engine.root
    if is_bucket(root):
        raise error(
            "PAWL_ENOTSUP",
            f"get_latest_checkpoint_path: {root} is a bucket, whose files have no paths: call "
            "get_latest_checkpoint().load(), or copy them by pawl ckpt export",
        )
    path = os.path.join(root, found.tag, partition_name)
    if _current().engine.rank == 0:
        _start.resumed(os.path.dirname(path))
    if found._found.source == "memory" and not _current().engine.flush(tag=found.tag):
        _current().engine.flush()
    return path if os.path.exists(path) else None


def list_checkpoints(
    persist_path: str | os.PathLike[str] | tuple[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Tag -> state ("committed": in memory, "persisted", "broken"), step, bytes, created, ...

    Oldest first; plain values, for json.dumps.
    """
    _current().finish_implicit()
    path = _path(persist_path)
    if path is None or _is_current(path):
        _start.looked(_current().engine.root)
        entries = _current().engine.list()
    else:
        entries = _core.list_root(path)
    return {
        entry["tag"]: {
            "state": _STATES[entry["level"]],
            "persisted": entry["level"] == "durable",
            "step": entry["step"],
            "bytes": entry["size"],
            "created": entry["created"],
            "ranks": entry["world"],
            "why": entry["why"],
        }
        for entry in entries
    }


def flush_persistence(tag: str | None = None, timeout: float | None = None) -> bool:
    """Waits until the newest checkpoint, or the one named tag, is durable; False
    if it took longer.
    """
    service = _current()
    service.finish_implicit()
    name = _tag(tag)
    return service.engine.flush(timeout, name) if name else service.engine.flush(timeout)


def _shutdown() -> None:
    """Stops the service; init() starts it again."""
    global _service
    service, _service = _service, None
    if service is not None:
        service.close()


class _Other:
    """A directory that is not this job's: read as it is, without an agent."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find(self, tag: str | None) -> Found | None:
        try:
            found = _core.open_root(self.root, tag)
        except PawlError as reason:
            if reason.name in ("PAWL_ENOENT", "PAWL_ECORRUPT"):
                return None
            raise
        try:
            return Found(self, found)
        finally:
            found.close()

    def reopen(self, tag: str) -> _core.Restore:
        return _core.open_root(self.root, tag)


def _find(tag: str | None, persist_path: Any) -> Checkpoint | None:
    path = _path(persist_path)
    service = _current()
    service.finish_implicit()
    here = path is None or _is_current(path)
    source: Engine | _Other = service.engine if here or path is None else _Other(path)
    found = source.find(tag)
    if found is None and tag is None and here:
        service.log_nothing()
    return None if found is None else Checkpoint._of(found)


def _is_current(path: str) -> bool:
    mine = _current().path
    if mine is None or is_bucket(path):
        return path == mine
    return os.path.realpath(path) == os.path.realpath(mine)


def _path(value: Any) -> str | None:
    """A path; the documentation's own snippet passes one in a tuple, by a trailing comma."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if value is None or value == "":
        return None
    return root_name(value)


def _tag(value: Any) -> str | None:
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    return None if value is None or value == "" else str(value)


def _env_path() -> str | None:
    return _path(os.environ.get("NEBULA_PERSISTENT_STORAGE_PATH"))


def _env_float(name: str, default: float) -> float:
    value = os.environ.get(name)
    return default if not value else float(value)


def _env_int(name: str) -> int | None:
    value = os.environ.get(name)
    return int(value) if value else None


def _rank() -> tuple[int | None, int | None]:
    """Rank and world size by Azure's own variables, where no better source has them."""
    import torch

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return None, None
    number, index = os.environ.get("DLTS_NUM_WORKER"), os.environ.get("FC_TASK_INDEX")
    if _core.env()["source"] != "none" or not number or not index:
        return None, None
    return int(index), int(number)


_LIGHTNING: Final[Mapping[str, str]] = {
    "NebulaCallback": "nebula_callback",
    "NebulaCheckpointIO": "nebula_checkpoint_io",
    "NebulaDeepspeedStrategy": "nebula_strategy",
}


def __getattr__(name: str) -> Any:
    """Returns Lightning's classes when they are used: importing Lightning takes seconds."""
    if name in _LIGHTNING:
        from pawl.integrations import _lightning

        # the package that the script has imported; if both, the newer name
        package = "lightning" if "lightning" in sys.modules else "pytorch_lightning"
        if importlib.util.find_spec(package) is None:
            package = "lightning"
        return getattr(_lightning, _LIGHTNING[name])(package)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


atexit.register(at_exit, _shutdown)
