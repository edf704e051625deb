"""Reads AdaptDL's own checkpoints: a folder ``checkpoint-N`` of pickles, one a state."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from pawl.elastic import _states

_FOLDER: Final = re.compile(r"checkpoint-(\d+)$")
_EPOCH: Final = ".adaptdl-epoch"


def read(root: str) -> tuple[dict[str, bytes], Path | None]:
    """The contents of the newest checkpoint, in the form that our states save, and
    its folder; None: there is none.

    As AdaptDL does, it unpickles the files. Raises the errors of pickle and torch.load.
    """
    found = [
        (int(match[1]), path)
        for path in Path(root).glob("checkpoint-*")
        if (match := _FOLDER.match(path.name)) and (path / _EPOCH).is_file()
    ]
    if not found:
        return {}, None
    _, newest = max(found)
    return {_states.file_of(path.name): _convert(path) for path in newest.iterdir()}, newest


def _convert(path: Path) -> bytes:
    for prefix, convert in _KINDS.items():
        if path.name.startswith(prefix):
            with path.open("rb") as file:
                return convert(file)
    return _other(path)


def _other(path: Path) -> bytes:
    """The bytes of a state with a name of the program's: a model's, converted, or
    another state's, as they are.
    """
    if zipfile.is_zipfile(path):  # written by torch.save
        # The file may be of another state than a model.
        with contextlib.suppress(Exception), path.open("rb") as file:
            return _model(file)
    return path.read_bytes()


def _epoch(file: Any) -> bytes:
    return str(pickle.load(file)).encode()


def _loader(file: Any) -> bytes:
    current, end, last = pickle.load(file)
    fields = [current, end, -1.0, {str(epoch): n for epoch, n in last.items()}, None, False]
    return json.dumps(fields).encode()


def _accumulator(file: Any) -> bytes:
    history, results = pickle.load(file)
    return pickle.dumps(({epoch: list(done) for epoch, done in history.items()}, results, {}))


def _metrics(file: Any) -> bytes:
    """AdaptDL's progress alone; its measurements were made by another program."""
    *_, progress = [pickle.load(file) for _ in range(8)]
    return json.dumps([float(progress), 0, None, []]).encode()


def _model(file: Any) -> bytes:
    (model, optimizer, schedule, scaler), *_ = torch.load(file, weights_only=False)
    optimizer["state"].pop("gns", None)  # the noise scale, which is measured anew
    saved = {
        "model": model,  # the script's own model, not DDP's: names have no prefix
        "optimizer": optimizer,
        "lr_scheduler": schedule,
        "mp_scaler": scaler,
    }
    return _states.zipped(saved)


_KINDS: Final[dict[str, Callable[[Any], bytes]]] = {
    _EPOCH: _epoch,
    "adaptdl-dataloader-": _loader,
    "adaptdl-accumulator-": _accumulator,
    "adaptdl-metrics": _metrics,
    "adaptdl-dataparallel": _model,
}
