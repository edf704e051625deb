"""Trainer through Pawl: saving, resuming, refusing, deleting."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import nursery
import packages
import program
from ranks import free_port

packages.require("transformers", "accelerate", "pawl._core")
program.find()

from pawl import PawlError  # noqa: E402
from pawl.engine import Engine  # noqa: E402
from pawl.integrations import _whole  # noqa: E402

transformers = packages.Lazy("transformers")
safetensors_torch = packages.Lazy("safetensors.torch")
pawl_trainer = packages.Lazy("pawl.integrations.transformers")
small_trainer = packages.Lazy("small_trainer")
SCRIPT = Path(__file__).with_name("small_trainer.py")
FILES = {
    "config.json", "model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt",
    "trainer_state.json", "training_args.bin",
}  # fmt: skip
OURS = {".pawl", "complete.txt"}
# Entries beside the checkpoints, once there is one.
TABLES = {"checkpointHistories.csv", "checkpointEvents.csv"}


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """Enables Pawl's integration for this module's tests only."""
    originals = {
        name: getattr(transformers.Trainer, name)
        for name in ("train", "_save_checkpoint", "_load_best_model")
    }
    pawl_trainer.enable()
    yield
    for name, original in originals.items():
        setattr(transformers.Trainer, name, original)
    pawl_trainer._options.clear()


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Checkpoints and final weights of an undisturbed run of Trainer alone."""
    output = tmp_path_factory.mktemp("stock") / "out"
    return output, run(output)


def run(output: Path, *options: str, env: dict[str, str] | None = None) -> str:
    """Trains in a process of its own. Returns the SHA-256 of the weights, or "" if it died."""
    done = nursery.run(
        [sys.executable, SCRIPT, output, *options],
        env=env or program.clean_env(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=program.LIMIT_S,
    )
    return done.stdout.partition("weights ")[2].strip()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - TABLES


def await_12(output: Path) -> None:
    """Waits for the last checkpoint of a run that was killed at step 15."""
    program.wait_until(lambda: "checkpoint-12" in names(output), "what was committed is durable")


@pytest.mark.parametrize("asked", [None, True, False, "True", "false"])
def test_started_by_pawl_run(
    tmp_path: Path, asked: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that asks for nothing resumes; words of a command line are not taken for folders."""
    caplog.set_level("INFO", "pawl")
    begun: list[int] = []

    class Begun(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, *_: Any, **more: Any) -> None:
            begun.append(state.global_step)

    def train(max_steps: int, asked: object) -> None:
        one = small_trainer.trainer(tmp_path, Begun(), max_steps=max_steps, save_steps=2)
        one.train(resume_from_checkpoint=asked)  # type: ignore[arg-type]

    train(2, None)
    assert f"nothing saved yet in {tmp_path}: from the beginning" in caplog.text
    for name, value in (("PAWL_JOB_ID", "trained"), ("PAWL_ATTEMPT", "1")):
        monkeypatch.setenv(name, value)
    train(4, asked)
    anew = asked in (False, "false")
    assert begun == [0, 0 if anew else 2]
    assert ("begins anew, though checkpoint-2 lies" in caplog.text) == anew
    assert ("resuming from " in caplog.text) != anew


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (None, "train(resume_from_checkpoint=True) resumes"),
        (False, "resume_from_checkpoint=False was given"),
    ],
)
def test_started_without_it(
    tmp_path: Path, asked: bool | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without `pawl run`, Trainer decides where to begin; Pawl logs why it begins anew."""
    small_trainer.trainer(tmp_path, max_steps=1, save_steps=1).train()
    caplog.set_level("INFO", "pawl")
    small_trainer.trainer(tmp_path, max_steps=1, save_strategy="no").train(asked)
    told = [one.getMessage() for one in caplog.records if one.name == "pawl.start"]
    assert told == [f"this run begins anew, though checkpoint-1 lies in {tmp_path}: {why}"]


def test_started_by_pawl_run_with_nothing_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pawl")
    for name, value in (("PAWL_JOB_ID", "trained"), ("PAWL_ATTEMPT", "1")):
        monkeypatch.setenv(name, value)
    small_trainer.trainer(tmp_path / "out", max_steps=1, save_strategy="no").train()
    assert f"nothing saved yet in {tmp_path / 'out'}: from the beginning" in caplog.text


@pytest.mark.slow
def test_checkpoints_are_those_of_trainer(tmp_path: Path, stock: tuple[Path, str]) -> None:
    output, weights = stock
    one = small_trainer.trainer(tmp_path / "out")
    one.train()
    assert small_trainer.sha256(one.model) == weights
    assert names(tmp_path / "out") == names(output)
    for step in (6, 12, 18, 24):
        theirs, ours = (root / f"checkpoint-{step}" for root in (output, tmp_path / "out"))
        assert names(theirs) == FILES
        assert names(ours) == FILES | OURS
        a, b = (safetensors_torch.load_file(p / "model.safetensors") for p in (theirs, ours))
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
        for name in ("optimizer.pt", "scheduler.pt"):
            torch.testing.assert_close(
                torch.load(theirs / name), torch.load(ours / name), rtol=0, atol=0
            )
        a, b = (json.loads((p / "trainer_state.json").read_text()) for p in (theirs, ours))
        assert a["global_step"] == b["global_step"] == step


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_killed_and_resumed_on_a_device(tmp_path: Path) -> None:
    wanted = run(tmp_path / "stock", "--device")
    assert run(tmp_path / "out", "--device", "--pawl", "--die-at=15") == ""
    assert run(tmp_path / "out", "--device", "--pawl") == wanted != ""


def test_resuming_waits_for_what_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process before may have left its newest checkpoint in memory alone."""
    output = tmp_path / "out"
    small_trainer.trainer(output).train()
    order: list[str] = []
    flush, choose = Engine.flush, _whole.choose
    monkeypatch.setattr(Engine, "flush", lambda self: order.append(self.root) or flush(self))
    monkeypatch.setattr(
        _whole, "choose", lambda *args, **kw: order.append("chosen") or choose(*args, **kw)
    )
    small_trainer.trainer(output).train(resume_from_checkpoint=True)
    assert order[: order.index("chosen")] == [str(output)]


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_plain_transformers_goes_on_from_it(tmp_path: Path, stock: tuple[Path, str]) -> None:
    small_trainer.trainer(tmp_path / "read").train()
    transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "read/checkpoint-12")
    assert run(tmp_path / "out", "--pawl", "--die-at=15") == ""
    await_12(tmp_path / "out")
    code = "import sys; sys.modules['pawl'] = None; sys.argv = sys.argv[1:]\n"
    code += "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, SCRIPT, tmp_path / "out"],
        env=program.clean_env(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout.endswith(f"weights {stock[1]}\n")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_resumed_is_the_same(
    tmp_path: Path, ranks: int, stock: tuple[Path, str]
) -> None:
    """One rank of two dies: the launcher ends the other; nothing restarts them here."""

    def launch(output: Path, *options: str) -> str:
        if ranks == 1:
            return run(output, "--pawl", *options)
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
        torchrun += [f"--master-port={free_port()}"]
        done = nursery.run(
            [sys.executable, *torchrun, SCRIPT, output, "--pawl", *options],
            env=program.clean_env(OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE,
            text=True,
            timeout=2 * program.LIMIT_S,
        )
        return done.stdout.partition("weights ")[2].strip()

    straight = launch(tmp_path / "straight") if ranks > 1 else stock[1]
    output = tmp_path / "out"
    assert launch(output, "--die-at=3") == ""
    assert not list(output.iterdir())
    assert launch(output, "--die-at=15") == ""
    await_12(output)
    assert launch(output) == straight
    rng = {"rng_state.pth"} if ranks == 1 else {"rng_state_0.pth", "rng_state_1.pth"}
    assert names(output / "checkpoint-24") == FILES - {"rng_state.pth"} | rng | OURS


def damage_half(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_byte(folder: Path) -> None:
    data = bytearray((folder / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "optimizer.pt").write_bytes(data)


DAMAGES = {
    "optimizer.pt": lambda folder: (folder / "optimizer.pt").unlink(),
    "trainer_state.json": lambda folder: (folder / "trainer_state.json").unlink(),
    "model.safetensors": damage_half,
    "rng_state.pth": lambda folder: (folder / "rng_state.pth").write_bytes(b""),
    "optimizer.pt ": damage_byte,
}


@pytest.mark.parametrize("writer", ["pawl", "stock"])
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("asked", ["newest", "by name"])
def test_broken_checkpoint_is_refused(
    tmp_path: Path,
    stock: tuple[Path, str],
    writer: str,
    what: str,
    asked: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The reason names the file; the checkpoint before is taken, and the outcome is the same."""
    output = tmp_path / "out"
    if writer == "stock":
        shutil.copytree(stock[0], output)
        shutil.rmtree(output / "checkpoint-24")
    else:
        first = small_trainer.trainer(output, small_trainer.AtStep(19, stop))
        with pytest.raises(KeyboardInterrupt):
            first.train()
    broken = output / "checkpoint-18"
    DAMAGES[what](broken)
    one = small_trainer.trainer(output)
    one.train(resume_from_checkpoint=True if asked == "newest" else str(broken))
    (line,) = [r.getMessage() for r in caplog.records if "is not loaded" in r.getMessage()]
    assert str(broken) in line
    assert what.strip() in line
    assert small_trainer.sha256(one.model) == stock[1]
    assert names(output) == {f"checkpoint-{step}" for step in (6, 12, 18, 24)}
    assert (tmp_path / ".out.pawl/checkpoint-18.refused/why.txt").is_file()


def stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_stock_accepts_what_is_refused_here(tmp_path: Path, stock: tuple[Path, str]) -> None:
    """The reason for the check: without optimizer.pt Trainer goes on, and ends elsewhere."""
    shutil.copytree(stock[0], tmp_path / "out")
    shutil.rmtree(tmp_path / "out/checkpoint-24")
    (tmp_path / "out/checkpoint-18/optimizer.pt").unlink()
    assert run(tmp_path / "out") not in ("", stock[1])


def test_nothing_whole_is_an_error_with_all_reasons(
    tmp_path: Path, stock: tuple[Path, str]
) -> None:
    output = tmp_path / "out"
    shutil.copytree(stock[0], output)
    for step in (6, 12, 18, 24):
        (output / f"checkpoint-{step}/optimizer.pt").unlink()
    with pytest.raises(PawlError, match=r"checkpoint-24: optimizer\.pt .*checkpoint-6: opt") as got:
        small_trainer.trainer(output).train(resume_from_checkpoint=True)
    assert got.value.name == "PAWL_ENOENT"
    with pytest.raises(PawlError, match="checkpoint-5: is not there"):
        small_trainer.trainer(output).train(resume_from_checkpoint=str(output / "checkpoint-5"))


def test_save_total_limit_keeps_the_newest(tmp_path: Path) -> None:
    def wait_for_storage() -> None:
        """Waits until all saves so far are durable: the end of a step deletes older ones."""
        callbacks = one.callback_handler.callbacks
        saver = next(each for each in callbacks if isinstance(each, pawl_trainer._Saver))
        program.wait_until(
            lambda: all(save.level == "durable" for save in saver._pending), "saves are durable"
        )

    def wait_for_room() -> None:
        """Waits for deletions: checkpoints beyond the limit go once a newer one is durable, and not
        only at the end."""
        program.wait_until(lambda: len(names(tmp_path / "out")) <= 3, "three are left")

    watch = [small_trainer.AtStep(step, wait_for_storage) for step in (10, 16)]
    watch += [small_trainer.AtStep(step, wait_for_room) for step in (11, 17)]
    one = small_trainer.trainer(tmp_path / "out", *watch, save_total_limit=2, save_steps=3)
    one.train()
    assert names(tmp_path / "out") == {"checkpoint-21", "checkpoint-24"}


@pytest.mark.parametrize("limit", [1, 2])
def test_best_model_is_kept_and_loaded(tmp_path: Path, limit: int) -> None:
    scores = {6: 1.0, 12: 3.0, 18: 2.0, 24: 0.0}
    one = small_trainer.trainer(
        tmp_path / "out",
        save_total_limit=limit,
        load_best_model_at_end=True,
        metric_for_best_model="good",
        greater_is_better=True,
        eval_strategy="steps",
        eval_steps=6,
    )
    kept: dict[str, torch.Tensor] = {}

    def evaluate(*args: Any, **kwargs: Any) -> dict[str, float]:
        if one.state.global_step == 12:
            kept.update({n: t.clone() for n, t in one.model.state_dict().items()})
        return {"eval_good": scores[one.state.global_step]}

    one.evaluate = evaluate
    one.train()
    best = tmp_path / "out/checkpoint-12"
    assert one.state.best_model_checkpoint == str(best)
    assert all(torch.equal(t, kept[n]) for n, t in one.model.state_dict().items())
    assert best.is_dir()
    assert len(names(tmp_path / "out")) == (1 if limit == 1 else 2)
    state = json.loads((best / "trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(best)


def test_a_best_model_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """Trainer logs that, and keeps the weights it has."""
    best = tmp_path / "out/checkpoint-12"

    def remove() -> None:
        program.wait_until(best.is_dir, "the best one is there")
        shutil.rmtree(best)

    one = small_trainer.trainer(
        tmp_path / "out",
        small_trainer.AtStep(23, remove),
        load_best_model_at_end=True,
        metric_for_best_model="good",
        greater_is_better=True,
        eval_strategy="steps",
        eval_steps=6,
    )
    one.evaluate = lambda *_, **__: {"eval_good": float(one.state.global_step == 12)}
    one.train()
    assert one.state.best_model_checkpoint == str(best) and not best.exists()


def test_callback_that_reads_the_checkpoint_finds_it(tmp_path: Path) -> None:
    found = []

    class Upload(transformers.TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            found.append(names(tmp_path / f"out/checkpoint-{state.global_step}"))

    small_trainer.trainer(tmp_path / "out", Upload()).train()
    assert found == [FILES | OURS] * 4


def test_save_only_model_can_be_resumed(tmp_path: Path) -> None:
    one = small_trainer.trainer(tmp_path / "out", save_only_model=True)
    one.train()
    assert names(tmp_path / "out/checkpoint-24") == OURS | FILES - {
        "optimizer.pt", "rng_state.pth", "scheduler.pt",
    }  # fmt: skip


@pytest.mark.slow
def test_sigterm_saves_the_step_and_leaves(tmp_path: Path) -> None:
    output = tmp_path / "out"
    code = (
        "import os, signal, small_trainer, pathlib, time\n"
        "import pawl.integrations.transformers as p; p.enable()\n"
        "def heard():\n"
        "    while not one._pawl_saver._engine.stopping: time.sleep(0.01)\n"  # pace
        "term = small_trainer.AtStep(8, lambda: os.kill(os.getpid(), signal.SIGTERM))\n"
        "told = small_trainer.AtStep(10, heard)  # the agent has, by then\n"
        f"one = small_trainer.trainer(pathlib.Path({str(output)!r}), term, told)\n"
        "one.train()\n"
        "print('not reached')\n"
    )
    env = program.clean_env()
    env["PYTHONPATH"] = f"{SCRIPT.parent}{os.pathsep}{env['PYTHONPATH']}"
    done = nursery.run(
        [sys.executable, "-c", code],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        timeout=program.LIMIT_S,
    )
    assert done.returncode == -signal.SIGTERM
    assert "not reached" not in done.stdout
    (last,) = {int(name.partition("-")[2]) for name in names(output)} - {6}
    assert 8 <= last < 12  # all ranks stop at the same step, and so not at once


def saves_folders(one: Any) -> Any:
    """Makes one save folders, as PEFT does with two adapters, and sentence-transformers with its
    modules."""
    save = one._save

    def with_folders(output_dir: str, *args: Any, **kwargs: Any) -> None:
        save(output_dir, *args, **kwargs)
        folder = Path(output_dir, "adapter")
        (folder / "1_Pooling").mkdir(parents=True)
        (folder / "1_Pooling" / "config.json").write_text("{}")
        torch.save({"step": one.state.global_step}, folder / "weights.bin")

    one._save = with_folders
    return one


def test_folders_are_part_of_a_checkpoint(
    tmp_path: Path, stock: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Case 09."""
    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        saves_folders(small_trainer.trainer(output, small_trainer.AtStep(19, stop))).train()
    for step in (6, 12, 18):
        folder = output / f"checkpoint-{step}" / "adapter"
        assert torch.load(folder / "weights.bin") == {"step": step}
        assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    with (output / "checkpoint-18" / "adapter" / "weights.bin").open("r+b") as file:
        file.write(b"?")
    one = saves_folders(small_trainer.trainer(output))
    one.train(resume_from_checkpoint=True)
    assert "checkpoint-18/adapter/weights.bin" in caplog.text  # why it is not taken
    assert small_trainer.sha256(one.model) == stock[1]
    assert (output / "checkpoint-24" / "adapter" / "weights.bin").is_file()


@pytest.mark.parametrize("release", ["4.47.1"])
def test_oldest_release(tmp_path: Path, release: str) -> None:
    env = packages.with_package("transformers", release)
    straight = run(tmp_path / "straight", env=env)
    output = tmp_path / "out"
    assert straight
    assert run(output, "--pawl", "--die-at=3", env=env) == ""
    assert names(output) == set()
    assert run(output, "--pawl", "--die-at=15", env=env) == ""
    await_12(output)
    (output / "checkpoint-12/optimizer.pt").unlink()
    assert run(output, "--pawl", env=env) == straight
    assert names(output / "checkpoint-24") == FILES | OURS


def test_after_training_all_is_there_and_the_rest_deleted(tmp_path: Path) -> None:
    """The same must be true when the last step is not saved."""

    class Twice(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_save = state.global_step in (22, 23)

    options = {"save_strategy": "no", "save_total_limit": 1}
    small_trainer.trainer(tmp_path / "out", Twice(), **options).train()
    assert names(tmp_path / "out") == {"checkpoint-23"}
