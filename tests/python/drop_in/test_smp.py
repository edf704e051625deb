"""SMP's names on pawl.pipeline: a script for it, its checkpoints, its configuration."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import program
import ranks
from conftest import real_core
from pawl.compat.smdistributed.modelparallel.torch import _config, _session
from pawl.errors import PawlError

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

HERE = Path(__file__).parent
EXAMPLES = os.environ.get("PAWL_SMP_EXAMPLES")  # folder with Amazon's train_gpt_simple.py


def train(folder: Path, world: int, stages: int, steps: int, *flags: str, **more: Any) -> set[str]:
    """Runs the script. Returns what the ranks say; those of a pipeline must say the same."""
    config = {"partitions": stages, "microbatches": 4, "ddp": True, **more}
    env = program.clean_env(SM_HP_MP_PARAMETERS=json.dumps(config), **program.SILENT)
    found = ranks.run_ranks(HERE / "smp_job.py", world, str(folder), str(steps), *flags, env=env)
    assert len({tuple(said) for said in found}) == world // stages, found
    return {line for said in found for line in said}


def test_a_script_on_two_partitions_gives_a_plain_model(tmp_path: Path) -> None:
    said = train(tmp_path, 2, 2, 2, "full")
    assert len([line for line in said if line.startswith("loss")]) == 2
    assert sorted(p.name for p in (tmp_path / "at1_partial").glob("[!.]*")) == [
        "complete.txt", "model_0_0.pt", "model_1_0.pt", "optimizer_0_0.pt", "optimizer_1_0.pt",
        "user_content.pt",
    ]  # fmt: skip
    model = runpy.run_path(str(HERE / "smp_job.py"))["Net"]()
    model.load_state_dict(torch.load(tmp_path / "full.pt", weights_only=True))
    mean = model.eval()(torch.ones(8, 7, dtype=torch.long)).detach().mean((0, 1))
    (line,) = [line for line in said if line.startswith("score")]
    assert float.fromhex(line.split()[-1]) == pytest.approx(
        float((mean * torch.arange(23.0)).sum()), rel=1e-5
    )
    assert torch.load(tmp_path / "user_content_full.pt") == 3
    assert (tmp_path / "newest").read_text() == "full.pt"


@pytest.mark.slow
def test_a_checkpoint_is_resumed_with_other_partitions(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 1, 1, 6)
    train(tmp_path / "two", 2, 2, 4)
    resumed = train(tmp_path / "two", 3, 3, 6, "resume")
    late = {line for line in whole if line.split()[1] in ("4", "5") or line.startswith("score")}
    assert resumed == late
    for folder in ("whole", "two"):  # the two newest
        kept = sorted(p.name for p in (tmp_path / folder).glob("*_partial"))
        assert kept == ["at3_partial", "at5_partial"]


@pytest.mark.slow
def test_fp16_scales_the_loss_until_no_gradient_overflows(tmp_path: Path) -> None:
    whole = train(tmp_path / "one", 1, 1, 6, fp16=True)
    said = {line.split()[1]: line.split()[2:] for line in whole if line.startswith("scale")}
    assert said["0"][1] == "True" and "False" in {overflow for _, overflow in said.values()}
    train(tmp_path / "two", 2, 2, 4, fp16=True)
    resumed = train(tmp_path / "two", 3, 3, 6, "resume", fp16=True)
    assert resumed == {
        line for line in whole if line.split()[1] in ("4", "5") or line.startswith("score")
    }


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["cluster", "spread"])
def test_partitions_with_data_parallelism(tmp_path: Path, placement: str) -> None:
    one = train(tmp_path / "one", 2, 1, 3)
    two = train(tmp_path / "two", 4, 2, 3, placement_strategy=placement)
    assert one == two


@pytest.mark.slow
def test_manual_partitions(tmp_path: Path) -> None:
    said = train(tmp_path / "a", 2, 2, 2, auto_partition=False, default_partition=0)
    assert said == train(tmp_path / "b", 2, 2, 2)


def test_parameters_are_delayed_where_the_configuration_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for delayed in (True, False):
        read = _config.read({"delayed_parameter_initialization": delayed})
        monkeypatch.setattr(_session, "_found", [_session.Session(read)])
        with _session.model_creation():
            made = torch.nn.Linear(256, 256)
        assert made.weight.is_meta == delayed and not made.bias.is_meta
        with _session.delay_param_initialization(not delayed):
            made = torch.nn.Linear(256, 256)
        assert made.weight.is_meta != delayed


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"partition": 2}, "there is no key partition"),
        ({"partitions": 0}, "pipeline_parallel_degree=0"),
        ({"microbatches": "x"}, "microbatches='x'"),
        ({"pipeline": "fast"}, "pipeline='fast'"),
        ({"optimize": "best"}, "optimize='best'"),
        ({"memory_weight": 2}, "memory_weight=2"),
        ({"fp16": True, "bf16": True}, "fp16 and bf16: only one"),
        ({"tensor_parallel_degree": 2}, "tensor_parallel_degree=2: only 1"),
        ({"sharded_data_parallel_degree": 4}, "sharded_data_parallel_degree=4: only 1"),
        ({"placement_strategy": "DP"}, "placement_strategy='DP'"),
        ({"auto_partition": False}, "needs a default_partition"),
        ({"auto_partition": False, "default_partition": 1}, "default_partition=1"),
    ],
)
def test_a_bad_configuration_is_refused_by_its_key(config: dict[str, Any], text: str) -> None:
    with pytest.raises(PawlError, match=text):
        _config.read(config)


def test_the_configuration_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", "[1]")
    with pytest.raises(PawlError, match="is no JSON object"):
        _config.read(None)
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", "{")
    with pytest.raises(PawlError, match="is not JSON"):
        _config.read(None)
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", '{"partitions": 3, "optimize": "speed"}')
    read = _config.read(None)
    assert (read.pipeline_parallel_degree, read.balance, read.schedule) == (3, 0.2, "1f1b")
    assert [_config.read({"placement_strategy": s}).spread for s in ("cluster", "TPD", "DTP")] == [
        False, True, False,
    ]  # fmt: skip


def test_names_before_init_and_fused_modules_are_refused() -> None:
    import smdistributed.modelparallel.torch as smp

    assert not smp.is_initialized()
    for call in (smp.rank, smp.barrier, lambda: smp.DistributedModel(torch.nn.Linear(1, 1))):
        with pytest.raises(PawlError, match=r"call (smp|pp)\.init"):
            call()
    with pytest.raises(PawlError, match="DistributedTransformer is a fused CUDA module"):
        smp.nn.DistributedTransformer(1)
    with pytest.raises(PawlError, match="strategy='all'"):
        smp.set_activation_checkpointing(torch.nn.Linear(1, 1), strategy="all")


def test_transformers_made_under_tensor_parallelism_get_weights() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
            self.tied = False

        def _init_weights(self, module: torch.nn.Module) -> None:
            if isinstance(module, torch.nn.Linear):
                module.weight.fill_(3)

        def tie_weights(self) -> None:
            self.tied = True

    _session._found[:] = [_session.Session(_config.read({}))]
    try:
        with _session.model_creation(tensor_parallelism=True, dtype=torch.float64):
            model: Any = Model()
        assert torch.get_default_dtype() == torch.float32
        _session.prepare(model)
    finally:
        _session._found.clear()
    assert (model.seq_layers[0].weight == 3).all() and model.tied
    assert model.h[0].weight.dtype == torch.float64
    assert list(model.state_dict()) == ["h.0.weight", "h.0.bias"]


@pytest.mark.slow
@pytest.mark.skipif(
    not EXAMPLES, reason="PAWL_SMP_EXAMPLES names no folder with train_gpt_simple.py"
)
def test_amazons_script_has_the_same_losses_on_any_number_of_partitions(tmp_path: Path) -> None:
    assert EXAMPLES
    write_texts(tmp_path)
    one = losses(tmp_path, 1, 20)
    two = losses(tmp_path, 2, 6)
    four = losses(tmp_path, 4, 20, "--load_partial", "1")
    assert len(one) == 20 and one == {**two, **four}


def write_texts(folder: Path) -> None:
    for name in ("train", "test"):
        (folder / name).mkdir()
        rows = [{"input_ids": [(s + 3 * i) % 97 for i in range(32)], "attention_mask": [1] * 32}
                for s in range(0, 640, 5)]  # fmt: skip
        text = "\n".join(json.dumps(row) for row in rows)
        (folder / name / "part0.json").write_text(text)


def losses(folder: Path, partitions: int, stop: int, *more: str) -> dict[int, str]:
    """Losses by step, as the script prints them. It stops at a step by leaving its loop: the
    schedule is always that of 20 steps.
    """
    checkpoints = folder / ("one" if partitions == 1 else "several")
    env = program.clean_env(
        SM_NUM_GPUS="0", SM_OUTPUT_DATA_DIR=str(folder), SM_MODEL_DIR=str(folder / "model"),
        SM_CHANNEL_TRAIN=str(folder / "train"), SM_CHANNEL_TEST=str(folder / "test"),
        HF_HUB_OFFLINE="1", PYTHONPATH=os.pathsep.join([EXAMPLES or "", *sys.path]),
    )  # fmt: skip
    args = (
        f"--pipeline_parallel_degree {partitions} --microbatches 4 --max_context_width 32 "
        "--vocab_size 100 --hidden_width 32 --num_layers 4 --num_heads 2 --train_batch_size 8 "
        f"--zipped_data 0 --max_steps {stop} --lr_decay_iters 20 --lr 0.01 --same_seed 1 "
        f"--checkpoint_freq 6 --checkpoint-dir {checkpoints}"
    )
    script = Path(EXAMPLES or "") / "train_gpt_simple.py"
    started = ranks.start_ranks(script, partitions, *args.split(), *more, env=env)
    try:
        said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    finally:
        ranks.stop(started)
    assert all(rank.returncode == 0 for rank in started), said
    assert "SMP training finished successfully" in said[0], said
    lines = [line for line in said[0].splitlines() if " Loss: " in line]
    return {int(line.split()[2]): line.split()[4] for line in lines}
