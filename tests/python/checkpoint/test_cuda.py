"""Tensors on CUDA devices. The spans that the core gets are checked with storages that only claim
to lie on a device. With a real device, the restored bytes are those at the time of save()."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._device import _device_constructors

import program
import ranks
from conftest import real_core
from pawl import Checkpointer
from pawl._ckpt import _fence, _graphs
from pawl.elastic import _rules
from test_fence import flat

WIDTH = 1024  # one weight takes 4 MiB
BIG, SMALL = 1 << 20, 100  # bytes; SMALL is below the size that is watched in host memory

HERE = Path(__file__).parent
FAKE_DRIVER = HERE.parents[2] / "build/gcc/tests/lib/libcuda.so.1"
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

needs_device = pytest.mark.skipif(  # TEST_DEVICE: see on_device.py
    not torch.cuda.is_available() and "TEST_DEVICE" not in os.environ, reason="no CUDA device here"
)


# ---- storages that claim to lie on a device ----


class Claimed(torch.UntypedStorage):
    """A storage in host memory that claims to be on a device (1 by default)."""

    is_cuda = True
    device = torch.device("cuda", 1)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA seems to be in use; torch calls its storages shared, as it does for real ones."""
    whole = torch.UntypedStorage.is_shared
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.UntypedStorage, "is_shared", lambda self: self.is_cuda or whole(self))


def spans_of(
    storages: list[torch.UntypedStorage],
    watch: bool = True,
    evicted: str = "",
    guarded: bool = True,
) -> _fence.Spans:
    names = [f"t{index}" for index in range(len(storages))]
    skeleton: Any = SimpleNamespace(storages=storages, names=names, places=None)
    masks = {storage.data_ptr(): 1 << index for index, storage in enumerate(storages)}
    return _fence.Spans(skeleton, masks if guarded else {}, watch, {evicted})


@pytest.mark.usefixtures("claims")
def test_devices_are_told_and_guarded_whatever_their_size() -> None:
    storages = [
        Claimed(BIG),
        torch.UntypedStorage(BIG),
        Claimed(SMALL),
        torch.UntypedStorage(SMALL),
    ]
    spans = spans_of(storages)
    assert spans.devices == [2, 0, 2, 0]
    assert spans.groups == [1, 2, 4, 0]
    columns = [spans.packed[column::4].tolist() for column in range(4)]
    assert columns == [
        [storage.data_ptr() for storage in storages],
        [BIG, BIG, SMALL, SMALL],
        spans.groups,
        spans.devices,
    ]


@pytest.mark.usefixtures("claims")
def test_devices_need_no_watch_of_the_kernel() -> None:
    storages = [Claimed(BIG), torch.UntypedStorage(BIG), Claimed(SMALL)]
    assert spans_of(storages, watch=False).groups == [1, 0, 4]


@pytest.mark.usefixtures("claims")
def test_what_is_copied_at_once_still_says_its_device() -> None:
    storages = [Claimed(BIG), torch.UntypedStorage(BIG)]
    spans = spans_of(storages, guarded=False)  # copy="now", or no optimizer steps the tensors
    assert spans.groups == [0, 0] and spans.devices == [2, 0]
    spans = spans_of(storages, evicted="t0")  # changed during a save once
    assert spans.groups == [0, 2] and spans.devices == [2, 0]


@pytest.mark.usefixtures("claims")
def test_shared_host_memory_is_cleared_beside_a_device() -> None:
    """Torch calls both shared; only host memory may be written to by other processes."""
    shared = nn.Parameter(torch.zeros(BIG)).share_memory_().untyped_storage()
    assert torch.UntypedStorage.is_shared(Claimed(1))
    assert spans_of([Claimed(BIG), shared, torch.UntypedStorage(BIG)]).groups == [1, 0, 4]


@pytest.mark.usefixtures("claims")
def test_pinned_host_memory_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices write to pinned memory unseen."""
    monkeypatch.setattr(torch.UntypedStorage, "is_pinned", lambda self: self.nbytes() == BIG)
    assert spans_of([torch.UntypedStorage(BIG), torch.UntypedStorage(2 * BIG)]).groups == [0, 2]
    assert spans_of([Claimed(BIG)]).groups == [1]


def test_the_default_stream_waits_for_the_one_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[int, str]] = []

    def default_stream(device: int) -> Any:
        return SimpleNamespace(wait_stream=lambda stream: waits.append((device, stream)))

    defaults = [default_stream(device) for device in range(3)]
    current = ["side", defaults[1], "unused"]
    monkeypatch.setattr(torch.cuda, "default_stream", defaults.__getitem__)
    monkeypatch.setattr(torch.cuda, "current_stream", current.__getitem__)
    parts: Any = [SimpleNamespace(devices=[0, 1, 2, 1]), SimpleNamespace(devices=[1])]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    _fence.queue_before_copies(parts)
    assert waits == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    _fence.queue_before_copies(parts)
    assert waits == [(0, "side")]


def test_no_tensor_of_ours_goes_by_the_default_device() -> None:
    """Pawl's tensors ignore torch.set_default_device: most of them are read by address."""
    names = {function.__name__ for function in _device_constructors()}
    found = []
    for path in Path(_fence.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            named = any(keyword.arg in ("device", None) for keyword in call.keywords)
            if ast.unparse(call.func.value) == "torch" and call.func.attr in names and not named:
                found.append(f"{path.name}:{call.lineno}: {ast.unparse(call)}")
    assert not found, "\n".join(found)


def test_second_moments_of_a_device_are_told_there() -> None:
    """A device gives the same moments as the host, and none before the fifth step."""
    parameter = nn.Parameter(torch.randn(9))
    optimizer = torch.optim.AdamW([parameter])
    for step in range(1, 8):
        parameter.grad = torch.randn(9)
        optimizer.step()
        group, counted = optimizer.param_groups[0], optimizer.state[parameter]["step"]
        told = _rules.second_moment(optimizer, group, parameter)
        factor, eps = _rules._correction_on_device(counted, 0.999, 1e-8)
        if told is None:
            assert step < 5 and factor == 0 and eps == 1
        else:
            assert step >= 5 and abs(factor / told[1] - 1) < 1e-3 and abs(eps - 1e-8) < 1e-12


# ---- graphs ----


class Graph:
    """A CUDA graph that records its calls."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def capture_begin(self, pool: object = None) -> None:
        self.did.append("begin")

    def capture_end(self) -> None:
        self.did.append("end")

    def replay(self) -> None:
        self.did.append("replay")


def test_a_replay_that_steps_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph whose capture was not seen is fenced, too; one of forward and backward passes is not.
    Captures are fenced as well: a step in them moves the version counters of tensors that are still
    being copied."""
    graphs = type("Graphs", (Graph,), {})
    before, stepping, passes = (graphs() for _ in range(3))
    before.capture_begin()
    before.capture_end()
    _graphs.install(lambda: stepping.did.append("fence"), graphs)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    _fence.install()
    stepping.capture_begin(pool=None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    optimizer.step()
    monkeypatch.undo()
    stepping.capture_end()
    passes.capture_begin()
    passes.capture_end()
    stepping.did.clear()
    stepping.replay()
    assert stepping.did == ["fence", "replay"]
    before.replay()
    assert stepping.did == ["fence", "replay", "fence"]
    passes.replay()
    assert stepping.did == ["fence", "replay", "fence"] and passes.did[-1] == "replay"
    stepping.capture_begin()  # a new capture of the same graph
    stepping.capture_end()
    stepping.replay()
    assert stepping.did[3:] == ["fence", "begin", "end", "replay"]


def test_all_classes_of_graphs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are found for this torch, and for one with another number of classes."""
    other = type("Graph", (), {})
    monkeypatch.setattr(torch, "accelerator", type("accelerator", (), {"Graph": other}))
    assert _graphs.classes() == [torch.cuda.CUDAGraph, other]
    monkeypatch.setattr(torch, "accelerator", type("accelerator", (), {}))
    assert _graphs.classes() == [torch.cuda.CUDAGraph]


# ---- a driver made of host memory ----


@pytest.mark.slow
@pytest.mark.skipif(not FAKE_DRIVER.is_file(), reason="build/gcc has no driver (--only gcc)")
@pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real driver")
def test_a_change_that_no_fence_sees_is_named(tmp_path: Path) -> None:
    """The change comes while the tensor is copied, and the copy is over before the optimizer's next
    step."""
    env = program.clean_env(LD_LIBRARY_PATH=str(FAKE_DRIVER.parent))
    script = HERE / "claimed_rank.py"
    command = [sys.executable, str(script), str(tmp_path / "root")]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=program.LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    never, afterwards, meanwhile, copied = ranks.say(done.stdout)
    assert never == "never: fenced, durable "
    assert afterwards == "afterwards: fenced, durable "
    changed = "meanwhile: fenced, failed save global_step2: layer: weight changed"
    assert meanwhile.startswith(changed)
    assert copied == "copied: copied, durable "  # from now on, that tensor is copied at once


# ---- real devices ----


def training() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    one_step(model, optimizer)
    return model, optimizer


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(8, WIDTH, device="cuda")).square().mean().backward()
    optimizer.step()


def alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(map(torch.equal, one, other))


def contents(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return flat(model.state_dict()) + flat(optimizer.state_dict())


def saved(root: Path, step: int) -> list[torch.Tensor]:
    files = [root / f"global_step{step}" / name for name in ("model", "optim")]
    return [t for file in files for t in flat(torch.load(file, weights_only=True))]


@contextlib.contextmanager
def side_stream() -> Any:
    """Queues the work of the block on a stream of its own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


@needs_cuda
@pytest.mark.parametrize("stream", ["default", "side"])
@pytest.mark.parametrize("copy", ["overlap", "now"])
def test_a_save_is_of_its_moment(tmp_path: Path, copy: str, stream: str) -> None:
    """Work is queued before save() and after it; the saved bytes are those between the two."""
    model, optimizer = training()
    state = {"model": model, "optim": optimizer}
    with (
        side_stream() if stream == "side" else contextlib.nullcontext(),
        Checkpointer(tmp_path, persist_every=0, copy=copy) as ckpt,
    ):
        for step in range(1, 5):
            torch.cuda._sleep(200_000_000)  # cycles: about 0.1 s, in which all below waits
            one_step(model, optimizer)
            expected = contents(model, optimizer)
            save = ckpt.save(step, state)
            one_step(model, optimizer)
            one_step(model, optimizer)
            assert save.wait("durable", program.LIMIT_S), save.error
            assert save.proof == ("fenced" if copy == "overlap" else "copied")
            assert alike(expected, saved(tmp_path, step))
            assert not alike(expected, contents(model, optimizer))


@needs_cuda
@pytest.mark.parametrize("copy", ["overlap", "now"])
def test_restored_in_place(tmp_path: Path, copy: str) -> None:
    """The newest checkpoint comes from memory; the oldest, which memory has no room for, from the
    store."""
    model, optimizer = training()
    state = {"model": model, "optim": optimizer}
    where = [p.data_ptr() for p in model.parameters()]
    expected = {}
    with Checkpointer(tmp_path, persist_every=0, copy=copy) as ckpt:
        for step in (1, 2, 3):
            expected[step] = contents(model, optimizer)
            save = ckpt.save(step, state)
            one_step(model, optimizer)
            assert save.wait("durable", program.LIMIT_S), save.error
        for step in (3, 1):
            assert ckpt.restore(state, step=step) == step
            assert alike(expected[step], contents(model, optimizer))
    assert where == [p.data_ptr() for p in model.parameters()]


@needs_cuda
def test_a_change_before_the_fence_is_named(tmp_path: Path) -> None:
    """No kernel watches a device: the version counters do."""
    model, optimizer = training()
    state = {"model": model, "optim": optimizer}
    with Checkpointer(tmp_path) as ckpt:
        assert ckpt.save(1, state).wait("committed", program.LIMIT_S)
        torch.cuda._sleep(1_000_000_000)  # delays the copy of the next save
        save = ckpt.save(2, state)
        assert save.level == "staging"
        model[0].weight.detach().add_(1)
        one_step(model, optimizer)
        assert save.level == "failed"
        assert save.error is not None and "save global_step2: model: 0.weight changed" in save.error
        expected = contents(model, optimizer)
        again = ckpt.save(3, state)  # the changed tensor is now copied at once
        model[0].weight.detach().add_(1)
        one_step(model, optimizer)
        assert again.wait("durable", program.LIMIT_S), again.error
    assert alike(expected, saved(tmp_path, 3))


@needs_cuda
def test_pinned_memory_is_not_left_for_later() -> None:
    torch.cuda.init()
    pinned = torch.zeros(BIG, dtype=torch.uint8).pin_memory().untyped_storage()
    assert spans_of([pinned, torch.UntypedStorage(BIG)]).groups == [0, 2]


@needs_cuda
def test_replays_of_a_graph_with_the_step_in_it(tmp_path: Path) -> None:
    model, _ = training()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, capturable=True)
    state = {"model": model, "optim": optimizer}
    with Checkpointer(tmp_path, persist_every=0) as ckpt:
        with side_stream():
            for _ in range(3):
                one_step(model, optimizer)
        optimizer.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one_step(model, optimizer)
        for step in range(1, 4):
            torch.cuda._sleep(200_000_000)
            graph.replay()
            expected = contents(model, optimizer)
            save = ckpt.save(step, state)
            graph.replay()
            assert save.wait("durable", program.LIMIT_S), save.error
            assert save.proof == "fenced"
            assert alike(expected, saved(tmp_path, step))
            assert not alike(expected, contents(model, optimizer))


# ---- processes that train on a device ----


def job(root: Path, how: str, *kill: str, code: int = 0, **env: str) -> list[str]:
    """Runs cuda_job.py, and returns its lines."""
    done = subprocess.run(
        [sys.executable, str(HERE / "cuda_job.py"), str(root), how, *kill],
        env=program.clean_env(**env),
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return ranks.say(done.stdout)


@needs_device
@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
@pytest.mark.parametrize("how", ["fused", "foreach", "bfloat16", "scaled", "streamed"])
def test_killed_in_a_save_and_resumed_to_the_bit(tmp_path: Path, how: str, allocator: str) -> None:
    if allocator and how in ("foreach", "scaled"):
        pytest.skip("the same memory as with others")
    env = {"PYTORCH_CUDA_ALLOC_CONF": allocator} if allocator else {}
    start, *whole = job(tmp_path / "whole", how, **env)
    assert start == "FROM 0" and len(whole) == 9
    root = tmp_path / "killed"
    start, *until = job(root, how, "5", code=-signal.SIGKILL, **env)
    assert start == "FROM 0" and until == whole[:5]
    start, *rest = job(root, how, **env)
    newest = int(start.split()[1])
    assert newest in (4, 5)
    assert rest == whole[newest:]


@needs_device
def test_a_job_sees_the_devices_of_its_slots() -> None:
    """A second job, whose slot names a device that does not exist, sees none."""
    from cluster import cluster

    code = "import torch; print('sees', torch.cuda.device_count())"
    devices = ("--node", "a=2", "--devices", "a=0,99", "--grace", "2", "--round", "1")
    with cluster(*devices, "--policy", "fifo") as ours:
        jobs = [ours.sh(f'{sys.executable} -c "{code}"; sleep 5') for _ in range(2)]
        for one in jobs:
            ours.await_state(one, "done")
        seen = sorted(line for one in jobs for line in ours.lines(one) if "sees" in line)
        counts = [line.rpartition(" ")[2] for line in seen]
        assert sorted(counts) == (["0", "1"] if torch.cuda.is_available() else ["0", "0"]), seen
