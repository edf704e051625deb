"""Lightning's classes, for `lightning` and `pytorch_lightning` alike.

The two packages have the same classes under two names, and neither takes the other's: each class
here is made from the package it is for. `pawl.integrations.lightning` and
`pawl.integrations.pytorch_lightning` are what users import.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from pawl import _start
from pawl.engine import AsIs, Engine, beside
from pawl.errors import PawlError

if TYPE_CHECKING:
    from pawl._ckpt._saver import Save
    from pawl.integrations import deepspeed

log = logging.getLogger("pawl.lightning")

PARTITION = "checkpoint"  # the one file of a tag
_REMEDY = 'pass ckpt_path to trainer.fit(): a path, or "last" with ModelCheckpoint(save_last=True)'


@cache
def checkpoint_io(package: str) -> type:
    """PawlCheckpointIO for "lightning" or "pytorch_lightning"."""
    plugins = importlib.import_module(_module(package, "plugins.io"))

    class PawlCheckpointIO(plugins.CheckpointIO):  # type: ignore[misc,name-defined]
        """Checkpoints saved in milliseconds: ``Trainer(plugins=[PawlCheckpointIO()])``.

        Each checkpoint is a file at the path that Lightning chose, in Lightning's own format, which
        appears once it is whole and durable. Until then it is in memory that outlives the process,
        and in a directory ``.<name>.pawl`` beside that of the files. Loading reads it from either,
        verified. ``options``: of pawl.engine.Engine.
        """

        def __init__(self, **options: Any) -> None:
            self._options = options
            self._engines: dict[str, Engine] = {}  # by directory
            self._later = _Later()

        def save_checkpoint(
            self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
        ) -> None:
            """Called on rank 0. The checkpoint may be changed by the next optimizer step."""
            directory, tag = _split(path)
            os.makedirs(directory, exist_ok=True)
            engine = self._engine(directory)
            save = engine.save(tag, {PARTITION: AsIs(checkpoint)}, alone=True)
            self._later.do(lambda: _link_when_durable(engine, save, directory))

        def load_checkpoint(
            self, path: Any, map_location: Any = None, weights_only: bool | None = None
        ) -> Any:
            directory, tag = _split(path)
            if os.path.isdir(beside(directory)):
                found = self._engine(directory).find(tag)
                if found is not None:
                    value = found.load(PARTITION, map_location, trust=not weights_only)
                    if _start.is_first():
                        _start.restored(directory, tag, found.size, found.source)
                    return value
            value = torch.load(path, map_location=map_location, weights_only=bool(weights_only))
            if _start.is_first():
                _start.resumed(os.path.join(directory, tag))
            return value

        def remove_checkpoint(self, path: Any) -> None:
            """Deletes a checkpoint once all saved before is durable: the last good
            one never goes first.
            """
            directory, tag = _split(path)
            engine = self._engines.get(directory)
            self._later.do(lambda: _remove(engine, directory, tag))

        def teardown(self) -> None:
            """Waits until all checkpoints are durable, and in their places."""
            engines, self._engines = self._engines, {}
            for engine in engines.values():
                engine.flush()
            self._later.finish()
            for engine in engines.values():
                engine.close()

        def _engine(self, directory: str) -> Engine:
            if directory not in self._engines:
                engine = Engine(beside(directory), **self._options)
                engine.tell_starts(_REMEDY, directory)
                self._engines[directory] = engine
                if engine.rank == 0:
                    _link_missing(engine, directory)
            return self._engines[directory]

    return PawlCheckpointIO


@cache
def nebula_checkpoint_io(package: str) -> type:
    """NebulaCheckpointIO of `nebulaml`."""
    from pawl.compat import nebula

    plugins = importlib.import_module(_module(package, "plugins.io"))

    class NebulaCheckpointIO(plugins.CheckpointIO):  # type: ignore[misc,name-defined]
        """Lightning's checkpoints as Nebula's: tag = the file's name, partition "checkpoint".

        ``storage_options``: ``persist_path`` names another directory than init()
        did; ``is_best`` is accepted.
        """

        def save_checkpoint(
            self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
        ) -> None:
            options = storage_options if isinstance(storage_options, dict) else {}
            if options.get("persist_path"):
                nebula.init(options["persist_path"])
            nebula.save_alone(_split(path)[1], {PARTITION: checkpoint})

        def load_checkpoint(
            self, path: Any, map_location: Any = None, weights_only: bool | None = None
        ) -> Any:
            found = nebula.get_checkpoint(_split(path)[1])
            if found is not None:
                return found.load(PARTITION, map_location)
            return torch.load(path, map_location=map_location, weights_only=bool(weights_only))

        def remove_checkpoint(self, path: Any) -> None:
            """Does nothing: Nebula never deletes durable checkpoints."""

        def teardown(self) -> None:
            nebula.flush_persistence()

    return NebulaCheckpointIO


@cache
def nebula_callback(package: str) -> type:
    """NebulaCallback of `nebulaml`."""
    from pawl.compat import nebula

    callbacks = importlib.import_module(_module(package, "callbacks"))
    plugins = importlib.import_module(_module(package, "plugins.io"))

    class NebulaCallback(callbacks.ModelCheckpoint):  # type: ignore[misc,name-defined]
        """ModelCheckpoint whose checkpoints go through Nebula.

        Takes ModelCheckpoint's parameters, and ``config_params``: those of ``init``.
        """

        def __init__(self, *args: Any, config_params: Any = None, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._config_params = dict(config_params or {})

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            super().setup(trainer, pl_module, stage)
            nebula.init(**self._config_params)
            strategy = trainer.strategy
            if type(strategy.checkpoint_io) is plugins.TorchCheckpointIO:
                strategy.checkpoint_io = nebula_checkpoint_io(package)()

    return NebulaCallback


@cache
def nebula_strategy(package: str) -> type:
    """NebulaDeepspeedStrategy of `nebulaml`."""
    strategies = importlib.import_module(_module(package, "strategies"))

    class NebulaDeepspeedStrategy(strategies.DeepSpeedStrategy):  # type: ignore[misc,name-defined]
        """DeepSpeedStrategy with a ``nebula`` block in its ``config``, on every DeepSpeed release.

        DeepSpeed never sees the block: releases from 0.19.7 on refuse it, and older ones would name
        all of Lightning's checkpoints alike. A checkpoint's tag is the name of its directory. As in
        DeepSpeed's block, ``enable_nebula_load=False`` loads the first one from Lightning's
        directory, as it is without Pawl.
        """

        def __init__(self, *args: Any, config: Any = None, **kwargs: Any) -> None:
            block: dict[str, Any] = {}
            if isinstance(config, dict) and "nebula" in config:
                config = {**config}
                block = config.pop("nebula")
            root = block.get("persistent_storage_path")
            if block.get("nebula_load_path") not in (None, root):
                raise ValueError(
                    "nebula_load_path is not supported: begin with persistent_storage_path set to"
                    " it, or load with enable_nebula_load=False"
                )
            self._nebula = block if block.get("enabled") else None
            self._pawl: deepspeed.PawlCheckpointEngine | None = None
            super().__init__(*args, config=config, **kwargs)

        def _install(self) -> None:
            if self._pawl is None and self._nebula is not None:
                from pawl.integrations import deepspeed

                self._pawl = deepspeed.install(
                    self.deepspeed_engine,
                    root=self._nebula.get("persistent_storage_path"),
                    persist_every=float(self._nebula.get("persistent_time_interval", 100)),
                )

        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            self._install()
            super().save_checkpoint(*args, **kwargs)

        def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._nebula is None or not self._nebula.get("enable_nebula_load", True):
                return super().load_checkpoint(checkpoint_path, *args, **kwargs)
            self._install()
            assert self._pawl is not None
            if not self._pawl.has(str(checkpoint_path)):
                return super().load_checkpoint(checkpoint_path, *args, **kwargs)
            # What DeepSpeedStrategy does, but for its look for files, which Pawl may have in memory
            # or in another directory.
            module = self.lightning_module
            _, client_state = self.deepspeed_engine.load_checkpoint(
                checkpoint_path,
                load_optimizer_states=module.trainer.state.fn == "fit",
                load_lr_scheduler_states=False,
                load_module_strict=module.strict_loading,
            )
            return client_state

    return NebulaDeepspeedStrategy


def _module(package: str, name: str) -> str:
    return f"lightning.pytorch.{name}" if package == "lightning" else f"{package}.{name}"


def _split(path: Any) -> tuple[str, str]:
    directory, name = os.path.split(os.path.abspath(os.fspath(path)))
    return directory, name


class _Later:
    """Runs tasks one after the other in a thread of its own, which ends when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the fields below
        self._todo: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None

    def do(self, task: Callable[[], None]) -> None:
        with self._lock:
            self._todo.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pawl-later", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Waits until all tasks are done."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._todo:
                    self._thread = None
                    return
                task = self._todo.popleft()
            try:
                task()
            except Exception as reason:  # the next task may succeed
                log.warning("%s", reason)


def _remove(engine: Engine | None, directory: str, tag: str) -> None:
    if engine is not None:
        engine.remove(tag)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, tag))


def _link_when_durable(engine: Engine, save: Save, directory: str) -> None:
    with contextlib.suppress(PawlError):  # the process is ending: its next start does it
        if save.wait("durable"):
            _link(engine, save.tag, directory)


def _link(engine: Engine, tag: str, directory: str) -> None:
    """Gives the file of a durable tag its place, at once and whole."""
    source = os.path.join(engine.root, tag, PARTITION)
    target = os.path.join(directory, tag)
    temporary = f"{target}.pawl"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.link(source, temporary)
        os.replace(temporary, target)
    except OSError as reason:
        log.warning("%s is saved in %s, but could not be put in its place: %s", tag, source, reason)


def _link_missing(engine: Engine, directory: str) -> None:
    """Gives files their places that an earlier process left without."""
    for entry in engine.list():
        path = os.path.join(directory, entry["tag"])
        if entry["level"] == "durable" and not os.path.exists(path):
            _link(engine, entry["tag"], directory)
