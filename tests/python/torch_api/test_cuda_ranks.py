"""Ranks that share one CUDA device: groups, what torch builds on them, and jobs of ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import program
import ranks
import sharded
import test_elastic
import test_smddp
import waits
from conftest import real_core
from elastic_said import check_each_once, ends
from test_cuda import needs_cuda, needs_device
from test_group import COLLECTIVES, TORCH
from test_powersgd import CHECKS as POWERSGD

pytestmark = [
    needs_device,
    pytest.mark.skipif(real_core is None, reason="pawl._core is not built here"),
]

HERE = Path(__file__).parent
ON_DEVICE = program.script("on_device.py")
# Checks that concern only the CPU, or that compile.
NOT_THERE = {"fsdp1", "compiled", "pipelining", "checkpoints"}


def check(world: int, script: str, names: list[str], **env: str) -> None:
    """Runs a script unchanged, with all its tensors made on the device."""
    started = ranks.start_ranks(
        ON_DEVICE, world, str(program.script(script)), *names, env=program.clean_env(**env)
    )
    for said in ranks.hear_ranks(started):
        assert said == names


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("name", ["collectives", "large", "ddp", "fsdp2"])
def test_on_one_device(world: int, name: str) -> None:
    for said in ranks.run_ranks(HERE / "cuda_rank.py", world, name):
        assert said == [name]


def test_the_noise_of_an_elastic_job() -> None:
    for said in ranks.run_ranks(HERE / "cuda_rank.py", 2, "elastic"):
        assert said == ["elastic"]


@pytest.mark.parametrize("at", ["forward", "backward", "step"])
def test_a_rank_of_an_elastic_job_is_killed(at: str) -> None:
    script = str(program.script("elastic_rank.py"))
    env = program.clean_env(PAWL_HEARTBEAT="0.5")
    started = ranks.start_ranks(ON_DEVICE, 3, script, "kill=1@7", f"at={at}", env=env)
    said = test_elastic.hear(started, victims=1)
    check_each_once(said, dead=(1,))
    assert [end.split(": ")[0] for end in ends(said, "END")] == ["0 of 2", "1 of 2"]
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1


def test_elastic_is_ddp_to_the_bit() -> None:
    check(2, "elastic_checks.py", ["like_ddp", "buffers"])


@needs_cuda
def test_nccl_beside_pawl() -> None:
    """Runs one rank, since NCCL wants a device for each."""
    env = program.clean_env(BACKEND="cpu:pawl,cuda:nccl")
    names = ["collectives", "large", "ddp", "fsdp2"]
    assert ranks.run_ranks(HERE / "cuda_rank.py", 1, *names, env=env) == [names]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_collective(name: str) -> None:
    check(2, "group_rank.py", [name])


@pytest.mark.parametrize("name", [name for name in TORCH if name not in NOT_THERE])
def test_what_torch_builds_on_groups(name: str) -> None:
    check(2, "group_torch_rank.py", [name])


@pytest.mark.parametrize("name", POWERSGD)
def test_powersgd(name: str) -> None:
    check(2, "powersgd_rank.py", [name])


@pytest.mark.parametrize("how", ["kill", "leave", "backward", "compressed"])
def test_whoever_ends_badly_is_named(how: str) -> None:
    script = str(program.script("group_end_rank.py"))
    started = ranks.start_ranks(ON_DEVICE, 3, script, how)
    try:
        for rank in (0, 2):
            text = started[rank].communicate(timeout=program.LIMIT_S)[0]
            error, seconds = ranks.say(text)
            assert "rank 1" in error, text
            waits.check_sooner(float(seconds), waits.NAMED_S, "rank 1 is named")
    finally:
        ranks.stop(started)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("job", ["smddp_job.py", "smddp_backend_job.py"])
def test_a_script_for_smddp(job: str, world: int, tmp_path: Path) -> None:
    """The job's model is that of one process with the whole batch, on the CPU."""
    torch.save(test_smddp.numbers(), tmp_path / "train.pt")
    env = program.clean_env(
        SM_CHANNEL_TRAINING=str(tmp_path), SM_MODEL_DIR=str(tmp_path), PLAIN="1"
    )
    ranks.run_ranks(ON_DEVICE, world, str(program.script(job)), env=env)
    made = torch.load(tmp_path / "model.pth", map_location="cpu").values()
    for got, wanted in zip(made, test_smddp.train_alone(), strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-3, atol=1e-4)


@pytest.fixture
def shards_on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DEVICE", os.environ.get("TEST_DEVICE", "cuda"))


@pytest.mark.usefixtures("shards_on_device")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_sharded_by_dcp(tmp_path: Path, how: str) -> None:
    root = str(tmp_path / "root")
    sharded.run(
        tmp_path,
        (2, "dcp_save", root, "step-2", 2, how),
        (1, "dcp_load", root, "step-2", "whole", "root"),
        (2, "dcp_load", root, "step-2", "columns", "engine"),
    )


@pytest.mark.usefixtures("shards_on_device")
def test_dcp_while_training_goes_on(tmp_path: Path) -> None:
    sharded.run(tmp_path, (2, "dcp_overlap", str(tmp_path / "root")))


@pytest.mark.usefixtures("shards_on_device")
def test_sharded_and_restored_by_others(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    sharded.run(
        tmp_path,
        (2, "ckpt_save", root, 2, "grid"),
        (1, "ckpt_load", root, 2, "plain", "fresh"),
        (2, "ckpt_load", root, 2, "columns", "trained"),
        (3, "ckpt_load", root, 2, "rows", "fresh"),
    )
