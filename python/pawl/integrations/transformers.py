"""Hugging Face's Trainer saves and resumes through Pawl; the files stay Trainer's own.

    import pawl.integrations.transformers as pawl_trainer
    pawl_trainer.enable()

Saving: Trainer's own code for a checkpoint runs unchanged, but into a temporary folder, and objects
that it gives to torch.save and safetensors are taken before they are written (_capture). The files
then become `<output_dir>/checkpoint-<step>`, with their usual names and forms, in one instant once
all of them are durable; model and optimizer are copied while the next forward and backward pass
run. Old checkpoints are deleted (`save_total_limit`) only after that. Unfinished files lie beside
output_dir, in `.<name>.pawl`.

Resuming: every byte of the newest checkpoint is verified before Trainer reads it. A damaged or
half-written one is refused with the reason, and the one before it is taken.

Trainers under DeepSpeed, FSDP, SageMaker and XLA, and those that push to a hub, save as without
Pawl, which is logged once: their checkpoints are written by code that is not Trainer's.
"""

from __future__ import annotations

import logging
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from pawl import _core, _start
from pawl._ckpt._saver import Save
from pawl.engine import Engine, beside
from pawl.errors import error
from pawl.integrations import _one_run, _whole
from pawl.integrations._capture import capture
from pawl.integrations._patch import wrap

log = logging.getLogger("pawl")

_NAME: Final = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)$")
_STATE: Final = "trainer_state.json"
_LAUNCHED: Final = {
    "PAWL_JOB_ID",
    "PAWL_ATTEMPT",
}  # set for processes of `pawl run`

_options: dict[str, Any] = {}  # options of enable(), for every engine; empty: not enabled
_logged: set[str] = set()  # messages that were logged once


def enable(job: str | None = None, memory: int | None = None) -> None:
    """Makes every Trainer of this process save and resume through Pawl. Once is enough.

    ``job``: id of the training run, the same over restarts; default: what the launcher says. With
    one, TensorBoard and W&B (offline) have one run for all of the job's processes.
    ``memory``: bytes per node for checkpoints in memory; default: as for `pawl.Checkpointer`.
    """
    if not _options:
        wrap(Trainer, "train", _train)
        wrap(Trainer, "_save_checkpoint", _save_checkpoint)
        wrap(Trainer, "_load_best_model", _load_best_model)
    _options.update(job=job, memory=memory)
    _one_run.install(job or _core.env()["job"])


def _train(
    trainer: Trainer,
    original: Callable[..., Any],
    resume_from_checkpoint: str | bool | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    why = _why_not(trainer)
    if why is not None:
        if why not in _logged:
            _logged.add(why)
            log.warning("%s: its checkpoints are saved by transformers, not by Pawl", why)
        return original(resume_from_checkpoint, *args, **kwargs)
    saver = _Saver(trainer)
    trainer.add_callback(saver)
    trainer._pawl_saver = saver
    try:
        result = original(saver.start_from(resume_from_checkpoint), *args, **kwargs)
    finally:
        trainer._pawl_saver = None
        trainer.remove_callback(saver)
        saver.close()
    if saver.stopped:
        log.warning("step %d is saved: exiting, as SIGTERM requested", trainer.state.global_step)
        signal.raise_signal(signal.SIGTERM)  # code after training must not run
    return result


def _save_checkpoint(
    trainer: Trainer, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> None:
    saver: _Saver | None = getattr(trainer, "_pawl_saver", None)
    if saver is None:
        original(*args, **kwargs)
    else:
        saver.save(original, *args, **kwargs)


def _load_best_model(trainer: Trainer, original: Callable[[], None]) -> None:
    saver: _Saver | None = getattr(trainer, "_pawl_saver", None)
    best = Path(trainer.state.best_model_checkpoint)
    if saver is not None:
        saver.finish()
        if best.is_dir():  # else Trainer says so, and keeps the weights it has
            saver.check(best)
    original()


def _why_not(trainer: Trainer) -> str | None:
    """Why Trainer's own code does not write this trainer's checkpoints; None if it does."""
    if trainer.args.push_to_hub:
        return "a Trainer with push_to_hub"
    for flag in ("is_deepspeed_enabled", "is_fsdp_enabled", "is_fsdp_xla_enabled"):
        if getattr(trainer, flag, False):
            return f"a Trainer with {flag.removeprefix('is_').removesuffix('_enabled')}"
    for check in ("is_sagemaker_mp_enabled", "is_torch_xla_available"):
        if getattr(sys.modules[Trainer.__module__], check, bool)():
            return f"a Trainer where {check}()"
    return None


class _Saver(TrainerCallback):
    """The checkpoints of one call of train(). Every rank has one; rank 0 decides and deletes."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._engine: Engine | None = None
        self._root = Path()  # root of the engine
        self._pending: list[Save] = []  # saves not known to be durable or failed
        self._deleter = ThreadPoolExecutor(1)  # a thread: deleting a file of some GB takes its time
        self._handled = False  # SIGTERM is not ours: the program's, or not the same on all hosts
        self.stopped = False  # True: training ends early, because of a SIGTERM

    # ---- saving ----

    def save(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Runs Trainer's own _save_checkpoint(model, trial), with the files going to the engine."""
        trainer = self._trainer
        trial = kwargs.get("trial", args[1] if len(args) > 1 else None)
        root = Path(os.path.abspath(trainer._get_output_dir(trial=trial)))
        tag = f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
        with tempfile.TemporaryDirectory(prefix="pawl-") as name:
            with capture(Path(name, tag)) as files:
                trainer._get_output_dir = lambda trial=None: name  # hides the method
                try:
                    original(*args, **kwargs)
                finally:
                    del trainer._get_output_dir
                self._name_best(Path(name, tag), root / tag)
            save = self._open(root).save(tag, files, overlap=True)
        self._pending.append(save)
        control, state = trainer.control, trainer.state
        last = control.should_training_stop or state.global_step >= state.max_steps
        if last or any(_reads_checkpoint(one) for one in trainer.callback_handler.callbacks):
            self.finish()

    def _name_best(self, written: Path, folder: Path) -> None:
        """Gives the state the name that the checkpoint will have, instead of the temporary one."""
        state = self._trainer.state
        if state.best_model_checkpoint == str(written):
            state.best_model_checkpoint = str(folder)
            if self._trainer.args.should_save:
                state.save_to_json(str(written / _STATE))

    def _open(self, root: Path) -> Engine:
        if self._engine is None or self._root != root:
            self._leave()
            args = self._trainer.args
            self._root = root
            handled = callable(signal.getsignal(signal.SIGTERM))
            self._engine = Engine(
                root,
                hidden=beside(root),
                rank=args.process_index,
                world_size=args.world_size,
                **_options,
            )
            self._handled = handled or self._engine.spans_hosts
        return self._engine

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Deletes older checkpoints when newer ones have become durable. On
        SIGTERM: saves this step, then leaves.
        """
        if self._engine is not None and not self._handled and self._engine.stopping:
            self.stopped = control.should_save = control.should_training_stop = True
        settled = [save for save in self._pending if save.level in ("durable", "failed")]
        if settled:
            self._pending = [save for save in self._pending if save not in settled]
            self._rotate()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Waits, so that the caller of train() finds the checkpoints there."""
        self.finish()

    def finish(self) -> None:
        """Waits until all saves are durable."""
        for save in self._pending:
            save.wait("durable")
        if self._pending:
            self._pending = []
            self._rotate()

    def close(self) -> None:
        """Leaves the engine; committed checkpoints still become durable."""
        self._deleter.shutdown()
        self._leave()

    def _leave(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _rotate(self) -> None:
        """Deletes the checkpoints that save_total_limit does not keep, as Trainer would have."""
        args, best = self._trainer.args, self._trainer.state.best_model_checkpoint
        limit = args.save_total_limit
        if not args.should_save or limit is None or limit <= 0:
            return
        folders = _whole.numbered(self._root, _NAME)[::-1]
        folders.sort(key=lambda path: path.stat().st_mtime_ns)
        kept = {folders[-1]} if folders else set()
        if best is not None:
            kept.add(Path(os.path.abspath(best)))
        spare = [path for path in folders if path not in kept]
        for folder in spare[: max(0, len(folders) - limit)]:
            self._deleter.submit(shutil.rmtree, _whole.let_go(folder), ignore_errors=True)

    # ---- resuming ----

    def start_from(self, asked: str | bool | None) -> str | bool | None:
        """The checkpoint to resume from, given the argument of train().

        A script without the argument that `pawl run` has started resumes from the newest
        checkpoint, so that a restart loses nothing; but not where it is to overwrite the output
        directory.
        """
        text = asked if isinstance(asked, str) and not os.path.exists(asked) else ""
        # A command line gives these values as text.
        asked = {"true": True, "false": False}.get(text.lower(), asked)
        output = Path(os.path.abspath(self._trainer.args.output_dir))
        attempt, first = _core.env()["attempt"], self._trainer.args.process_index == 0
        overwrite = getattr(self._trainer.args, "overwrite_output_dir", False) and attempt == 0
        if asked:
            chosen = self.choose(asked)
            if first:
                _start.resumed(chosen)
            return chosen
        resumes = asked is None and os.environ.keys() >= _LAUNCHED and not overwrite
        if resumes:
            self._open(output).flush()  # saves of the processes before this one
        found = [path.name for path in _whole.numbered(output, _NAME)] if first else []
        if resumes and _whole.agree(lambda: bool(found), first):
            chosen = self.choose(True)
            if first:
                _start.resumed(
                    chosen, "as `pawl run` started it; resume_from_checkpoint=False prevents that"
                )
            return chosen
        if first and found:
            _start.anew(str(output), found[0], _why_anew(asked, overwrite))
        elif first:
            _start.nothing(str(output))
        return asked

    def choose(self, asked: str | bool) -> str:
        """The checkpoint to resume from: the requested one, or the newest before it that is whole.

        Raises PawlError (PAWL_ENOENT) with the reasons if there is none.
        """
        output = Path(os.path.abspath(self._trainer.args.output_dir))
        self._open(output).flush()  # saves of the processes before this one
        wanted = None if asked is True else Path(os.path.abspath(str(asked)))
        ours = wanted is None or wanted.parent == output

        def candidates() -> list[Path]:
            found = _whole.numbered(output, _NAME) if ours else []
            if wanted is None:
                return found
            return found[found.index(wanted) :] if wanted in found else [wanted]

        args = self._trainer.args
        return str(_whole.choose(candidates, _needed(args), args.process_index, aside=ours))

    def check(self, folder: Path) -> None:
        """Raises PawlError (PAWL_ECORRUPT) if a checkpoint is not whole."""
        why = _whole.why_refused(folder, _needed(self._trainer.args))
        if why is not None:
            raise error("PAWL_ECORRUPT", f"{folder} is not loaded: {why}")


def _why_anew(asked: str | bool | None, overwrite: bool) -> str:
    if asked is not None:
        return "resume_from_checkpoint=False was given"
    if overwrite:
        return "overwrite_output_dir was given"
    return "train(resume_from_checkpoint=True) resumes"


def _reads_checkpoint(callback: TrainerCallback) -> bool:
    """Whether a callback is called on a save and may read it from the disk."""
    if type(callback).on_save is TrainerCallback.on_save:
        return False
    # An attribute of WandbCallback, "false" by default.
    upload = getattr(callback, "_log_model", None)
    return upload is None or str(getattr(upload, "value", upload)) == "checkpoint"


def _needed(args: Any) -> list[str]:
    """Files without which Trainer would resume, but from another state."""
    if getattr(args, "save_only_model", False):
        return [_STATE]
    ranks = range(args.world_size)
    rng = [f"rng_state_{rank}.pth" for rank in ranks] if args.world_size > 1 else ["rng_state.pth"]
    return [_STATE, "optimizer.pt", "scheduler.pt", *rng]


def main() -> None:
    """Runs a script, unmodified, with enable() called before it."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m pawl.integrations.transformers script.py args…")
    from pawl.integrations import transformers as module  # this module is called __main__ here

    module.enable()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
