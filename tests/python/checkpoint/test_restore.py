"""Restore across ranks and through damage; a crafted file can do nothing."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from array import array
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pawl
import program
from conftest import SEED, real_core
from pawl import Checkpointer, PawlError
from pawl._ckpt import _partitions, _restore, _unpickle
from pawl._ckpt._saver import LEVELS

pytestmark = pytest.mark.filterwarnings("ignore:Detected pickle protocol", "ignore:.*torch.jit")


def on_ranks(world: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(rank) for each rank in a thread. Returns the results or exceptions."""
    results: list[Any] = [None] * world

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        program.wait_until(lambda: not thread.is_alive(), "a rank ends")  # noqa: B023
    return results


def open_ranks(root: Path, world: int, **options: Any) -> list[Checkpointer]:
    return [Checkpointer(root, rank=r, world_size=world, **options) for r in range(world)]


def spy_on_copies(ckpt: Checkpointer) -> list[array[int]]:
    """Returns a list that gets the specs of all copies of later restores."""
    session, specs = ckpt._live(), []
    whole = session.restore

    def restore(*args: Any) -> Any:
        found = whole(*args)
        copy = found.copy
        found.copy = lambda spec: (specs.append(array("Q", spec)), copy(spec))
        return found

    session.restore = restore
    return specs


def save_all(ranks: list[Checkpointer], step: int, state: Callable[[int], dict[str, Any]]) -> None:
    saves = [ckpt.save(step, state(rank)) for rank, ckpt in enumerate(ranks)]
    for one in saves:
        one.wait("staged", program.LIMIT_S)
    assert all(one.wait("committed", program.LIMIT_S) for one in saves)


def test_each_rank_gets_its_own(fake: Any, tmp_path: Path) -> None:
    ranks = open_ranks(tmp_path, 2)
    save_all(ranks, 3, lambda rank: {"n": rank, "t": torch.full((5,), float(rank))})
    live = [{"n": -1, "t": torch.zeros(5)} for _ in ranks]
    assert on_ranks(2, lambda rank: ranks[rank].restore(live[rank])) == [3, 3]
    for rank in range(2):
        assert live[rank]["n"] == rank and live[rank]["t"].tolist() == [rank] * 5
    assert ranks[0].flush(program.LIMIT_S)
    assert sorted(p.name for p in (tmp_path / "global_step3").iterdir()) == [
        "n-rank0", "n-rank1", "rng-rank0", "rng-rank1", "t-rank0", "t-rank1",
    ]  # fmt: skip
    assert set(pawl.load(tmp_path)) == {
        "n-rank0", "n-rank1", "rng-rank0", "rng-rank1", "t-rank0", "t-rank1",
    }  # fmt: skip
    assert pawl.load(tmp_path, partition="n-rank1") == 1
    with pytest.raises(PawlError, match="it has n-rank0"):
        pawl.load(tmp_path, partition="n")


class Loader:
    """An object with its own load_state_dict, which records its arguments."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.loads: list[int] = []

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]
        self.loads.append(self.value)


def test_damage_on_one_rank_takes_all_to_the_step_before(fake: Any, tmp_path: Path) -> None:
    ranks = open_ranks(tmp_path, 2)
    for step in (1, 2):
        save_all(ranks, step, lambda rank, step=step: {"n": 10 * step + rank, "l": Loader(step)})
    live = [{"n": 0, "l": Loader(0)} for _ in ranks]
    session = ranks[1]._live()
    whole = session.restore

    def restore(*args: Any) -> Any:
        """Makes only rank 1 see the damage."""
        found = whole(*args)
        if found.step == 2:
            found.read = lambda _: (_ for _ in ()).throw(fake.fail(-7, "model: bad bytes"))
        return found

    session.restore = restore
    assert on_ranks(2, lambda rank: ranks[rank].restore(live[rank])) == [1, 1]
    assert [state["n"] for state in live] == [10, 11]
    assert [state["l"].loads for state in live] == [[2, 0, 1], [1]]  # rank 0: made and undone


def test_a_refusing_rank_stops_all(fake: Any, tmp_path: Path) -> None:
    ranks = open_ranks(tmp_path, 2)
    save_all(ranks, 1, lambda rank: {"m": nn.Linear(2, 2), "n": 5})
    modules = [nn.Linear(2, 2), nn.Linear(3, 2)]
    before = [m.weight.detach().clone() for m in modules]
    live = [{"m": modules[rank], "n": 0} for rank in range(2)]
    first, second = on_ranks(2, lambda rank: ranks[rank].restore(live[rank]))
    for error in (first, second):
        assert isinstance(error, PawlError) and error.name == "PAWL_EMISMATCH"
        assert "weight (saved (2, 2), live (2, 3))" in str(error)
    assert second.__cause__ is None
    assert all(torch.equal(m.weight, b) for m, b in zip(modules, before, strict=True))
    assert [state["n"] for state in live] == [0, 0]


@pytest.mark.parametrize("kind", ["torch", "python", "missing"])
def test_generators_that_cannot_be_set_change_nothing(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from pawl._ckpt import _rng

    state = _rng.capture()
    if kind == "torch":
        state["torch"] = state["torch"][:100].clone()
    elif kind == "python":
        state["python"] = (3, b"abcd", None)
    else:
        del state["python"]
    module = nn.Linear(2, 2)
    with Checkpointer(tmp_path) as ckpt:
        monkeypatch.setattr(_rng, "capture", lambda: state)
        ckpt.save(1, {"m": module, "n": 1}).wait("committed", program.LIMIT_S)
        with torch.no_grad():
            module.weight.zero_()
        live = {"m": module, "n": 0}
        with pytest.raises((PawlError, RuntimeError, ValueError, KeyError)):
            ckpt.restore(live)
        assert live["n"] == 0 and module.weight.abs().sum() == 0


@pytest.mark.parametrize("kind", ["PCG64", "Philox", "MT19937"])
def test_numpys_generator_of_another_kind_goes_on_as_it_did(
    core: Any, tmp_path: Path, kind: str
) -> None:
    numpy = pytest.importorskip("numpy")
    before = numpy.random.get_bit_generator()
    try:
        numpy.random.set_bit_generator(getattr(numpy.random, kind)(5))
        with Checkpointer(tmp_path) as ckpt:
            ckpt.save(1, {"n": 1}).wait("committed", program.LIMIT_S)
            drawn = numpy.random.random(3).tolist()
            numpy.random.set_bit_generator(numpy.random.SFC64(6))
            assert ckpt.restore({"n": 0}) == 1
        assert numpy.random.random(3).tolist() == drawn
    finally:
        numpy.random.set_bit_generator(before)


def test_a_generator_that_numpy_does_not_have_changes_nothing(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numpy = pytest.importorskip("numpy")
    from pawl._ckpt import _rng

    state = _rng.capture()
    state["numpy"] = {"bit_generator": "Mersenne", "state": {}}
    live = {"w": torch.zeros(3), "n": 0}
    with Checkpointer(tmp_path) as ckpt:
        monkeypatch.setattr(_rng, "capture", lambda: state)
        ckpt.save(1, {"w": torch.ones(3), "n": 1}).wait("committed", program.LIMIT_S)
        here = numpy.random.get_bit_generator()
        with pytest.raises(PawlError, match="rng: NumPy's global generator was a Mersenne"):
            ckpt.restore(live)
    assert live["n"] == 0 and live["w"].tolist() == [0.0] * 3
    assert numpy.random.get_bit_generator() is here


def test_an_assignment_of_the_users_that_fails_changes_nothing(fake: Any, tmp_path: Path) -> None:
    class Picky(UserDict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if value == "new":
                raise KeyError(key)
            super().__setitem__(key, value)

    live = Picky({"w": torch.zeros(3), "n": 0, "text": "old", "list": [0]})
    with Checkpointer(tmp_path) as ckpt:
        state = {"w": torch.ones(3), "n": 1, "text": "new", "list": [1]}
        ckpt.save(1, state).wait("committed", program.LIMIT_S)
        with pytest.raises(PawlError, match="state\\['text'\\]"):
            ckpt.restore(live)
    assert live["n"] == 0 and live["w"].tolist() == [0.0] * 3
    assert live["text"] == "old" and live["list"] == [0]


def test_what_cannot_be_filled_on_one_rank_changes_none(fake: Any, tmp_path: Path) -> None:
    """A tensor that repeats itself cannot take other values; rank 1 notices once it has
    read them."""
    ranks = open_ranks(tmp_path, 2)
    save_all(ranks, 1, lambda rank: {"m": holder(torch.arange(4.0)), "n": 1})
    lives = [
        {"m": holder(torch.zeros(4) if rank == 0 else torch.zeros(1).expand(4)), "n": 0}
        for rank in range(2)
    ]
    errors = on_ranks(2, lambda rank: ranks[rank].restore(lives[rank]))
    assert all(isinstance(error, PawlError) for error in errors)
    assert "repeats itself" in str(errors[0]) and "repeats itself" in str(errors[1])
    assert all(live["n"] == 0 and not live["m"].x.any() for live in lives)


def holder(x: torch.Tensor) -> nn.Module:
    module = nn.Module()
    module.register_buffer("x", x)
    return module


def test_everything_damaged_is_no_checkpoint(fake: Any, tmp_path: Path, caplog: Any) -> None:
    with Checkpointer(tmp_path) as ckpt:
        for step in (1, 2):
            ckpt.save(step, {"n": step}).wait("committed", program.LIMIT_S)
        fake.root_of(str(tmp_path)).damaged.update({1, 2})
        live = {"n": 0}
        assert ckpt.restore(live) is None and live["n"] == 0
    assert "global_step2 is not used: global_step2/n: bytes 0..9 are wrong" in caplog.text
    assert "global_step1 is not used" in caplog.text


def test_overlapping_tensors_are_copied_in_order(fake: Any, tmp_path: Path) -> None:
    """Copies run on several threads: copies whose order matters must not be in one call."""
    with Checkpointer(tmp_path) as ckpt:
        saved = ckpt.save(1, {"a": torch.ones(6), "b": torch.full((6,), 2.0)})
        saved.wait("committed", program.LIMIT_S)
        whole = torch.zeros(10)
        calls = spy_on_copies(ckpt)
        assert ckpt.restore({"a": whole[:6], "b": whole[4:]}, only=["a", "b"]) == 1
    assert whole.tolist() == [1] * 4 + [2] * 6
    assert [len(spec) // 5 for spec in calls if spec] == [1, 1]


def test_one_step_asked_for(core: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path, persist_every=0) as ckpt:
        for step in (1, 2, 3):
            assert ckpt.save(step, {"n": step}).wait("durable", program.LIMIT_S)
        live = {"n": 0}
        assert ckpt.restore(live, step=2) == 2 and live["n"] == 2
        assert ckpt.restore(live) == 3 and live["n"] == 3


# ---- reading goes on while the pickle is taken apart


def with_read(ckpt: Checkpointer, around: Callable[[Callable[[], None]], None]) -> None:
    """Makes later restores read inside of around(read)."""
    session = ckpt._live()
    whole = session.restore

    def restore(*args: Any) -> Any:
        found = whole(*args)
        if found is not None:
            read = found.read
            found.read = lambda indices: around(lambda: read(indices))
        return found

    session.restore = restore


def test_damage_counts_more_than_what_does_not_fit(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two faults are found at once: the damage late, in the thread that reads."""
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"m": nn.Linear(2, 2)}).wait("committed", program.LIMIT_S)
        ckpt.save(2, {"m": nn.Linear(3, 3)}).wait("committed", program.LIMIT_S)
        fake.root_of(str(tmp_path)).damaged.add(2)
        matched = threading.Event()
        match = _restore.match

        def matching(*args: Any) -> None:
            match(*args)
            matched.set()

        monkeypatch.setattr(_restore, "match", matching)
        with_read(ckpt, lambda read: (matched.wait(10), read()))
        assert ckpt.restore({"m": nn.Linear(2, 2)}) == 1
        assert matched.is_set()


def test_nothing_is_filled_before_all_is_verified(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"m": nn.Linear(2, 2), "t": torch.ones(3)}).wait("committed", program.LIMIT_S)
        matched = threading.Event()
        match = _restore.match

        def matching(plan: Any, state: Any, name: str, loaded: Any) -> None:
            match(plan, state, name, loaded)
            log.append(f"match {name}")
            if name == "t":
                matched.set()

        def around(read: Callable[[], None]) -> None:
            assert matched.wait(10)
            read()
            log.append("read")

        monkeypatch.setattr(_restore, "match", matching)
        with_read(ckpt, around)
        copy = fake.Restore.copy
        monkeypatch.setattr(fake.Restore, "copy", lambda *spec: (log.append("copy"), copy(*spec)))
        assert ckpt.restore({"m": nn.Linear(2, 2), "t": torch.zeros(3)}) == 1
    assert log[:3] == ["match m", "match t", "read"] and set(log[3:]) == {"copy"}


def test_contents_are_read_before_code_sees_them(fake: Any, tmp_path: Path) -> None:
    with Checkpointer(tmp_path, trust=True) as ckpt:
        ckpt.save(1, {"t": torch.arange(5.0)}).wait("committed", program.LIMIT_S)
        read = threading.Event()
        with_read(ckpt, lambda whole: (threading.Event().wait(0.1), whole(), read.set()))
        live = {"t": None}
        assert ckpt.restore(live) == 1 and live["t"].tolist() == [0, 1, 2, 3, 4]


def test_an_interrupted_restore_waits_for_its_reading(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"n": 1}).wait("committed", program.LIMIT_S)
        interrupted = threading.Event()

        def interrupt(*_: Any) -> None:
            interrupted.set()
            raise KeyboardInterrupt

        def around(read: Callable[[], None]) -> None:
            assert interrupted.wait(10)
            threading.Event().wait(0.1)
            read()
            log.append("read")

        monkeypatch.setattr(_restore, "match", interrupt)
        monkeypatch.setattr(fake.Restore, "close", lambda _: log.append("close"))
        with_read(ckpt, around)
        with pytest.raises(KeyboardInterrupt):
            ckpt.restore({"n": 0})
        assert log == ["read", "close"]


@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
def test_close_waits_for_a_reading_thread(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, persist_every=0) as ckpt:
        saved = ckpt.save(1, {"t": torch.zeros(40 << 20, dtype=torch.uint8)})
        saved.wait("durable", program.LIMIT_S)
    for _ in range(5):
        found = real_core.open_root(str(tmp_path), None)
        said: list[str] = []

        def read(found: Any = found, said: list[str] = said) -> None:
            try:
                found.read([0, 1])
                said.append("read")
            except ValueError as error:
                said.append(str(error))

        thread = threading.Thread(target=read)
        thread.start()
        found.close()
        program.wait_until(lambda: not thread.is_alive(), "the reader ends")  # noqa: B023
        assert said in (["read"], ["this restore is closed"])
        with pytest.raises(ValueError, match="closed"):
            found.pickle(0)


# ---- a world of another size


def test_more_ranks_take_what_is_alike(fake: Any, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO", "pawl")
    save_all(open_ranks(tmp_path, 2), 1, lambda rank: {"n": 7, "t": torch.arange(4.0)})
    ranks = open_ranks(tmp_path, 4)
    live = [{"n": 0, "t": torch.zeros(4)} for _ in ranks]
    generators = torch.get_rng_state()
    assert on_ranks(4, lambda rank: ranks[rank].restore(live[rank])) == [1] * 4
    assert all(state["n"] == 7 and state["t"].tolist() == [0, 1, 2, 3] for state in live)
    assert "no state of random number generators for rank 3" in caplog.text
    assert generators.shape == torch.get_rng_state().shape


@pytest.mark.parametrize("what", ["value", "tensor", "size"])
def test_more_ranks_refuse_what_differs(fake: Any, tmp_path: Path, what: str) -> None:
    def state(rank: int) -> dict[str, Any]:
        return {
            "value": {"x": rank},
            "tensor": {"x": torch.full((3,), float(rank))},
            "size": {"x": torch.ones(rank + 1)},
        }[what]

    save_all(open_ranks(tmp_path, 2), 1, state)
    ranks = open_ranks(tmp_path, 3)
    live = [{"x": None} for _ in ranks]
    for error in on_ranks(3, lambda rank: ranks[rank].restore(live[rank])):
        assert isinstance(error, PawlError) and "state['x']: each of 2 ranks saved" in str(error)


def test_fewer_ranks_keep_their_own(fake: Any, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO", "pawl")
    save_all(open_ranks(tmp_path, 4), 1, lambda rank: {"n": rank})
    ranks = open_ranks(tmp_path, 2)
    live = [{"n": -1} for _ in ranks]
    assert on_ranks(2, lambda rank: ranks[rank].restore(live[rank])) == [1, 1]
    assert [state["n"] for state in live] == [0, 1]
    assert "global_step1/n: 4 ranks saved their own" in caplog.text


# ---- what is shared under DistributedDataParallel


@pytest.fixture
def process_group() -> Any:
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    yield
    torch.distributed.destroy_process_group()


def shared_names(fake: Any, tmp_path: Path, state: dict[str, Any], diverged: Any = ()) -> set[str]:
    fake.root_of(str(tmp_path)).diverged = list(diverged)
    ckpt = Checkpointer(tmp_path, rank=0, world_size=2)
    ckpt.save(1, state).wait("staged", program.LIMIT_S)
    ckpt.save(2, state).wait("staged", program.LIMIT_S)
    names = []
    for step in (1, 2):
        parts = fake.root_of(str(tmp_path)).steps[step][0]
        names.append({part.name for part in parts if part.shared})
    assert names[0] == names[1]
    return names[0]


def test_what_is_shared(fake: Any, tmp_path: Path, process_group: Any, caplog: Any) -> None:
    caplog.set_level("INFO", "pawl")
    ddp = nn.parallel.DistributedDataParallel

    class Masked(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.register_buffer("mask", torch.ones(4), persistent=False)

    model, plain, other = ddp(Masked()), nn.Linear(4, 4), nn.Linear(4, 4)
    normed = ddp(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    state = {
        "model": model,
        "plain": plain,
        "unwrapped": model.module,
        "normed": normed,
        "optim": torch.optim.Adam(model.parameters()),
        "both": torch.optim.SGD([*model.parameters(), *normed.parameters()], lr=1),
        "mixed": torch.optim.SGD([*model.parameters(), *other.parameters()], lr=1),
        "value": 3,
        "weights": model.module.weight,
    }
    assert shared_names(fake, tmp_path / "1", state) == {"model", "optim", "both"}
    assert "state['normed'] has persistent buffers (module.1.running_mean" in caplog.text
    alone = {"optim": state["optim"]}  # nothing vouches for it without the module
    assert shared_names(fake, tmp_path / "2", alone) == set()
    assert shared_names(fake, tmp_path / "3", state, ["optim"]) == {"model", "both"}


def test_sharded_optimizers_and_ignored_parameters_are_not_shared(
    fake: Any, tmp_path: Path, process_group: Any
) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    zero = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, lr=0.1)
    zero.consolidate_state_dict()
    assert shared_names(fake, tmp_path / "1", {"m": wrapped, "z": zero}) == {"m"}
    inner = nn.Linear(4, 4)
    inner._ddp_params_and_buffers_to_ignore = ["bias"]
    partly = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(partly.parameters(), lr=1)
    assert shared_names(fake, tmp_path / "2", {"m": partly, "o": optimizer}) == set()


def test_shared_partitions_come_back(fake: Any, tmp_path: Path, process_group: Any) -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 6))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(6)).sum().backward()
    optimizer.step()
    state = {"model": model, "optim": optimizer}
    ranks = open_ranks(tmp_path, 2, persist_every=0)
    save_all(ranks, 1, lambda rank: state)
    expected = {k: v.clone() for k, v in model.state_dict().items()}
    assert ranks[0].flush(program.LIMIT_S)
    files = sorted(p.name for p in (tmp_path / "global_step1").iterdir())
    assert files == ["model", "optim", "rng-rank0", "rng-rank1"]
    loaded = torch.load(tmp_path / "global_step1" / "model", weights_only=True)
    assert all(torch.equal(loaded[k], v) for k, v in expected.items())
    optimizer.step()
    assert on_ranks(2, lambda rank: ranks[rank].restore({**state})) == [1, 1]
    assert all(torch.equal(v, expected[k]) for k, v in model.state_dict().items())


TWO_RANKS = """
import hashlib, os, signal, sys
import pawl, torch
from torch import distributed, nn

root, group, stop, die = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rank = int(os.environ["RANK"])
distributed.init_process_group("gloo", init_method="file://" + group, rank=rank, world_size=2)
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 2)))
optimizer = torch.optim.Adam(model.parameters())
torch.manual_seed(100 + rank)
state = {"model": model, "optim": optimizer, "seen": [rank]}
with pawl.Checkpointer(root, persist_every=0, job=root) as ckpt:
    start = ckpt.restore(state) or 0
    assert state["seen"][0] == rank and len(state["seen"]) == start + 1
    for step in range(start + 1, stop + 1):
        optimizer.zero_grad()
        model(torch.randn(4, 300)).square().sum().backward()
        optimizer.step()
        state["seen"].append(step)
        save = ckpt.save(step, state)
        if step == die:
            assert save.wait("committed", 60), save.error
            os.kill(os.getpid(), signal.SIGKILL)
    assert save.wait("durable", 60), save.error
whole = b"".join(t.numpy().tobytes() for t in model.state_dict().values())
print("result", start, hashlib.sha256(whole).hexdigest())
"""


def launch_two(tmp_path: Path, root: str, stop: int, die: int = 0) -> list[list[str]]:
    """Runs two ranks. Returns the lines of each; [] for a rank that was killed."""
    group = tmp_path / f"group-{root}-{die}"
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                TWO_RANKS,
                str(tmp_path / root),
                str(group),
                str(stop),
                str(die),
            ],
            env={
                **os.environ,
                **{"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
                **{"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = []
    for worker in workers:
        out, err = worker.communicate(timeout=2 * program.LIMIT_S)
        assert worker.returncode == (-signal.SIGKILL if die else 0), err[-3000:]
        results.append([line.split()[1:] for line in out.splitlines() if "result" in line])
    return [line for lines in results for line in lines]


@pytest.mark.slow
@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
def test_two_ranks_killed_and_resumed(tmp_path: Path) -> None:
    """Real processes, DistributedDataParallel and an agent give the same weights as an undisturbed
    run."""
    undisturbed = launch_two(tmp_path, "whole", stop=6)
    assert undisturbed[0] == undisturbed[1] and undisturbed[0][0] == "0"
    assert launch_two(tmp_path, "killed", stop=6, die=3) == []
    resumed = launch_two(tmp_path, "killed", stop=6)
    assert [start for start, _ in resumed] == ["3", "3"]
    assert [digest for _, digest in resumed] == [digest for _, digest in undisturbed]
    loaded = pawl.load(tmp_path / "killed", step=6)
    assert set(loaded) == {"model", "optim"} | {
        f"{n}-rank{r}" for n in ("seen", "rng") for r in "01"
    }
    tag = tmp_path / "killed" / "global_step6"
    file = torch.load(tag / "model", weights_only=True)
    assert all(torch.equal(file[key], value) for key, value in loaded["model"].items())


@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
def test_what_ranks_do_not_hold_alike_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first save fails, as the ranks differ; from then on each rank saves its own."""
    alike = _partitions.Sharing
    monkeypatch.setattr(alike, "_find", lambda _self, state, _values: frozenset(state))
    ckpts = open_ranks(tmp_path, 2, persist_every=0)

    def save(rank: int) -> list[bool]:
        state = {"my model": torch.full((1000,), float(rank))}
        return [ckpts[rank].save(s, state).wait("durable", program.LIMIT_S) for s in (1, 2)]

    assert on_ranks(2, save) == [[False, True]] * 2
    on_ranks(2, lambda rank: ckpts[rank].close())
    loaded = pawl.load(tmp_path, step=2)
    assert [loaded[f"my model-rank{rank}"][0] for rank in range(2)] == [0, 1]


# ---- a file that was made to do harm


class Evil:
    def __init__(self, function: Any, *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> Any:
        return (self.function, self.args)


def evil_session(fake: Any, tmp_path: Path, pickled: bytes, spans: bytes = b"") -> Checkpointer:
    """A checkpoint whose partition "x" has this pickle."""
    ckpt = Checkpointer(tmp_path)
    ckpt.save(1, {"x": 1}).wait("committed", program.LIMIT_S)
    for part in fake.root_of(str(tmp_path)).steps[1][0]:
        if part.name == "x":
            part.pickle = pickled
            part.bytes = [spans] if spans else []
    ckpt._live().wait(0, LEVELS["durable"], 10)
    return ckpt


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ((eval, "open('/tmp/pawned', 'w')"), "eval"),
        ((__import__, "os"), "__import__"),
        ((getattr, "x", "y"), "getattr"),
        ((exec, "raise SystemExit(3)"), "exec"),
        ((Evil, 1), "Evil"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_loading_runs_no_code(
    fake: Any, tmp_path: Path, payload: Any, name: str, protocol: int
) -> None:
    pickled = pickle.dumps({"a": Evil(*payload)}, protocol=protocol)
    ckpt = evil_session(fake, tmp_path, pickled)
    live = {"x": 5}
    with pytest.raises(PawlError) as caught:
        ckpt.restore(live)
    assert live == {"x": 5} and "global_step1/x" in str(caught.value)
    with pytest.raises(PawlError):
        pawl.load(tmp_path)
    if protocol == 2:
        assert name in str(caught.value) and "trust=True" in str(caught.value)


def test_a_smuggled_class_is_refused_with_its_name(fake: Any, tmp_path: Path) -> None:
    pickled = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
    with pytest.raises(PawlError, match=r"os\.?system") as caught:
        evil_session(fake, tmp_path, pickled).restore({"x": 0})
    assert caught.value.name == "PAWL_ENOTSUP"  # the error of the rank, not of the vote
    pickled = b"\x80\x02csubprocess\nPopen\nX\x04\x00\x00\x00true\x85R."
    with pytest.raises(PawlError, match=r"subprocess\.Popen"):
        pawl.load(tmp_path, partition="x") if evil_session(fake, tmp_path, pickled) else None


def storage_of(numel: int, dtype: str = "FloatStorage", key: str = "0") -> bytes:
    from pawl._ckpt import _spell

    return (
        b"(" + _spell._text("storage") + b"ctorch\n" + dtype.encode() + b"\n"
        + _spell._text(key) + _spell._text("cpu") + _spell._int(numel) + b"tQ"
    )  # fmt: skip


def tensor_of(storage: bytes, offset: int, shape: int, stride: int) -> bytes:
    from pawl._ckpt import _spell

    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
    numbers = _spell._int(offset) + _spell._ints((shape,)) + _spell._ints((stride,))
    return head + storage + numbers + b"\x89ccollections\nOrderedDict\n)RtR."


@pytest.mark.parametrize(
    "pickled",
    [
        tensor_of(storage_of(100), 0, 4, 1),  # a storage larger than the file's
        tensor_of(storage_of(1), 0, 1, 1),  # smaller
        tensor_of(storage_of(4, key="1"), 0, 4, 1),  # absent
        tensor_of(storage_of(4, key="-1"), 0, 4, 1),
        tensor_of(storage_of(4, key="x"), 0, 4, 1),
        tensor_of(storage_of(4), 0, 400, 1),  # a tensor beyond its storage
        tensor_of(storage_of(4), 2, 4, 1),
        tensor_of(storage_of(4), 0, 2, 1 << 40),
        tensor_of(storage_of(4, "NoStorage"), 0, 4, 1),
        b"\x80\x02",
        b"",
        b"\x80\x02}q\x00(X\xff\xff\xff\x7fabc",
        b"\x80\x02h\x05.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02K\x01)R.",
    ],
)
@pytest.mark.parametrize("trust", [False, True])
def test_malformed_pickles_are_errors(
    fake: Any, tmp_path: Path, pickled: bytes, trust: bool
) -> None:
    evil_session(fake, tmp_path, pickled, b"\0" * 16).close()
    with Checkpointer(tmp_path, trust=trust, job="2") as ckpt:
        live = {"x": torch.zeros(4)}
        try:
            assert ckpt.restore(live, step=1) is None  # no storages of this file; there is no other
        except PawlError as error:
            assert error.name in ("PAWL_ENOTSUP", "PAWL_EMISMATCH")
        assert live["x"].tolist() == [0] * 4
    with pytest.raises(PawlError, match="global_step1/x"):
        pawl.load(tmp_path, trust=trust, partition="x")


def test_flipped_pickles_never_crash(fake: Any) -> None:
    """Checksums keep such bytes away; the reader is safe without them, too."""
    rng = random.Random(SEED)
    from pawl._ckpt._skeleton import Partition

    value = {"m": nn.Linear(3, 3).state_dict(), "l": [1, "a", 2.5, (None, True)], "b": b"xyz"}
    skeleton = Partition("x", False).build(value)
    sizes = [storage.nbytes() for storage in skeleton.storages]
    outcomes = set()
    for _ in range(2000):
        flipped = bytearray(skeleton.pickle)
        for _ in range(rng.randrange(1, 4)):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        storages = [torch.UntypedStorage(size) for size in sizes]
        try:
            _unpickle.unpickle(bytes(flipped), sizes, storages.__getitem__, "x", trust=False)
            outcomes.add("loaded")
        except PawlError as error:
            outcomes.add(error.name)
    assert outcomes == {"loaded", "PAWL_ECORRUPT", "PAWL_ENOTSUP"}, f"seed {SEED}"


def test_fills_and_copies_stay_inside(fake: Any, tmp_path: Path) -> None:
    """The specs of a whole restore name only bytes of storages and of live tensors."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(8)).sum().backward()
    optimizer.step()
    state = {"model": model, "optim": optimizer, "x": {"y": torch.ones(3)}}
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, state).wait("committed", program.LIMIT_S)
        specs = spy_on_copies(ckpt)
        assert ckpt.restore(state) == 1
    live = {t.data_ptr(): t.numel() * 4 for t in model.state_dict().values()}
    written = [spec[i + 3 : i + 5].tolist() for spec in specs for i in range(0, len(spec), 5)]
    assert all([address, size] in written for address, size in live.items())
