"""A parameter server: workers send gradients to servers, which have parameters and optimizer.

Stale synchronous parallel: Q. Ho et al., More Effective Distributed ML via a Stale Synchronous
Parallel Parameter Server, NeurIPS 2013.

The parameters of an optimizer's group that are of one type are one vector. Each server has an equal
cut of each vector, to 64 bytes, and an optimizer of its own for its cuts. A worker and a server are
a process group of two, so that the failure of a worker does not affect another one.

A step of a worker sends to each server the settings of its optimizer, and the pieces of the
gradient that are in the server's cuts; the same pieces of the parameters come back once the worker
may go on. A large parameter is sent and received in place; small ones go together, by a copy.

A server has a thread for each worker, which receives, applies and answers. One lock guards clocks,
optimizer and parameters; answers are sent without it, so that a slow worker delays no other one:
the parameters it gets may be newer in one place than in another, but nowhere older than the bound.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer

from pawl._core import PawlError
from pawl._group import _register
from pawl._group._process_group import make
from pawl.errors import error

# Optimizers that treat each element by itself, so that cuts may lie anywhere.
ELEMENTWISE: Final = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
)
GRANULE: Final = 64  # bytes; a cut consists of whole granules
LARGE: Final = 64 << 10  # bytes; a parameter of this size or more is sent by itself
_ALWAYS = timedelta(days=3650)  # a worker may take its time; heartbeats show whether it is alive
_LOOK = timedelta(seconds=0.1)  # wait for one server, before looking at the others
_SETTINGS, _GRADIENT, _PARAMETERS = range(3)  # tags of messages
_STEP, _LEAVE = 1.0, 0.0  # first element of the settings


# ---- layout ----


class Entry:
    """Parameters that are sent together: one large one, or all small ones."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        first = parameters[0]
        self.parameters = parameters
        self.numel = sum(p.numel() for p in parameters)
        self._plain = len(parameters) == 1 and first.is_cpu and first.is_contiguous()
        # Buffer in host memory for received parameters; None: they are received in place.
        self._host: torch.Tensor | None = None
        if not self._plain:
            self._host = torch.empty(self.numel, dtype=first.dtype, device="cpu")

    def values(self) -> torch.Tensor:
        """A copy of the parameters, flat, in host memory."""
        return torch.cat([p.detach().reshape(-1).cpu() for p in self.parameters])

    def gradient(self) -> torch.Tensor:
        """The gradient, flat, in host memory; zeros for a parameter without one."""
        flat = [_gradient_of(p).reshape(-1).cpu() for p in self.parameters]
        return flat[0] if len(flat) == 1 else torch.cat(flat)

    def target(self) -> torch.Tensor:
        """Memory to receive the parameters in, flat; call settle afterwards."""
        return self.parameters[0].detach().view(-1) if self._host is None else self._host

    def settle(self) -> None:
        """Copies received values to the parameters."""
        if self._host is not None:
            parts = self._host.split([p.numel() for p in self.parameters])
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.detach().copy_(part.view(parameter.shape))


def _gradient_of(parameter: nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    if parameter.grad.layout is not torch.strided:
        raise error("PAWL_ENOTSUP", "parameter server: sparse gradients: make them dense")
    return parameter.grad.detach()


class Vector:
    """The entries of one group of the optimizer that are of one type, one after the other."""

    def __init__(self, group: int, parameters: Sequence[nn.Parameter]) -> None:
        small = [p for p in parameters if p.nbytes < LARGE]
        self.group = group  # number of the optimizer's group
        self.entries = [Entry([p]) for p in parameters if p.nbytes >= LARGE]
        if small:
            self.entries.append(Entry(small))
        self.numel = sum(entry.numel for entry in self.entries)
        self.granule = GRANULE // parameters[0].itemsize  # elements in a granule

    def cut(self, server: int, servers: int) -> tuple[int, int]:
        """The range of elements that a server has."""
        granules = -(-self.numel // self.granule)
        low, high = (granules * i // servers * self.granule for i in (server, server + 1))
        return min(low, self.numel), min(high, self.numel)

    def pieces(self, server: int, servers: int) -> Iterator[tuple[int, int, int]]:
        """(entry, from, to) of each piece of a server's cut, in elements of entries."""
        low, high = self.cut(server, servers)
        begin = 0
        for index, entry in enumerate(self.entries):
            start, end = max(low - begin, 0), min(high - begin, entry.numel)
            if start < end:
                yield index, start, end
            begin += entry.numel


def lay_out(optimizer: Optimizer) -> list[Vector]:
    """The vectors of all parameters of an optimizer that are trained."""
    vectors = []
    for number, group in enumerate(optimizer.param_groups):
        by_type: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.numel() > 0:
                by_type.setdefault(parameter.dtype, []).append(parameter)
        vectors += [Vector(number, parameters) for parameters in by_type.values()]
    return vectors


# ---- settings of an optimizer ----


def read_settings(optimizer: Optimizer) -> list[float]:
    """All numbers that a scheduler may change, in a fixed order."""
    numbers: list[float] = []
    for group in optimizer.param_groups:
        for name in _numeric(optimizer):
            value = group[name]
            numbers += map(float, value if isinstance(value, (tuple, list)) else [value])
    return numbers


def write_settings(optimizer: Optimizer, numbers: Sequence[float]) -> None:
    """Sets the numbers that read_settings returned."""
    left = iter(numbers)
    for group in optimizer.param_groups:
        for name in _numeric(optimizer):
            if isinstance(group[name], (tuple, list)):
                group[name] = tuple(next(left) for _ in group[name])
            else:
                group[name] = next(left)


def _numeric(optimizer: Optimizer) -> list[str]:
    def is_number(value: Any) -> bool:
        return isinstance(value, (int, float, torch.Tensor)) and not isinstance(value, bool)

    return [
        name
        for name, value in sorted(optimizer.defaults.items())
        if is_number(value) or (isinstance(value, (tuple, list)) and all(map(is_number, value)))
    ]


# ---- a worker and a server ----


class Link:
    """One end of the process group of a worker and a server."""

    def __init__(self, worker: int, server: int, store: dist.Store) -> None:
        at_worker = dist.get_rank() == worker
        self._peer = 1 if at_worker else 0
        self._name = f"rank {self._peer} "  # the group's name for the peer
        self._whose = f"server rank {server}" if at_worker else f"worker rank {worker}"
        store = dist.PrefixStore(f"{worker}/{server}/", store)
        self._group = make(store, 1 - self._peer, 2, _ALWAYS)

    def send(self, tensor: torch.Tensor, tag: int) -> dist.Work:
        return self._group.send([tensor], self._peer, tag)

    def receive(self, tensor: torch.Tensor, tag: int) -> dist.Work:
        return self._group.recv([tensor], self._peer, tag)

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Renames ranks in the group's errors: messages name the rank of all ranks."""
        try:
            yield
        except PawlError as reason:
            text = str(reason)
            _, ours, why = text.rpartition(f": rank {1 - self._peer} is lost: ")
            what = f"took this rank for lost: {why}" if ours else text.rpartition(self._name)[2]
            raise error("PAWL_EPEER", f"parameter server: {self._whose} {what}") from reason

    def close(self) -> None:
        self._group.shutdown()


def _is_over(work: dist.Work) -> bool:
    """Waits for _LOOK; returns whether the work is over. Raises the work's error."""
    try:
        return work.wait(_LOOK)
    except PawlError:  # raised because it was not over; it may be by now
        return work.is_completed() and work.wait()


# ---- a server ----


class Server:
    """A server's cuts of all vectors, their optimizer, and each worker's progress."""

    def __init__(
        self,
        optimizer: Optimizer,
        vectors: Sequence[Vector],
        place: tuple[int, int],
        links: dict[int, Link],
        staleness: int,
    ) -> None:
        """``place``: number of this server, number of servers; ``links``: by worker."""
        self._vectors, self._place = vectors, place
        self._links = links
        self._staleness = staleness
        self._settings = 1 + len(read_settings(optimizer))
        self._parameters = [self._cut_of(vector) for vector in vectors]
        self._optimizer = self._make(optimizer)
        self._changed = threading.Condition()  # guards the fields below, and the two above
        self._clocks = dict.fromkeys(links, 0)  # worker that has not left -> number of its steps
        # Worker -> settings and gradient for the next mean.
        self._arrived: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self._ended = False  # True: the server is ending
        self.lost: dict[int, str] = {}  # worker -> reason of its loss

    def _cut_of(self, vector: Vector) -> nn.Parameter:
        low, high = vector.cut(*self._place)
        whole = torch.cat([entry.values() for entry in vector.entries])
        return nn.Parameter(whole[low:high].clone())

    def _make(self, optimizer: Optimizer) -> Optimizer:
        """An optimizer like the given one, for the cuts, which are in host memory."""
        groups = []
        for number, group in enumerate(optimizer.param_groups):
            options = {n: v for n, v in group.items() if n not in ("params", "capturable")}
            cuts = zip(self._vectors, self._parameters, strict=True)
            options["params"] = [p for v, p in cuts if v.group == number and p.numel() > 0]
            groups.append(options)
        made = type(optimizer)(groups)
        write_settings(made, read_settings(optimizer))
        return made

    def run(self) -> None:
        """Serves until all workers have left, or are lost."""
        with concurrent.futures.ThreadPoolExecutor(len(self._links)) as pool:
            try:
                ends = [pool.submit(self._serve, worker) for worker in self._links]
                for end in concurrent.futures.as_completed(ends):
                    end.result()
            finally:
                with self._changed:
                    self._ended = True
                    self._changed.notify_all()
                for link in self._links.values():
                    link.close()

    def _pieces(self, cuts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The messages in which a gradient, or the parameters, are sent."""
        found: list[torch.Tensor] = []
        for vector, cut in zip(self._vectors, cuts, strict=True):
            found += cut.split([end - start for _, start, end in vector.pieces(*self._place)])
        return [piece for piece in found if piece.numel() > 0]

    def _serve(self, worker: int) -> None:
        link = self._links[worker]
        settings = torch.empty(self._settings, dtype=torch.float64, device="cpu")
        gradient = [torch.empty_like(p.detach()) for p in self._parameters]
        come, go = self._pieces(gradient), self._pieces([p.detach() for p in self._parameters])
        try:
            with link.naming():
                while self._receive_step(link, settings, come):
                    self._count(worker, settings, gradient)
                    for work in [link.send(piece, _PARAMETERS) for piece in go]:
                        work.wait()
        except PawlError as reason:
            if not self._ended:
                self.lost[worker] = str(reason)
                print(f"pawl: {reason}; the others go on", file=sys.stderr, flush=True)
        finally:
            with self._changed:
                del self._clocks[worker]
                self._take_mean()
                self._changed.notify_all()

    def _receive_step(
        self, link: Link, settings: torch.Tensor, come: Sequence[torch.Tensor]
    ) -> bool:
        """Receives a step of a worker; False: the worker leaves."""
        works = [link.receive(settings, _SETTINGS)]
        works += [link.receive(piece, _GRADIENT) for piece in come]
        works[0].wait()
        if settings[0] == _LEAVE:
            return False
        for work in works:
            work.wait()
        return True

    def _count(self, worker: int, settings: torch.Tensor, gradient: list[torch.Tensor]) -> None:
        """Counts a worker's step and applies its gradient; returns when the worker may go on."""
        with self._changed:
            self._clocks[worker] += 1
            if self._staleness == 0:
                self._arrived[worker] = (settings, gradient)
                self._take_mean()
            else:
                self._take(settings, gradient, 1 / len(self._clocks))
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._may_go_on(worker))

    def _may_go_on(self, worker: int) -> bool:
        return self._clocks[worker] - min(self._clocks.values()) <= self._staleness

    def _take_mean(self) -> None:
        """Once all workers have sent a gradient: one step with their mean, added in rank order."""
        if not self._arrived or self._clocks.keys() - self._arrived.keys():
            return
        (settings, total), *others = (self._arrived[worker] for worker in sorted(self._arrived))
        for _, gradient in others:
            torch._foreach_add_(total, gradient)
        torch._foreach_div_(total, len(self._arrived))
        self._arrived.clear()
        self._take(settings, total, 1.0)

    def _take(self, settings: torch.Tensor, gradient: Sequence[torch.Tensor], rate: float) -> None:
        """A step of the optimizer, at this fraction of the learning rate."""
        for parameter, part in zip(self._parameters, gradient, strict=True):
            parameter.grad = part
        write_settings(self._optimizer, settings[1:].tolist())
        for group in self._optimizer.param_groups:
            group["lr"] *= rate
        self._optimizer.step()


# ---- the public class ----


class ParameterServer:
    """Workers that train one model through servers, without waiting for each other more than asked.

        server = pawl.distributed.ParameterServer(model, optimizer, servers=2, staleness=4)
        if server.serving:
            server.serve()
        else:
            for batch in batches:
                optimizer.zero_grad()
                loss(model(batch)).backward()
                server.step()  # in place of optimizer.step()
            server.leave()

    All ranks make one, with the same model and the same new optimizer. The last ``servers`` of them
    serve, the others (``workers``) train; all begin with rank 0's parameters and buffers. A worker
    is at most ``staleness`` steps ahead of the slowest one that is there. With 0, servers take one
    step with the mean of all workers' gradients, as synchronous training does. With more, they take
    one with each gradient as it comes, at the learning rate divided by the number of workers, so
    that these move the parameters as far as their mean would.

    A worker that dies is named by the servers, and the others go on. A server that dies is named by
    a PawlError at every worker. Optimizers: those that treat each element by itself (ELEMENTWISE).

    Raises PawlError for wrong arguments, and where ranks' arguments differ.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, *, servers: int = 1, staleness: int = 0
    ) -> None:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        _check(model, optimizer, servers, staleness, ranks)
        _register.register()
        self.workers = ranks - servers
        self.serving = rank >= self.workers
        self._optimizer = optimizer
        self._vectors = lay_out(optimizer)
        self._servers = servers
        store = _begin_alike(model, self._describe(staleness))
        if self.serving:
            links = {worker: Link(worker, rank, store) for worker in range(self.workers)}
            place = (rank - self.workers, servers)
            self._server = Server(optimizer, self._vectors, place, links, staleness)
        else:
            self._links = [Link(rank, self.workers + i, store) for i in range(servers)]

    def _describe(self, staleness: int) -> list[Any]:
        """Values that must be the same at all ranks."""
        shapes = [
            [(str(p.dtype), *p.shape) for e in v.entries for p in e.parameters]
            for v in self._vectors
        ]
        return [self._servers, staleness, type(self._optimizer).__name__, shapes]

    @property
    def lost(self) -> dict[int, str]:
        """At a server: workers that did not leave by themselves, each with the reason."""
        return dict(self._server.lost) if self.serving else {}

    def serve(self) -> None:
        """At a server: serves until all workers have left, or are lost. Raises
        PawlError at a worker.
        """
        if not self.serving:
            raise error("PAWL_EINVAL", "parameter server: this rank is a worker: step()")
        self._server.run()

    def step(self) -> None:
        """At a worker: sends the gradients, and receives the parameters as of this step or later.

        If it raises PawlError, some parameters may be newer than others.
        """
        self._check_worker()
        gradients = [[entry.gradient() for entry in v.entries] for v in self._vectors]
        settings = torch.tensor(
            [_STEP, *read_settings(self._optimizer)], dtype=torch.float64, device="cpu"
        )
        for server, link in enumerate(self._links):
            with link.naming():
                link.send(settings, _SETTINGS)
                for piece in self._pieces(gradients, server):
                    link.send(piece, _GRADIENT)
        self._announce()
        targets = [[entry.target() for entry in v.entries] for v in self._vectors]
        works = []
        for server, link in enumerate(self._links):
            with link.naming():
                pieces = self._pieces(targets, server)
                works += [(link, link.receive(piece, _PARAMETERS)) for piece in pieces]
        _await(works)
        for vector in self._vectors:
            for entry in vector.entries:
                entry.settle()

    def leave(self) -> None:
        """At a worker: leaves; it no longer counts. Its model keeps the
        parameters of its last step.
        """
        self._check_worker()
        goodbye = torch.full(
            (1 + len(read_settings(self._optimizer)),), _LEAVE, dtype=torch.float64, device="cpu"
        )
        for link in self._links:
            with link.naming():
                link.send(goodbye, _SETTINGS).wait()
            link.close()
        self._links = []

    def _check_worker(self) -> None:
        if self.serving:
            raise error("PAWL_EINVAL", "parameter server: this rank is a server: serve()")
        if not self._links:
            raise error("PAWL_EINVAL", "parameter server: this worker has left")

    def _pieces(self, entries: list[list[torch.Tensor]], server: int) -> Iterator[torch.Tensor]:
        for vector, tensors in zip(self._vectors, entries, strict=True):
            for index, start, end in vector.pieces(server, self._servers):
                yield tensors[index][start:end]

    def _announce(self) -> None:
        """Makes a step of the worker's own optimizer, without gradients, before parameters change.

        The step changes nothing, but its hooks run: those of schedulers, and of a
        save that is still copying.
        """
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        kept = [p.grad for p in parameters]
        for parameter in parameters:
            parameter.grad = None
        self._optimizer.step()
        for parameter, gradient in zip(parameters, kept, strict=True):
            parameter.grad = gradient


def _await(works: Sequence[tuple[Link, dist.Work]]) -> None:
    """Waits for all works. While one server's is waited for, the loss of another
    server is noticed.
    """
    for link, work in works:
        with link.naming():
            over = _is_over(work)
        while not over:
            for other, its in works:
                with other.naming():
                    if its.is_completed():
                        its.wait()
            with link.naming():
                over = _is_over(work)


def _check(
    model: nn.Module, optimizer: Optimizer, servers: int, staleness: int, ranks: int
) -> None:
    if not 1 <= servers < ranks or staleness < 0:
        raise error(
            "PAWL_EINVAL",
            f"parameter server: servers={servers}, staleness={staleness} of {ranks} ranks: "
            "there must be at least one server and one worker, and staleness must be 0 or more",
        )
    if isinstance(model, DistributedDataParallel):
        raise error(
            "PAWL_EINVAL",
            "parameter server: the model is in DistributedDataParallel, whose ranks exchange "
            "gradients themselves: pass the module itself",
        )
    if type(optimizer) not in ELEMENTWISE:
        names = ", ".join(known.__name__ for known in ELEMENTWISE)
        raise error(
            "PAWL_ENOTSUP",
            f"parameter server: {type(optimizer).__name__} may need more of a parameter than the "
            f"part that a server has: use one of {names}",
        )
    # Adagrad's step begins at 0.
    if any(entry.get("step", 1) > 0 for entry in optimizer.state.values()):
        raise error(
            "PAWL_ENOTSUP",
            "parameter server: the optimizer has stepped or was loaded, but servers begin with a "
            "new one: pass a new one",
        )
    of_model = set(model.parameters())
    if any(p not in of_model for group in optimizer.param_groups for p in group["params"]):
        raise error(
            "PAWL_EINVAL", "parameter server: the optimizer has parameters of another model"
        )


def _begin_alike(model: nn.Module, mine: list[Any]) -> dist.Store:
    """Checks that all ranks' arguments are the same, and gives all ranks rank 0's
    parameters and buffers.

    Returns the store by which links meet.
    """
    group: Any = dist.new_group(backend="pawl")
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine, group=group)
    for rank, theirs in enumerate(every):
        if theirs != every[0]:
            raise error(
                "PAWL_EMISMATCH",
                f"parameter server: rank {rank} has other servers, staleness, optimizer or "
                f"parameters than rank 0: {theirs[:3]} and {every[0][:3]}",
            )
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0, group=group)
    store = group.get_group_store()
    dist.destroy_process_group(group)
    return store
