"""Lightning through Pawl and through Nebula's classes, under both names of the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import nursery
import packages
import program
from pawl.engine import beside
from starting import Processes, check_starts

SCRIPT = Path(__file__).with_name("lightning_job.py")
STRATEGY = Path(__file__).with_name("strategy_job.py")
NEWEST = [("lightning", None), ("pytorch_lightning", None)]
OLDEST = [("lightning", "2.1.4"), ("pytorch_lightning", "2.0.9")]


@pytest.fixture(params=NEWEST + OLDEST, ids=lambda p: f"{p[0]}-{p[1] or 'newest'}")
def package(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Returns the package's name, and an environment in which it has that release."""
    name, release = request.param
    pytest.importorskip(name)
    if release is None:
        return name, program.clean_env()
    return name, packages.with_package(name.replace("_", "-"), release)


def run(package: tuple[str, dict[str, str]], *args: str) -> list[str]:
    """Runs lightning_job.py. Returns the lines that rank 0 prints after "> "."""
    name, env = package
    return said(SCRIPT, name, *args, env=env)


def said(script: Path, *args: str, env: dict[str, str]) -> list[str]:
    done = nursery.run(
        [sys.executable, str(script), *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


@pytest.mark.slow("lightning-newest-2", "pytorch_lightning-newest-1")
@pytest.mark.parametrize("devices", ["1", "2"])
def test_files_are_lightnings_own(
    package: tuple[str, dict[str, str]], devices: str, tmp_path: Path
) -> None:
    if not packages.LONG and (package[0] == "lightning") != (devices == "2"):
        pytest.skip("the other name with so many devices: make test-long")
    ours, stock = tmp_path / "ours", tmp_path / "stock"
    assert (
        run(package, "pawl", str(ours), devices)[0] == run(package, "stock", str(stock), devices)[0]
    )
    names = sorted(p.name for p in ours.iterdir())
    assert names == sorted(p.name for p in stock.iterdir()) and len(names) == 2
    for name in names:  # readable with Pawl uninstalled
        mine = torch.load(ours / name, weights_only=False)
        theirs = torch.load(stock / name, weights_only=False)
        assert mine.keys() == theirs.keys()
        for key, tensor in theirs["state_dict"].items():
            assert torch.equal(mine["state_dict"][key], tensor)
    resumed = run(package, "pawl", str(ours), devices, str(ours / names[0]))
    assert resumed[0] == run(package, "stock", str(stock), devices, str(stock / names[0]))[0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_device(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    package = ("lightning", program.clean_env(ACCELERATOR="gpu"))
    ours, stock = tmp_path / "ours", tmp_path / "stock"
    assert run(package, "pawl", str(ours), "1") == run(package, "stock", str(stock), "1")
    first = min(ours.iterdir())
    weights = torch.load(first, weights_only=False)["state_dict"].values()
    assert all(tensor.is_cuda for tensor in weights)
    resumed = [
        run(package, how, str(root), "1", str(root / first.name))
        for how, root in (("pawl", ours), ("stock", stock))
    ]
    assert resumed[0] == resumed[1]


@pytest.mark.slow
@pytest.mark.parametrize("release", [None, "0.19.6"], ids=["newest", "knows-nebula"])
@pytest.mark.parametrize("stage", [2, 3])
def test_nebulas_deepspeed_strategy(stage: int, release: str | None, tmp_path: Path) -> None:
    """The strategy saves to a directory of its own, and resumes from each of two checkpoints by the
    path that Lightning has for it. Stock Lightning goes on from that path alike."""
    pytest.importorskip("lightning")
    pytest.importorskip("deepspeed")
    on_device = torch.cuda.is_available()
    if (stage, release) != (3, None) and not packages.LONG and not on_device:
        pytest.skip("other stages and releases: make test-long")
    extra = {} if on_device else {"DS_ACCELERATOR": "cpu"}
    if release is None:
        env = program.clean_env(**extra)
    else:
        env = packages.with_package("deepspeed", release, **extra)
    root, files, stock = (str(tmp_path / name) for name in ("root", "files", "stock"))
    trained = said(STRATEGY, "stock", root, stock, str(stage), env=env)
    assert len(trained) == 8
    assert said(STRATEGY, "nebula", root, files, str(stage), env=env) == trained
    first, second = f"{files}/first.ckpt", f"{files}/second.ckpt"
    assert said(STRATEGY, "nebula", root, files, str(stage), first, env=env) == trained
    assert said(STRATEGY, "nebula", root, files, str(stage), second, env=env) == []


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_what_a_killed_run_left_is_put_in_its_place(tmp_path: Path) -> None:
    package = ("lightning", program.clean_env())
    pytest.importorskip("lightning")
    ours = tmp_path / "ours"
    run(package, "pawl", str(ours), "1")
    (lost, other) = sorted(ours.iterdir())
    lost.unlink()  # as if the process had ended before it linked the durable file
    assert (Path(beside(ours)) / lost.name / "complete.txt").read_text() == "OK"
    run(package, "pawl", str(ours), "1", str(lost))
    run(package, "stock", str(ours), "1", str(other))


def test_a_damaged_checkpoint_is_not_loaded(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from pawl.integrations.lightning import PawlCheckpointIO

    io = PawlCheckpointIO()
    path = tmp_path / "run" / "step=1.ckpt"
    io.save_checkpoint({"state_dict": {"w": torch.ones(50_000)}}, path)
    io.teardown()
    stored = Path(beside(path.parent)) / "step=1.ckpt" / "checkpoint"
    data = bytearray(stored.read_bytes())
    data[100_000] ^= 1
    stored.write_bytes(data)  # both names are links to this file
    io = PawlCheckpointIO()
    with pytest.raises(OSError, match="are not what was written"):
        io.load_checkpoint(path)
    io.teardown()


def test_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning")
    from pawl.integrations.lightning import PawlCheckpointIO

    folder = tmp_path / "run"

    def save(number: int) -> None:
        io = PawlCheckpointIO()
        io.save_checkpoint({"state_dict": {"w": torch.ones(3)}}, folder / f"step={number}.ckpt")
        io.teardown()

    def load() -> None:
        io = PawlCheckpointIO()
        io.load_checkpoint(folder / "step=5.ckpt", weights_only=False)
        io.teardown()

    processes = Processes(caplog, monkeypatch)
    remedy = 'pass ckpt_path to trainer.fit(): a path, or "last" with ModelCheckpoint('
    remedy += "save_last=True)"
    loaded = rf"restored step=5.ckpt \([\d.]+ KiB, from the store\) from {folder}"
    check_starts(processes, folder, save, load, remedy, loaded.replace(".ckpt", r"\.ckpt"))
    processes.begin()
    other = tmp_path / "lightnings_own.ckpt"
    torch.save({"state_dict": {}}, other)
    PawlCheckpointIO().load_checkpoint(other)
    assert processes.said() == [f"resuming from {other}"]


@pytest.mark.slow("lightning-newest", "pytorch_lightning-newest")
def test_nebulas_classes(package: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    root = tmp_path / "nebula"
    step, latest = run(package, "nebula", str(root), "1")
    assert step.startswith("16 ")
    assert latest == f"{root}/example.ckpt/checkpoint"
    assert torch.load(latest, weights_only=False)["global_step"] == 16
    tags = {p.name for p in root.iterdir() if p.is_dir()}
    assert {"epoch=0-step=4.ckpt", "epoch=1-step=16.ckpt", "example.ckpt"} <= tags
    resumed = run(package, "nebula", str(root), "1", "/anywhere/epoch=1-step=12.ckpt")
    stock = run(
        package, "stock", str(tmp_path / "s"), "1", f"{root}/epoch=1-step=12.ckpt/checkpoint"
    )
    assert resumed[0] == stock[0]
