"""pawl.recipes: what a user of SkyPilot's guide meets, and the defects of the guide's own code.

Functions that need no torch here write plain bytes: the recipes do not look inside.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import guide
import pawl
from pawl.recipes import _folder, _steps, basic
from recipes_user import Reader, Writer, enter, flip, loader, names, saver


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pawl")
    return caplog


# ---- the guide's printed uses ----


def make_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(3)).sum().backward()
    optimizer.step()


def weights(model: torch.nn.Module) -> list[float]:
    return [value for p in model.parameters() for value in p.flatten().tolist()]


def test_use_model() -> None:
    @pawl.recipes.save_checkpoint(save_dir="checkpoints")
    def save_model(step: int, model: torch.nn.Module):
        torch.save(model.state_dict(), f"checkpoints/model_{step}.pt")

    @pawl.recipes.load_checkpoint(save_dir="checkpoints")
    def load_model(step: int, model: torch.nn.Module):
        model.load_state_dict(torch.load(f"checkpoints/model_{step}.pt"))

    model, optimizer = make_model()
    for step in range(1, 9):
        train(model, optimizer)
        save_model(step, model)
    kept = [f"model_{n}.pt" for n in range(4, 9)]
    kept += [f"checkpoint_step_{n}_metadata.json" for n in range(4, 9)]
    assert names() == sorted(kept)
    said = json.loads(Path("checkpoints/checkpoint_step_8_metadata.json").read_text())
    assert (said["step"], said["model_type"]) == (8, "Linear") and "T" in said["timestamp"]
    fresh, _ = make_model()
    load_model(0, fresh)
    assert weights(fresh) == weights(model)
    assert (load_model.step, load_model.verified) == (8, True)


def test_use_training_state() -> None:
    @pawl.recipes.save_checkpoint(save_dir="checkpoints")
    def save_training_state(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer):
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
            f"checkpoints/training_{step}.pt",
        )

    @pawl.recipes.load_checkpoint(save_dir="checkpoints")
    def load_training_state(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer):
        checkpoint = torch.load(f"checkpoints/training_{step}.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        return checkpoint["step"]

    model, optimizer = make_model()
    for step in range(100, 1000, 100):
        train(model, optimizer)
        save_training_state(step=step, model=model, optimizer=optimizer)
    assert len(names()) == 10
    fresh, its = make_model()
    assert load_training_state(step=0, model=fresh, optimizer=its) == 900
    train(model, optimizer)
    train(fresh, its)
    assert weights(fresh) == weights(model)


def test_use_prefix_and_metrics() -> None:
    @pawl.recipes.save_checkpoint(save_dir="checkpoints", checkpoint_prefix="experiment1")
    def save_with_metrics(step: int, model: torch.nn.Module, metrics: dict[str, float]):
        torch.save(
            {"model": model.state_dict(), "metrics": metrics, "step": step},
            f"checkpoints/experiment1_step_{step}.pt",
        )

    @pawl.recipes.load_checkpoint(save_dir="checkpoints", checkpoint_prefix="experiment1")
    def load_with_metrics(step: int, model: torch.nn.Module):
        checkpoint = torch.load(f"checkpoints/experiment1_step_{step}.pt")
        model.load_state_dict(checkpoint["model"])
        return checkpoint["metrics"]

    model, optimizer = make_model()
    for step in range(1, 8):
        train(model, optimizer)
        save_with_metrics(step, model, metrics={"loss": 1 / step})
    assert len(names()) == 10
    fresh, _ = make_model()
    assert load_with_metrics(0, fresh) == {"loss": 1 / 7}
    assert weights(fresh) == weights(model)


def test_basic_recipes() -> None:
    model, optimizer = make_model()
    for step in range(1, 8):
        train(model, optimizer)
        basic.save_checkpoint(step, model, save_dir="checkpoints")
    assert len(names()) == 14  # the guide's basic recipe deletes nothing
    step, state = basic.load_checkpoint("checkpoints")
    fresh, _ = make_model()
    fresh.load_state_dict(state)
    assert (step, weights(fresh)) == (7, weights(model))
    flip("checkpoints/model_7.pt", 200)
    assert basic.load_checkpoint("checkpoints")[0] == 6
    got = basic.load_checkpoint("checkpoints", load=lambda path: path)
    assert got == Path("checkpoints/model_6.pt")


def test_the_basic_loader_finds_what_the_printed_saver_wrote() -> None:
    """Without any metadata: the user's own save_checkpoint writes model_{step}.pt."""
    model, _ = make_model()
    assert basic.load_checkpoint("checkpoints") is None
    Path("checkpoints").mkdir()
    assert basic.load_checkpoint("checkpoints") is None
    for step in (9, 10):
        torch.save(model.state_dict(), f"checkpoints/model_{step}.pt")
    Path("checkpoints/model_11.pt").write_bytes(b"PK\3\4")  # a save that was cut short
    assert basic.load_checkpoint("checkpoints")[0] == 10
    assert guide.basic_load_checkpoint("checkpoints") is None  # D5


def test_the_basic_recipes_decorated(told: pytest.LogCaptureFixture) -> None:
    @pawl.recipes.save_checkpoint(save_dir="checkpoints")
    def save_checkpoint(step: int, model: torch.nn.Module):
        torch.save(model.state_dict(), f"checkpoints/model_{step}.pt")

    model, _ = make_model()
    save_checkpoint(3, model)
    assert basic.load_checkpoint("checkpoints")[0] == 3


# ---- the guide's defects, and ours side by side ----


def test_d1_the_sixth_save_runs_twice() -> None:
    theirs, pattern = Writer("theirs/checkpoint_step_{}.pt"), "checkpoints/checkpoint_step_{}.pt"
    save = guide.save_checkpoint("theirs")(theirs)
    for step in range(1, 8):
        save(step, None)
    assert theirs.calls == [1, 2, 3, 4, 5, 6, 6, 7, 7]
    assert sum(name.endswith(".json") for name in names("theirs")) == 7
    assert sum(name.endswith(".pt") for name in names("theirs")) == 5

    save, ours = saver(pattern)
    assert [save(step, None) for step in range(1, 8)] == [f"wrote {n}" for n in range(1, 8)]
    assert ours.calls == [1, 2, 3, 4, 5, 6, 7]
    steps = [f"checkpoint_step_{n}.pt" for n in range(3, 8)]
    assert [name for name in names() if name.endswith(".pt")] == steps
    assert sum(name.endswith(".json") for name in names()) == 5


@pytest.mark.parametrize("kind", ["model", "training"])
def test_d2_file_names_of_the_printed_uses(kind: str) -> None:
    theirs = Writer(f"theirs/{kind}_{{}}.pt")
    save = guide.save_checkpoint("theirs")(theirs)
    for step in range(1, 9):
        save(step, None)
    assert len(list(Path("theirs").glob("*.pt"))) == 8
    reader = Reader(f"theirs/{kind}_{{}}.pt")
    with pytest.raises(FileNotFoundError):
        guide.load_checkpoint("theirs")(reader)(0)
    assert reader.calls == [0, 0]  # from scratch, twice

    save, _ = saver(f"checkpoints/{kind}_{{}}.pt")
    for step in range(1, 9):
        save(step, None)
    assert len(list(Path("checkpoints").glob("*.pt"))) == 5
    load, ours = loader(f"checkpoints/{kind}_{{}}.pt")
    assert load(0) == 8 and ours.calls == [8]


def test_d3_a_foreign_file() -> None:
    theirs = Writer("theirs/checkpoint_step_{}.pt")
    save = guide.save_checkpoint("theirs")(theirs)
    save(1, None)
    Path("theirs/checkpoint_step_2_best.pt").write_bytes(b"x")
    save(2, None)
    assert theirs.calls == [1, 2, 2]
    reader = Reader("theirs/checkpoint_step_{}.pt")
    with pytest.raises(FileNotFoundError):
        guide.load_checkpoint("theirs")(reader)(0)
    assert reader.calls == [0]

    pattern = "checkpoints/checkpoint_step_{}.pt"
    save, ours = saver(pattern, max_checkpoints=2)
    save(1, None)
    foreign = Path("checkpoints/checkpoint_step_2_best.pt")
    foreign.write_bytes(b"x")
    for step in (2, 3, 4):
        save(step, None)
    assert ours.calls == [1, 2, 3, 4] and foreign.exists()
    load, reader = loader(pattern)
    flip("checkpoints/checkpoint_step_4.pt")
    assert load(0) == 3 and reader.calls == [3]


def test_d4_every_candidate_fails(told: pytest.LogCaptureFixture) -> None:
    def fails(calls: list[int]) -> Callable[[int], None]:
        def load(step: int) -> None:
            calls.append(step)
            raise RuntimeError(f"cannot load {step}")

        return load

    theirs: list[int] = []
    for step in (1, 2, 3):
        guide.save_checkpoint("theirs")(Writer("theirs/checkpoint_step_{}.pt"))(step)
    with pytest.raises(RuntimeError, match="cannot load 1"):
        guide.load_checkpoint("theirs")(fails(theirs))(7)
    assert theirs == [3, 2, 1, 1, 1]

    save, _ = saver()
    for step in (1, 2, 3):
        save(step)
    ours: list[int] = []
    load = pawl.recipes.load_checkpoint("checkpoints")(fails(ours))
    with pytest.raises(RuntimeError, match="cannot load 7"):
        load(7)
    assert ours == [3, 2, 1, 7]
    assert "nothing to load in checkpoints: called as it is" in told.text
    ours.clear()
    with pytest.raises(RuntimeError, match="cannot load 2"):
        load(2)
    assert ours == [3, 2, 1]  # each was tried once


def test_d5_the_basic_loader_calls_itself() -> None:
    Path("checkpoints").mkdir()
    model, _ = make_model()
    torch.save(model.state_dict(), "checkpoints/checkpoint_5.pt")
    assert guide.basic_load_checkpoint("checkpoints") is None
    step, state = basic.load_checkpoint("checkpoints")
    assert step == 5 and state.keys() == model.state_dict().keys()


def test_d6_a_flipped_bit(told: pytest.LogCaptureFixture) -> None:
    def write(step: int, model: torch.nn.Module, folder: str) -> None:
        torch.save(model.state_dict(), f"{folder}/checkpoint_step_{step}.pt")

    def read(step: int, folder: str) -> torch.Tensor:
        return torch.load(f"{folder}/checkpoint_step_{step}.pt")["weight"]

    model, optimizer = make_model()
    good = torch.empty(0)
    for step in (1, 2):
        guide.save_checkpoint("theirs")(write)(step, model, "theirs")
        pawl.recipes.save_checkpoint("checkpoints")(write)(step, model, "checkpoints")
        if step == 1:
            good = model.weight.detach().clone()
            train(model, optimizer)
    for folder in ("theirs", "checkpoints"):
        path = Path(folder, "checkpoint_step_2.pt")
        state = torch.load(path)["weight"]
        flip(path, path.read_bytes().index(state.numpy().tobytes()))
    theirs = guide.load_checkpoint("theirs")(read)(0, "theirs")
    assert not torch.equal(theirs, good)  # a wrong bit was loaded as if it were right
    load = pawl.recipes.load_checkpoint("checkpoints")(read)
    assert torch.equal(load(0, "checkpoints"), good)
    assert load.step == 1
    assert "step 2 in checkpoints: passed over: checkpoint_step_2.pt is damaged" in told.text


def test_d6_nothing_counts_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns the operations in the order in which the file system gets them."""
    trace: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}

    def fsync(fd: int) -> None:
        trace.append("sync " + Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        real["fsync"](fd)

    def replace(source: Any, target: Any) -> None:
        trace.append(f"publish {Path(target).name}")
        real["replace"](source, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        trace.append(f"delete {self.name}")
        real["unlink"](self)

    save, _ = saver("checkpoints/run/model_{}.pt", max_checkpoints=1)
    save(1)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    save(2)
    assert trace[0] == "sync model_2.pt"
    assert set(trace[1:3]) == {"sync run", "sync checkpoints"}
    assert trace[3] == "sync .checkpoint_step_2_metadata.json.new"
    assert trace[4:] == [
        "publish checkpoint_step_2_metadata.json",
        "sync checkpoints",
        "delete model_1.pt",
        "delete checkpoint_step_1_metadata.json",
    ]


def test_d8_the_old_one_goes_when_the_new_one_is_there(
    monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    """One checkpoint is kept, and the disk fails in the middle of the second save."""

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def lose(path: str) -> None:
        Path(path).write_bytes(b"")  # a crash leaves a file that was not synced like this

    pattern = "checkpoints/checkpoint_step_{}.pt"
    theirs = guide.save_checkpoint("theirs", 1)(Writer("theirs/checkpoint_step_{}.pt"))
    save, _ = saver(pattern, max_checkpoints=1)
    theirs(1)
    save(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        theirs(2)
        assert save(2) == "wrote 2"
    lose("theirs/checkpoint_step_2.pt")
    lose("checkpoints/checkpoint_step_2.pt")
    with pytest.raises((RuntimeError, FileNotFoundError)):
        guide.load_checkpoint("theirs")(Reader("theirs/checkpoint_step_{}.pt"))(0)
    assert "what it wrote is no checkpoint: [Errno 5]" in told.text
    load, reader = loader(pattern)
    assert load(0) == 1 and reader.calls == [1]


# ---- the user's function ----


def test_a_failing_save_is_not_repeated() -> None:
    calls = []

    @pawl.recipes.save_checkpoint("checkpoints")
    def save(step: int) -> None:
        calls.append(step)
        Path(f"checkpoints/model_{step}.pt").write_bytes(b"half")
        if step == 2:
            raise OSError("no space")

    save(1)
    with pytest.raises(OSError, match="no space"):
        save(2)
    assert calls == [1, 2]
    load, reader = loader()
    with pytest.raises(RuntimeError):
        load(1)
    assert reader.calls == [1]  # 2 has no metadata, so it is not tried


def test_what_a_load_returns_and_raises_is_passed_on(told: pytest.LogCaptureFixture) -> None:
    load, reader = loader()
    with pytest.raises(FileNotFoundError):
        load(3)
    assert reader.calls == [3] and load.step is None
    save, _ = saver()
    save(1)

    @pawl.recipes.load_checkpoint("checkpoints")
    def interrupted(step: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(0)


def test_where_the_step_stands() -> None:
    class Trainer:
        @pawl.recipes.save_checkpoint("checkpoints")
        def save(self, model: Any, step: int = 5) -> None:
            Writer()(step)

        @pawl.recipes.load_checkpoint("checkpoints")
        def load(self, model: Any, step: int = -1) -> int:
            return Reader()(step)

    def first(number: int, model: Any) -> int:
        return Reader()(number)

    def keyword(**options: Any) -> int:
        return Reader()(options["step"])

    trainer, model = Trainer(), make_model()[0]
    trainer.save(model, 3)
    trainer.save(model, step=4)
    assert trainer.load(model) == 4 and trainer.load(model, 0) == 4
    trainer.save(model)
    assert trainer.load(model, step=0) == 5
    decorate = pawl.recipes.load_checkpoint("checkpoints")
    assert decorate(first)(0, model) == 5 and decorate(keyword)(step=0) == 5
    save = pawl.recipes.save_checkpoint("checkpoints")(lambda number, model: Writer()(number))
    save(torch.tensor(6), model)
    assert decorate(first)(0, model) == 6
    assert [_steps.as_step(value) for value in (True, -1, 2.5, "7", None, model)] == [None] * 6


def test_a_call_that_names_no_step(told: pytest.LogCaptureFixture) -> None:
    @pawl.recipes.save_checkpoint("checkpoints")
    def save(model: Any, name: str) -> str:
        Path("checkpoints", name).write_bytes(b"x")
        return name

    assert save(None, "model_12.pt") == "model_12.pt"
    assert names() == ["checkpoint_step_12_metadata.json", "model_12.pt"]
    assert save(None, "latest.pt") == "latest.pt"
    assert "neither the call nor the names of its files contain the step" in told.text
    assert len(names()) == 3

    @pawl.recipes.load_checkpoint("checkpoints")
    def load() -> bytes:
        return Path("checkpoints/latest.pt").read_bytes()

    assert load() == b"x" and "load takes no step" in told.text


def test_a_save_that_writes_nothing_is_told(told: pytest.LogCaptureFixture) -> None:
    save = pawl.recipes.save_checkpoint("checkpoints")(lambda step: "done")
    assert save(1) == "done" and names() == []
    assert "no file was written below checkpoints" in told.text


# ---- which files ----


def test_files_in_folders_and_several_of_them() -> None:
    @pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=2)
    def save(step: int) -> None:
        folder = Path(f"checkpoints/run/step-{step:06}")
        folder.mkdir(parents=True)
        (folder / "model.bin").write_bytes(b"m" * step)
        (folder / "optimizer.bin").write_bytes(b"o")
        Path("checkpoints/latest").write_text(str(step))

    for step in (1, 2, 3, 4):
        save(step)
    assert names("checkpoints/run") == ["step-000003", "step-000004"]
    assert Path("checkpoints/latest").read_text() == "4"
    said = json.loads(Path("checkpoints/checkpoint_step_4_metadata.json").read_text())
    assert [file["name"] for file in said["files"]] == [
        "run/step-000004/model.bin",
        "run/step-000004/optimizer.bin",
    ]
    got = pawl.recipes.load_checkpoint("checkpoints")(lambda step: step)
    assert got(0) == 4
    Path("checkpoints/run/step-000004/optimizer.bin").unlink()
    assert got(0) == 3


def test_one_file_written_over_and_over() -> None:
    save, _ = saver("checkpoints/latest.pt", max_checkpoints=2)
    for step in (1, 2, 3, 4):
        save(step)
    assert [name for name in names() if name.endswith(".pt")] == ["latest.pt"]
    load, reader = loader("checkpoints/latest.pt")
    assert load(0) == 4 and reader.calls == [4]


def test_a_write_within_one_tick_of_the_clock_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(_folder, "TICK_S", 10.0)
    monkeypatch.setattr(time, "sleep", waited.append)
    save, _ = saver("checkpoints/latest.pt")
    save(1)
    assert waited == []  # there was no earlier record
    save(2)
    assert waited == [10.0]


def test_what_others_write_at_the_same_time_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    @pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=1)
    def save(step: int) -> None:
        Writer()(step)
        with Path("checkpoints/train.log").open("a") as log:
            log.write("a line\n")

    for step in (1, 2, 3):
        save(step)
    assert "train.log" in names()
    with Path("checkpoints/train.log").open("a") as log:
        log.write("a line\n")
    assert loader()[0](0) == 3

    real = _folder._checksum
    grow = open("checkpoints/step_4.tmp", "ab")  # noqa: SIM115 (another process, in mid-write)

    def checksum(file: Any) -> str:
        if "step_4.tmp" in str(file.name):
            grow.write(b"x")
            grow.flush()
        return real(file)

    monkeypatch.setattr(_folder, "_checksum", checksum)
    grow.write(b"x")

    @pawl.recipes.save_checkpoint("checkpoints")
    def both(step: int) -> None:
        grow.flush()
        Writer()(step)

    both(4)
    grow.close()
    said = json.loads(Path("checkpoints/checkpoint_step_4_metadata.json").read_text())
    assert [file["name"] for file in said["files"]] == ["model_4.pt"]


def test_two_functions_of_one_folder() -> None:
    """The guide prints two functions with one folder and one prefix, model_ and training_."""

    def model(step: int) -> None:
        Writer()(step)

    def training(step: int) -> None:
        Writer("checkpoints/training_{}.pt")(step)

    save_model = pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=2)(model)
    save_training = pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=3)(training)
    for step in range(1, 11):
        save_training(step)
        if step % 5 == 0 or step == 1:
            save_model(step)
    files = [name for name in names() if name.endswith(".pt")]
    assert files == ["model_10.pt", "model_5.pt"] + [f"training_{n}.pt" for n in (10, 8, 9)]
    said = json.loads(Path("checkpoints/checkpoint_step_10_metadata.json").read_text())
    assert sorted(file["name"] for file in said["files"]) == ["model_10.pt", "training_10.pt"]
    assert len(names()) == 5 + 4  # records of steps 5, 8, 9, 10
    load, reader = loader()
    assert load(0) == 10
    Path("checkpoints/training_10.pt").unlink()
    assert load(0) == 5 and reader.calls == [10, 9, 8, 5]


def test_a_step_saved_again_under_another_name() -> None:
    @pawl.recipes.save_checkpoint("checkpoints")
    def save(step: int, suffix: str) -> None:
        Path(f"checkpoints/step_{step}_{suffix}.pt").write_bytes(b"whole")

    save(1, "a")
    save(1, "b")
    Path("checkpoints/step_1_a.pt").write_bytes(b"half")
    save(1, "c")
    said = json.loads(Path("checkpoints/checkpoint_step_1_metadata.json").read_text())
    assert sorted(file["name"] for file in said["files"]) == ["step_1_b.pt", "step_1_c.pt"]
    assert pawl.recipes.load_checkpoint("checkpoints")(lambda step: step)(0) == 1


def test_the_number_at_the_end_of_a_name() -> None:
    told = {"model_500.pt": 500, "v1.5/model_1.5_007.tar.gz": 7, "model_3.pt2": 3, "step_8": 8}
    untold = ["model.pt", "model_2_best.pt", "step_4/model.pt", "model_5.6_x"]
    assert {name: _steps.trailing(name) for name in told} == told
    assert [_steps.trailing(name) for name in untold] == [None] * len(untold)


# ---- retention ----


def test_the_step_just_saved_stays_and_so_does_what_is_not_ours() -> None:
    save, _ = saver(max_checkpoints=2)
    for step in (100, 200):
        save(step)
    Path("checkpoints/model_50.pt").write_bytes(b"somebody's")
    save(1)  # from scratch
    assert "model_1.pt" in names()
    save(300)
    files = [name for name in names() if name.endswith(".pt")]
    assert files == ["model_200.pt", "model_300.pt", "model_50.pt"]


def test_damaged_ones_do_not_count_as_kept() -> None:
    save, _ = saver(max_checkpoints=2)
    for step in (1, 2, 3):
        save(step)
    Path("checkpoints/model_3.pt").write_bytes(b"")
    save(4)
    assert {"model_2.pt", "model_4.pt"} <= set(names())
    assert loader()[0](0) == 4


def test_a_deletion_that_was_cut_short_is_ended() -> None:
    save, _ = saver(max_checkpoints=2)
    save(1)
    save(2)
    Path("checkpoints/model_1.pt").unlink()  # as if the process was killed then
    assert loader()[0](0) == 2
    save(3)
    save(4)
    assert [name for name in names() if "_1" in name] == []


def test_options_are_checked() -> None:
    for prefix in ("", "../x", "a/b", ".hidden"):
        with pytest.raises(ValueError, match="checkpoint_prefix"):
            pawl.recipes.save_checkpoint("checkpoints", checkpoint_prefix=prefix)
        with pytest.raises(ValueError, match="checkpoint_prefix"):
            pawl.recipes.load_checkpoint("checkpoints", checkpoint_prefix=prefix)
    with pytest.raises(ValueError, match="max_checkpoints"):
        pawl.recipes.save_checkpoint("checkpoints", max_checkpoints=0)
    save, _ = saver(max_checkpoints=None)
    for step in range(9):
        save(step)
    assert len(names()) == 18
