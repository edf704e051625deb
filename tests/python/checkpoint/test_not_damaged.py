"""What cannot be loaded for a reason of the process is not damaged: nothing is put aside for it,
and no older checkpoint takes its place."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import nursery
import program
from conftest import real_core
from pawl import Checkpointer, PawlError
from pawl.engine import Engine


class Picky:
    """Cannot be loaded while `why` is set."""

    why: Exception | None = None

    def __reduce__(self) -> Any:
        return Picky.load, ()

    @staticmethod
    def load() -> Picky:
        if Picky.why is not None:
            raise Picky.why
        return Picky()


@pytest.mark.parametrize(
    "why",
    [
        ModuleNotFoundError("No module named 'model_of_last_week'"),
        AttributeError("no Net in it"),
        MemoryError(),
        NotImplementedError("no kernel\nhere"),
        pickle.UnpicklingError("not now"),
    ],
    ids=lambda why: type(why).__name__,
)
def test_what_cannot_be_loaded_here_is_not_damaged(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: Exception
) -> None:
    """Neither the checkpoint nor an older one is touched, and the next attempt has it."""
    with Checkpointer(tmp_path, trust=True, persist_every=0) as ckpt:
        for step in (1, 2):
            saved = ckpt.save(step, {"x": torch.ones(2), "n": Picky()})
            assert saved.wait("durable", program.LIMIT_S)
        monkeypatch.setattr(Picky, "why", why)
        live = {"x": torch.zeros(2), "n": None}
        with pytest.raises(PawlError, match="is intact, but cannot be loaded here") as caught:
            ckpt.restore(live)
        assert caught.value.name == "PAWL_ENOTSUP"
        said = str(caught.value)
        assert said.startswith("global_step2/n ") and type(why).__name__ in said
        assert "\n" not in said
        assert live["n"] is None and not live["x"].any()
        monkeypatch.setattr(Picky, "why", None)
        assert ckpt.restore(live) == 2 and live["x"].all()


@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
def test_a_tag_that_cannot_be_loaded_here_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engine is what the integrations load by; it trusts by default."""
    with Engine(tmp_path) as engine:
        engine.save("best", {"n": Picky()})
        assert engine.flush(program.LIMIT_S)
        monkeypatch.setattr(Picky, "why", ModuleNotFoundError("No module named 'mine'"))
        found = engine.find()
        assert found is not None
        with pytest.raises(PawlError, match="ModuleNotFoundError: No module named 'mine'"):
            found.load("n")
        monkeypatch.setattr(Picky, "why", None)
        again = engine.find("best")
        assert again is not None and isinstance(again.load("n"), Picky)


@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
def test_files_that_cannot_be_opened_are_not_damaged(tmp_path: Path) -> None:
    """Each opening of a file that a restore makes is refused once."""
    done = nursery.run(
        [sys.executable, str(Path(__file__).with_name("few_files.py")), str(tmp_path)],
        env=program.clean_env(),
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *refused, restored = done.stdout.splitlines()
    assert restored == "restored 2" and len(refused) >= 2, done.stdout
    assert all("Too many open files" in line for line in refused), done.stdout
    assert "put aside" not in done.stderr and not (tmp_path / ".bad").exists()
