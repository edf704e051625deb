"""Accelerate's save_state and load_state through Pawl."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import packages
import program
import ranks

packages.require("accelerate", "pawl._core")
program.find()

from pawl import PawlError, _start  # noqa: E402
from pawl.engine import Engine  # noqa: E402
from pawl.integrations import _whole  # noqa: E402
from starting import Processes, check_starts  # noqa: E402

accelerate = packages.Lazy("accelerate")
pawl_accelerate = packages.Lazy("pawl.integrations.accelerate")
FILES = {"model.safetensors", "optimizer.bin", "random_states_0.pkl", "scheduler.bin"}
OURS = {".pawl", "complete.txt"}


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """Enables Pawl's Accelerate integration for this module's tests only."""
    changed = ("save_state", "load_state", "end_training")
    originals = {name: getattr(accelerate.Accelerator, name) for name in changed}
    pawl_accelerate.enable()
    yield
    pawl_accelerate.close()
    for name, original in originals.items():
        setattr(accelerate.Accelerator, name, original)
    pawl_accelerate._options.clear()


class Job:
    """A model in training; its weights are a function of the number of steps."""

    def __init__(self, folder: Path, total_limit: int | None = None, cpu: bool = True) -> None:
        project = accelerate.utils.ProjectConfiguration(
            str(folder),
            automatic_checkpoint_naming=total_limit is not None,
            total_limit=total_limit,
        )
        self.accelerator = accelerate.Accelerator(cpu=cpu, project_config=project)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Dropout())
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        prepared = self.accelerator.prepare(model, optimizer, scheduler)
        self.model, self.optimizer, self.scheduler = prepared

    def train(self, steps: int) -> list[torch.Tensor]:
        for _ in range(steps):
            self.optimizer.zero_grad()
            x = torch.randn(4, 300, device=self.accelerator.device)
            self.accelerator.backward(self.model(x).square().mean())
            self.optimizer.step()
            self.scheduler.step()
        return [p.detach().clone() for p in self.model.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def names(folder: Path) -> set[str]:
    tables = {"checkpointHistories.csv", "checkpointEvents.csv"}
    return {path.name for path in folder.iterdir()} - tables


def test_saved_and_loaded(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.train(3)
    assert job.accelerator.save_state(tmp_path / "root/five") == tmp_path / "root/five"
    wanted = job.train(4)
    again = Job(tmp_path)
    again.accelerator.load_state(tmp_path / "root/five")
    assert names(tmp_path / "root") == {"five"}
    assert names(tmp_path / "root/five") == FILES | OURS
    assert same(again.train(4), wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_saved_and_loaded_on_a_device(tmp_path: Path) -> None:
    accelerate.state.AcceleratorState._reset_state(True)
    try:
        job = Job(tmp_path, cpu=False)
        assert job.accelerator.device.type == "cuda"
        job.train(3)
        job.accelerator.save_state(tmp_path / "root/five")
        wanted = job.train(4)
        again = Job(tmp_path, cpu=False)
        again.accelerator.load_state(tmp_path / "root/five")
        assert same(again.train(4), wanted)
    finally:
        accelerate.state.AcceleratorState._reset_state(True)


def test_folder_is_read_by_accelerate_alone(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.train(3)
    job.accelerator.save_state(tmp_path / "root/five")
    wanted = job.train(4)
    pawl_accelerate.wait()
    again = Job(tmp_path)
    accelerate.Accelerator.load_state.__wrapped__(again.accelerator, tmp_path / "root/five")
    assert same(again.train(4), wanted)


def test_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"

    def save(number: int) -> None:
        Job(tmp_path).accelerator.save_state(root / f"folder{number}")
        pawl_accelerate.close()

    check_starts(
        Processes(caplog, monkeypatch),
        root,
        save,
        lambda: Job(tmp_path).accelerator.load_state(root / "folder5"),
        "call accelerator.load_state() before save_state()",
        f"resuming from {root}/folder5",
    )


def test_automatic_naming_and_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(tmp_path, total_limit=2)
    weights = []
    for _ in range(4):
        weights.append(job.train(2))
        job.accelerator.save_state()
    pawl_accelerate.wait()
    checkpoints = tmp_path / "checkpoints"
    program.wait_until(lambda: len(names(checkpoints)) == 2, "older ones are deleted")
    assert names(checkpoints) == {"checkpoint_2", "checkpoint_3"}
    again = Job(tmp_path, total_limit=2)
    again.accelerator.load_state()
    assert same(again.train(0), weights[3])
    again.accelerator.project_configuration.iteration = 3
    with pytest.raises(ValueError, match="checkpoint_3 exists"):
        again.accelerator.save_state()
    _start._looked.clear()  # as in a process that has not looked for checkpoints yet
    with pytest.raises(ValueError, match="checkpoint_2 exists"):
        again.accelerator.project_configuration.iteration = 2
        again.accelerator.save_state()
    assert f"begins anew, though checkpoint_3 lies in {checkpoints}: " in caplog.text


def test_loading_waits_for_what_is_being_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading waits for copies to any folder: it writes to the tensors that they read."""
    job = Job(tmp_path)
    job.train(1)
    job.accelerator.save_state(tmp_path / "a/one")
    job.train(1)
    job.accelerator.save_state(tmp_path / "b/two")
    engines = pawl_accelerate._engines
    before: list[str] = []  # roots for which loading waited
    choose = _whole.choose

    def chosen(*args: Any, **kwargs: Any) -> Any:
        before.extend(calls)
        return choose(*args, **kwargs)

    calls: list[str] = []
    flush = Engine.flush
    monkeypatch.setattr(Engine, "flush", lambda self: calls.append(self.root) or flush(self))
    monkeypatch.setattr(_whole, "choose", chosen)
    job.accelerator.load_state(tmp_path / "a/one")
    assert {str(root) for root in engines} == {str(tmp_path / "a"), str(tmp_path / "b")}
    assert set(before) == {str(root) for root in engines}


@pytest.mark.parametrize("what", ["pawl", "stock"])
def test_damaged_checkpoint_is_refused(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Loading a damaged checkpoint by name is an error; loading the newest takes the one
    before it."""
    job = Job(tmp_path, total_limit=3)
    save = job.accelerator.save_state
    if what == "stock":
        save = accelerate.Accelerator.save_state.__wrapped__.__get__(job.accelerator)
    weights = []
    for _ in range(3):
        weights.append(job.train(2))
        save()
    pawl_accelerate.wait()
    folder = tmp_path / "checkpoints/checkpoint_2"
    (folder / "optimizer.bin").write_bytes((folder / "optimizer.bin").read_bytes()[:5000])
    again = Job(tmp_path, total_limit=3)
    with pytest.raises(PawlError, match=r"checkpoint_2: .*optimizer\.bin"):
        again.accelerator.load_state(folder)
    again.accelerator.load_state()
    assert "optimizer.bin" in caplog.text
    assert same(again.train(0), weights[1])


SCRIPT = """
import sys, torch
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import pawl.integrations.accelerate as p
p.enable()
from test_accelerate import Job
from accelerate import Accelerator
job = Job(Path(sys.argv[1]), total_limit=2)
rank, world = job.accelerator.process_index, job.accelerator.num_processes
if sys.argv[3] == "save":
    job.train(3)
    job.accelerator.save_state()
else:
    job.accelerator.load_state()
job.train(int(sys.argv[4]))
job.accelerator.end_training()
line = f"rank {rank} of {world}: {[p.sum().item() for p in job.model.parameters()]}\\n"
sys.stdout.write(line)  # one call: ranks share the pipe
sys.stdout.flush()
"""


def launch(folder: Path, what: str, world: int, steps: int, env: dict[str, str]) -> list[str]:
    """Runs the script. Returns what each rank ends with, `steps` steps after it has saved or
    loaded."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    torchrun.append(f"--master-port={ranks.free_port()}")
    done = subprocess.run(
        [sys.executable, *torchrun, script, folder, Path(__file__).parent, what, str(steps)],
        env={**env, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=program.LIMIT_S,
    )
    assert done.returncode == 0
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))


@pytest.mark.slow
def test_two_ranks(tmp_path: Path) -> None:
    saved = launch(tmp_path, "save", 2, 2, program.clean_env())
    assert len(saved) == 2
    folder = tmp_path / "checkpoints/checkpoint_0"
    assert names(folder) == FILES | OURS | {"random_states_1.pkl"}
    assert launch(tmp_path, "load", 2, 2, program.clean_env()) == saved


def test_oldest_release(tmp_path: Path) -> None:
    """Accelerate 0.26.1, which is installed with the oldest transformers.

    It cannot read its own random generators' file with torch 2.6 or later, and reports that.
    """
    env = packages.with_package("transformers", "4.47.1")
    saved = launch(tmp_path, "save", 1, 0, env)
    assert launch(tmp_path, "load", 1, 0, env) == saved
