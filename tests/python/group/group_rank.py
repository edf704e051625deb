"""A rank of the backend "pawl": every collective of torch.distributed.

Usage: group_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each that
held.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from group_checks import (
    all_gather_single,
    check,
    rank,
    reduce_scatter_single,
    refused,
    run_checks,
    world,
)

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
]  # fmt: skip


def numbers(*shape: int, dtype: torch.dtype = torch.float32, of: int | None = None) -> torch.Tensor:
    """Returns small whole numbers that any rank can compute for any other: sums are exact in every
    type."""
    made = torch.Generator().manual_seed(77 + (rank() if of is None else of))
    drawn = torch.randint(0, 4, shape, generator=made)
    return drawn.to(dtype)


def all_numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.stack([numbers(*shape, dtype=dtype, of=r) for r in range(world())])


def same(a: torch.Tensor, b: torch.Tensor, what: str = "") -> None:
    assert a.dtype == b.dtype and a.shape == b.shape, (what, a.dtype, b.dtype, a.shape, b.shape)
    assert torch.equal(a, b), (what, a, b)


def gather_single(tensor: torch.Tensor, into: torch.Tensor | None, root: int) -> None:
    """Returns torch's function, which exists from 2.14 on."""
    if hasattr(dist, "gather_single"):
        dist.gather_single(tensor, into, dst=root)
        return
    options = dist.GatherOptions()
    options.rootRank = root
    into = torch.empty(0) if into is None else into
    dist.group.WORLD.gather_single(into, tensor, options).wait()


def sizes() -> Iterator[tuple[int, ...]]:
    yield from [(1,), (0,), (3, 5), (1000,), (130, 1001)]


@check
def all_reduce() -> None:
    for dtype in DTYPES:
        for shape in sizes():
            tensor = numbers(*shape, dtype=dtype)
            dist.all_reduce(tensor)
            same(tensor, all_numbers(*shape, dtype=dtype).sum(0).to(dtype), f"{dtype} {shape}")


@check
def operations() -> None:
    ops = dist.ReduceOp
    for op, wanted in (
        (ops.PRODUCT, lambda a: a.prod(0)),
        (ops.MIN, lambda a: a.amin(0)),
        (ops.MAX, lambda a: a.amax(0)),
    ):
        for dtype in (torch.int32, torch.float32, torch.float64, torch.bfloat16):
            tensor = numbers(77, dtype=dtype)
            dist.all_reduce(tensor, op)
            same(tensor, wanted(all_numbers(77, dtype=dtype)).to(dtype), f"{op} {dtype}")
    tensor = numbers(9, dtype=torch.float32)
    dist.all_reduce(tensor, ops.AVG)
    same(tensor, all_numbers(9).sum(0) / world())
    means_of_halves()
    bits = all_numbers(50, dtype=torch.int64)
    for op, name in ((ops.BAND, "and"), (ops.BOR, "or"), (ops.BXOR, "xor")):
        tensor = numbers(50, dtype=torch.int64)
        dist.all_reduce(tensor, op)
        wanted_bits = bits[0]
        for row in bits[1:]:
            wanted_bits = getattr(wanted_bits, f"__{name}__")(row)
        same(tensor, wanted_bits, name)
    truths = numbers(40) > 1
    every = all_numbers(40) > 1
    for op, wanted_truth in ((ops.SUM, every.any(0)), (ops.MIN, every.all(0))):
        tensor = truths.clone()
        dist.all_reduce(tensor, op)
        same(tensor, wanted_truth)
    parts = torch.complex(numbers(6), numbers(6))
    dist.all_reduce(parts)
    same(parts.real.contiguous(), all_numbers(6).sum(0))


def means_of_halves() -> None:
    """Means are right where the sum does not fit a float16, with each call that has a mean, also on
    views."""
    average, n, me = dist.ReduceOp.AVG, world(), dist.get_rank()
    whole = torch.full((n, 2, 3), 60000.0, dtype=torch.float16)
    whole[:, 0, 0] = 6e-8 * (me + 1)  # the smallest positive halves
    wanted = whole[0].float()
    wanted[0, 0] = sum(float(torch.tensor(6e-8 * (r + 1)).half()) for r in range(n)) / n
    wanted = wanted.half()
    for view in (lambda x: x.clone(), lambda x: x.t().contiguous().t()):
        tensor = view(whole[me])
        dist.all_reduce(tensor, average)
        same(tensor, wanted, "all_reduce")
        tensor = view(whole[me])
        dist.reduce(tensor, 0, average)
        same(tensor, wanted if me == 0 else whole[me], "reduce")
        tensor = torch.empty_like(view(whole[me]))
        dist.reduce_scatter(tensor, [view(part) for part in whole], average)
        same(tensor, wanted, "reduce_scatter")
        reduce_scatter_single(tensor, whole.clone(), average)
        same(tensor, wanted, "reduce_scatter_single")
    both = [whole[me].clone(), whole[me, 1].clone()]
    dist.all_reduce_coalesced(both, average)
    same(both[0], wanted, "all_reduce_coalesced")
    same(both[1], wanted[1], "all_reduce_coalesced")


@check
def what_cannot_be() -> None:
    for op, tensor, text in (
        (dist.ReduceOp.BAND, torch.ones(3), "bits of floating-point"),
        (dist.ReduceOp.AVG, torch.ones(3, dtype=torch.int32), "only sums of floats"),
        (dist.ReduceOp.SUM, torch.ones(3, dtype=torch.uint16), "no RedOpType.SUM of torch.uint16"),
    ):
        try:
            dist.all_reduce(tensor, op)
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
    uneven = [torch.ones(2 + r % 2) for r in range(world())]
    for act in (
        lambda: dist.gather(torch.ones(2), uneven, dst=rank()),
        lambda: dist.scatter(torch.ones(2), uneven, src=rank()),
    ):
        try:
            act()
        except RuntimeError as error:
            assert "are not 1 x" in str(error), error
        else:
            raise AssertionError("lists of different sizes")
    repeats = torch.ones(1).expand(world(), 4)
    # A broadcast only reads the root's tensor.
    dist.broadcast(repeats.clone() if rank() else repeats, 0)
    for call in (
        lambda: dist.all_reduce(repeats),
        lambda: dist.all_reduce_coalesced([torch.ones(2), repeats]),
        lambda: dist.reduce(repeats, rank()),
        lambda: dist.broadcast(repeats, (rank() + 1) % world()),
        lambda: all_gather_single(repeats, torch.ones(4)),
        lambda: dist.all_gather(list(repeats), torch.ones(4)),
    ):
        refused(call, "several elements in one place (expand): give a clone() of it")
    dist.barrier()


@check
def layouts() -> None:
    """Tensors may be non-contiguous, views that require grad, or conjugates."""
    base = numbers(6, 8)
    tensor = base.t()
    dist.all_reduce(tensor)
    same(base, all_numbers(6, 8).sum(0))
    leaf = numbers(10).requires_grad_()
    view = leaf[2:8]
    dist.all_reduce(view.detach())
    same(leaf.detach()[2:8], all_numbers(10)[:, 2:8].sum(0))
    strided = torch.zeros(20)[::2]
    dist.broadcast(strided if rank() else numbers(10, of=0), 0)
    if rank():
        same(strided.contiguous(), numbers(10, of=0))


@check
def sparse() -> None:
    """Sparse rows of an embedding, of other indices at each rank; none at the last rank."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            if op == dist.ReduceOp.AVG and not dtype.is_floating_point:
                continue
            every = []
            for r in range(world()):
                rows = torch.arange(r, 7, r + 1)[: 0 if r == world() - 1 else None]
                values = numbers(len(rows), 3, dtype=dtype, of=r)
                every.append(torch.sparse_coo_tensor(rows[None], values, (7, 3)))
            tensor, whole = every[rank()].clone(), sum(t.to_dense() for t in every)
            dist.all_reduce(tensor, op)
            same(tensor.to_dense(), whole / world() if op == dist.ReduceOp.AVG else whole)
    other = torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1), (2,))
    refused(lambda: dist.all_reduce(other, dist.ReduceOp.MAX), "no RedOpType.MAX of sparse")
    shaped = torch.sparse_coo_tensor(
        other.indices(), torch.ones(1), (2 + rank(),), is_coalesced=True
    )
    refused(lambda: dist.all_reduce(shaped), "of a sparse tensor: rank ")
    dist.barrier()


@check
def other_types() -> None:
    """Types that are only moved, in 1,000 bytes; and sums of the wider complex numbers."""
    for dtype in (torch.bool, torch.complex64, torch.complex128, torch.uint16):
        n = 1000 // dtype.itemsize
        tensor = numbers(n, dtype=dtype)
        dist.broadcast(tensor, 1)
        same(tensor, numbers(n, dtype=dtype, of=1), f"{dtype}")
        into = [torch.empty(n, dtype=dtype) for _ in range(world())]
        dist.all_gather(into, numbers(n, dtype=dtype))
        for r, part in enumerate(into):
            same(part, numbers(n, dtype=dtype, of=r), f"{dtype}")
    parts = torch.complex(numbers(6, dtype=torch.float64), numbers(6, dtype=torch.float64))
    dist.all_reduce(parts)
    same(parts.imag.contiguous(), all_numbers(6, dtype=torch.float64).sum(0))


@check
def rooted() -> None:
    for root in range(world()):
        tensor = numbers(70, 3)
        dist.broadcast(tensor, root)
        same(tensor, numbers(70, 3, of=root))
        tensor = numbers(70, 3)
        dist.reduce(tensor, root)
        same(tensor, all_numbers(70, 3).sum(0) if rank() == root else numbers(70, 3))
        into = [torch.empty(70, 3) for _ in range(world())] if rank() == root else None
        dist.gather(numbers(70, 3), into, dst=root)
        for r, part in enumerate(into or []):
            same(part, numbers(70, 3, of=r))
        for whole in (torch.empty(world() * 70, 3), torch.empty(3, world() * 70).t()):
            gather_single(numbers(70, 3), whole if rank() == root else None, root)
            if rank() == root:
                same(whole.contiguous(), all_numbers(70, 3).view(-1, 3))
        output = torch.empty(5)
        parts = [numbers(5, of=100 + r) for r in range(world())] if rank() == root else None
        dist.scatter(output, parts, src=root)
        same(output, numbers(5, of=100 + rank()))


@check
def gathered() -> None:
    for shape in sizes():
        into = [torch.empty(shape) for _ in range(world())]
        dist.all_gather(into, numbers(*shape))
        for r, part in enumerate(into):
            same(part, numbers(*shape, of=r))
    whole = torch.empty(world() * 6, 2)
    for gather in (all_gather_single, dist.all_gather_into_tensor):
        gather(whole.zero_(), numbers(6, 2))
        same(whole, all_numbers(6, 2).view(-1, 2))
    own = whole[rank() * 6 : rank() * 6 + 6]  # a block of the output, as in FSDP
    whole.zero_()
    own.copy_(numbers(6, 2))
    all_gather_single(whole, own)
    same(whole, all_numbers(6, 2).view(-1, 2))
    uneven = [torch.empty(r + 1, 2) for r in range(world())]
    dist.all_gather(uneven, numbers(rank() + 1, 2))
    for r, part in enumerate(uneven):
        same(part, numbers(r + 1, 2, of=r))


@check
def scattered() -> None:
    output = torch.empty(12)
    parts = [numbers(12, of=10 * rank() + r) for r in range(world())]
    wanted = sum(numbers(12, of=10 * r + rank()) for r in range(world()))
    dist.reduce_scatter(output, parts)
    same(output, wanted)
    for scatter in (reduce_scatter_single, dist.reduce_scatter_tensor):
        scatter(output.zero_(), torch.cat(parts))
        same(output, wanted)
    whole = torch.cat(parts)
    own = whole[rank() * 12 : rank() * 12 + 12]
    reduce_scatter_single(own, whole)
    same(own, wanted)
    sizes = [r + 2 for r in range(world())]
    output = torch.empty(sizes[rank()])
    dist.reduce_scatter(output, [numbers(n) for n in sizes])
    same(output, sum(numbers(sizes[rank()], of=r) for r in range(world())))


@check
def swapped() -> None:
    tensor = torch.arange(world() * 3.0) + 100 * rank()
    output = torch.empty_like(tensor)
    dist.all_to_all_single(output, tensor)
    same(output, torch.cat([torch.arange(3.0) + 100 * r + 3 * rank() for r in range(world())]))
    send = [(rank() + r) % 3 for r in range(world())]
    got = torch.empty(sum(send), 2)
    dist.all_to_all_single(got, numbers(sum(send), 2), send, send)
    parts = [numbers(4, of=10 * rank() + r) for r in range(world())]
    into = [torch.empty(4) for _ in range(world())]
    dist.all_to_all(into, parts)
    for r, part in enumerate(into):
        same(part, numbers(4, of=10 * r + rank()))


@check
def messages() -> None:
    after, before = (rank() + 1) % world(), (rank() - 1) % world()
    for shape in ((1,), (0,), (1000, 300)):
        got = torch.empty(shape)
        works = [dist.isend(numbers(*shape), after, tag=3), dist.irecv(got, before, tag=3)]
        for work in works:
            work.wait()
        same(got, numbers(*shape, of=before))
    first, second = torch.empty(3), torch.empty(3)
    sends = [dist.isend(numbers(3, of=1), after, tag=1), dist.isend(numbers(3, of=2), after, tag=2)]
    dist.recv(second, before, tag=2)  # the order differs from that of the sends
    dist.recv(first, before, tag=1)
    for send in sends:
        send.wait()
    same(first, numbers(3, of=1))
    same(second, numbers(3, of=2))
    if rank() == 0:
        seen = set()
        for _ in range(world() - 1):
            got = torch.empty(1)
            source = dist.recv(got)
            assert got.item() == source
            seen.add(source)
        assert seen == set(range(1, world()))
    else:
        dist.send(torch.tensor([float(rank())]), 0)
    dist.barrier()  # otherwise the next message may be taken for this one
    ops = [
        dist.P2POp(dist.isend, numbers(8), after),
        dist.P2POp(dist.irecv, got := torch.empty(8), before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(got, numbers(8, of=before))


@check
def objects() -> None:
    into: list[object] = [None] * world()
    dist.all_gather_object(into, {"rank": rank(), "text": "x" * rank()})
    assert into == [{"rank": r, "text": "x" * r} for r in range(world())]
    box = [{"a": 1}, "b"] if rank() == 1 else [None, None]
    dist.broadcast_object_list(box, 1)
    assert box == [{"a": 1}, "b"]
    out: list[object] = [None]
    dist.scatter_object_list(out, list(range(world())) if rank() == 0 else None, 0)
    assert out == [rank()]


@check
def coalesced() -> None:
    tensors = [numbers(n) for n in (1, 500, 3)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, n in zip(tensors, (1, 500, 3), strict=True):
        same(tensor, all_numbers(n).sum(0))
    base = torch.stack([numbers(6), numbers(6), numbers(6)])  # columns: not contiguous
    dist.group.WORLD.allreduce_coalesced([base[:, 0], base[:, 1], base[:, 5]]).wait()
    for column, changed in enumerate([True, True, False, False, False, True]):
        wanted = all_numbers(6).sum(0) if changed else numbers(6)
        same(base[:, column].contiguous(), wanted[column].expand(3).contiguous())
    tensors = [numbers(n) for n in (2, 400)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor, n in zip(tensors, (2, 400), strict=True):
        same(tensor, all_numbers(n).sum(0))
    group, into = dist.group.WORLD, [torch.zeros(world() * n) for n in (2, 400)]
    work = group.allgather_into_tensor_coalesced(into, [numbers(2), numbers(400)])
    work.get_future().wait()
    assert work.is_completed() and work.is_success()
    for whole, n in zip(into, (2, 400), strict=True):
        same(whole, all_numbers(n).view(-1))
    back = [torch.zeros(2), torch.zeros(400)]
    group.reduce_scatter_tensor_coalesced(
        back, into, dist.ReduceScatterOptions()
    ).get_future().wait()
    for part, n in zip(back, (2, 400), strict=True):
        same(part, numbers(n) * world())


@check
def futures() -> None:
    tensor = numbers(100)
    work = dist.all_reduce(tensor, async_op=True)
    halved = work.get_future().then(lambda f: f.value()[0] / 2)
    same(halved.wait(), all_numbers(100).sum(0) / 2)
    assert work.is_completed() and work.is_success() and work.exception() is None

    # Callbacks run when they may, in another order at each rank. So they use a group of their own,
    # where all of them make the same call.
    inside = dist.new_group()

    def again(future: torch.futures.Future) -> torch.Tensor:
        inner = future.value()[0].clone()
        dist.all_reduce(inner, group=inside)  # waits inside a callback, as PowerSGD does
        return inner

    futures = [dist.all_reduce(numbers(9), async_op=True).get_future().then(again) for _ in "abc"]
    for future in futures:
        same(future.wait(), all_numbers(9).sum(0) * world())


@check
def timeouts() -> None:
    """A timeout that is set later holds for the calls that follow."""
    group = dist.new_group(timeout=timedelta(seconds=9))
    set_timeout = getattr(dist, "set_timeout", lambda limit, of: of.set_timeout(limit))
    set_timeout(timedelta(seconds=0.3), group)
    if rank() == 0:
        refused(lambda: dist.recv(torch.empty(1), 1, group), "within the timeout of 0.3 s")
    dist.barrier()


@check
def groups() -> None:
    pairs = [dist.new_group([r, r + 1]) for r in range(0, world() - 1, 2)]
    mine = pairs[rank() // 2] if rank() // 2 < len(pairs) else None
    if mine is not None:
        tensor = numbers(5)
        dist.all_reduce(tensor, group=mine)
        other = rank() ^ 1
        same(tensor, numbers(5) + numbers(5, of=other))
    beside = dist.new_group(backend="gloo")
    tensor = numbers(5)
    dist.all_reduce(tensor, group=beside)
    same(tensor, all_numbers(5).sum(0))
    local = dist.new_group([0, 1], use_local_synchronization=True) if rank() < 2 else None
    if local is not None:
        dist.barrier(group=local)
        dist.destroy_process_group(local)


def beyond_32_bits() -> None:
    """A collective counts bytes beyond 32 bits. Not run with the other checks, because of its
    memory."""
    n = (1 << 32) + 13
    tensor = torch.ones(n, dtype=torch.int8)
    tensor[-1] = rank()
    dist.all_reduce(tensor)
    assert tensor[-1] == world() * (world() - 1) // 2
    assert tensor[: 1 << 20].min() == world() == tensor[-(1 << 20) : -1].max()
    tensor[-1] = tensor[0] = 5 + rank()
    dist.broadcast(tensor, 1)
    assert tensor[0] == 6 == tensor[-1]
    if rank() == 0:
        tensor[-1] = 9
        dist.send(tensor, 1)
    elif rank() == 1:
        dist.recv(tensor, 0)
        assert tensor[-1] == 9
    dist.barrier()


if sys.argv[1:] == ["beyond_32_bits"]:
    check(beyond_32_bits)


@check
def bits_are_the_same_everywhere() -> None:
    """Floats whose sum depends on the order: all ranks get the same sum, in every size and
    shape."""
    for n in (3, 1000, 100_003):
        made = torch.Generator().manual_seed(rank())
        tensor = torch.randn(n, generator=made) * 10.0 ** torch.randint(-6, 6, (n,), generator=made)
        first = tensor.clone()
        dist.all_reduce(tensor)
        into = [torch.empty(n) for _ in range(world())]
        dist.all_gather(into, tensor)
        for other in into:
            same(other, tensor)
        tail = first[n // 3 :].clone()  # the sum of an element does not depend on its place
        dist.all_reduce(tail)
        same(tail, tensor[n // 3 :])
        half = first.to(torch.bfloat16)
        few = half[:1000].clone()
        dist.reduce(half, 0)
        dist.reduce(few, 0)
        if rank() == 0:
            same(few, half[:1000])


def main() -> None:
    torch.set_num_threads(1)
    backend = os.environ.get("BACKEND", "pawl")
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    assert dist.get_backend() == backend
    run_checks()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
