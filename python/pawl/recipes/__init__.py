"""The recipes of SkyPilot's training guide, with their intent made true.

Two decorators around the user's own functions, which write and read files as they like. Source of
names, arguments and intent: SkyPilot documentation, "Model Training Guide", "Robust checkpointing
with error handling". docs/recipes.md says what differs. The guide's basic recipes are in
``pawl.recipes.basic``.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pawl.recipes import _folder
from pawl.recipes._ranks import Ranks
from pawl.recipes._steps import StepArgument, common_step

__all__ = ["load_checkpoint", "save_checkpoint"]

log = logging.getLogger("pawl")

P = ParamSpec("P")
R = TypeVar("R")


def save_checkpoint(
    save_dir: str | os.PathLike[str],
    max_checkpoints: int | None = 5,
    checkpoint_prefix: str = "checkpoint",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that writes a checkpoint's files somewhere below ``save_dir``.

    The function is called once, and its result or exception is passed on. The files it wrote, under
    whatever names, are synced; then ``{checkpoint_prefix}_step_{step}_metadata.json``, with their
    sizes and checksums, makes them a checkpoint; then files that the function wrote for steps
    before the newest ``max_checkpoints`` (None: all are kept) are deleted, with their metadata. The
    step is the argument ``step``, else the first one, else the number at the end of the names.

    If the files cannot be recorded, the logger ``pawl`` says why, nothing older is deleted, and the
    call returns as if it had been.

    Raises ValueError for a prefix that is no part of a file's name, or ``max_checkpoints`` < 1;
    OSError if ``save_dir`` cannot be made.
    """
    _check_prefix(checkpoint_prefix)
    if max_checkpoints is not None and max_checkpoints < 1:
        raise ValueError(f"max_checkpoints must be at least 1, or None, not {max_checkpoints!r}")
    Path(save_dir).mkdir(parents=True, exist_ok=True)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        argument = StepArgument(function)
        writer = getattr(function, "__qualname__", repr(function))

        @functools.wraps(function)
        def save(*args: P.args, **kwargs: P.kwargs) -> R:
            ranks = Ranks()
            owner = _folder.Owner(Path(save_dir), checkpoint_prefix, ranks.rank)
            before = _look_before(owner.folder)
            result = function(*args, **kwargs)
            step = _record(owner, before, argument.of(args, kwargs), writer, _model(args, kwargs))
            if step is not None and max_checkpoints is not None:
                _prune(owner, ranks.world, step, writer, max_checkpoints)
            return result

        return save

    return decorate


def load_checkpoint(
    save_dir: str | os.PathLike[str], checkpoint_prefix: str = "checkpoint"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that loads the checkpoint of the step it is given.

    The function is called with the newest step whose files are whole and undamaged in place of the
    caller's step, and its result is passed on. If it raises an Exception, the next older step is
    tried. With none left it is called once with the caller's own arguments, untouched, and its
    exception is passed on. The log (logger ``pawl``) says why a step was skipped.

    Where torch.distributed is initialised every rank must call it: all ranks get the same step, the
    newest one that is whole for each and that none fails to load (``all_gather_object`` in the
    default group).

    After a call, ``step`` of the decorated function is the step that was loaded, or None; and
    ``verified`` whether checksums confirm it: files that the guide's own decorators, or none, have
    written have no checksums.

    Raises PawlError (PAWL_ECORRUPT) if the caller's own step turned out to be damaged; ValueError
    for a prefix that is no part of a file's name.
    """
    _check_prefix(checkpoint_prefix)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        argument = StepArgument(function)

        @functools.wraps(function)
        def load(*args: P.args, **kwargs: P.kwargs) -> R:
            mark: Any = load
            mark.step, mark.verified = None, False
            name = getattr(function, "__qualname__", repr(function))
            if not argument.has_place(args, kwargs):
                log.warning("%s takes no step: called as it is, nothing is verified", name)
                return function(*args, **kwargs)
            search = _Search(Path(save_dir), checkpoint_prefix)
            for candidate in search.steps():
                args_now, kwargs_now = argument.put(args, kwargs, candidate.step)
                if search.attempt(candidate, functools.partial(function, *args_now, **kwargs_now)):
                    mark.step, mark.verified = candidate.step, search.verified
                    return search.result
            search.raise_if_tried(argument.of(args, kwargs))
            log.warning("%s: nothing to load in %s: called as it is", name, save_dir)
            return function(*args, **kwargs)

        mark: Any = load
        mark.step, mark.verified = None, False
        return load

    return decorate


def _check_prefix(prefix: str) -> None:
    if not prefix or prefix.startswith(".") or "/" in prefix or "\0" in prefix:
        raise ValueError(
            f"checkpoint_prefix must be the beginning of a file's name, not {prefix!r}"
        )


# ---- saving ----


def _look_before(folder: Path) -> dict[str, _folder.Stamp] | Exception:
    """The files before the call, or the error of listing them, which is reported after the call."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = _folder.look(folder)
    except (OSError, _folder.Unrecorded) as reason:
        return reason
    _folder.settle(before)
    return before


def _record(
    owner: _folder.Owner,
    before: dict[str, _folder.Stamp] | Exception,
    step: int | None,
    writer: str,
    model_type: str | None,
) -> int | None:
    """Makes the files written since a checkpoint; returns its step, or None if that failed."""
    try:
        if isinstance(before, Exception):
            raise before
        names = _folder.written(before, _folder.look(owner.folder), step, owner.rank)
        step = common_step(names) if step is None else step
        if step is None:
            raise _folder.Unrecorded("neither the call nor the names of its files contain the step")
        _folder.save(owner, step, names, writer, model_type)
    except (OSError, _folder.Unrecorded) as reason:
        log.error("%s, step %s: what it wrote is no checkpoint: %s", writer, step, reason)
        return None
    log.info("%s, step %d: saved in %s", writer, step, owner.folder)
    return step


def _prune(owner: _folder.Owner, world: int, step: int, writer: str, keep: int) -> None:
    try:
        _folder.prune(owner, world, step, writer, keep)
    except (OSError, _folder.Unrecorded) as reason:
        log.warning("%s: older checkpoints could not be deleted: %s", writer, reason)


def _model(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The class of the argument ``model``, else of the second one, as in the guide's metadata."""
    model = kwargs.get("model", args[1] if len(args) > 1 else None)
    return None if model is None else type(model).__name__


# ---- loading ----


class _Search:
    """One search for a checkpoint that every rank can load."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._ranks = Ranks()
        self._owner = _folder.Owner(folder, prefix, self._ranks.rank)
        self._failures: dict[int, Exception] = {}  # step -> why it was not loaded after all
        self.result: Any = None  # result of the call that succeeded
        self.verified = False  # True: the files of the loaded step matched their checksums

    def steps(self) -> list[_folder.Candidate]:
        """Steps that may be loaded, newest first, the same on all ranks."""
        try:
            found = _folder.candidates(self._owner)
        except (OSError, _folder.Unrecorded) as reason:
            log.error("the search for checkpoints failed: %s", reason)
            found = []
        for each in found:
            if each.reason is not None:
                self._pass_over(each.step, each.reason)
        whole = {each.step: each for each in found if each.reason is None}
        everywhere = set.intersection(*map(set, self._ranks.gather(list(whole))))
        for step in sorted(whole.keys() - everywhere, reverse=True):
            self._pass_over(step, "another rank does not have it whole")
        return [each for step, each in whole.items() if step in everywhere]

    def attempt(self, candidate: _folder.Candidate, call: Callable[[], Any]) -> bool:
        """Verifies a step and loads it; returns whether all ranks did."""
        step = candidate.step
        why = _folder.damage(self._owner.folder, candidate)
        if not self._all_well(step, why, _damaged(step, why or "damaged for another rank")):
            return False
        failure: Exception | None = None
        try:
            self.result = call()
        except Exception as reason:
            failure = reason
        why = None if failure is None else f"{type(failure).__name__}: {failure}"
        if not self._all_well(step, why, failure or _damaged(step, "another rank failed")):
            self.result = None
            return False
        self.verified = candidate.record is not None and candidate.record.ours
        log.info("step %d: loaded%s", step, "" if self.verified else ", without a checksum")
        return True

    def _all_well(self, step: int, why: str | None, failure: Exception) -> bool:
        """Whether no rank has to skip a step; ``why`` is this rank's reason to, or None."""
        reasons = self._ranks.gather(why)
        wrong = [f"rank {rank}: {each}" for rank, each in enumerate(reasons) if each is not None]
        if wrong:
            self._failures[step] = failure
            self._pass_over(step, "; ".join(wrong) if len(reasons) > 1 else str(why))
        return not wrong

    def raise_if_tried(self, step: int | None) -> None:
        """Raises its error if the caller's own step was tried: it is not tried a second time."""
        if step in self._failures:
            raise self._failures[step]

    def _pass_over(self, step: int, why: str) -> None:
        log.warning("step %d in %s: passed over: %s", step, self._owner.folder, why)


def _damaged(step: int, why: str) -> Exception:
    from pawl.errors import error

    return error("PAWL_ECORRUPT", f"step {step}: {why}")
