"""A rank of the backend "pawl" under what torch builds on process groups: DDP, FSDP2, DTensor, ...

Usage: group_torch_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held. Results are compared with one process that has the whole batch, or with gloo in the same
run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from group_checks import check, rank, run_checks, world

gloo: dist.ProcessGroup


class Net(nn.Module):
    """A few layers: one has buffers, one is used in odd steps only."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(12, 40, dtype=dtype)
        self.norm = nn.BatchNorm1d(40, dtype=dtype)
        self.rare = nn.Linear(40, 40, dtype=dtype)
        self.last = nn.Linear(40, 3, dtype=dtype)

    def forward(self, x: torch.Tensor, rare: bool = True) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.last(self.rare(x) if rare else x)


def batch(step: int, of: int | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.Generator().manual_seed(1000 * step + (rank() if of is None else of))
    return torch.randn(8, 12, generator=made, dtype=dtype)


def same_on_all(model: nn.Module) -> None:  # buffers become equal only at the next forward
    flat = torch.cat([t.detach().double().reshape(-1) for t in model.parameters()])
    into = [torch.empty_like(flat) for _ in range(world())]
    dist.all_gather(into, flat, group=gloo)
    for other in into:
        assert torch.equal(other, flat)


def train(group: dist.ProcessGroup | None, steps: int = 4, **options: object) -> DDP:
    uses = options.pop("uses", lambda step: True)
    prepare = options.pop("prepare", lambda model: None)
    options.setdefault("bucket_cap_mb", 0.004)
    model = DDP(Net(), process_group=group, **options)  # type: ignore[arg-type]
    prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        model(batch(step), rare=uses(step)).square().mean().backward()  # type: ignore[operator]
        optimizer.step()
        optimizer.zero_grad()
    same_on_all(model)
    return model


def like_gloo(**options: object) -> None:
    """Compares with gloo. With two ranks, any order of addition gives the same bits; with more,
    nearly the same numbers."""
    ours, theirs = train(None, **dict(options)), train(gloo, **dict(options))
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        if world() == 2:
            assert torch.equal(a, b)
        torch.testing.assert_close(a, b)


@check
def ddp() -> None:
    like_gloo()


@check
def ddp_bucket_views() -> None:
    like_gloo(gradient_as_bucket_view=True)


@check
def ddp_unused() -> None:
    like_gloo(find_unused_parameters=True, uses=lambda step: step % 2 == 1)


@check
def ddp_static_graph() -> None:
    like_gloo(static_graph=True)


@check
def ddp_without_buffers() -> None:
    model = DDP(nn.Linear(4, 4), broadcast_buffers=False)
    model(torch.ones(2, 4)).sum().backward()
    same_on_all(model)


@check
def ddp_no_sync() -> None:
    model = DDP(Net(), bucket_cap_mb=0.004)
    with model.no_sync():
        model(batch(0)).sum().backward()
    model(batch(1)).sum().backward()
    grads = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    first = grads.clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, grads)


@check
def ddp_hooks() -> None:
    from torch.distributed import BuiltinCommHookType
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    like_gloo(prepare=lambda m: m.register_comm_hook(None, default_hooks.allreduce_hook))
    like_gloo(prepare=lambda m: m._register_builtin_comm_hook(BuiltinCommHookType.ALLREDUCE))
    like_gloo(prepare=lambda m: m.register_comm_hook(None, default_hooks.fp16_compress_hook))

    def compress(model: DDP) -> None:
        group = model.process_group
        state = powerSGD_hook.PowerSGDState(group, 1, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    # In one bucket: with several, its callbacks begin collectives in another order at each rank.
    # Gloo aborts the process then, and Pawl reports the two collectives that met.
    train(None, steps=6, prepare=compress, bucket_cap_mb=25)


@check
def our_hook() -> None:
    """DDP on gloo reduces its gradients through Pawl's hook."""
    from pawl import distributed

    plain = train(gloo)
    hooked = train(gloo, prepare=lambda m: m.register_comm_hook(*distributed.hook()))
    for a, b in zip(plain.parameters(), hooked.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    dist.new_group([0], backend="gloo")  # ranks do not have the same number of groups
    some = dist.new_group([0, 1], backend="gloo")
    if rank() < 2:
        model = DDP(nn.Linear(12, 3), process_group=some)
        model.register_comm_hook(*distributed.hook(some))
        model(batch(0)).sum().backward()
    pair = distributed.hook(wire="bfloat16")
    train(gloo, prepare=lambda m: m.register_comm_hook(*pair))
    try:
        distributed.hook(wire="int8")
    except RuntimeError as error:
        assert "int8" in str(error)


@check
def ddp_uneven() -> None:
    from torch.distributed.algorithms.join import Join

    model = DDP(nn.Linear(12, 3))
    with Join([model]):
        for step in range(2 + rank()):
            model(batch(step)).sum().backward()


OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}


@check
def ddp_uneven_by_those_left() -> None:
    """torch's C++ asks for a result after Python has dropped the work."""
    model = DDP(nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        model.module.weight.zero_()
    with model.join(divide_by_initial_world_size=False):
        for step in range(2 + rank()):
            model.zero_grad()
            model(torch.full((2, 4), float(rank() + 1))).sum().backward()
            left = [r + 1 for r in range(world()) if 2 + r > step]
            same_numbers(model.module.weight.grad, 2 * sum(left) / len(left))


@check
def ddp_sparse() -> None:
    """Sparse gradients of an embedding of which each rank uses some rows."""
    embedding = nn.Embedding(9, 2, sparse=True)
    model = DDP(embedding)
    model(torch.tensor([rank(), 8])).sum().backward()
    grad = embedding.weight.grad
    assert grad is not None and grad.is_sparse
    wanted = torch.zeros(9, 2)
    wanted[: world()] = 1 / world()
    wanted[8] = 1
    torch.testing.assert_close(grad.to_dense(), wanted)


def same_numbers(tensor: torch.Tensor | None, number: float) -> None:
    assert tensor is not None
    torch.testing.assert_close(tensor, torch.full_like(tensor, number))


def small_net(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(9)
    return nn.Sequential(nn.Linear(12, 30, dtype=dtype), nn.Tanh(), nn.Linear(30, 3, dtype=dtype))


def losses_of(model: nn.Module, name: str, rows: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """Returns the losses of 200 steps."""
    optimizer = OPTIMIZERS[name](model.parameters())
    losses = []
    for step in range(200):
        loss = model(rows(step)).square().mean()
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).double()


def whole_losses(name: str, dtype: torch.dtype, order: int = 0) -> torch.Tensor:
    """Returns the losses of one process that has all ranks' batches. order: a permutation of their
    rows; 0: none."""
    at = torch.arange(8 * world())
    if order:
        at = torch.randperm(len(at), generator=torch.Generator().manual_seed(order))
    return losses_of(
        small_net(dtype),
        name,
        lambda step: torch.cat([batch(step, of=r, dtype=dtype) for r in range(world())])[at],
    )


def ddp_losses(name: str, dtype: torch.dtype) -> torch.Tensor:
    model = DDP(small_net(dtype), bucket_cap_mb=0.002)
    mean = losses_of(model, name, lambda step: batch(step, dtype=dtype))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found / wanted - 1).abs().max())


@check
def like_one_process() -> None:
    """In doubles, DDP's losses over 200 steps are those of one process that has the whole batch."""
    for name in OPTIMIZERS:
        wanted = whole_losses(name, torch.float64)
        found = ddp_losses(name, torch.float64)
        assert distance(found, wanted) < 1e-10, (name, distance(found, wanted))


@check
def like_another_order() -> None:
    """In 32 bits, DDP's losses are no farther from one process with the rows in some order than two
    orders are from each other."""
    for name in OPTIMIZERS:
        orders = [whole_losses(name, torch.float32, order) for order in range(4)]
        spread = max(distance(a, b) for a in orders for b in orders)
        found = ddp_losses(name, torch.float32)
        far = min(distance(found, order) for order in orders)
        assert far <= spread, (name, far, spread)


@check
def zero_redundancy() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(Net(), bucket_cap_mb=0.004)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
    for step in range(3):
        model(batch(step)).sum().backward()
        optimizer.step()
    same_on_all(model)
    optimizer.consolidate_state_dict(0)


@check
def fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (world(),))
    for policy in (
        MixedPrecisionPolicy(),
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    ):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(12, 41), nn.ReLU(), nn.Linear(41, 3))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(3):
            model(batch(step)).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        if rank() == 0:
            assert all(torch.isfinite(t).all() for t in full.values()) and len(full) == 4


@check
def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(nn.Linear(12, 8), device_id=torch.device("cpu"))
    model(batch(0)).sum().backward()


@check
def hybrid() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if world() != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = nn.Linear(12, 8)
    fully_shard(model, mesh=mesh)
    model(batch(0)).sum().backward()
    assert mesh["shard"].size() == 2


@check
def dtensor() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (world(),))
    whole = torch.arange(7.0 * 3).view(7, 3)  # a size that the ranks cannot share equally
    placed = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(placed.full_tensor(), whole)
    assert torch.equal(placed.redistribute(mesh, [Replicate()]).to_local(), whole)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
    x = batch(0, of=0)
    wanted = model(x)
    parallel = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(parallel(x), wanted)


@check
def functional() -> None:
    import torch.distributed._functional_collectives as fc

    group = dist.group.WORLD
    ones = torch.ones(6)
    assert torch.equal(fc.all_reduce(ones, "sum", group), ones * world())
    assert fc.all_gather_tensor(ones, 0, group).shape == (6 * world(),)
    block = torch.ones(2 * world())
    assert torch.equal(fc.reduce_scatter_tensor(block, "sum", 0, group), torch.ones(2) * world())
    many = fc.all_reduce_coalesced([ones, ones * 2], "sum", group)
    assert torch.equal(many[1], ones * 2 * world())
    swapped = fc.all_to_all_single(torch.arange(world() * 1.0), None, None, group)
    assert torch.equal(fc.wait_tensor(swapped), torch.full((world(),), float(rank())))
    leaf = torch.ones(3, requires_grad=True)
    torch.distributed.nn.functional.all_reduce(leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.full((3,), float(world())))


@check
def compiled() -> None:
    import torch.distributed._functional_collectives as fc

    @torch.compile(backend="aot_eager")
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return fc.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    assert torch.equal(scaled(torch.ones(4)), torch.full((4,), 2.0 * world() + 1))


@check
def checkpoints() -> None:
    import torch.distributed.checkpoint as dcp

    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    state = {"a": torch.full((5,), 3.0), "step": 4}
    dcp.save(state, checkpoint_id=folder[0])
    dcp.async_save(state, checkpoint_id=str(Path(folder[0]) / "second")).result()
    state["a"] = torch.zeros(5)
    dcp.load(state, checkpoint_id=folder[0])
    assert torch.equal(state["a"], torch.full((5,), 3.0))


@check
def pipelining() -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(5)
    layers = [nn.Linear(12, 12) for _ in range(world())]
    stage = PipelineStage(layers[rank()], rank(), world(), torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, target: (out - target).square().mean())
    x = batch(0, of=0)
    if rank() == 0:
        schedule.step(x)
    else:
        losses: list[torch.Tensor] = []
        schedule.step(target=torch.zeros(8, 12), losses=losses)
        if rank() == world() - 1:
            wanted = nn.Sequential(*layers)(x).square().mean()
            torch.testing.assert_close(torch.stack(losses).mean(), wanted)


def main() -> None:
    global gloo
    torch.set_num_threads(1)
    dist.init_process_group("pawl", timeout=timedelta(seconds=60))
    gloo = dist.new_group(backend="gloo")
    run_checks()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
