"""DeepSpeed through Pawl: the nebula block on the releases that have one, install() on the others.

Real DeepSpeed on two ranks (gloo): the loaded state, and the training after it, are compared with
the run that was not interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import packages
import program
import ranks
from conftest import SEED
from starting import Processes, check_starts

packages.require("deepspeed")

SCRIPT = Path(__file__).with_name("deepspeed_job.py")
KILLS = Path(__file__).with_name("deepspeed_kills.py")
LONG = bool(os.environ.get("PAWL_LONG"))


def environment(release: str | None) -> dict[str, str]:
    extra = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    if release is None:
        return program.clean_env(**extra)
    return packages.with_package("deepspeed", release, **extra)


def cases() -> list[object]:
    """Returns way, release and stage of each test: all of them in long runs, otherwise each way and
    each stage that differs much."""
    short = [("nebula", "0.19.6", 1), ("nebula", "0.19.6", 3), ("install", "0.19.6", 1)]
    short += [("install", None, 0), ("install", None, 3)]
    all_ = [("nebula", "0.16.9"), ("nebula", "0.19.6"), ("install", "0.19.6"), ("install", None)]
    stages = {("nebula", "0.19.6"): (0, 1, 2, 3), ("install", None): (0, 1, 2, 3)}
    chosen = [
        pytest.param(how, release, stage, id=f"{how}-{release or 'newest'}-zero{stage}")
        for how, release in all_
        for stage in stages.get((how, release), (1, 3))
        if LONG or (how, release, stage) in short
    ]
    return list(chosen)


class Named(NamedTuple):
    """Describes a tag as DeepSpeed's CheckpointCommitInfo does."""

    tag: str
    save_dir: str
    save_latest: bool = False


class OfDeepSpeed:
    """An engine of one file with DeepSpeed's interface."""

    checkpoint_engine: Any

    def save_checkpoint(self, save_dir: str, tag: str, save_latest: bool) -> None:
        ours, info = self.checkpoint_engine, Named(tag, save_dir)
        ours.create(info)
        ours.save({"x": torch.ones(3)}, os.path.join(save_dir, tag, "states.pt"))
        assert ours.commit(info)

    def load_checkpoint(self, load_dir: str, tag: str | None = None) -> tuple[str | None, object]:
        if tag is None:
            return None, {}
        path = os.path.join(load_dir, tag, "states.pt")
        return path, self.checkpoint_engine.load(path)


def test_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pawl.integrations.deepspeed import install

    def act(number: int | None, root: Path = tmp_path) -> None:
        engine = OfDeepSpeed()
        ours = install(engine)
        if number is None:
            engine.load_checkpoint(str(root))
        else:
            engine.save_checkpoint(str(root), f"tag{number}", save_latest=False)
            assert ours.engine(str(root)).flush(program.LIMIT_S)
        ours.engine(str(root)).close()

    processes = Processes(caplog, monkeypatch)
    loaded = rf"restored tag5 \([\d.]+ KiB, from the store\) from {tmp_path}"
    remedy = "call load_checkpoint() of DeepSpeed's engine before save_checkpoint()"
    check_starts(processes, tmp_path, act, lambda: act(None), remedy, loaded)
    processes.begin()
    act(None, tmp_path / "other")
    other = tmp_path / "other"
    assert processes.said() == [f"nothing saved yet in {other}: from the beginning"]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "release", "stage"), cases())
def test_training_goes_on_as_if_nothing_had_been(
    how: str, release: str | None, stage: int, tmp_path: Path
) -> None:
    env = environment(release)
    root = str(tmp_path / "ckpt")
    saved = ranks.run_ranks(SCRIPT, 2, how, root, str(stage), "save", env=env)
    loaded = ranks.run_ranks(SCRIPT, 2, how, root, str(stage), "load", env=env)
    for rank in range(2):
        assert loaded[rank][0] == "loaded global_step5 5"
        assert loaded[rank][1:] == saved[rank]  # training goes on with the saved weights
    files = sorted(p.name for p in (Path(root) / "global_step5").iterdir() if p.suffix == ".pt")
    for name in files:  # readable with Pawl uninstalled
        torch.load(Path(root) / "global_step5" / name, weights_only=False)
    if stage == 0:
        assert files == ["mp_rank_00_model_states.pt"]
    elif stage == 3:
        assert len(files) == 4
    else:
        assert len(files) == 3


@pytest.mark.slow
def test_latest_names_what_is_durable_only(tmp_path: Path) -> None:
    env = environment(None)
    root = tmp_path / "ckpt"
    started = ranks.start_ranks(SCRIPT, 2, "install", str(root), "1", "die", env=env, job="dies")
    said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    assert [rank.returncode for rank in started] == [-signal.SIGKILL] * 2, "\n".join(said)
    latest = root / "latest"
    if latest.exists():
        tag = latest.read_text()
        assert (root / tag / "complete.txt").read_text() == "OK"
    loaded = ranks.run_ranks(SCRIPT, 2, "install", str(root), "1", "load", env=env, job="dies")
    assert {lines[0] for lines in loaded} == {"loaded global_step8 8"}  # from memory


@pytest.mark.slow
def test_latest_can_always_be_loaded(tmp_path: Path) -> None:
    """With only one checkpoint kept, the one that `latest` names is the first to be deleted."""
    kills = 200 if LONG else 4
    done = subprocess.run(
        [sys.executable, "-W", "ignore", KILLS, tmp_path / "ckpt", str(kills), str(SEED), "1"],
        env=environment(None),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=(1 + kills / 2) * program.LIMIT_S,
    )
    said = f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    assert done.returncode == 0, said
    assert done.stdout.splitlines()[-1] == f"> 0 of {kills}", said


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_the_file_of_16_bit_weights_is_the_users_own(tmp_path: Path) -> None:
    root = str(tmp_path / "ckpt")
    ranks.run_ranks(SCRIPT, 2, "install", root, "1", "save", env=environment(None))
    state = torch.load(f"{root}-16bit/weights.bin", weights_only=True)
    assert set(state) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert not (Path(root) / "global_step5" / "weights.bin").exists()
