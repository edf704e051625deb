"""A rank of the backend "pawl": calls under way, and tensors of one call, that share memory.

Random calls on views of one tensor must give what they would give one after the other. The same
calls in plain torch, on copies of all ranks' tensors, give the expected values.

Usage: group_overlap_rank.py SEED ROUNDS
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from group_checks import all_gather_single, reduce_scatter_single

N = 80  # elements of a rank's tensor
CALLS = 12  # calls in a round
PART_MAX = 6  # elements of a block, at most

View = Callable[[torch.Tensor], torch.Tensor]
Group = list[torch.Tensor]  # a view, or the view's contents, for each rank


def view_of(rng: random.Random, n: int, rows: bool) -> View:
    """Returns a view of n elements of a rank's tensor: adjacent, spread, or of two dimensions."""
    step = rng.choice((1, 1, 1, 2, 3))
    at = rng.randrange(N - n * step + 1)
    if step == 1 and n % 2 == 0 and rng.random() < 0.3 and not rows:
        return lambda base: base[at : at + n].view(2, -1).t()
    return lambda base: base[at : at + n * step : step]


class Calls:
    """Makes the same calls here, on this rank's tensor, and in the model, on all ranks' tensors."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.model = [torch.arange(N) * (r + 1) + r for r in range(self.world)]
        self.base = self.model[self.rank].clone()
        self.works: list[Any] = []

    def views(self, n: int, rows: bool = False) -> tuple[torch.Tensor, Group]:
        """Draws another view for each rank; ``rows``: all views have as many rows."""
        views = [view_of(self.rng, n, rows) for _ in range(self.world)]
        return views[self.rank](self.base), [v(m) for v, m in zip(views, self.model, strict=True)]

    def many(self, n: int, count: int) -> tuple[list[torch.Tensor], list[Group]]:
        made = [self.views(n) for _ in range(count)]
        return [ours for ours, _ in made], [theirs for _, theirs in made]

    def size(self) -> int:
        return self.rng.randrange(1, PART_MAX + 1)

    def root(self) -> int:
        return self.rng.randrange(self.world)

    # Each method begins its call, and does the same in the model: reads all, then writes.

    def all_reduce(self) -> None:
        ours, theirs = self.views(self.size())
        self.works.append(dist.all_reduce(ours, async_op=True))
        write(theirs, [total(theirs)] * self.world)

    def all_reduce_coalesced(self) -> None:
        ours, theirs = self.many(self.size(), 3)
        self.works.append(dist.all_reduce_coalesced(ours, async_op=True))
        for views, sums in zip(theirs, [total(views) for views in theirs], strict=True):
            write(views, [sums] * self.world)

    def reduce(self) -> None:
        (ours, theirs), root = self.views(self.size()), self.root()
        self.works.append(dist.reduce(ours, root, async_op=True))
        write(theirs[root : root + 1], [total(theirs)])

    def broadcast(self) -> None:
        (ours, theirs), root = self.views(self.size()), self.root()
        self.works.append(dist.broadcast(ours, root, async_op=True))
        write(theirs, [flat(theirs[root])] * self.world)

    def all_gather_single(self) -> None:
        n = self.size()
        (into, all_into), (ours, theirs) = self.views(n * self.world), self.views(n)
        self.works.append(all_gather_single(into, ours, async_op=True))
        write(all_into, [torch.cat([flat(t) for t in theirs])] * self.world)

    def all_gather(self) -> None:
        n = self.size()
        (into, all_into), (ours, theirs) = self.many(n, self.world), self.views(n)
        self.works.append(dist.all_gather(into, ours, async_op=True))
        write_rows(all_into, [flat(t) for t in theirs])

    def all_gather_coalesced(self) -> None:
        n = self.size()
        inputs, all_inputs = self.many(n, 2)
        made = [self.many(n, self.world) for _ in inputs]
        rows = [[into[r] for into, _ in made] for r in range(self.world)]
        work = group().allgather_coalesced(rows, inputs)
        self.works.append(work)
        read = [[flat(t) for t in each] for each in all_inputs]
        for (_, all_into), values in zip(made, read, strict=True):
            write_rows(all_into, values)

    def gather(self) -> None:
        n, root = self.size(), self.root()
        (into, all_into), (ours, theirs) = self.many(n, self.world), self.views(n)
        to = into if self.rank == root else None
        self.works.append(dist.gather(ours, to, root, async_op=True))
        read = [flat(t) for t in theirs]
        for views, value in zip(all_into, read, strict=True):
            write(views[root : root + 1], [value])

    def gather_single(self) -> None:
        n, root, options = self.size(), self.root(), dist.GatherOptions()
        (into, all_into), (ours, theirs) = self.views(n * self.world), self.views(n)
        options.rootRank = root
        self.works.append(group().gather_single(into, ours, options))
        write(all_into[root : root + 1], [torch.cat([flat(t) for t in theirs])])

    def scatter(self) -> None:
        n, root = self.size(), self.root()
        (ours, theirs), (parts, all_parts) = self.views(n), self.many(n, self.world)
        of = parts if self.rank == root else None
        self.works.append(dist.scatter(ours, of, root, async_op=True))
        write(theirs, [flat(views[root]) for views in all_parts])

    def reduce_scatter(self) -> None:
        n = self.size()
        (ours, theirs), (parts, all_parts) = self.views(n), self.many(n, self.world)
        self.works.append(dist.reduce_scatter(ours, parts, async_op=True))
        write(theirs, [total(views) for views in all_parts])

    def reduce_scatter_single(self) -> None:
        n = self.size()
        (ours, theirs), (of, all_of) = self.views(n), self.views(n * self.world)
        self.works.append(reduce_scatter_single(ours, of, async_op=True))
        write(theirs, list(total(all_of).split(n)))

    def all_to_all_single(self) -> None:
        n = self.size() * self.world
        (ours, theirs), (of, all_of) = self.views(n, rows=True), self.views(n, rows=True)
        self.works.append(dist.all_to_all_single(ours, of, async_op=True))
        parts = [t.split(n // self.world) for t in (flat(t) for t in all_of)]
        write(theirs, [torch.cat([p[r] for p in parts]) for r in range(self.world)])

    def all_to_all(self) -> None:
        n = self.size()
        (into, all_into), (of, all_of) = self.many(n, self.world), self.many(n, self.world)
        self.works.append(dist.all_to_all(into, of, async_op=True))
        read = [[flat(t) for t in views] for views in all_of]  # read[to][from]
        for sender, views in enumerate(all_into):
            write(views, [read[r][sender] for r in range(self.world)])


def group() -> Any:
    return dist.group.WORLD


def flat(view: torch.Tensor) -> torch.Tensor:
    return view.reshape(-1).clone()


def total(views: Group) -> torch.Tensor:
    return torch.stack([flat(view) for view in views]).sum(0)


def write(views: Group, values: list[torch.Tensor]) -> None:
    for view, value in zip(views, values, strict=True):
        view.copy_(value.view(view.shape))


def write_rows(rows: list[Group], values: list[torch.Tensor]) -> None:
    """Gives block b of each rank the value b."""
    for views, value in zip(rows, values, strict=True):
        write(views, [value] * len(views))


KINDS = [name for name, of in vars(Calls).items() if callable(of) and not name.startswith("_")]
KINDS = [name for name in KINDS if name not in ("views", "many", "size", "root")]


def round_of(seed: str) -> None:
    rng = random.Random(seed)  # draws the same calls at all ranks
    # Draws which call this rank waits for, and when.
    own = random.Random(f"{seed} {dist.get_rank()}")
    calls = Calls(rng)
    done = []
    for _ in range(CALLS):
        kind = rng.choice(KINDS)
        done.append(kind)
        getattr(calls, kind)()
        if calls.works and own.random() < 0.2:
            own.choice(calls.works).wait()
    own.shuffle(calls.works)
    for work in calls.works:
        work.wait()
    assert torch.equal(calls.base, calls.model[calls.rank]), (seed, done, calls.base, calls.model)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("pawl", timeout=timedelta(seconds=60))
    seed, rounds = sys.argv[1:]
    for number in range(int(rounds)):
        round_of(f"{seed} {number}")
    print("> held", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
