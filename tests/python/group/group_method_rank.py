"""A rank of the backend "pawl": methods of the group itself beside gloo's, and what profilers show.

Usage: group_method_rank.py NAME...: the checks to run, or none for all. Prints "> NAME" for each
that held.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

from group_checks import check, rank, refused, run_checks, world

MINUTE = timedelta(minutes=1)
Group = dist.ProcessGroup
# Earlier, gloo took 0 for the root where a method is given a bare tensor, and had neither
# reduce_scatter nor alltoall.
NEW = "timeout" in (Group.gather.__doc__ or "")
gloo: Group


def mine(*shape: int, of: int = 0) -> torch.Tensor:
    made = torch.arange(6.0).view(*shape or (6,)) + 10 * rank() + 100 * of
    return made.double()  # doubles, so that products of several are exact


def empty(count: int) -> list[torch.Tensor]:
    return [torch.zeros(6, dtype=torch.float64) for _ in range(count)]


def options(kind: type, **values: Any) -> Any:
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def at_root(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return tensors if rank() == 1 else []


def calls() -> list[Callable[[Group], tuple[dist.Work, list[torch.Tensor]]]]:
    """Returns each way to call each method: a function that gives the work and the tensors it will
    change."""
    MAX, every = dist.ReduceOp.MAX, world()

    def each(call: Callable[..., dist.Work], *make: Callable[[], Any]) -> Any:
        def made(group: Group) -> tuple[dist.Work, list[torch.Tensor]]:
            values = [one() for one in make]
            return call(group, *values), flat(values)

        return made

    def at(root: int, call: Any) -> Any:  # on other ranks gloo leaves partial sums
        def made(group: Group) -> tuple[dist.Work, list[torch.Tensor]]:
            work, tensors = call(group)
            return work, tensors if rank() == root else []

        return made

    def new(made: Any) -> Any:  # a call that gloo of an old torch lacks
        return made if NEW else unknown_to_gloo

    all_of, one, two = (lambda: empty(every)), mine, (lambda: mine(of=3))
    parts = lambda: [mine(of=r) for r in range(every)]  # noqa: E731
    return [
        each(lambda g, t: g.allreduce(t), one),
        each(lambda g, t: g.allreduce(t, MAX), one),
        each(lambda g, t: g.allreduce(tensor=t, op=MAX, timeout=MINUTE), one),
        each(lambda g, t: g.allreduce([t]), one),
        each(lambda g, t: g.allreduce([t], MAX), one),
        each(lambda g, t: g.allreduce(tensors=[t], op=MAX), one),
        each(lambda g, t: g.allreduce([t], options(dist.AllreduceOptions, reduceOp=MAX)), one),
        each(lambda g, t: g.allreduce([t], opts=options(dist.AllreduceOptions, reduceOp=MAX)), one),
        each(lambda g, t, u: g.allreduce([t, u]), one, two),
        each(lambda g, t, u: g.allreduce([t, u], dist.ReduceOp.PRODUCT), one, two),
        each(lambda g, t, u: g.allreduce([t, u], MAX), one, two),
        each(lambda g, t, u: g.allreduce_coalesced([t, u]), one, two),
        each(lambda g, t: g.broadcast(t, 1), one),
        each(lambda g, t: g.broadcast(t, root=1, timeout=MINUTE), one),
        each(lambda g, t: g.broadcast([t]), one),
        each(lambda g, t: g.broadcast([t], options(dist.BroadcastOptions, rootRank=1)), one),
        each(lambda g, t, u: g.broadcast([t, u], several(1, 1)), one, two),
        each(lambda g, t, u: g.broadcast([t, u], several(1, 0)), one, two),
        at(1, each(lambda g, t: g.reduce(t, 1), one)),
        at(1, each(lambda g, t: g.reduce(tensor=t, root=1, op=MAX, timeout=MINUTE), one)),
        at(0, each(lambda g, t: g.reduce([t]), one)),
        each(lambda g, o, t: g.allgather(o, t), all_of, one),
        each(lambda g, o, t: g.allgather(output_tensors=o, input_tensor=t), all_of, one),
        each(lambda g, o, t: g.allgather([o], [t]), all_of, one),
        each(lambda g, o, t: g.allgather([o], [t], AllgatherOptions()), all_of, one),
        each(
            lambda g, o, p, t, u: g.allgather([o, p], [t, u]),
            lambda: empty(2 * every), lambda: empty(2 * every), one, two,
        ),
        each(lambda g, o, t: g._allgather_base(o, t), lambda: torch.cat(empty(every)), one),
        new(each(lambda g, o, t: g.gather(at_root(o), t, 1), all_of, one)),
        each(lambda g, o, t: g.gather(at_root(o), t, root=1, timeout=MINUTE), all_of, one),
        each(
            lambda g, o, t: g.gather(
                [o] if rank() == 1 else [], [t], options(dist.GatherOptions, rootRank=1)
            ),
            all_of, one,
        ),
        new(each(lambda g, o, t: g.scatter(o, at_root(t), 1), one, parts)),
        new(each(
            lambda g, o, t: g.scatter(output_tensor=o, input_tensors=at_root(t), root=1),
            one, parts,
        )),
        each(
            lambda g, o, t: g.scatter(
                [o], [t] if rank() == 1 else [], options(dist.ScatterOptions, rootRank=1)
            ),
            one, parts,
        ),
        new(each(lambda g, o, t: g.reduce_scatter(o, t), one, parts)),
        each(lambda g, o, t: g.reduce_scatter(o, t, op=MAX, timeout=MINUTE), one, parts),
        new(each(lambda g, o, t: g.reduce_scatter([o], [t]), one, parts)),
        new(each(lambda g, o, t: g.alltoall(o, t), all_of, parts)),
        each(
            lambda g, o, t: g.alltoall_base(o, t, [], []),
            lambda: torch.cat(empty(every)), lambda: torch.cat(parts()),
        ),
        each(lambda g: g.barrier()),
        each(lambda g: g.barrier(timeout=MINUTE)),
        each(lambda g: g.barrier(opts=dist.BarrierOptions())),
    ]  # fmt: skip


def unknown_to_gloo(group: Group) -> Any:
    raise TypeError


def several(root: int, tensor: int) -> Any:
    return options(dist.BroadcastOptions, rootRank=root, rootTensor=tensor)


def flat(values: list[Any]) -> list[torch.Tensor]:
    return [t for v in values for t in (v if isinstance(v, list) else [v])]


@check
def like_gloo() -> None:
    """Every way to call each method gives the same result as on gloo."""
    unknown = 0  # calls that this torch does not know
    for number, call in enumerate(calls()):
        try:
            wanted = finished(call, gloo)
        except TypeError:
            unknown += 1
            continue
        found = finished(call, dist.group.WORLD)
        assert torch.equal(wanted, found), (number, wanted, found)
    assert unknown <= (0 if NEW else 12), unknown


def finished(call: Any, group: Group) -> torch.Tensor:
    """Returns the result of a call, in one tensor."""
    work, tensors = call(group)
    work.wait()
    return torch.cat([torch.empty(0), *(t.reshape(-1) for t in tensors)])


@check
def ranks_that_are_none() -> None:
    """The error names ranks as the caller gave them."""
    group, tensor = dist.group.WORLD, mine()
    message = f"rank -1 of {world()} ranks"
    refused(lambda: group.broadcast(tensor, -1), f"broadcast: {message}")
    refused(lambda: group.reduce(tensor, -1), f"reduce: {message}")
    refused(lambda: group.scatter(tensor, [], -1), f"scatter: {message}")
    refused(lambda: group.gather([], tensor, -1), f"gather: {message}")
    refused(lambda: group.send([tensor], -1, 0), f"send: {message}")
    refused(lambda: group.recv([tensor], -1, 0), f"recv: {message}")
    refused(lambda: group.broadcast(tensor, world()), f"rank {world()} of {world()} ranks")
    refused(lambda: group.broadcast([tensor, tensor], several(0, 2)), "tensor 2 of 2")
    refused(lambda: group.broadcast(tensor, 0, source=1), "unknown argument: source", TypeError)
    refused(lambda: group.broadcast(tensor, 0, MINUTE, 3), "not 3 arguments", TypeError)
    refused(lambda: group.allreduce(), "missing argument: tensors", TypeError)
    refused(lambda: group.allreduce([mine(), mine()], dist.ReduceOp.AVG), "one tensor, not 2")
    refused(lambda: group.allreduce([mine(), mine(2, 3)]), "not of one shape")


@check
def sequence_numbers() -> None:
    """The number counts collectives that were waited for; messages do not count."""
    group = dist.new_group()
    group._set_sequence_number_for_group()
    before = group._get_sequence_number_for_group()
    for number in range(3):
        dist.all_reduce(mine(), group=group)
        assert group._get_sequence_number_for_group() == before + number + 1
    if rank() < 2:
        peer = 1 - rank()
        (dist.send if rank() else dist.recv)(mine(), peer, group=group)
    assert group._get_sequence_number_for_group() == before + 3
    dist.barrier(group=group)


def every_call(group: Group) -> None:
    """Makes one call of each kind that has an event on gloo, too."""
    n = world()
    dist.all_reduce(mine(), group=group)
    dist.all_reduce_coalesced([mine(), mine(2, 3)], group=group)
    dist.all_gather(empty(n), mine(), group=group)
    dist.broadcast(mine(2, 3), 0, group=group)
    dist.reduce(mine(), 0, group=group)
    dist.gather(mine(), empty(n) if rank() == 0 else None, group=group)
    dist.scatter(mine(), empty(n) if rank() == 0 else None, group=group)
    dist.all_to_all_single(torch.stack(empty(n)), torch.stack(empty(n)), group=group)
    dist.barrier(group=group)
    if rank() < 2:
        (dist.send if rank() else dist.recv)(mine(), 1 - rank(), group=group)
    work = dist.all_reduce(mine(), async_op=True, group=group)
    work.get_future().then(lambda f: f.value()).wait()
    work.wait()


def profiled(group: Group) -> tuple[torch.profiler.profile, list[Any]]:
    """Returns the profile, and the backend's events that have a duration, in the order of their
    starts."""
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], record_shapes=True) as profile:
        every_call(group)
    name = dist.get_backend(group)
    events = [e for e in profile.events() if e.name.startswith(f"{name}:") and "::" not in e.name]
    return profile, sorted(events, key=lambda e: e.time_range.start)


@check
def events_as_gloo_has_them() -> None:
    wanted = profiled(gloo)[1]
    profile, events = profiled(dist.group.WORLD)
    assert [e.name.partition(":")[2] for e in events] == [
        e.name.partition(":")[2] for e in wanted
    ], ([e.name for e in events], [e.name for e in wanted])
    assert all(e.is_async and e.cpu_time >= 0 for e in events)
    inner = [e for e in profile.events() if e.name.startswith("pawl::")]
    inner.sort(key=lambda e: e.time_range.start)
    assert len(inner) == len(events) and not any(e.is_async for e in inner)
    for call, event, other in zip(inner, events, wanted, strict=True):
        assert event.time_range.start <= call.time_range.start <= event.time_range.end
        if other.input_shapes and event.name != "pawl:scatter":
            assert call.input_shapes == other.input_shapes, event.name


@check
def what_a_trace_says() -> None:
    """A trace describes a call as one of NCCL's collectives, for tools that read traces."""
    profile, _ = profiled(dist.group.WORLD)
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(str(Path(folder, "t.json")))
        trace = json.loads(Path(folder, "t.json").read_text())["traceEvents"]
    said = [e["args"] for e in trace if e["name"].startswith("pawl::")]
    first = said[0]
    assert first["Collective name"] == "all_reduce" and first["dtype"] == "float64", first
    assert int(first["In msg nelems"]) == 6 == int(first["Out msg nelems"])
    assert int(first["Group size"]) == world()
    assert json.loads(first["Process Group Ranks"]) == list(range(world()))


@check
def what_is_recorded_stays_right() -> None:
    """The record stays right after calls that raise, that are part of another call, or whose result
    is awaited in a callback."""
    group, n = dist.group.WORLD, world()
    with torch.autograd.profiler.profile() as profile:
        refused(lambda: group.broadcast(mine(), -1), "rank -1")
        outs, ins = [torch.stack(empty(n)), torch.stack(empty(n))], [mine(), mine()]
        group.allgather_into_tensor_coalesced(outs, ins).get_future().wait()
        work = dist.all_reduce(mine(), async_op=True)
        work.get_future().then(lambda f: work.wait()).wait()
        dist.all_reduce(mine().to_sparse())
    for row in outs[0]:
        assert row[1] - row[0] == 1
    names = [e.name for e in profile.function_events if "::" not in e.name]
    names = [name for name in names if name.startswith("pawl:")]
    assert sorted(names) == [
        "pawl:all_gather", "pawl:all_gather", "pawl:all_reduce", "pawl:all_reduce", "pawl:broadcast"
    ], names  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("pawl", timeout=MINUTE)
    gloo = dist.new_group(backend="gloo")
    run_checks()
    dist.destroy_process_group()
