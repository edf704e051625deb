"""Ranks of a sharded job, for test_dcp.py and test_reshard.py.

`run(tmp_path, (world, name, args...), ...)` runs function `name` of this module on each rank of a
world of processes, one world after the other. Torch is imported once: the ranks are forks.
"""

from __future__ import annotations

import copy
import faulthandler
import json
import os
import pickle
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import nursery
import on_device
from pawl._ckpt._shards import local_of
from pawl.engine import Engine
from pawl.errors import PawlError

LIMIT_S = 120
TELL_S = 100  # a rank that has not ended then prints where it is
DEVICE = os.environ.get("TEST_DEVICE")  # see on_device.py; None: the CPU


def run(tmp_path: Path, *phases: tuple[Any, ...], ok: bool = True) -> str:
    """Returns the output of the ranks. ok: none of them may fail."""
    try:
        done = nursery.run(
            [sys.executable, __file__, str(tmp_path), json.dumps(phases)],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env={**os.environ, "PAWL_JOB_ID": f"sharded-{tmp_path}", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        print(late.stdout, late.stderr)  # where each rank hangs
        raise
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


# ---- what is sharded ----


class Net(nn.Module):
    """A module of sizes that no number of ranks divides, with fewer rows than ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(37, 53)
        self.narrow = nn.Linear(53, 3)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.narrow(torch.relu(self.wide(x)))


def train(steps: int, sharded: bool = True) -> tuple[nn.Module, torch.optim.Optimizer]:
    """An FSDP2 module and its optimizer: the same global values in every world."""
    torch.manual_seed(0)
    model = Net()
    if sharded:
        mesh = init_device_mesh(DEVICE or "cpu", (dist.get_world_size(),))
        fully_shard(model.wide, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(4, 37, generator=torch.Generator().manual_seed(step))  # equal on all ranks
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model, optimizer


def whole(value: Any) -> Any:
    """Returns the value with every DTensor made whole."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(inner) for inner in value]
    return value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return torch.equal(a.cpu(), b.cpu())
    return bool(a == b)


SHAPES = {
    "a": (7, 5),
    "b": (2, 9),
    "c": (16, 12, 3),
    "d": (1,),
    "e": (),
    "f": (0, 4),
    "g": (300, 7),
}


def tensors(kind: str, base: float) -> dict[str, DTensor]:
    """DTensors of each shape, laid out over all ranks by kind, filled from base on."""
    world = dist.get_world_size()
    flat = init_device_mesh("cpu", (world,))
    rows = 2 if world % 2 == 0 else 1
    grid = init_device_mesh("cpu", (rows, world // rows))
    made = {}
    for name, shape in SHAPES.items():
        full = torch.arange(base, base + torch.Size(shape).numel()).reshape(shape)
        last = max(len(shape) - 1, 0)
        mesh, placements = {
            "rows": (flat, [Shard(0)]),
            "columns": (flat, [Shard(last)]),
            "grid": (grid, [Shard(0), Shard(last)]),
            "turned": (grid, [Shard(last), Shard(0)]),
            "hybrid": (grid, [Replicate(), Shard(0)]),
            "whole": (flat, [Replicate()]),
        }[kind]
        if not shape:
            placements = [Replicate()] * len(placements)
        made[name] = distribute_tensor(full, mesh, placements)
    return made


# ---- DCP ----


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "epoch": 3, "note": "x" * 100}


def dcp_save(root: str, tag: str, steps: int, how: str) -> None:
    """Saves an FSDP2 job and some DTensors; rank 0 keeps the whole of it beside, for dcp_load."""
    from pawl.integrations.dcp import PawlWriter

    model, optimizer = train(steps)
    state = _state(model, optimizer) | tensors("grid", steps * 1e6)
    writer = PawlWriter(root)
    if how == "async":
        for name in (f"{tag}-before", tag):  # the second save reuses the first one's buffers
            future = dcp.async_save(state, storage_writer=writer, checkpoint_id=name)
            with torch.no_grad():  # the staged copy must not change with the model
                kept = {name: p.to_local().clone() for name, p in model.named_parameters()}
                for parameter in model.parameters():
                    parameter.to_local().fill_(-1)
            future.result()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.to_local().copy_(kept[name])
    else:
        dcp.save(state, storage_writer=writer, checkpoint_id=tag)
    full = whole(state)
    if dist.get_rank() == 0:
        torch.save(full, f"{root}-{tag}.pt")
    writer.engine.close()


def dcp_load(root: str, tag: str, kind: str, where: str) -> None:
    """Loads into other values, laid out otherwise, and compares with what dcp_save kept."""
    from pawl.engine import Engine
    from pawl.integrations.dcp import PawlReader, load

    model, optimizer = train(1)
    state = _state(model, optimizer) | tensors(kind, -1e6)
    engine = Engine(root) if where == "engine" else None
    found = load(state, PawlReader(engine or root))
    assert found == tag, found
    full = whole(state)
    expected = torch.load(f"{root}-{tag}.pt", weights_only=False)
    for name, value in full.items():
        assert same(value, expected[name]), f"{kind}: {name}: {value} not {expected[name]}"
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    if engine is not None:
        engine.close()


def large() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Sharded, of 3 x 32 MiB in all: enough that a copy of it is not over at once."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(8)])
    mesh = init_device_mesh(DEVICE or "cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
    return model, optimizer


def dcp_overlap(root: str) -> None:
    """The step right after async_save changes nothing of the save."""
    from pawl.integrations.dcp import PawlReader, PawlWriter

    writer = PawlWriter(root)  # made first: it learns the memory of an optimizer from its steps
    model, optimizer = large()
    for tag in ("step-1", "step-2", "step-3"):
        state = _state(model, optimizer)
        kept = copy.deepcopy(state)
        future = dcp.async_save(state, storage_writer=writer, checkpoint_id=tag)
        optimizer.step()
        future.result()
        dcp.load(state, storage_reader=PawlReader(writer.engine), checkpoint_id=tag)
        assert same(whole(state), whole(kept)), tag
    try:
        pickle.dumps(writer)  # as async_checkpointer_type=PROCESS does
        raise AssertionError("pickled")
    except PawlError as reason:
        assert "leave it at THREAD" in str(reason), reason
    writer.close()
    writer.engine.close()


def dcp_changed(root: str) -> None:
    """A change during the copy fails the save on all ranks, once, and the error names the
    tensor."""
    from pawl.integrations.dcp import PawlReader, PawlWriter

    writer = PawlWriter(root)  # made first: it learns the memory of an optimizer from its steps
    model, optimizer = large()
    if not writer.engine.watches:
        print("the kernel does not watch")
        return
    last = max(model, key=lambda layer: layer.weight.to_local().data_ptr())  # copied last
    start = writer._overlap.start

    def started(copied: list[Any]) -> None:
        start(copied)
        if dist.get_rank() == 1:
            last.weight.to_local().detach().zero_()

    writer._overlap.start = started
    for tag in ("step-1", "step-2"):
        state = _state(model, optimizer)
        kept = copy.deepcopy(state)
        future = dcp.async_save(state, storage_writer=writer, checkpoint_id=tag)
        if tag == "step-2":
            future.result()
            continue
        try:
            future.result()
            raise AssertionError("saved")
        except dcp.CheckpointException as reason:
            assert f"model.{list(model).index(last)}.weight changed" in str(reason), reason
    assert writer.engine.find("step-1") is None
    dcp.load(state, storage_reader=PawlReader(root), checkpoint_id="step-2")
    assert same(whole(state), whole(kept))
    writer.engine.close()


def dcp_planned_once(root: str) -> None:
    """A planner may send its plan only when it changed."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    from pawl.integrations.dcp import PawlReader, PawlWriter

    writer = PawlWriter(root)
    for number in range(3):
        state = tensors("rows", number * 1e3)
        if number == 2:
            state["more"] = tensors("columns", 0.0)["g"]
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(state, storage_writer=writer, checkpoint_id=f"step-{number}", planner=planner)
        back = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        dcp.load(back, storage_reader=PawlReader(root), checkpoint_id=f"step-{number}")
        assert same(whole(back), whole(state)), number
    writer.engine.close()


def dcp_fail(root: str, tag: str) -> None:
    """Rank 1 cannot write its part: no rank sees the tag, and the next save works."""
    from pawl.integrations.dcp import PawlWriter

    state = tensors("rows", 0.0)
    writer = PawlWriter(root)
    add = writer.write_data
    if dist.get_rank() == 1:
        writer.write_data = lambda plan, planner: 1 / 0
    try:
        dcp.save(state, storage_writer=writer, checkpoint_id=tag)
        raise AssertionError("saved")
    except dcp.CheckpointException as reason:
        assert "ZeroDivisionError" in str(reason)
    writer.write_data = add
    dcp.save(state, storage_writer=writer, checkpoint_id=f"{tag}-after")
    assert writer.engine.find(tag) is None
    writer.engine.close()


def dcp_second_writer(root: str) -> None:
    """Scripts may make a writer for each save, as they make FileSystemWriters; the newest tags are
    kept."""
    from pawl.integrations.dcp import PawlReader, PawlWriter

    os.mkdir(root) if dist.get_rank() == 0 else None
    dist.barrier()
    writers = []
    for step in range(1, 4):
        writers.append(PawlWriter(root, tag=f"step-{step}", keep=5))
        dcp.save({"x": torch.full((3,), float(step))}, storage_writer=writers[-1])
    writers.append(PawlWriter(f"{root}/../{os.path.basename(root)}", tag="step-4", keep=5))
    future = dcp.async_save({"x": torch.full((3,), 4.0)}, storage_writer=writers[-1])
    future.result()
    try:
        PawlWriter(root)
        raise AssertionError("other options")
    except PawlError as reason:
        assert "is open with the options {'keep': 5}, not {}" in str(reason)
    try:
        Engine(root)
        raise AssertionError("a second one")
    except PawlError as reason:
        assert "is open in this process already" in str(reason)
    writers[0].engine.close()
    dist.barrier()
    dcp.save({"x": torch.ones(1)}, storage_writer=PawlWriter(root, tag="step-5"))
    for step in range(1, 5):
        read = {"x": torch.zeros(3)}
        dcp.load(read, storage_reader=PawlReader(root), checkpoint_id=f"step-{step}")
        assert read["x"].tolist() == [step] * 3
    assert len(os.listdir(root)) >= 5


def dcp_vanish(root: str, tag: str) -> None:
    """Rank 1 dies before it has written: rank 0 must not make a tag of the other parts."""
    from pawl.integrations.dcp import PawlWriter

    state = tensors("rows", 0.0)
    writer = PawlWriter(root)
    if dist.get_rank() == 1:
        writer.write_data = lambda plan, planner: os._exit(0)
    try:
        dcp.save(state, storage_writer=writer, checkpoint_id=tag)
    except BaseException as reason:
        print("rank 0 heard", type(reason).__name__)
        os._exit(0)
    os._exit(1)


# ---- Checkpointer ----


def ckpt_save(root: str, steps: int, kind: str) -> None:
    """Saves an FSDP2 job and some DTensors; rank 0 keeps the whole of it beside, for ckpt_load."""
    import pawl

    model, optimizer = train(steps)
    state = {"model": model, "optimizer": optimizer, "tensors": tensors(kind, 1.0), "lr": 0.5}
    ckpt = pawl.Checkpointer(root, persist_every=0)
    save = ckpt.save(steps, state)
    optimizer.step()  # The save must not have this step, however long the copy takes.
    assert save.wait("durable", LIMIT_S), save.error
    ckpt.close()
    model, optimizer = train(steps)
    full = whole([model.state_dict(), optimizer.state_dict(), tensors(kind, 1.0)])
    if dist.get_rank() == 0:
        torch.save(full, f"{root}-{steps}.pt")


def ckpt_load(root: str, steps: int, kind: str, how: str) -> None:
    """Restores into other values, laid out otherwise, and compares with what ckpt_save kept."""
    import pawl

    model, optimizer = train(0 if how == "fresh" else 1, sharded=kind != "plain")
    live: dict[str, torch.Tensor] = dict(tensors(kind if kind != "plain" else "rows", -1e6))
    if kind == "plain":
        live = whole(live)
    state = {"model": model, "optimizer": optimizer, "tensors": live, "lr": 0.1}
    kept = {name: id(local_of(p)) for name, p in model.named_parameters()}
    ckpt = pawl.Checkpointer(root, persist_every=0)
    assert ckpt.restore(state) == steps
    full = whole([model.state_dict(), optimizer.state_dict(), live])
    expected = torch.load(f"{root}-{steps}.pt", weights_only=False)
    for got, wanted in zip(full, expected, strict=True):
        assert same(got, wanted), f"{kind}: {got} not {wanted}"
    assert state["lr"] == 0.5
    assert kept == {name: id(local_of(p)) for name, p in model.named_parameters()}, "not in place"
    x = torch.ones(4, 37)
    model(x).square().mean().backward()
    optimizer.step()  # training can go on from the restored state
    ckpt.close()


def ckpt_refused(root: str) -> None:
    """A value that cannot be resharded is refused by name, and nothing has changed."""
    import pawl

    live = tensors("rows", -1e6)
    before = whole(live)
    ckpt = pawl.Checkpointer(root, persist_every=0)
    for change, message in (
        ({"a": None}, r"state['tensors']['a']: saved in shards of (7, 5)"),
        ({"a": torch.zeros(5, 7)}, "of another shape: saved (7, 5), live (5, 7)"),
    ):
        try:
            ckpt.restore({"tensors": {**live, **change}}, only=["tensors"])
            raise AssertionError("restored")
        except pawl.PawlError as reason:
            assert reason.name == "PAWL_EMISMATCH" and message in str(reason), reason
        assert same(whole(live), before)
    ckpt.close()


# ---- the ranks ----


def _rank(rank: int, world: int, folder: str, name: str, args: list[Any]) -> None:
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world)
    )
    faulthandler.dump_traceback_later(TELL_S)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if DEVICE is not None:
        on_device.share()
    backend = "pawl" if DEVICE is not None else "gloo"
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    globals()[name](*args)
    if backend == "pawl":
        dist.destroy_process_group()
        return
    # Leaves gloo's group as it is, once no rank needs it: in torch 2.7 destroying it may hang, as
    # it holds the interpreter's lock while it waits for a thread that wants it.
    store.set(f"over-{rank}", "")
    store.wait([f"over-{other}" for other in range(world)])


def _world(folder: str, world: int, name: str, args: list[Any]) -> bool:
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _rank(rank, world, folder, name, args)
                code = 0
            except BaseException:
                print(f"---- {name}{args}: rank {rank} of {world}")
                traceback.print_exc(file=sys.stdout)
            finally:
                sys.stdout.flush()
                os._exit(code)
        pids.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    return not any(codes)


def main() -> None:
    for number, (world, name, *args) in enumerate(json.loads(sys.argv[2])):
        folder = f"{sys.argv[1]}/{number}-{time.monotonic_ns()}"
        os.mkdir(folder)
        if not _world(folder, world, name, args):
            sys.exit(1)


if __name__ == "__main__":
    main()
