"""One run a job in TensorBoard and Weights & Biases (offline): no gap and no step twice.

A killed trainer leaves logs that do not fit its newest checkpoint: steps after it are logged that
will be done again, and steps before it may be lost in buffers. The checkpoint has the logs that
fit: `log_history` of the trainer's state has every value logged up to it. So when training begins,
every entry that is not in there is dropped from the job's log, and missing entries are logged
again.

TensorBoard: the events of the job's folder are copied to a new file, without those of repeated
steps, and the old files are removed. W&B offline: a process cannot continue the file of another, so
all rows are logged again into this process's file, and the folders of earlier processes are renamed
to superseded-*, which `wandb sync` does not look at.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from transformers.integrations import integration_utils
from transformers.integrations.integration_utils import (
    TensorBoardCallback,
    WandbCallback,
    rewrite_logs,
)

Entry = dict[str, Any]  # an entry of log_history: the logged values, and "step"

# Folders of this process; only those of other processes are sorted out.
_begun: Final[set[Path]] = set()
_job = ""


def install(job: str) -> None:
    """Makes trainers that report to TensorBoard or W&B use the classes below, for this job."""
    global _job
    _job = job
    known = integration_utils.INTEGRATION_TO_CALLBACK
    known["tensorboard"], known["wandb"] = OneRunTensorBoard, OneRunWandb


def _applies(state: Any) -> bool:
    return bool(_job) and state.is_world_process_zero and not state.is_hyper_param_search


def _logged(state: Any) -> Iterator[tuple[Any, Entry]]:
    """Entries logged up to the restored step: the state as it was then, and the values."""
    for entry in state.log_history:
        then = copy.copy(state)
        then.global_step = entry["step"]
        yield then, {name: value for name, value in entry.items() if name != "step"}


class OneRunTensorBoard(TensorBoardCallback):
    """TensorBoardCallback whose folder is the job's: `<output_dir>.runs/<job>`.

    Where TENSORBOARD_LOGGING_DIR names a folder: `<folder>/<name of output_dir>/<job>`. It lies
    beside output_dir, which has nothing in it before the first checkpoint.
    """

    _folder: Path | None = None

    def _init_summary_writer(self, args: Any, *rest: Any) -> None:
        if self._folder is None:
            super()._init_summary_writer(args, *rest)
        else:
            self.tb_writer = self._SummaryWriter(log_dir=str(self._folder))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Sorts out the logs of earlier processes, before this one begins."""
        known = None
        if _applies(state) and self.tb_writer is None:
            self._folder = _tensorboard_folder(args.output_dir)
            if self._folder not in _begun:
                _begun.add(self._folder)
                known = _sort_out(self._folder, state)
        super().on_train_begin(args, state, control, **kwargs)
        if known is not None:
            for then, values in _logged(state):
                lost = {k: v for k, v in values.items() if (_tag(k), then.global_step) not in known}
                if lost:
                    self.on_log(args, then, control, logs=lost)


def _tensorboard_folder(output_dir: str) -> Path:
    output = Path(os.path.abspath(output_dir))
    named = os.environ.get("TENSORBOARD_LOGGING_DIR")
    base = (
        Path(named).expanduser() / output.name if named else output.with_name(f"{output.name}.runs")
    )
    return base / _job.replace("/", "-")


def _tag(name: str) -> str:
    """The name of a value in the event file."""
    (tag,) = rewrite_logs({name: 0.0})
    return tag


def _sort_out(folder: Path, state: Any) -> set[tuple[str, int]]:
    """Drops the events of steps that will be done again; returns tag and step of
    those that remain.
    """
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    valid = {(_tag(name), then.global_step) for then, logs in _logged(state) for name in logs}
    files = sorted(folder.glob("events.out.tfevents.*"))
    if not files:
        return set()
    known: set[tuple[str, int]] = set()
    new = folder / "new-events"
    with new.open("wb") as file:
        writer = RecordWriter(file)
        for raw in (raw for path in files for raw in RawEventFileLoader(str(path)).Load()):
            event = Event.FromString(raw)
            scalars = {(v.tag, event.step) for v in event.summary.value if _is_scalar(v)}
            if event.step <= state.global_step and scalars <= valid - known:
                known |= scalars
                writer.write(raw)
        writer.flush()
        os.fsync(file.fileno())
    new.rename(files[0].with_name(f"{files[0].name.removesuffix('.kept')}.kept"))
    for path in files:
        if not path.name.endswith(".kept"):
            path.unlink()
    return known


def _is_scalar(value: Any) -> bool:
    return value.WhichOneof("value") == "simple_value" or (
        value.WhichOneof("value") == "tensor" and not value.tensor.string_val
    )


class OneRunWandb(WandbCallback):
    """WandbCallback whose run has the job's id in every process."""

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        """Offline: the whole history so far goes into this process's file."""
        mine = _applies(state) and self._wandb.run is None
        if mine:
            # Removes characters that W&B does not allow in an id.
            os.environ.setdefault("WANDB_RUN_ID", re.sub(r"[/\\#?%:]", "-", _job))
            os.environ.setdefault("WANDB_RESUME", "allow")
        super().setup(args, state, model, **kwargs)
        if not mine or not self._wandb.run.offline:
            return
        for then, values in _logged(state):
            super().on_log(args, then, None, model=model, logs=values)
        own = Path(self._wandb.run.settings.sync_dir)
        for folder in own.parent.glob(f"offline-run-*-{self._wandb.run.id}"):
            if folder != own:
                folder.rename(folder.with_name(f"superseded-{folder.name}"))
