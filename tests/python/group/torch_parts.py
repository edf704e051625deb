"""torch's own models and helpers of its distributed tests, in a rank, beside one process.

torch installs these without the tests that use them: models that are split over ranks, placements
in every order, operators on every placement, comparisons of state, an extension of checkpoints.
Each check here combines some of them, and raises no error if the ranks together have the values of
a model or tensor that no rank splits. The checks hold on any backend; the rank's program chooses
one.

Importing this needs the names that torch has from 2.13 on.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed._shard import shard_parameter
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as DDP

from group_checks import check, rank, world

if importlib.util.find_spec("expecttest") is None:  # torch's helpers use one base class of it
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules["expecttest"] = stand_in

from torch.testing._internal import common_fsdp as fsdp_models
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.distributed import checkpoint_utils
from torch.testing._internal.distributed import fake_pg as fake_pg  # registers itself
from torch.testing._internal.distributed._shard.sharded_tensor import _test_ops_common as shards
from torch.testing._internal.distributed._tensor.common_dtensor import (
    DTensorConverter,
    DTensorTestMixin,
    MLPStacked,
    ModelArgs,
    Transformer,
    generate_shard_orders,
    make_full_tensor,
    patched_distribute_tensor,
    validate_sharding_rule_sample_backward,
)
from torch.testing._internal.distributed._tensor.common_dtensor import (
    redistribute as redistribute_to_order,
)
from torch.testing._internal.distributed.common_state_dict import VerifyStateDictMixin

EACH = 2  # sequences, or rows, of a rank
SCHEDULES = [
    "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble",
    "DualPipeV",
]  # fmt: skip


class Helper(DTensorTestMixin, VerifyStateDictMixin, TestCase):  # type: ignore[misc]
    """torch's helpers, which are methods of a test."""

    temp_dir: str  # set by checkpoint_utils.with_temp_dir


# ---- meshes, and what ranks have together ----


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (world(),))


def square(*names: str) -> DeviceMesh:
    """Returns a mesh of two dimensions: 2 by half the ranks."""
    return init_device_mesh("cpu", (2, world() // 2), mesh_dim_names=names or None)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def same(found: Any, wanted: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(found, wanted, msg=lambda text: f"{what}: {text}")


def same_gradients(
    model: nn.Module, single: nn.Module, between: dist.ProcessGroup | None = None
) -> None:
    """Compares the gradients of all ranks with those of a single model. between: ranks that had
    rows of their own; all gradients but those of experts are yet to be summed over them."""
    for (name, mine), wanted in zip(model.named_parameters(), single.parameters(), strict=True):
        assert mine.grad is not None and wanted.grad is not None, name
        found = whole(mine.grad).clone()
        if between and "experts" not in name:
            dist.all_reduce(found, group=between)
        same(found, wanted.grad, f"gradient of {name}")


# ---- models that are split ----


def transformer(**changes: Any) -> nn.Module:
    torch.manual_seed(3)
    return Transformer(ModelArgs(dropout_p=0.0, **changes))


def split_transformer(single: nn.Module, **how: Any) -> nn.Module:
    """Splits a transformer; each rank has its own heads of attention, since torch has no rule to
    split it on CPUs."""
    options = {"tp_mesh": None, "use_seq_parallel": False, "local_output_for_attn": True}
    return Transformer.parallelize(copy.deepcopy(single), **options | how)


def tokens(of: int, step: int = 0) -> torch.Tensor:
    """Returns the tokens of a rank, or of a part of the ranks: 8 of each sequence, since ranks
    split these, too."""
    made = torch.Generator().manual_seed(100 * step + of)
    return torch.randint(8, (EACH, 8), generator=made)


def all_tokens(parts: int) -> torch.Tensor:
    return torch.cat([tokens(of) for of in range(parts)])


def loss(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Returns the summed loss of predicting the rows read backwards."""
    return F.cross_entropy(logits.flatten(0, 1), rows.flip(1).flatten(), reduction="sum")


def like_single(sequences: bool, **changes: Any) -> None:
    """Trains a model split by tensors, or also by sequences, against a single one; all ranks have
    the same rows."""
    single = transformer(**changes)
    split = split_transformer(single, tp_mesh=line(), use_seq_parallel=sequences)
    optimizers = [torch.optim.SGD(m.parameters(), 0.01, momentum=0.9) for m in (split, single)]
    for step in range(2):
        rows = tokens(0, step)
        logits = [split(rows), single(rows)]
        same(whole(logits[0]), logits[1], f"output of step {step}")
        for made in logits:
            loss(made, rows).backward()
        same_gradients(split, single)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for (name, mine), wanted in zip(split.named_parameters(), single.parameters(), strict=True):
        same(whole(mine), wanted, name)


@check
def transformer_by_tensors() -> None:
    like_single(sequences=False)
    like_single(sequences=False, weight_tying=False, checkpoint_activations=True)


@check
def transformer_by_sequences() -> None:
    like_single(sequences=True)
    like_single(sequences=True, weight_tying=False)


@check
def experts_by_tensors() -> None:
    """torch's own models do not sum the gradient of their input: only gradients of later layers are
    right."""
    single = transformer(n_layers=1, num_experts=4, weight_tying=False)
    split = split_transformer(single, tp_mesh=line())
    logits = [model(tokens(0)) for model in (split, single)]
    same(whole(logits[0]), logits[1], "output")
    for made in logits:
        loss(made, tokens(0)).backward()
    experts = "layers.0.expert_layer.experts"
    for name in (f"{experts}.w1", f"{experts}.w2", "norm.weight", "output.weight"):
        found, wanted = (model.get_parameter(name).grad for model in (split, single))
        assert found is not None and wanted is not None
        same(whole(found), wanted, f"gradient of {name}")


def like_single_experts(parts: int, part: int, **split: Any) -> None:
    """Parts of the ranks have tokens of their own, which all experts see; each rank has some
    experts."""
    single = transformer(num_experts=4, weight_tying=False)
    model = split_transformer(single, **split)
    logits, wanted = model(tokens(part)), single(all_tokens(parts))
    same(whole(logits), wanted[EACH * part :][:EACH], "output")
    loss(logits, tokens(part)).backward()
    loss(wanted, all_tokens(parts)).backward()
    same_gradients(model, single, split["ep_mesh"].get_group())


@check
def experts_by_ranks() -> None:
    like_single_experts(world(), rank(), ep_mesh=line())


@check
def experts_by_ranks_and_tensors() -> None:
    mesh = square("ep", "tp")
    split = {"ep_mesh": mesh["ep"], "tp_mesh": mesh["tp"]}
    like_single_experts(2, mesh.get_local_rank("ep"), **split)


def stack() -> Any:
    """torch's model for FSDP2, with sizes that ranks do not share equally."""
    torch.manual_seed(7)
    return fsdp_models.MLPStack(5).double()


def rows_of(part: int, step: int = 0) -> torch.Tensor:
    made = torch.Generator().manual_seed(10 * step + part)
    return torch.randn(EACH, 5, generator=made, dtype=torch.float64)


def all_rows(parts: int, step: int = 0) -> torch.Tensor:
    return torch.cat([rows_of(part, step) for part in range(parts)])


@check
def fsdp_like_single() -> None:
    single, split = stack(), stack()
    for layer in (*split, split):
        fully_shard(layer, mesh=line())
    split(rows_of(rank())).square().mean().backward()
    single(all_rows(world())).square().mean().backward()
    fsdp_models.check_sharded_parity(Helper(), single, split)
    same_gradients(split, single)


@check
def fsdp_and_tensors() -> None:
    single, mesh = stack(), square("dp", "tp")
    for again in (False, True):  # whether activations are recomputed
        single.zero_grad()
        split = stack().parallelize(mesh["tp"], mesh["dp"], again)
        split(rows_of(mesh.get_local_rank("dp"))).square().mean().backward()
        single(all_rows(2)).square().mean().backward()
        for (name, mine), wanted in zip(split.named_parameters(), single.parameters(), strict=True):
            assert mine.grad is not None, name
            same(whole(mine.grad), wanted.grad, name)


# ---- placements ----


def numbers(*shape: int) -> torch.Tensor:
    """Returns whole numbers, whose sums are exact in any order."""
    made = torch.Generator().manual_seed(11)
    return torch.randint(-99, 99, shape, generator=made).double()


def part_of(tensor: torch.Tensor, at: int, of: int, dim: int) -> torch.Tensor:
    """Returns a rank's part of a dimension that is split, computed without torch's placements."""
    parts = tensor.chunk(of, dim)
    return parts[at] if at < len(parts) else tensor.narrow(dim, 0, 0)


def local_of(tensor: torch.Tensor, mesh: DeviceMesh, placements: Any) -> torch.Tensor:
    """Returns a rank's own part. For partial sums, the first rank of the dimension has the tensor
    plus 3, the last one -3."""
    for dim, placed in enumerate(placements):
        at, of = mesh.get_local_rank(dim), mesh.size(dim)
        if isinstance(placed, Shard):
            tensor = part_of(tensor, at, of, placed.dim)
        elif isinstance(placed, Partial):
            tensor = tensor * (at == 0) + 3 * (at == 0) - 3 * (at == of - 1)
    return tensor


def to_each_other(mesh: DeviceMesh, tensor: torch.Tensor) -> None:
    kinds = [Replicate(), *(Shard(dim) for dim in range(tensor.ndim))]
    ends = list(itertools.product(kinds, repeat=mesh.ndim))
    for begin in itertools.product([*kinds, Partial()], repeat=mesh.ndim):
        local = local_of(tensor, mesh, begin)
        placed = DTensor.from_local(local, mesh, begin, shape=tensor.shape, stride=tensor.stride())
        assert torch.equal(placed.full_tensor(), tensor), begin
        for end in ends:
            found = placed.redistribute(mesh, end)
            assert torch.equal(found.to_local(), local_of(tensor, mesh, end)), (begin, end)
            assert torch.equal(found.full_tensor(), tensor), (begin, end)


@check
def placements_on_a_line() -> None:
    to_each_other(line(), numbers(8, 4, 4))
    to_each_other(line(), numbers(7, 3))  # some ranks have fewer rows, or none


@check
def placements_on_a_square() -> None:
    to_each_other(square(), numbers(8, 4))
    to_each_other(square(), numbers(5, 3))


def in_order(tensor: torch.Tensor, mesh: DeviceMesh, order: Any) -> torch.Tensor:
    """Returns a rank's own part if the mesh's dimensions split a tensor one after the other."""
    for entry in order:
        for dim in entry.mesh_dims:
            at = mesh.get_local_rank(dim)
            tensor = part_of(tensor, at, mesh.size(dim), entry.tensor_dim)
    return tensor


@check
def orders_on_a_square() -> None:
    mesh, tensor = square(), numbers(8, 4)
    orders = list(generate_shard_orders(mesh, tensor.ndim))
    assert len(orders) == 6
    for begin, end in itertools.product(orders, orders):
        placed = patched_distribute_tensor(tensor, mesh, None, begin)
        assert torch.equal(placed.to_local(), in_order(tensor, mesh, begin)), begin
        found = redistribute_to_order(placed, mesh, None, end)
        assert torch.equal(found.to_local(), in_order(tensor, mesh, end)), (begin, end)
        assert torch.equal(make_full_tensor(found), tensor), (begin, end)


@check
def distributed_from_rank_0() -> None:
    """Only rank 0's values count."""
    for mesh in (line(), square()):
        tensor = numbers(7, 4)
        mine = tensor if rank() == 0 else torch.full_like(tensor, -1)
        for placed in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=mesh.ndim):
            found = distribute_tensor(mine, mesh, placed)
            assert torch.equal(found.to_local(), local_of(tensor, mesh, placed)), placed


# ---- operators ----

Called = tuple[Callable[..., torch.Tensor], tuple[Any, ...]]


def operators() -> dict[str, Called]:
    """Returns operators with tensors, of which torch's converter splits each dimension that
    it can."""
    torch.manual_seed(13)
    even, wide, row = torch.randn(8, 8), torch.randn(8, 12), torch.randn(12)
    return {
        "add": (torch.add, (even, torch.randn(8, 8))),
        "mm": (torch.mm, (even, wide)),
        "bmm": (torch.bmm, (torch.randn(4, 8, 4), torch.randn(4, 4, 8))),
        "addmm": (torch.addmm, (row, even, wide)),
        "sum": (lambda x: x.sum(0), (wide,)),
        "mean": (lambda x: x.mean(), (wide,)),
        "max": (lambda x: x.max(1).values, (wide,)),
        "softmax": (lambda x: torch.softmax(x, 1), (wide,)),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (12,), w, b), (wide, row, row + 1)),
        "gelu": (lambda x: F.gelu(x.transpose(0, 1)), (wide,)),
        "view": (lambda x: x.view(4, 2, 12), (wide,)),
        "cat": (lambda x, y: torch.cat([x, y], 1), (even, wide)),
    }


@check
def operators_on_every_placement() -> None:
    mesh, helper = line(), Helper()
    for name, (operator, args) in operators().items():
        try:
            helper._test_op(mesh, operator, *args)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@check
def gradients_on_every_placement() -> None:
    mesh = line()
    for name, (operator, args) in operators().items():
        for placed in DTensorConverter(mesh, args, {}).sharding_combs:
            held = validate_sharding_rule_sample_backward(operator, args, {}, placed, mesh)
            assert held is True, (name, placed, held)


# ---- state and checkpoints ----


def trained(model: nn.Module, rows: Callable[[int], torch.Tensor]) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        model(rows(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)
FROM_RANK_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def same_state(split: nn.Module) -> None:
    """State after steps with a part of the rows on each rank equals state after steps with all
    rows."""
    single = stack()
    wanted = trained(single, lambda step: all_rows(world(), step))
    optimizer = trained(split, lambda step: rows_of(rank(), step))
    compare_state(single, wanted, *get_state_dict(split, optimizer))
    full = copy.deepcopy(get_state_dict(split, optimizer, options=FULL))
    fresh = torch.optim.AdamW(split.parameters(), lr=0.5)
    with torch.no_grad():
        for parameter in split.parameters():
            parameter.zero_()
    state, of_optimizer = full if rank() == 0 else ({}, {})
    set_model_state_dict(split, state, options=FROM_RANK_0)
    set_optimizer_state_dict(split, fresh, of_optimizer, options=FROM_RANK_0)
    compare_state(single, wanted, *get_state_dict(split, fresh))


def compare_state(
    single: nn.Module, optimizer: torch.optim.Optimizer, state: Any, of_optimizer: Any
) -> None:
    """torch's helpers check the names of an optimizer's tensors, and its numbers once loaded."""
    helper = Helper()
    helper._verify_msd(single.state_dict(), state)
    helper._verify_osd(single, optimizer, optimizer.state_dict(), of_optimizer)
    new = torch.optim.AdamW(single.parameters(), lr=0.5)
    helper._verify_osd_by_load(single, optimizer, new, of_optimizer)


@check
def state_of_ddp() -> None:
    same_state(DDP(stack()))


@check
def state_of_fsdp() -> None:
    split = stack()
    for layer in (*split, split):
        fully_shard(layer, mesh=line())
    same_state(split)


TEXT = "What torch's example turns: Abc"


def saved_state() -> dict[str, Any]:
    return {"split": distribute_tensor(numbers(9, 4), line(), [Shard(0)]), "text": TEXT, "step": 4}


def empty_state(placed: list[Any]) -> dict[str, Any]:
    split = distribute_tensor(torch.zeros(9, 4, dtype=torch.float64), line(), placed)
    return {"split": split, "text": "", "step": 0}


@checkpoint_utils.with_temp_dir  # type: ignore[misc]
def saved_and_loaded(helper: Helper) -> None:
    folder = Path(helper.temp_dir)
    turned = [checkpoint_utils.Rot13Example()]
    writer = dcp.FileSystemWriter(folder, _extensions=turned)
    dcp.save(saved_state(), storage_writer=writer)
    bytes_of = b"".join(path.read_bytes() for path in folder.glob("*.distcp"))
    assert TEXT.swapcase().encode() in bytes_of
    registry = checkpoint_utils.get_test_extension_registry()
    for placed in ([Shard(0)], [Shard(1)], [Replicate()]):
        state = empty_state(placed)
        reader = dcp.FileSystemReader(folder, _extension_registry=registry)
        dcp.load(state, storage_reader=reader)
        assert torch.equal(whole(state["split"]), numbers(9, 4)), placed
        assert (state["text"], state["step"]) == (TEXT, 4), placed
    dist.barrier()  # each rank removes the folder


@check
def checkpoint_with_an_extension() -> None:
    saved_and_loaded(Helper())


# ---- shards, and a group that does nothing ----


@check
def shards_in_any_order() -> None:
    """torch's older sharded tensors. For a backend that it does not know, torch would ask CUDA."""
    group = dist.new_group(backend=f"cpu:{dist.get_backend()}")
    for dim, first in itertools.product((0, 1), range(world())):
        order = [(first + at) % world() for at in range(world())]
        spec = ChunkShardingSpec(dim, [f"rank:{at}/cpu" for at in order])
        torch.manual_seed(17)
        layer = nn.Linear(9, 7)
        wanted = shards.clone_module_parameter(layer, "weight").detach()
        shard_parameter(layer, "weight", spec, process_group=group)
        start, size = shards.generate_local_weight_sharding_params_for_test(
            wanted, dim, world(), spec, rank()
        )
        mine = [each.tensor for each in layer.weight.local_shards()]
        if size > 0:
            assert torch.equal(mine[0], wanted.narrow(dim, start, size)), (dim, order)
        into = torch.empty_like(wanted) if rank() == 0 else None
        layer.weight.gather(0, into)
        assert into is None or torch.equal(into, wanted), (dim, order)


@check
def a_fake_group_beside() -> None:
    """A fake group claims to have reduced; Pawl's group reduces."""
    assert dist.Backend.FAKE in dist.Backend.backend_list
    fake = dist.new_group(backend="fake")
    tensor = torch.full((3,), float(rank() + 1))
    dist.all_reduce(tensor, group=fake)
    assert tensor.tolist() == [rank() + 1] * 3
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world() * (world() + 1) / 2] * 3


# ---- pipelines ----


def layers(count: int) -> Any:
    """A stage of a pipeline; torch's own makes all stages alike."""
    made = MLPStacked("cpu", count)
    torch.manual_seed(19)
    for layer in made.layers:
        layer.reset_parameters()
    return made


def stages_of(name: str) -> list[int]:
    """Returns the stages of this rank: one, or two; for V schedules, one from each end."""
    if issubclass(get_schedule_class(name), PipelineScheduleSingle):
        return [rank()]
    second = 2 * world() - 1 - rank() if "V" in name else world() + rank()
    return [rank(), second]


def piped(name: str) -> None:
    mine = stages_of(name)
    count = len(mine) * world()
    single, model = layers(count), layers(count)
    stages = [PipelineStage(model.layers[i], i, count, torch.device("cpu")) for i in mine]
    kind, micro = get_schedule_class(name), 2 * world()
    one_or_all: Any = stages[0] if len(stages) == 1 else stages
    schedule = kind(one_or_all, micro, loss_fn=F.mse_loss)
    torch.manual_seed(23)
    x, target = torch.randn(2 * micro, 10), torch.randn(2 * micro, 10)
    losses: list[torch.Tensor] = []
    last = count - 1 in mine
    found = schedule.step(
        *([x] if 0 in mine else []), **({"target": target, "losses": losses} if last else {})
    )
    output = single(x)
    wanted = F.mse_loss(output, target)
    wanted.backward()
    if last:
        same(found, output, f"{name}: output")
        same(torch.stack(losses).mean(), wanted, f"{name}: loss")
    for i in mine:
        same_gradients(model.layers[i], single.layers[i])


def add_schedule(name: str) -> None:
    def pipeline() -> None:
        piped(name)

    pipeline.__name__ = f"pipeline_{name}"
    check(pipeline)


for each in SCHEDULES:
    add_schedule(each)
