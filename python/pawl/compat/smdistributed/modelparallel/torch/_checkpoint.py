"""SMP's checkpoints, on Pawl's engine.

A partial one is the tag <tag>_partial of the path: a file of the model and of the optimizer for
each partition, and user_content.pt; it may be resumed with any number of partitions. A full one is
the file <tag>, a plain state_dict, with user_content_<tag> beside it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from typing import Any, Final

import torch

import pawl.pipeline as pp
from pawl._ckpt import _parts
from pawl.compat.smdistributed.modelparallel.torch import _ranks, _session
from pawl.engine import AsIs, Engine, Found
from pawl.errors import error
from pawl.pipeline import _saved

_PARTIAL: Final = "_partial"
_USER: Final = "user_content.pt"
_SCALE: Final = "fp16_states.pt"  # scale of the loss, with fp16
log = logging.getLogger("pawl.smp")
_engines: dict[str, tuple[Engine, int | None]] = {}  # by path, with how many tags stay


def save(
    obj: Any,
    f: str | os.PathLike[str],
    partial: bool = True,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    v3: bool = False,
) -> None:
    """Saves as torch.save does, to the file f; if ``partial``, each partition to its own, f_0, f_1
    and so on. The file appears whole, and lasts.
    """
    path = f"{os.fspath(f)}_{_ranks.mp_rank()}" if partial else os.fspath(f)
    temporary = f"{path}.{_ranks.rank()}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            torch.save(obj, file, pickle_module=pickle_module, pickle_protocol=pickle_protocol)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(
    f: str | os.PathLike[str],
    map_location: Any = None,
    pickle_module: Any = pickle,
    partial: bool = True,
    **pickle_load_args: Any,
) -> Any:
    """Loads what save wrote, with ``weights_only=False`` unless told otherwise: trust the file."""
    path = f"{os.fspath(f)}_{_ranks.mp_rank()}" if partial else os.fspath(f)
    pickle_load_args.setdefault("weights_only", False)
    if not pickle_load_args["weights_only"]:
        pickle_load_args["pickle_module"] = pickle_module
    return torch.load(path, map_location, **pickle_load_args)


def save_checkpoint(
    path: str | os.PathLike[str],
    tag: str,
    partial: bool = True,
    model: Any = None,
    optimizer: Any = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Saves a checkpoint. All ranks call it with the same tag.

    A partial one is copied while training goes on, and becomes durable in the background.
    ``num_kept_partial_checkpoints``: how many of them stay; None: all. It is that of the first
    such save to a path. A full one has no optimizer state, and is durable when this returns.
    """
    if model is None:
        raise error("PAWL_EINVAL", "smp: save_checkpoint needs model=")
    if partial:
        _save_partial(
            os.fspath(path), tag, model, optimizer, user_content, num_kept_partial_checkpoints
        )
        return
    whole = model.state_dict()
    if _ranks.rank() == 0:
        os.makedirs(path, exist_ok=True)
        if user_content is not None:
            save(user_content, os.path.join(path, f"user_content_{tag}"), partial=False)
        save(whole, os.path.join(path, tag), partial=False)
        with open(os.path.join(path, "newest"), "w", encoding="utf-8") as file:
            file.write(tag)
    _ranks.barrier()


def _save_partial(
    path: str, tag: str, model: Any, optimizer: Any, user_content: Any, kept: int | None
) -> None:
    parts: dict[str, Any] = {}
    if pp.replica() == 0:
        found = _parts.describe("model", model, model._saved)
        parts[f"model_{pp.rank()}_0.pt"] = AsIs(found.value, found.shards)
        if optimizer is not None:
            found = _parts.describe("optimizer", _parts.unwrap(optimizer), model._saved)
            parts[f"optimizer_{pp.rank()}_0.pt"] = AsIs(found.value, found.shards)
    if _ranks.rank() == 0:
        parts[_USER] = AsIs(user_content)
        if getattr(optimizer, "scaler", None) is not None:
            parts[_SCALE] = AsIs(optimizer.scaler.state_dict())
    _engine(path, kept).save(tag + _PARTIAL, parts)


def _engine(path: str, kept: int | None = None) -> Engine:
    path = os.path.abspath(path)
    engine, known = _engines.get(path, (None, None))
    if engine is not None and known is None and kept is not None:
        engine.close()  # the one that resuming has opened
        engine = None
    if engine is None:
        os.makedirs(path, exist_ok=True)
        engine = Engine(path, keep=kept or 0)
        engine.tell_starts("call smp.resume_from_checkpoint() before")
        _engines[path] = engine, kept
    return engine


def resume_from_checkpoint(
    path: str | os.PathLike[str],
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Any = None,
) -> Any:
    """Loads a checkpoint into the DistributedModel and the DistributedOptimizer of this process,
    and returns its user_content. All ranks call it. ``tag`` None: the newest one.

    user_content is unpickled, which may run code: trust the checkpoint.

    Raises FileNotFoundError if there is none; RuntimeError, ValueError or PawlError if it does not
    fit. ``translate_function`` is applied to the state_dict of a full one.
    """
    session = _session.current()
    if session.model is None:
        raise error("PAWL_EINVAL", "smp: make a DistributedModel before resume_from_checkpoint")
    if not partial:
        return _resume_full(os.fspath(path), tag, session.model, strict, translate_function)
    found = _find(os.fspath(path), tag)
    _load_model(found, session.model, strict)
    names = _files(found, "optimizer")
    if load_optimizer and session.optimizer is None and names:
        log.warning("smp: %s has the optimizer's state; make a DistributedOptimizer before", found)
    elif load_optimizer and names:
        joined = _parts.join([found.load(name) for name in names])
        session.optimizer.load_state_dict(joined)
        if _SCALE in found.names and session.optimizer.scaler is not None:
            session.optimizer.scaler.load_state_dict(found.load(_SCALE))
    return found.load(_USER)


def _find(path: str, tag: str | None) -> Found:
    found = _engine(path).find(None if tag is None else tag + _PARTIAL)
    if found is None:
        what = "partial checkpoint" if tag is None else f"partial checkpoint {tag}"
        raise FileNotFoundError(f"smp: there is no {what} in {path}")
    return found


def _files(found: Found, kind: str) -> list[str]:
    return [name for name in found.names if name.startswith(f"{kind}_")]


def _load_model(found: Found, model: Any, strict: bool) -> None:
    """One file after the other, of each what this rank has."""
    mark, seen, here = None, set(), None
    for name in _files(found, "model"):
        value = found.load(name)
        if here is None:
            mark = _parts.mark_of(value)
            here = model._saved.restores(mark)
        seen |= value.keys()
        mine = {key: tensor for key, tensor in value.items() if key in here.tensors}
        _saved.load(here, mine, strict=False)
    assert here is not None
    missing = [key for key in [*here.tensors, *here.elsewhere] if key not in seen]
    unexpected = [k for k in seen if k not in here.tensors and k not in here.elsewhere]
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"smp: {found.tag} does not fit the model: missing: {', '.join(missing) or 'none'}; "
            f"unexpected: {', '.join(unexpected) or 'none'}"
        )
    model._saved.restored(mark)


def _resume_full(path: str, tag: str | None, model: Any, strict: bool, translate: Any) -> Any:
    if tag is None:
        newest = os.path.join(path, "newest")
        if not os.path.exists(newest):
            raise FileNotFoundError(f"smp: there is no full checkpoint in {path}")
        with open(newest, encoding="utf-8") as file:
            tag = file.read().strip()
    whole = torch.load(os.path.join(path, tag), "cpu", weights_only=True, mmap=True)
    model.load_state_dict(translate(whole) if translate else whole, strict=strict)
    user = os.path.join(path, f"user_content_{tag}")
    return torch.load(user, "cpu", weights_only=False) if os.path.exists(user) else None
