"""Accelerate's save_state and load_state go through Pawl; the files stay Accelerate's own.

    import pawl.integrations.accelerate as pawl_accelerate
    pawl_accelerate.enable()

`accelerator.save_state(folder)` returns in milliseconds; the folder appears in one instant, once
all of it is durable. Model and optimizer are copied while the next forward and backward pass run.
`accelerator.load_state(folder)` waits for what is on its way, and verifies every byte before
Accelerate reads it. `pawl_accelerate.wait()` waits until all that was saved is durable;
`accelerator.end_training()` and leaving the program do so, too.

With a project's automatic naming, `checkpoint_<n>` lies in `<project_dir>/checkpoints` as ever, and
`total_limit` deletes older ones only once a newer one is durable.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from accelerate import Accelerator

from pawl import _start
from pawl.engine import Engine, beside
from pawl.integrations import _whole
from pawl.integrations._capture import capture
from pawl.integrations._patch import wrap

_NAME: Final = re.compile(r"checkpoint_(\d+)$")  # a folder's name under automatic naming
_REMEDY: Final = "call accelerator.load_state() before save_state()"
# Kinds of training that save by code of their own, without Pawl.
_OTHERS: Final = ("FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA", "TPU")

_options: dict[str, Any] = {}  # options of enable(), for every engine; empty: not enabled
_engines: dict[Path, Engine] = {}  # by root, the folder that checkpoints lie in


def enable(job: str | None = None, memory: int | None = None) -> None:
    """Makes every Accelerator of this process save and load through Pawl. Once is enough.

    ``job``: id of the training run, the same over restarts; default: what the launcher says.
    ``memory``: bytes per node for checkpoints in memory; default: as for `pawl.Checkpointer`.
    """
    if not _options:
        wrap(Accelerator, "save_state", _save_state)
        wrap(Accelerator, "load_state", _load_state)
        wrap(Accelerator, "end_training", _end_training)
    _options.update(job=job, memory=memory)


def wait() -> None:
    """Waits until all saves are durable."""
    for engine in _engines.values():
        engine.flush()


def close() -> None:
    """Waits, and leaves the agent; leaving the program does the same. Raises as
    `pawl.Checkpointer.close` does.
    """
    engines = list(_engines.values())
    _engines.clear()
    for engine in engines:
        engine.close()


def _save_state(
    accelerator: Accelerator,
    original: Callable[..., Any],
    output_dir: str | os.PathLike[str] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if _is_other(accelerator):
        return original(output_dir, *args, **kwargs)
    project = accelerator.project_configuration
    automatic = project.automatic_checkpoint_naming
    if automatic:
        output_dir = _automatic(accelerator) / f"checkpoint_{accelerator.save_iteration}"
        if output_dir.exists():
            if accelerator.process_index == 0:
                left = _whole.numbered(output_dir.parent, _NAME)
                _start.before_save(str(output_dir.parent), lambda: left[0].name, _REMEDY)
            raise ValueError(
                f"{output_dir} exists: set accelerator.project_configuration.iteration to the "
                "number of the next checkpoint"
            )
    elif output_dir is None:
        raise ValueError("save_state needs a folder, or a project with automatic naming")
    folder = Path(os.path.abspath(os.path.expanduser(output_dir)))
    with tempfile.TemporaryDirectory(prefix="pawl-") as name:
        project.automatic_checkpoint_naming = False
        try:
            with capture(Path(name, folder.name)) as files:
                original(os.path.join(name, folder.name), *args, **kwargs)
        finally:
            project.automatic_checkpoint_naming = automatic
        _open(accelerator, folder.parent).save(folder.name, files, overlap=True)
    return folder


def _load_state(
    accelerator: Accelerator,
    original: Callable[..., Any],
    input_dir: str | os.PathLike[str] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    automatic = accelerator.project_configuration.automatic_checkpoint_naming
    if _is_other(accelerator) or not (input_dir or automatic):
        return original(input_dir, *args, **kwargs)
    wait()  # loading writes to memory that may still be copied
    folder = Path(os.path.abspath(os.path.expanduser(input_dir))) if input_dir else None
    root = _automatic(accelerator) if folder is None else folder.parent
    if os.path.isdir(beside(root)):
        _open(accelerator, root).flush()  # saves of the processes before this one
    accelerator.wait_for_everyone()  # all ranks have looked
    chosen = _whole.choose(
        lambda: [folder] if folder else _whole.numbered(root, _NAME),
        _needed(accelerator),
        accelerator.process_index,
        aside=folder is None,
    )
    if accelerator.process_index == 0:
        _start.resumed(str(chosen))
    return original(chosen, *args, **kwargs)


def _end_training(accelerator: Accelerator, original: Callable[[], None]) -> None:
    wait()
    original()


def _is_other(accelerator: Accelerator) -> bool:
    return accelerator.distributed_type.value in _OTHERS


def _automatic(accelerator: Accelerator) -> Path:
    return Path(os.path.abspath(accelerator.project_dir), "checkpoints")


def _open(accelerator: Accelerator, root: Path) -> Engine:
    if root not in _engines:
        project = accelerator.project_configuration
        limited = project.automatic_checkpoint_naming and root == _automatic(accelerator)
        root.mkdir(parents=True, exist_ok=True)
        _engines[root] = Engine(
            root,
            keep=project.total_limit or 0 if limited else 0,
            hidden=beside(root),
            rank=accelerator.process_index,
            world_size=accelerator.num_processes,
            **_options,
        )
        _engines[root].tell_starts(_REMEDY)
    return _engines[root]


def _needed(accelerator: Accelerator) -> list[str]:
    """The files that Accelerate itself writes for the objects that were prepared."""
    counts = {"optimizer": accelerator._optimizers, "scheduler": accelerator._schedulers}
    return [
        *(f"{stem}{f'_{i}' if i else ''}.bin" for stem, n in counts.items() for i in range(len(n))),
        *(f"random_states_{rank}.pkl" for rank in range(accelerator.num_processes)),
    ]
