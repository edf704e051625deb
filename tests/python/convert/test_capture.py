"""Objects that frameworks write into a checkpoint's folder are taken before they are written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("safetensors")
pytest.importorskip("pawl._core")

import safetensors.torch

from pawl.engine import AsIs, Raw, Safetensors
from pawl.errors import PawlError
from pawl.integrations._capture import capture


def test_tensors_are_taken_and_the_rest_is_read(tmp_path: Path) -> None:
    folder, other = tmp_path / "new", tmp_path / "other.pt"
    originals = torch.save, safetensors.torch.save_file
    weight = torch.ones(3)
    with capture(folder) as files:
        folder.mkdir()
        torch.save({"weight": weight}, folder / "optimizer.pt")
        safetensors.torch.save_file({"weight": weight}, str(folder / "model.safetensors"))
        (folder / "config.json").write_text("{}")
        torch.save(weight, other)
        thread = threading.Thread(target=torch.save, args=(weight, folder / "theirs.pt"))
        thread.start()
        thread.join()
        assert {path.name for path in folder.iterdir()} == {"config.json", "theirs.pt"}
    assert (torch.save, safetensors.torch.save_file) == originals
    assert other.is_file()
    kinds = {name: type(file) for name, file in files.items()}
    assert kinds == {
        "optimizer.pt": AsIs,
        "model.safetensors": Safetensors,
        "config.json": Raw,
        "theirs.pt": Raw,
    }
    assert files["optimizer.pt"].obj["weight"] is weight  # not a copy: it is copied later


def test_failure_leaves_nothing_replaced(tmp_path: Path) -> None:
    originals = torch.save, safetensors.torch.save_file
    with pytest.raises(KeyError), capture(tmp_path):
        raise KeyError
    assert (torch.save, safetensors.torch.save_file) == originals


def test_folders_in_the_folder(tmp_path: Path) -> None:
    with capture(tmp_path) as files:
        (tmp_path / "inner" / "most").mkdir(parents=True)
        (tmp_path / "empty").mkdir()
        (tmp_path / "inner" / "most" / "config.json").write_text("{}")
        torch.save(1, tmp_path / "inner" / "most" / ".." / "a.pt")
        torch.save(1, tmp_path.parent / "beside.pt")
    kinds = {name: type(file) for name, file in files.items()}
    assert kinds == {"inner/most/config.json": Raw, "inner/a.pt": AsIs}


def test_links_are_followed(tmp_path: Path) -> None:
    folder, other = tmp_path / "new", tmp_path / "other"
    for path in (folder, other):
        path.mkdir()
        (path / "config.json").write_text(path.name)
    with capture(folder) as files:
        (folder / "linked").symlink_to(other)
        (folder / "again").symlink_to("../other", target_is_directory=True)
        (folder / "copy.json").symlink_to(other / "config.json")
    contents = {name: file._chunks[0].numpy().tobytes() for name, file in files.items()}
    others = ("linked/config.json", "again/config.json", "copy.json")
    assert contents == {"config.json": b"new", **dict.fromkeys(others, b"other")}


@pytest.mark.parametrize(
    "make",
    [
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("."),
        lambda path: path.symlink_to("..", target_is_directory=True),
    ],
    ids=["fifo", "to_nothing", "to_itself", "to_its_folder", "to_a_folder_above"],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, make: Callable[[Path], object]) -> None:
    (tmp_path / "inner").mkdir()
    with pytest.raises(PawlError, match="inner/strange: "), capture(tmp_path):
        make(tmp_path / "inner" / "strange")


def test_what_pawl_cannot_put_into_safetensors_is_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pawl._ckpt import _raw

    monkeypatch.delitem(_raw._SAFETENSORS, torch.int8)
    with capture(tmp_path) as files:
        safetensors.torch.save_file({"a": torch.ones(2, dtype=torch.int8)}, tmp_path / "x")
    assert isinstance(files["x"], Raw)
