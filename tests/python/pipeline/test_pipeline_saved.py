"""Checkpoints of pipelined models: saved and restored by the names of parameters, with any number
of stages and replicas, or as a plain model."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
import torch

import pawl
import pipeline_saved_rank
import program
import ranks
from pawl.errors import PawlError

SCRIPT = Path(__file__).parent / "pipeline_saved_rank.py"

Said = dict[str, str]  # losses, and hashes of tensors, by name


def run(
    root: Path, world: int, stages: int, first: int, last: int, *flags: str, job: str = ""
) -> Said:
    """Trains steps first to last, from the checkpoint before them. What several ranks have must be
    equal."""
    args = (str(root), str(stages), str(first), str(last), *flags)
    return heard(ranks.run_ranks(SCRIPT, world, *args, job=job))


def heard(lines: list[list[str]]) -> Said:
    found: dict[str, set[str]] = {}
    for said in lines:
        for line in said:
            name, _, text = line.partition(" ")
            found.setdefault(name, set()).add(text)
    assert all(len(texts) == 1 for texts in found.values()), found
    return {name: texts.pop() for name, texts in found.items()}


def differing(one: Said, other: Said, begun: int = 0) -> list[str]:
    """Names that differ, without the losses of steps up to ``begun``."""
    before = {f"loss{n}/{r}" for n in range(1, begun + 1) for r in range(2)}
    return sorted(n for n in (one.keys() | other.keys()) - before if one.get(n) != other.get(n))


def plain(said: Said) -> Said:
    """The tensors alone, under the module's names."""
    return {n.removesuffix("/0"): t for n, t in said.items() if not n.startswith("loss")}


def test_two_stages_are_restored_as_a_plain_model(tmp_path: Path) -> None:
    said = run(tmp_path, 2, 2, 1, 2)
    model = pipeline_saved_rank.Model()
    optimizer = pipeline_saved_rank.make_optimizer(model, False)
    with pawl.Checkpointer(tmp_path) as ckpt:
        assert ckpt.restore({"model": model, "optimizer": optimizer, "lr": 0.0}) == 2
    found = {
        name: hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest()[:16]
        for name, t in model.state_dict().items()
    }
    assert found == plain(said)
    assert len(optimizer.state) == sum(p.requires_grad for p in model.parameters())
    for parameter, entry in optimizer.state.items():
        assert entry["exp_avg"].shape == parameter.shape
        assert entry["step"] == 2
        assert entry["exp_avg"].abs().sum() > 0


@pytest.mark.slow
def test_any_number_of_stages_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 1, 1, 1, 4)
    for saved in (1, 3):
        run(tmp_path / f"{saved}", saved, saved, 1, 2)
        for stages in (1, 2, 4):
            root = copied(tmp_path / f"{saved}", tmp_path / f"{saved}to{stages}")
            assert differing(run(root, stages, stages, 3, 4), whole, begun=2) == []


def copied(root: Path, to: Path) -> Path:
    return Path(shutil.copytree(root, to))


@pytest.mark.slow
def test_replicas_go_on_and_may_become_fewer(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 4, 2, 1, 4)
    run(tmp_path / "saved", 4, 2, 1, 2)
    same = run(copied(tmp_path / "saved", tmp_path / "same"), 4, 2, 3, 4)
    assert differing(same, whole, begun=2) == []
    fewer = [run(copied(tmp_path / "saved", tmp_path / f"to{n}"), n, n, 3, 4) for n in (1, 2)]
    assert differing(*fewer) == []
    more = run(copied(tmp_path / "to1", tmp_path / "more"), 2, 1, 5, 5)
    split = run(copied(tmp_path / "to2", tmp_path / "split"), 4, 2, 5, 5)
    assert differing(more, split) == []


@pytest.mark.slow
def test_an_optimizer_of_one_ranks_parameters(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 1, 1, 1, 2)
    local = run(tmp_path / "local", 2, 2, 1, 2, "local")
    assert differing(local, whole) == []
    for stages in (1, 3):
        root = copied(tmp_path / "local", tmp_path / f"to{stages}")
        with_all = run(root, stages, stages, 3, 3)
        root = copied(tmp_path / "whole", tmp_path / f"as{stages}")
        assert differing(with_all, run(root, stages, stages, 3, 3)) == []


@pytest.mark.slow
@pytest.mark.parametrize("stages", [3, 2])
def test_a_killed_pipeline_goes_on(tmp_path: Path, stages: int) -> None:
    """With as many stages, or one fewer."""
    whole = run(tmp_path / "whole", 1, 1, 1, 4)
    args = (str(tmp_path / "killed"), "3", "1", "2", "kill")
    started = ranks.start_ranks(SCRIPT, 3, *args, job="killed")
    try:
        said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    finally:
        ranks.stop(started)
    assert [rank.returncode for rank in started] == [3, -9, 3], said
    for rank in (0, 2):
        assert "rank 1 is lost" in ranks.say(said[rank])[-1], said
    found = run(tmp_path / "killed", stages, stages, 3, 4, job="killed")
    assert differing(found, whole, begun=2) == []


@pytest.mark.slow
def test_a_plain_run_goes_on_as_a_pipeline(tmp_path: Path) -> None:
    torch.manual_seed(6)
    model = pipeline_saved_rank.Model()
    optimizer = pipeline_saved_rank.make_optimizer(model, False)
    model(pipeline_saved_rank.batch(1, 0)).square().mean().backward()
    optimizer.step()
    with pawl.Checkpointer(tmp_path / "one") as ckpt:
        ckpt.save(1, {"model": model, "optimizer": optimizer, "lr": 0.25})
        ckpt.flush()
    copied(tmp_path / "one", tmp_path / "three")
    one = run(tmp_path / "one", 1, 1, 2, 3)
    assert differing(run(tmp_path / "three", 3, 3, 2, 3), one) == []


@pytest.mark.slow
def test_a_rank_reads_what_it_will_have(tmp_path: Path) -> None:
    script = SCRIPT.with_name("pipeline_read_rank.py")
    ranks.run_ranks(script, 2, str(tmp_path), "save")
    said = ranks.run_ranks(script, 4, str(tmp_path), "restore")
    size, per_rank = int(said[0][0].split()[0]), [int(line[0].split()[1]) for line in said]
    assert sum(per_rank) < 1.1 * size, said
    assert max(per_rank) < 0.5 * size, said


# ---- refusals, in one process ----


@pytest.fixture
def alone():
    import pawl.pipeline as pp

    pp.init(stages=1, microbatches=2)
    yield pp
    pp.shutdown()


def test_what_cannot_be_saved_is_named(tmp_path: Path, alone) -> None:
    class Extra(torch.nn.Linear):
        def get_extra_state(self):
            return {"x": 1}

    model = alone.DistributedModel(torch.nn.Sequential(torch.nn.Linear(2, 2), Extra(2, 2)))
    other = torch.nn.Parameter(torch.zeros(2))
    with pawl.Checkpointer(tmp_path) as ckpt:
        with pytest.raises(PawlError, match=r"1\._extra_state .*neither parameter nor buffer"):
            ckpt.save(1, {"model": model})
        optimizer = torch.optim.SGD([*model.parameters(), other], lr=0.1)
        with pytest.raises(PawlError, match=r"state\['sgd'\] has parameters of the pipelined"):
            ckpt.save(1, {"sgd": optimizer})


def test_another_model_is_refused_and_nothing_changes(tmp_path: Path, alone) -> None:
    saved = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    with pawl.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": saved})
        model = alone.DistributedModel(torch.nn.Sequential(torch.nn.Linear(2, 2)))
        before = model.module[0].weight.clone()
        with pytest.raises(
            PawlError, match=r"only in .*1\.weight.*0\.weight \(saved \(2, 3\), live"
        ):
            ckpt.restore({"model": model})
        assert torch.equal(model.module[0].weight, before)
        assert model.plan is None


def test_groups_of_another_optimizer_are_refused(tmp_path: Path, alone) -> None:
    model = alone.DistributedModel(
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    )
    first, second = (list(part.parameters()) for part in model.module)
    one = torch.optim.SGD([{"params": first}, {"params": second}], lr=0.1)
    with pawl.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"sgd": one})
        swapped = torch.optim.SGD([{"params": second}, {"params": first}], lr=0.1)
        with pytest.raises(PawlError, match=r"group 0 was saved without 1\.weight, 1\.bias"):
            ckpt.restore({"sgd": swapped})
        fewer = torch.optim.SGD([{"params": first + second}], lr=0.1)
        with pytest.raises(PawlError, match="saved 2 groups of parameters, live 1"):
            ckpt.restore({"sgd": fewer})


def test_load_state_dict_takes_a_whole_one_or_nothing(alone) -> None:
    model = alone.DistributedModel(
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    )

    @alone.step
    def step(x):
        loss = model(x).sum()
        model.backward(loss)
        return loss

    step(torch.ones(2, 2))
    whole = {name: torch.full_like(t, 3.0) for name, t in model.state_dict().items()}
    assert list(whole) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    with pytest.raises(RuntimeError, match=r"0\.weight: saved \(1, 2\), live \(2, 2\)"):
        model.load_state_dict({**whole, "0.weight": torch.zeros(1, 2)})
    with pytest.raises(RuntimeError, match=r"missing: 1\.bias; unexpected: x"):
        model.load_state_dict({n: t for n, t in {**whole, "x": 1}.items() if n != "1.bias"})
    assert not (model.module[0].weight == 3).any()
    model.load_state_dict(whole)
    assert all((p == 3).all() for p in model.parameters())
