"""nebulaml and torch_nebula: the documentation's snippets, its callers' ways, several ranks."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import nursery
import program
import ranks

SCRIPT = Path(__file__).with_name("nebula_job.py")


def run(code: str, *args: str, **extra: str) -> str:
    """Runs a script, as a user would. Returns its output."""
    done = nursery.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        env=program.clean_env(PAWL_JOB_ID="nebula-test", **extra),
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.real_interpreters
def test_both_names_are_one_module(tmp_path: Path) -> None:
    said = run(
        "import nebulaml, torch_nebula; print(nebulaml is torch_nebula, nebulaml.__version__)"
    )
    assert said.startswith("True ")


def test_the_documentations_snippets(tmp_path: Path) -> None:
    said = run(
        """
        import sys, json, torch
        import nebulaml as nm
        persist_path = sys.argv[1]
        nm.init(persistent_storage_path=persist_path, persistent_time_interval=2)
        model = torch.nn.Linear(3, 3)

        checkpoint = nm.Checkpoint()
        checkpoint.save('model', model)

        latest_ckpt = nm.get_latest_checkpoint()
        p0 = latest_ckpt.load('model')
        assert torch.equal(p0.weight, model.weight)

        checkpoint = nm.Checkpoint('global_step500', 2)
        checkpoint.save('checkpoint', {'w': model.weight})
        checkpoint.save('rng', torch.get_rng_state())
        assert nm.get_latest_checkpoint().tag == 'global_step500'

        ckpts = nm.list_checkpoints()
        print(json.dumps(ckpts, sort_keys=True, indent=4, separators=(",", ":")))
        path = nm.get_latest_checkpoint_path("checkpoint", persist_path)
        assert torch.load(path)['w'].shape == (3, 3)
        assert nm.flush_persistence('global_step500') and nm.flush_persistence()
        """,
        str(tmp_path / "ckpt"),
    )
    listed = json.loads(said)
    assert listed["global_step500"]["step"] == 500 and listed["global_step500"]["persisted"] in (
        True,
        False,
    )


@pytest.mark.parametrize("path", ["(p,)", "p"])
def test_a_path_in_a_tuple_is_taken_in_every_call(path: str, tmp_path: Path) -> None:
    run(
        f"""
        import sys
        import torch_nebula as tn
        p = sys.argv[1]
        tn.init({path}, persistent_time_interval=0)
        tn.Checkpoint('global_step1').save('checkpoint', {{'a': 1}})
        assert tn.get_latest_checkpoint(persist_path={path}).load('checkpoint') == {{'a': 1}}
        assert tn.get_checkpoint(tag='global_step1', persist_path={path}).tag == 'global_step1'
        assert tn.get_checkpoint(tag='nothing', persist_path={path}) is None
        path = tn.get_latest_checkpoint_path('checkpoint', {path})
        assert path.endswith('global_step1/checkpoint')
        assert list(tn.list_checkpoints({path})) == ['global_step1']
        """,
        str(tmp_path / "ckpt"),
    )


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    root = tmp_path / "ckpt"
    run(
        """
        import nebulaml as nm
        nm.init()
        ck = nm.Checkpoint('global_step7', -2)
        ck.save('a', [1])
        assert ck.commit() and nm.Checkpoint('global_step7', -2).commit()
        """,
        NEBULA_PERSISTENT_STORAGE_PATH=str(root),
        NEBULA_PERSISTENT_TIME_INTERVAL="1",
        NEBULA_MEMORY_BUFFER_SIZE="200000000",
        DLTS_NUM_WORKER="1",
        DLTS_JOB_ID="test",
        FC_TASK_INDEX="0",
        FC_TASKROLE_NAME="worker",
    )
    assert (root / "global_step7" / "complete.txt").read_text() == "OK"
    assert torch.load(root / "global_step7" / "a") == [1]


def test_explicit_tags_are_complete_by_commit_alone(tmp_path: Path) -> None:
    run(
        """
        import sys
        import nebulaml as nm
        nm.init(sys.argv[1], persistent_time_interval=0)
        ck = nm.Checkpoint('global_step1', -2)
        ck.save('a', 1)
        assert nm.get_latest_checkpoint() is None and nm.get_checkpoint('global_step1') is None
        nm.Checkpoint('global_step1', -2).save('b', 2)  # another object, the same tag
        assert nm.Checkpoint('global_step1', -2).commit()
        found = nm.get_latest_checkpoint()
        assert found.load('a') == 1 and found.load('b') == 2
        nm.Checkpoint('global_step2', -2).save('a', 3)  # never committed
        nm.Checkpoint('global_step3', -2).save('a', 4)
        assert nm.Checkpoint('global_step3', -2).commit()
        assert nm.get_checkpoint('global_step2') is None
        nm.Checkpoint('global_step4', -2).save('a', 5)  # nor this
        """,
        str(tmp_path / "ckpt"),
    )
    tags = sorted(p.name for p in (tmp_path / "ckpt").iterdir() if p.is_dir())
    assert tags == ["global_step1", "global_step3"]


def test_a_tag_opened_again_is_added_to(tmp_path: Path) -> None:
    run(
        """
        import sys
        import nebulaml as nm
        nm.init(sys.argv[1], persistent_time_interval=0)
        for name, value in (('model', 1), ('w.bin', 2), ('model', 3)):
            ck = nm.Checkpoint('global_step1', -2)
            ck.save(name, value)
            assert ck.commit()
        found = nm.get_checkpoint('global_step1')
        assert found.load('model') == 3 and found.load('w.bin') == 2
        """,
        str(tmp_path / "ckpt"),
    )
    assert torch.load(tmp_path / "ckpt/global_step1/w.bin") == 2


def test_the_never_commit_style(tmp_path: Path) -> None:
    run(
        """
        import sys, torch
        import torch_nebula as tn
        tn.init(**{'persistent_storage_path': sys.argv[1], 'persistent_time_interval': 0,
                   'num_of_version_in_retention': None})
        for step in (1, 2):
            ck = tn.Checkpoint(f'global_step{step}')
            for part in range(3):
                ck.save(f'part{part}', torch.full((10,), step))
        assert tn.get_latest_checkpoint().tag == 'global_step2'
        """,
        str(tmp_path / "ckpt"),
    )
    for step in (1, 2):
        for part in range(3):
            assert torch.load(tmp_path / f"ckpt/global_step{step}/part{part}")[0] == step


@pytest.mark.slow
def test_damage_is_an_oserror_and_latest_falls_back(tmp_path: Path) -> None:
    root = tmp_path / "ckpt"
    run(
        """
        import sys, torch
        import nebulaml as nm
        nm.init(sys.argv[1], persistent_time_interval=0)
        for step in (1, 2):
            nm.Checkpoint(f'global_step{step}', 1).save('checkpoint', torch.ones(100_000))
        """,
        str(root),
    )
    file = root / "global_step2" / "checkpoint"
    data = bytearray(file.read_bytes())
    data[200_000] ^= 4
    file.write_bytes(data)
    run(
        """
        import sys
        import nebulaml as nm
        nm.init(sys.argv[1])
        found = nm.get_latest_checkpoint()
        assert found.tag == 'global_step2'
        try:
            found.load('checkpoint')
        except OSError as reason:
            assert 'global_step2/checkpoint: bytes 0..' in str(reason), reason
        else:
            raise AssertionError
        assert nm.get_latest_checkpoint().tag == 'global_step1'
        try:
            nm.get_latest_checkpoint().load('nothing')
        except FileNotFoundError as reason:
            assert 'it has checkpoint' in str(reason)
        """,
        str(root),
    )


def test_what_cannot_be_saved_is_an_oserror(tmp_path: Path) -> None:
    run(
        """
        import sys
        import nebulaml as nm
        nm.init(sys.argv[1])
        ck = nm.Checkpoint('global_step1', -2)
        try:
            ck.save('a', lambda: 1)
        except OSError as reason:
            assert 'global_step1/a' in str(reason)
        ck.save('b', 1)
        assert ck.commit()
        """,
        str(tmp_path / "ckpt"),
    )


@pytest.mark.slow
def test_restricted_mode(tmp_path: Path) -> None:
    code = """
        import sys, collections
        import nebulaml as nm
        nm.init(sys.argv[1], persistent_time_interval=0)
        class Own: pass
        import types
        module = types.ModuleType('own'); module.Own = Own; Own.__module__ = 'own'
        Own.__qualname__ = 'Own'; sys.modules['own'] = module
        try:
            nm.Checkpoint('global_step1', 1).save('a', Own())
            print('saved')
        except OSError as reason:
            print('refused', reason)
    """
    assert run(code, str(tmp_path / "a")) == "saved\n"
    assert run(code, str(tmp_path / "b"), PAWL_NEBULA_SAFE="1").startswith("refused")


@pytest.mark.slow
def test_four_ranks_commit_together(tmp_path: Path) -> None:
    root = str(tmp_path / "ckpt")
    said = ranks.run_ranks(SCRIPT, 4, "whole", root, job="nebula-whole")
    assert said == [["global_step10 [10, 12, 13]"]] * 4
    for world in (1, 2):
        said = ranks.run_ranks(SCRIPT, world, "read", root, job="nebula-whole")
        assert said == [["global_step10 [10, 12, 13]"]] * world


def test_what_all_committed_every_rank_finds_at_once(tmp_path: Path) -> None:
    said = ranks.run_ranks(SCRIPT, 3, "met", str(tmp_path / "ckpt"), job="nebula-met")
    assert said == [["met"]] * 3


def test_a_question_does_not_overtake_what_another_rank_sent(tmp_path: Path) -> None:
    said = ranks.run_ranks(SCRIPT, 2, "overtaken", str(tmp_path / "ckpt"), job="nebula-overtaken")
    assert said == [["<Checkpoint global_step2>"]] * 2


def test_a_rank_dead_before_commit_leaves_nothing_visible(tmp_path: Path) -> None:
    started = ranks.start_ranks(SCRIPT, 4, "dead", str(tmp_path / "ckpt"), job="nebula-dead")
    said = [rank.communicate(timeout=program.LIMIT_S)[0] for rank in started]
    for rank in (0, 1, 3):
        assert "> [None, <Checkpoint global_step1>]" in said[rank], said[rank]
        assert started[rank].returncode != 0  # an exception or gloo's threads end the process
    program.wait_until(lambda: not (tmp_path / "ckpt/.pawl.global_step2.new").exists(), "the agent")
    tags = sorted(p.name for p in (tmp_path / "ckpt").iterdir() if p.is_dir())
    assert tags == ["global_step1"]


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_rank_0_alone_may_save(tmp_path: Path) -> None:
    said = ranks.run_ranks(SCRIPT, 3, "alone", str(tmp_path / "ckpt"), job="nebula-alone")
    assert said == [["<Checkpoint global_step2>"]] * 3
