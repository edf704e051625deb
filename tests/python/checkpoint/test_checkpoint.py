"""Checkpointer and Save, as a training script uses them."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import nursery
import pawl
import program
import waits
from conftest import real_core
from pawl import Checkpointer, PawlError, _start, _stop
from pawl._ckpt import _fence
from pawl.engine import Engine


def training() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    one_step(model, optimizer)
    return model, optimizer


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 32)).square().sum().backward()
    optimizer.step()


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def copy_of(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in state.items()}


def test_files_are_what_torch_load_reads(core: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    state = {"model": model, "optim": optimizer, "epoch": 3, "best": {"loss": 0.25}}
    with Checkpointer(tmp_path, persist_every=0) as ckpt:
        save = ckpt.save(500, state)
        assert save.wait("durable", program.LIMIT_S)
        assert save.level == "durable" and save.error is None
        assert save.step == 500 and save.stall_s > 0
    tag = tmp_path / "global_step500"
    loaded = torch.load(tag / "model", weights_only=True)
    assert equal(loaded, model.state_dict()) and loaded._metadata == model.state_dict()._metadata
    assert torch.load(tag / "optim")["param_groups"] == optimizer.state_dict()["param_groups"]
    assert torch.load(tag / "epoch") == 3 and torch.load(tag / "best") == {"loss": 0.25}
    assert {"python", "torch"} <= torch.load(tag / "rng", weights_only=True).keys()
    assert save.level == "durable"  # saves of a closed Checkpointer keep their last level


def test_save_restore_in_the_same_process(core: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    state = {"model": model, "optim": optimizer, "epoch": 1}
    with Checkpointer(tmp_path) as ckpt:
        assert ckpt.restore(state) is None
        ckpt.save(1, state).wait("committed", program.LIMIT_S)
        before = copy_of(model.state_dict())
        one_step(model, optimizer)
        state["epoch"] = 2
        assert not equal(before, model.state_dict())
        assert ckpt.restore(state) == 1
        assert equal(before, model.state_dict()) and state["epoch"] == 1
        assert [(c["step"], c["tag"]) for c in ckpt.list()] == [(1, "global_step1")]


def test_training_resumes_bit_for_bit(core: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path, persist_every=0, job="first") as ckpt:
        ckpt.save(1, {"model": model, "optim": optimizer}).wait("durable", program.LIMIT_S)
        one_step(model, optimizer)
        one_step(model, optimizer)
    torch.manual_seed(99)
    again, fresh = training()
    with Checkpointer(tmp_path, job="first") as ckpt:
        assert ckpt.restore({"model": again, "optim": fresh}) == 1
    one_step(again, fresh)
    one_step(again, fresh)
    assert equal(again.state_dict(), model.state_dict())


def test_levels_are_words_and_wrong_ones_an_error(core: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ckpt:
        save = ckpt.save(1, {"x": 1})
        for level in ("staged", "committed", "replicated", "durable"):
            assert save.wait(level, program.LIMIT_S)
        with pytest.raises(ValueError, match="staged, committed, replicated, durable"):
            save.wait("done")
        assert repr(save) == "<pawl.Save global_step1 durable>"


def test_flush_pin_and_load(core: Any, tmp_path: Path) -> None:
    model, _ = training()
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(7, {"model": model, "n": 4}).wait("committed", program.LIMIT_S)
        assert ckpt.flush(timeout=program.LIMIT_S)
        ckpt.pin(7)
        # The agent's own thread touches the store, so its result shows a little later.
        program.wait_until(lambda: ckpt.list()[-1]["pinned"], "it is pinned")
        assert ckpt.list()[-1]["level"] == "durable"
        ckpt.pin(7, False)
        program.wait_until(lambda: not ckpt.list()[-1]["pinned"], "it is pinned no more")
    everything = pawl.load(tmp_path)
    assert set(everything) == {"model", "n", "rng"} and everything["n"] == 4
    assert equal(pawl.load(tmp_path, partition="model", step=7), model.state_dict())
    meta = pawl.load(tmp_path, partition="model", map_location="meta")
    assert all(tensor.is_meta for tensor in meta.values())
    with pytest.raises(PawlError, match="no partition 'nope': it has model, n, rng"):
        pawl.load(tmp_path, partition="nope")
    with pytest.raises(PawlError):
        pawl.load(tmp_path, step=8)


def test_rng_goes_on_where_it_was(core: Any, tmp_path: Path) -> None:
    import random

    import numpy as np

    def draw() -> tuple[Any, ...]:
        return random.random(), random.gauss(0, 1), np.random.rand(), torch.rand(2).tolist()

    random.gauss(0, 1)  # leaves a second number in store
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {}).wait("committed", program.LIMIT_S)
        expected = draw()
        assert draw() != expected
        assert ckpt.restore({}) == 1
        assert draw() == expected


def test_rng_of_numpys_other_generators(fake: Any) -> None:
    import numpy as np

    from pawl._ckpt import _rng

    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(5))
        state = _rng.capture()
        expected = np.random.rand()
        _rng.check(state)
        _rng.apply(state)
        assert np.random.rand() == expected
    finally:
        np.random.set_bit_generator(before)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rng", "generators"),
        ("a/b", "'/'"),
        ("a\0b", "zero byte"),
        (".a", "begin with"),
        ("", "empty"),
        ("a" * 181, "180 bytes"),
        ("\u00fc" * 91, "180 bytes"),
        ("\ud800", "Unicode"),
        ("complete.txt", "files are called so"),
        ("model-rank12", "files are called so"),
        (7, "must be a str, not a int"),
    ],
)
def test_bad_names_are_refused(fake: Any, tmp_path: Path, name: Any, why: str) -> None:
    with Checkpointer(tmp_path) as ckpt:
        for act in (lambda s: ckpt.save(1, s), ckpt.restore):
            with pytest.raises((ValueError, TypeError), match=why):
                act({name: 1})
        assert ckpt.list() == []


def test_good_names_are_taken(core: Any, tmp_path: Path) -> None:
    names = ["a" * 180, "ranks", "x-rank", "with space", "new\nline", "\u00fcml\u00e4ut", "rng2"]
    with Checkpointer(tmp_path, persist_every=0) as ckpt:
        assert ckpt.save(1, {name: name for name in names}).wait("durable", program.LIMIT_S)
    assert {k: v for k, v in pawl.load(tmp_path).items() if k != "rng"} == {
        name: name for name in names
    }


@pytest.mark.parametrize("step", [-1, 1 << 63, True, 1.0, "1", None])
def test_bad_steps_are_refused(fake: Any, tmp_path: Path, step: Any) -> None:
    with Checkpointer(tmp_path) as ckpt, pytest.raises((TypeError, ValueError), match=r"step|int"):
        ckpt.save(step, {})


def test_numpy_integers_are_steps(fake: Any, tmp_path: Path) -> None:
    import numpy as np

    with Checkpointer(tmp_path) as ckpt:
        assert ckpt.save(np.int64(5), {}).step == 5


@pytest.mark.parametrize(
    "options",
    [
        {"copy": "later"},
        {"keep": -1},
        {"keep": 1.5},
        {"persist_every": -1},
        {"persist_every": float("nan")},
        {"memory": 0},
        {"keep_every": -2},
        {"replicas": 9},
        {"replicas": -1},
        {"replicas": 1.0},
        {"replicas": True},
        {"replicas": 4, "parity": True},
        {"parity": 1},
        {"rank": 1},
        {"rank": 2, "world_size": 2},
    ],
    ids=str,
)
def test_bad_options_are_refused(fake: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Checkpointer(tmp_path, **options)


@pytest.mark.parametrize("linked", [True, False])
def test_replicas_need_pawl_run(
    fake: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    linked: bool,
) -> None:
    fake.environment.update(rank=0, world=2, local_world=1, nodes=2)
    monkeypatch.delenv("PAWL_AGENT", raising=False)
    if linked:
        monkeypatch.setenv("PAWL_AGENT", "/run/agent.sock")
    for replicas, passed in (None, 2**32 - 1), (0, 0), (8, 8), (2, 2):
        for make in Checkpointer, Engine:
            with make(tmp_path, replicas=replicas) as saver:
                assert saver._live().options["replicas"] == passed  # type: ignore[attr-defined]
    for make in Checkpointer, Engine:
        with make(tmp_path, replicas=3, parity=True) as saver:
            options = saver._live().options  # type: ignore[attr-defined]
            assert options["replicas"] == 3 and options["parity"] is True
    # Only who asks for replicas is told that there are none, and once.
    assert [r.message for r in caplog.records if "replicas" in r.message] == [
        f"{tmp_path}: replicas=8 has no effect: only under pawl run are the hosts of a job linked"
    ][linked:]


def test_root_forms(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Checkpointer("runs/gpt") as ckpt:
        assert ckpt.root == str(tmp_path / "runs/gpt")
    with Checkpointer("S3://bucket/x/") as ckpt:
        assert ckpt.root == "s3://bucket/x"
    for wrong, why in (("ftp://bucket/x", "in a directory, or in a bucket"), ("s3:/b/x", "a str")):
        with pytest.raises(PawlError, match=why):
            Checkpointer(wrong)
    with pytest.raises(TypeError):
        Checkpointer(b"bytes")  # type: ignore[arg-type]


def test_what_several_nodes_cannot(fake: Any, tmp_path: Path) -> None:
    fake.environment.update(rank=3, world=4, local_rank=1, local_world=2, nodes=2)
    before = signal.getsignal(signal.SIGTERM)
    with Checkpointer(tmp_path) as ckpt:
        assert signal.getsignal(signal.SIGTERM) is before
        assert ckpt._live().options["host_first"] == 2
        assert ckpt._live().options["host_ranks"] == 2
        for ask in ("stopping", "due"):
            with pytest.raises(PawlError, match=f"{ask}: the ranks span hosts") as caught:
                assert getattr(ckpt, ask)()
            assert caught.value.name == "PAWL_ENOTSUP"
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(PawlError, match="rank 0 of 2, but the launcher says 3 of 4"):
        Checkpointer(tmp_path, rank=0, world_size=2)
    with Engine(tmp_path) as engine:
        assert engine.spans_hosts


def test_ranks_of_one_pawl_run_on_several_nodes_are_asked_alike(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.environment.update(rank=3, world=4, local_rank=1, local_world=2, nodes=2)
    monkeypatch.setenv("PAWL_AGENT", str(tmp_path / "socket"))
    monkeypatch.setenv("GROUP_WORLD_SIZE", "1")  # one of several launchers of --door
    with Checkpointer(tmp_path) as ckpt, pytest.raises(PawlError, match="pawl run --nnodes, or"):
        assert ckpt.stopping
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    before = signal.getsignal(signal.SIGTERM)
    with Checkpointer(tmp_path) as ckpt:
        assert not ckpt.stopping and not ckpt.due()
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    with Engine(tmp_path) as engine:
        assert signal.getsignal(signal.SIGTERM) is before
        with pytest.raises(PawlError, match="would differ: all-reduce a flag"):
            assert engine.stopping


def test_rank_comes_from_arguments_then_environment(fake: Any, tmp_path: Path) -> None:
    fake.environment.update(rank=1, world=2, source="torchrun")
    with Checkpointer(tmp_path) as ckpt:
        assert (ckpt.rank, ckpt.world_size) == (1, 2)
    with Checkpointer(tmp_path, rank=0, world_size=1) as ckpt:
        assert (ckpt.rank, ckpt.world_size) == (0, 1)


def test_job_is_the_argument_the_launchers_or_the_scripts(fake: Any, tmp_path: Path) -> None:
    def job(root: Path, **options: Any) -> str:
        with Checkpointer(root, **options) as ckpt:
            return ckpt._live().job

    plain = job(tmp_path)
    assert plain.startswith("plain:") and plain == job(tmp_path / "." / "x" / "..")
    assert plain != job(tmp_path / "other")
    fake.environment.update(job="slurm-17")
    assert job(tmp_path) == "slurm-17"
    assert job(tmp_path, job="mine") == "mine"


def test_options_reach_the_core(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWL_AGENT", "/run/agent.sock")
    monkeypatch.setenv("PAWL_PROGRAM", sys.executable)
    with Checkpointer(
        tmp_path,
        keep=5,
        persist_every=0.5,
        copy="now",
        memory=1 << 30,
        keep_every=100,
        full_every=7,
        replicas=2,
        parity=True,
    ) as ckpt:
        assert ckpt._live().options == {
            "keep": 5,
            "keep_every": 100,
            "full_every": 7,
            "persist_every_ms": 500,
            "memory_bytes": 1 << 30,
            "socket": "/run/agent.sock",
            "program": sys.executable,
            "watch": False,
            "hidden": None,
            "named": False,
            "host_first": 0,
            "host_ranks": 1,
            "find_changed": _fence.find_changed,
            "replicas": 2,
            "parity": True,
        }


def test_a_wrong_pawl_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pawl._agent import find_program

    monkeypatch.setenv("PAWL_PROGRAM", str(tmp_path / "missing"))
    with pytest.raises(PawlError, match="PAWL_PROGRAM"):
        find_program()


def test_notes_are_said_once(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PAWL_AGENT", "note")
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {})
    assert [r.message for r in caplog.records].count("a note") == 1


def test_imports_are_told_at_the_first_save(fake: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ckpt:
        assert ckpt._live().told == ""
        ckpt.save(1, {})
        assert {"torch", "pawl.checkpoint"} <= set(ckpt._live().told.split("\n"))


def test_copy_now_watches_nothing(fake: Any, tmp_path: Path) -> None:
    model = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    with Checkpointer(tmp_path, copy="now") as ckpt:
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        assert save.level != "staging" and save.proof == "copied"
    with Checkpointer(tmp_path / "2") as ckpt:
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        assert save.level == "staging" and save.proof == "watched"


def test_unsaveable_state_changes_nothing(core: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ckpt:
        assert ckpt.save(1, {"x": 1}).wait("committed", program.LIMIT_S)
        with pytest.raises(PawlError, match=r"state\['x'\]\['y'\] is a .*Path"):
            ckpt.save(2, {"x": {"y": tmp_path}})
        assert ckpt.save(3, {"x": 3}).wait("committed", program.LIMIT_S)
        assert ckpt.restore({"x": 0}) == 3


class Total:
    """Looks at its tensor while it is being unpickled."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.total = tensor, tensor.sum().item()

    def __reduce__(self) -> Any:
        return Total, (self.tensor,)


def test_trust(core: Any, tmp_path: Path) -> None:
    state: dict[str, Any] = {"where": tmp_path, "total": Total(torch.ones(1000))}
    with Checkpointer(tmp_path / "r", trust=True) as ckpt:
        ckpt.save(1, state).wait("durable", program.LIMIT_S)
        state["where"] = state["total"] = None
        assert ckpt.restore(state) == 1 and state["where"] == tmp_path
        assert state["total"].total == 1000
    with pytest.raises(PawlError, match="Path"):
        pawl.load(tmp_path / "r", partition="where")
    assert pawl.load(tmp_path / "r", trust=True, partition="where") == tmp_path


def test_closed_and_closed_again(core: Any, tmp_path: Path) -> None:
    ckpt = Checkpointer(tmp_path)
    save = ckpt.save(1, {"x": 1})
    assert ckpt.close() and ckpt.close()
    assert save.level == "durable" and save.wait("durable", 1)
    for act in (ckpt.list, lambda: ckpt.save(2, {}), lambda: ckpt.restore({}), ckpt.flush):
        with pytest.raises(PawlError, match="closed"):
            act()


def test_a_save_of_long_ago_tells_what_was_known(fake: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ckpt:
        first = ckpt.save(0, {})
        assert first.level == "committed"
        for step in range(1, 300):
            ckpt.save(step, {})
        assert first.level == "committed" and first.error is None


def test_close_says_when_it_gave_up(
    fake: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ckpt = Checkpointer(tmp_path, rank=0, world_size=2)
    save = ckpt.save(1, {"x": 1})  # the other rank never comes
    with pytest.raises(pawl.NotDurable, match="global_step1 is not durable: timed out") as why:
        ckpt.close(timeout=0.05)
    assert why.value.name == "PAWL_ETIMEDOUT" and save.level == "staged"
    ckpt = Checkpointer(tmp_path, rank=0, world_size=2, on_exit="warn")
    ckpt.save(2, {"x": 1})
    assert not ckpt.close(timeout=0.05)
    assert "global_step2 is not durable: timed out" in caplog.text
    with pytest.raises(ValueError, match="on_exit must be"):
        Checkpointer(tmp_path, rank=0, world_size=2, on_exit="never")  # type: ignore[arg-type]


def test_sigterm_is_a_wish(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stop, "seconds", lambda _: 600.0)
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    try:
        first, second = Checkpointer(tmp_path / "1"), Checkpointer(tmp_path / "2")
        assert not first.stopping
        os.kill(os.getpid(), signal.SIGTERM)
        assert first.stopping and second.stopping and heard == [1]
        os.kill(os.getpid(), signal.SIGTERM)  # sent together with the first signal: one request
        assert heard == [1]
        first.close()
        assert signal.getsignal(signal.SIGTERM) is _stop._on_sigterm
        second.close()
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [1, 1]
        with Checkpointer(tmp_path / "3") as third:
            assert not third.stopping
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_later_sigterm_is_taken_at_its_word(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    monkeypatch.setattr(_stop, "seconds", lambda _: 0.0)
    try:
        with Checkpointer(tmp_path):
            os.kill(os.getpid(), signal.SIGTERM)
            waits.let_pass(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == [1, 1]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_notice_from_the_agent_is_a_wish_too(fake: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ckpt:
        ckpt._live().is_stopping = True
        assert ckpt.stopping


def test_other_threads_leave_sigterm_alone(fake: Any, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def use() -> None:
        with Checkpointer(tmp_path) as ckpt:
            ckpt.save(1, {})
            assert signal.getsignal(signal.SIGTERM) is before

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert fake.root_of(str(tmp_path)).world == {1: 1}


def test_a_forked_child_has_no_checkpointer(fake: Any, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Checkpointer(tmp_path) as ckpt:
        save = ckpt.save(1, {"x": 1})
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ckpt.save(2, {})
            except PawlError as refusal:
                clean = "forked" in str(refusal) and save.level == "staging"
                quiet = signal.getsignal(signal.SIGTERM) is before and ckpt.close()
                code = 0 if clean and quiet else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert ckpt.save(3, {}).wait("committed", program.LIMIT_S)


def test_data_loader_workers_beside_saves(core: Any, tmp_path: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1)
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"x": 1})
        assert sum(int(batch.sum()) for (batch,) in loader) == 28
        assert ckpt.save(2, {"x": 2}).wait("committed", program.LIMIT_S)


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    here = str(Path(__file__).resolve().parent)
    path = os.pathsep.join([here, *filter(None, sys.path)])
    return nursery.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
    )


USE_FAKE = "import sys, fakecore; sys.modules['pawl._core'] = fakecore\n"


@pytest.mark.real_interpreters
def test_exit_closes(tmp_path: Path) -> None:
    code = USE_FAKE + (
        "import pawl\n"
        f"ckpt = pawl.Checkpointer({str(tmp_path)!r})\n"
        "ckpt.save(1, {'x': [1, 2]})\n"
        "raise SystemExit(3)\n"
    )
    done = run_python(code)
    assert done.returncode == 3, done.stderr
    assert torch.load(tmp_path / "global_step1" / "x") == [1, 2]


@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
@pytest.mark.parametrize("root", ["there", "a\0b", "file", "file/below", ""])
def test_an_early_end_is_an_error(tmp_path: Path, root: str) -> None:
    """A first save fails, whatever stands in the way; a runtime directory that is missing
    does not."""
    (tmp_path / "file").touch()
    path = f"{tmp_path}/{root}" if root else ""
    code = (
        f"import pawl\nckpt = pawl.Checkpointer({path!r})\nckpt.save(1, {{'x': 1}}).wait('durable')"
    )
    job = f"early-{os.getpid()}-{len(root)}"
    done = run_python(code, XDG_RUNTIME_DIR=f"{tmp_path}/not-there", PAWL_JOB_ID=job)
    if root == "there":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1 and "Error: " in done.stderr, done.stderr


def imported(code: str) -> list[str]:
    """Returns the modules that the last line of code imports."""
    *first, last = code.splitlines()
    code = "\n".join(["import sys", *first, "there = set(sys.modules)", last])
    done = run_python(f"{code}\nprint(*sorted(set(sys.modules) - there))\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.real_interpreters
def test_import_is_light() -> None:
    """Importing pawl imports no heavy modules. Its time is measured by bench/checkpoint: torch
    takes seconds, these take none."""
    names = imported("import pawl")
    assert [name for name in names if name.startswith("pawl")] == ["pawl"]
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "pawl"}
    assert len(names) < 50, names


@pytest.mark.real_interpreters
def test_import_over_torch_is_cheap() -> None:
    """Pawl's own modules and little else."""
    names = imported(USE_FAKE + "import torch\nimport pawl; pawl.Checkpointer, pawl.load")
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "pawl"}
    assert "pawl.checkpoint" in names and len(names) < 50, names


def test_public_names() -> None:
    assert set(pawl.__all__) <= set(dir(pawl))
    assert isinstance(pawl.__version__, str)
    assert issubclass(pawl.PawlError, RuntimeError)
    with pytest.raises(AttributeError, match="nonsense"):
        pawl.nonsense  # noqa: B018


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Counts the calls of each function of Python and of C while work runs; not by the garbage
    collector, which may have much to do after earlier tests."""
    count: Counter[str] = Counter()

    def see(frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_call"):
            count[frame.f_code.co_name if event == "call" else arg.__qualname__] += 1

    gc.disable()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_steady_save_is_quick(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the calls that save() makes for 640 tensors; its time is measured by
    bench/checkpoint."""
    # Each save reads all known optimizers, also those of earlier tests.
    monkeypatch.setattr(_fence, "_known", {})
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(80)])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model(torch.randn(1, 8)).sum().backward()
    optimizer.step()
    state = {"model": model, "optim": optimizer}
    with Checkpointer(tmp_path) as ckpt:
        session = ckpt._live()
        session.save = lambda *_: 0
        session.status = lambda _: (1, 0, "", 0, -1, -1, {})
        ckpt.save(0, state)
        saves = [calls_of(lambda: ckpt.save(step, state)) for step in range(1, 20)]  # noqa: B023
        session.close = lambda _: True
    calls = max(saves, key=Counter.total)
    assert calls.total() < 40 * 640, f"built anew each time: {calls.most_common(9)}"  # usually 23


def test_log_of_restore(core: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pawl")
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(4, {"x": 1}).wait("committed", program.LIMIT_S)
        ckpt.restore({"x": 0})
        ckpt.save(6, {"x": 1}).wait("committed", program.LIMIT_S)
    # A save counts as a start, too, if nobody asked for a checkpoint before.
    first, second = caplog.messages
    assert first == f"nothing saved yet in {tmp_path}: from the beginning"
    assert re.fullmatch(rf"restored step 4 \([\d.]+ KiB, from memory\) from {tmp_path}", second)
    caplog.clear()
    with Checkpointer(tmp_path / "other") as ckpt:
        assert ckpt.restore({"x": 0}) is None
    assert f"nothing saved yet in {tmp_path / 'other'}: from the beginning" in caplog.text


def test_who_begins_anew_is_told(
    core: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a process, and only if a checkpoint exists that the process has not asked for."""
    caplog.set_level(logging.INFO, "pawl")
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(3, {"x": 1}).wait("durable", program.LIMIT_S)
    for attempt, who in (
        ("0", "this run"), ("1", "this process was started again (attempt 1) and"),
    ):  # fmt: skip
        caplog.clear()
        _start._looked.clear()  # as in another process
        monkeypatch.setenv("PAWL_ATTEMPT", attempt)
        getattr(core, "environment", {}).update(attempt=int(attempt))  # only the fake core has it
        for _ in range(2):
            with Checkpointer(tmp_path) as ckpt:
                ckpt.save(1, {"x": 1})
                ckpt.save(2, {"x": 1})
        remedy = "call restore() before save()"
        assert [line for line in caplog.messages if "begins" in line] == [
            f"{who} begins anew, though global_step3 lies in {tmp_path}: {remedy}"
        ]


def test_other_ranks_say_nothing_of_a_start(
    core: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pawl")
    with Checkpointer(tmp_path, rank=1, world_size=2, on_exit="warn") as ckpt:
        ckpt.save(1, {"x": 1})
        ckpt.close(0)
    assert not [record for record in caplog.records if record.name == "pawl.start"]
