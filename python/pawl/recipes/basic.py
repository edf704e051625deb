"""The guide's two basic recipes: a model saved by its step, and the newest good one found again.

Source: SkyPilot documentation, "Model Training Guide", "Basic checkpointing". The printed loader
has the name that it calls, and looks for other names than the printed saver writes; here the part
that is "to be filled in" is an argument, and the names agree.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pawl import recipes
from pawl.recipes import _folder
from pawl.recipes._ranks import Ranks

if TYPE_CHECKING:
    import torch

_PREFIX = "checkpoint"


def save_checkpoint(
    step: int, model: torch.nn.Module, save_dir: str | os.PathLike[str] = "/checkpoints"
) -> None:
    """Writes the model's state dict to ``{save_dir}/model_{step}.pt``, and its checksum beside it.

    It never deletes a checkpoint. Raises the exceptions of torch.save.
    """
    import torch

    @recipes.save_checkpoint(save_dir, max_checkpoints=None, checkpoint_prefix=_PREFIX)
    def save_model(step: int, model: torch.nn.Module) -> None:
        torch.save(model.state_dict(), Path(save_dir) / f"model_{step}.pt")

    save_model(step, model)


def load_checkpoint(
    save_dir: str | os.PathLike[str] = "/checkpoints",
    load: Callable[[Path], Any] | None = None,
) -> Any:
    """Loads the newest checkpoint whose file is whole; returns the result of
    ``load``, or None if there is none.

    ``load`` gets a path; without it the result is ``(step, state_dict)``, read by torch.load on the
    CPU. If it raises an Exception the next older checkpoint is tried. Several ranks agree as those
    of ``pawl.recipes.load_checkpoint`` do.
    """
    folder = Path(save_dir)

    @recipes.load_checkpoint(save_dir, _PREFIX)
    def load_step(step: int | None = None) -> Any:
        if step is None:
            return None
        path = _file(folder, step)
        return _load(step, path) if load is None else load(path)

    return load_step()


def _load(step: int, path: Path) -> tuple[int, Any]:
    import torch

    return step, torch.load(path, map_location="cpu", weights_only=True)


def _file(folder: Path, step: int) -> Path:
    """model_{step}.pt if the checkpoint has it, else its first file."""
    owner = _folder.Owner(folder, _PREFIX, Ranks().rank)
    names = next(each.names for each in _folder.candidates(owner) if each.step == step)
    return folder / min(names, key=lambda name: (Path(name).name != f"model_{step}.pt", name))
