"""Ranks that suffer an injection: test_injections.py chooses it, and watches.

Without arguments, this program is a nursery: it has torch loaded and no threads, reads one order
after another (a line of JSON, class Order), and forks a rank for each. With the file of an order as
its argument, it is a rank that a launcher has started. A rank reports its progress to a file, as
lines of JSON.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # DDP imports it when it is made
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import pawl

CLONE_NEWNET = 0x40000000
VOTE_EVERY = 16  # operations
SHUTDOWN = {"shutdown kill": "KILL", "shutdown stop": "STOP"}


@dataclass
class Order:
    """What a rank is ordered to do."""

    seed: int
    folder: str  # directory of the ranks' files; a file "end" in it lets all stop
    saves: bool = False  # save checkpoints, too
    least: int = 1  # least number of ranks to go on with
    how: str = ""  # what the victim does by itself; "": nothing
    victim: int = -1
    at: int = 0  # number of the operation before which the victim acts; 0: none
    # Seconds over which ranks leave, once a file "leave" is in the folder; below 0: at once.
    apart_s: float = -1
    destroys: bool = True  # destroy the group before the end; otherwise the interpreter's exit does
    limit_s: float = 60
    network: str = ""  # the rank's network namespace
    env: dict[str, str] = field(default_factory=dict)


# ---- operations: each is done by all ranks, and knows its right result ----

Operation = Callable[["Run", int, int, torch.dtype], None]
OPERATIONS: dict[str, Operation] = {}
PLAIN = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter"]


def operation(function: Operation) -> Operation:
    OPERATIONS[function.__name__] = function
    return function


def pattern(size: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns small whole numbers: their sums are exact in every type."""
    return ((torch.arange(size) + 3 * rank) % 7).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor, what: str) -> None:
    if not torch.equal(a, b):
        raise AssertionError(f"{what}: a wrong result")


class Run:
    """The state of a rank."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.every = range(self.ranks)
        self.model = DDP(nn.Linear(30, 70, bias=False))
        self.ckpt = pawl.Checkpointer(Path(order.folder) / "root", keep=2) if order.saves else None


def sum_of(run: Run, size: int, dtype: torch.dtype, shift: int = 0) -> torch.Tensor:
    return sum((pattern(size, r + shift, dtype) for r in run.every), torch.zeros(size, dtype=dtype))


@operation
def all_reduce(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    tensor = pattern(size, run.rank, dtype)
    dist.all_reduce(tensor)
    same(tensor, sum_of(run, size, dtype), "all_reduce")


@operation
def broadcast(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    root = number % run.ranks
    tensor = pattern(size, run.rank, dtype)
    dist.broadcast(tensor, root)
    same(tensor, pattern(size, root, dtype), "broadcast")


@operation
def all_gather(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    into = [torch.empty(size, dtype=dtype) for _ in run.every]
    dist.all_gather(into, pattern(size, run.rank, dtype))
    for r, part in enumerate(into):
        same(part, pattern(size, r, dtype), "all_gather")


@operation
def reduce_scatter(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    output = torch.empty(size, dtype=dtype)
    dist.reduce_scatter(output, [pattern(size, run.rank + to, dtype) for to in run.every])
    same(output, sum_of(run, size, dtype, run.rank), "reduce_scatter")


@operation
def gather(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    root = number % run.ranks
    parts = [torch.empty(size, dtype=dtype) for _ in run.every] if run.rank == root else None
    dist.gather(pattern(size, run.rank, dtype), parts, dst=root)
    for r, part in enumerate(parts or []):
        same(part, pattern(size, r, dtype), "gather")


@operation
def scatter(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    root = number % run.ranks
    output = torch.empty(size, dtype=dtype)
    parts = [pattern(size, to, dtype) for to in run.every] if run.rank == root else None
    dist.scatter(output, parts, src=root)
    same(output, pattern(size, run.rank, dtype), "scatter")


@operation
def all_to_all(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    output = torch.empty(run.ranks * size, dtype=dtype)
    dist.all_to_all_single(
        output, torch.cat([pattern(size, run.rank + r, dtype) for r in run.every])
    )
    same(output, torch.cat([pattern(size, r + run.rank, dtype) for r in run.every]), "all_to_all")


@operation
def barrier(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    dist.barrier()


@operation
def messages(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    """Sends a message to the next rank of the ring, and receives one from the rank before."""
    after, before = (run.rank + 1) % run.ranks, (run.rank - 1) % run.ranks
    into = torch.empty(size, dtype=dtype)
    works = [
        dist.irecv(into, before, tag=number),
        dist.isend(pattern(size, run.rank, dtype), after, tag=number),
    ]
    for work in works:
        work.wait()
    same(into, pattern(size, before, dtype), "messages")


@operation
def step(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    run.model.zero_grad()
    run.model(torch.full((2, 30), float(run.rank + 1))).sum().backward()
    gradient = next(run.model.parameters()).grad
    assert gradient is not None
    wanted = torch.full((70, 30), run.ranks + 1.0)  # two rows, of the mean rank
    # DDP divides by the ranks before the sum.
    if not torch.allclose(gradient, wanted, rtol=2e-6, atol=0):
        raise AssertionError(f"DDP: {gradient.flatten()[0]} for {wanted[0, 0]}")


@operation
def save(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    if run.ckpt is not None:
        run.ckpt.save(number, {"weights": torch.full((1000,), float(number))})


@operation
def vote(run: Run, number: int, size: int, dtype: torch.dtype) -> None:
    """Returns whether all ranks may stop: they must do so before the same operation."""
    over = torch.tensor((Path(run.order.folder) / "end").exists())
    dist.all_reduce(over, dist.ReduceOp.MAX)
    if over:
        raise StopIteration


Call = tuple[str, int, int, torch.dtype]


def draw_calls(order: Order) -> Iterator[Call]:
    """Draws the same calls for all ranks. No two neighbours are alike, so that a rank that skips
    one is noticed."""
    rng = random.Random(order.seed)
    for number in itertools.count():
        name = rng.choice(list(OPERATIONS)[:-1])
        if number % VOTE_EVERY == VOTE_EVERY - 1:
            name = "vote"
        if order.at > 0 and abs(number - order.at) <= 1:
            name = rng.choice(PLAIN)
        size = rng.choice((1, 50, 1000, 40_000)) + number % 50
        dtype = rng.choice((torch.float32, torch.bfloat16, torch.int64))
        yield name, number, size, dtype


# ---- what a victim does by itself ----


def call(run: Run, one: Call) -> None:
    name, number, size, dtype = one
    OPERATIONS[name](run, number, size, dtype)


def misbehave(run: Run, how: str, one: Call, following: Call) -> None:
    name, number, size, dtype = one
    say(run.order, run.rank, "misbehaves", what=f"{how} at {name} of {size} {dtype}")
    if how == "exit":
        sys.exit(0)
    elif how == "leave":
        dist.destroy_process_group()
        sys.exit(0)
    elif how == "skip":
        pass
    elif how == "kind":
        other = PLAIN[(PLAIN.index(name) + 1 + size % (len(PLAIN) - 1)) % len(PLAIN)]
        OPERATIONS[other](run, number, size, dtype)
    elif how == "shape":
        OPERATIONS[name](run, number, size + 1, dtype)
    elif how == "dtype":  # as many bytes as the others
        OPERATIONS[name](
            run, number, size, {8: torch.float64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
        )
    elif how == "order":
        call(run, following)
        call(run, one)


# ---- a rank ----


def make_striker(order: Order) -> subprocess.Popen[str]:
    """Ends or stops this process a while after a line was written to it."""
    after_s = random.Random(order.seed).uniform(0, order.apart_s)
    strike = f"read _ && sleep {after_s} && kill -{SHUTDOWN[order.how]} {os.getpid()}"
    return subprocess.Popen(["sh", "-c", strike], stdin=subprocess.PIPE, text=True)


def leave(order: Order, rank: int, striker: subprocess.Popen[str] | None) -> None:
    """Leaves at a moment of this rank's own, while other ranks do the same and something may
    happen."""
    while not (Path(order.folder) / "leave").exists():
        time.sleep(0.001)  # pace
    if striker is not None:
        say(order, rank, "misbehaves", what=order.how)
        assert striker.stdin is not None
        striker.stdin.write("now\n")
        striker.stdin.flush()
    time.sleep(random.Random(f"{order.seed}.{rank}").uniform(0, order.apart_s))  # pace


def say(order: Order, rank: int, said: str, **more: object) -> None:
    line = json.dumps({"said": said, "pid": os.getpid(), "t": time.monotonic(), **more})
    with open(f"{order.folder}/rank{rank}", "a") as out:
        out.write(line + "\n")


def go_on(order: Order) -> None:
    """Shrinks the group to the ranks that are left, and checks one sum."""
    rank = dist.get_rank()
    group = dist.group.WORLD.shrink(least=order.least, timeout=timedelta(seconds=order.limit_s))
    left = dist.get_process_group_ranks(group)
    tensor = pattern(1000, rank)
    dist.all_reduce(tensor, group=group)
    same(tensor, sum(pattern(1000, r) for r in left), f"all_reduce of {left}")
    say(order, rank, "shrunk", left=left)
    group.shutdown()


def train(run: Run) -> None:
    calls = draw_calls(run.order)
    one, following = next(calls), next(calls)
    while True:
        if run.order.at > 0 and run.rank == run.order.victim and one[1] == run.order.at:
            misbehave(run, run.order.how, one, following)
            if run.order.how == "order":
                following = next(calls)
        else:
            call(run, one)
        one, following = following, next(calls)


def end(order: Order, rank: int, striker: subprocess.Popen[str] | None) -> None:
    """Runs as the last exit handler, after all of Pawl's."""
    if striker is not None:
        striker.wait()
    say(order, rank, "ends")
    if order.env:
        # A fork would take a second of CPU to free torch's modules, which copies all their pages.
        os._exit(0)


def run_rank(order: Order) -> None:
    rank = int(os.environ["RANK"])
    folder = Path(order.folder)
    stacks = os.open(folder / f"stacks{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    striker = None
    if order.how in SHUTDOWN and rank == order.victim:
        striker = make_striker(order)
    atexit.register(end, order, rank, striker)  # registered before all others, and so called last
    say(order, rank, "starts")
    dist.init_process_group("pawl", timeout=timedelta(seconds=order.limit_s))
    run = None
    try:
        run = Run(order)
        say(order, rank, "begins")
        train(run)
    except StopIteration:
        say(order, rank, "done")
    except RuntimeError as error:
        say(order, rank, "error", text=str(error))
        try:
            go_on(order)
        except RuntimeError as second:
            say(order, rank, "alone", text=str(second))
    except AssertionError as wrong:
        say(order, rank, "wrong", text=str(wrong))
    if order.apart_s >= 0:
        leave(order, rank, striker)
    if not order.destroys:
        sys.exit(0)
    if run is not None and run.ckpt is not None:
        with contextlib.suppress(pawl.NotDurable):
            run.ckpt.close(timeout=0.1)
    dist.destroy_process_group()


# ---- the nursery ----


def enter(network: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{network}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"enter {network}")


def become(order: Order) -> None:
    """Makes a child of the nursery a rank, as if it had been started by itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(order.env)
    if order.network:
        enter(order.network)
    out = os.open(f"{order.folder}/output", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, of in ((0, null), (1, out), (2, out)):
        os.dup2(of, fd)
    run_rank(order)


def nurse() -> None:
    """Prints that it is ready, then the process id of each rank; nobody waits for the ranks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            become(Order(**json.loads(line)))
            sys.exit(0)
        print(pid, flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        run_rank(Order(**json.loads(Path(sys.argv[1]).read_text())))
    else:
        nurse()


if __name__ == "__main__":
    main()
