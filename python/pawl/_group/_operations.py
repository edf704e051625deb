"""What the ranks of a group do together: collectives and messages, as torch names them.

Every method checks its tensors, hands addresses to libpawl and returns a Work. A tensor that is not
contiguous host memory goes through a copy of ours (_staging.py). A call for a device that another
backend was named for (``"cpu:gloo,cuda:pawl"``) goes to that backend.
"""

from __future__ import annotations

import functools
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch.autograd import profiler

from pawl import _core
from pawl._group import _coll, _events, _sparse, _staging
from pawl._group._beside import first_tensor
from pawl._group._forms import FORMS
from pawl._group._operands import check_alike, check_like, check_sizes, offsets, only, row_offsets
from pawl._group._pending import Pending, check_writable, conflict
from pawl._group._staging import block, host, is_plain, prepare, put_back, spread
from pawl._group._work import Completers, Work
from pawl.errors import error

if TYPE_CHECKING:
    from pawl._group._process_group import ProcessGroup

# The last works of small tensors are kept. torch's C++ may ask a work for its result when Python
# has released it, which fails: DDP's join does, for one number, after a backward pass.
RECENT_WORKS = 1024  # works that are kept
RECENT_NUMEL = 128  # elements of a small tensor, at most

Tensors = list[torch.Tensor]
_F = TypeVar("_F", bound=Callable[..., Any])


def _routed(old_name: str) -> Callable[[_F], _F]:
    """Decorates a method of the group.

    The call goes to the other backend of its tensors' device, which has the method under old_name,
    if one was named; a profiler sees it. Calls without lists and options are converted to those
    with them.
    """
    form = FORMS.get(old_name)

    def decorate(method: _F) -> _F:
        @functools.wraps(method)
        def call(self: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            if form is not None and not (args and type(args[-1]) is form.options):
                args, kwargs = form.bind(args, kwargs), {}
            if self._others:
                tensor = first_tensor(args)
                # A barrier has no tensor.
                device = tensor.device.type if tensor is not None else "cpu"
                if device in self._others:
                    return getattr(self._others[device], old_name)(*args, **kwargs)
            if profiler._is_profiler_enabled:
                return _events.record(self, old_name, method, args, kwargs)
            return method(self, *args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


class Operations:
    """The part of ProcessGroup that does collectives, and sends and receives messages."""

    _rank: int
    _ranks: int
    _timeout_s: float
    _coalesced: list[Work] | None
    _recent: deque[Work]
    _others: dict[str, Any]
    _group: _core.Group
    _completers: Completers
    _pending: Pending
    _releaser: _staging.Releaser

    # ---- operations ----

    def _submit(
        self,
        work: Work,
        kind: int,
        opts: Any = None,
        *,
        op: int = 0,
        dtype: int = 0,
        mean: bool = False,
        root: int = 0,
        tag: int = 0,
        nbytes: int = 0,
        source: torch.Tensor | None = None,
        target: torch.Tensor | None = None,
        parts: tuple[array[int], array[int]] | tuple[()] = (),
    ) -> None:
        """Submits one operation of a work; ``source`` and ``target`` are host memory."""
        if root < 0:
            raise error(
                "PAWL_EINVAL",
                f"collectives: {_coll.KINDS[kind]}: rank {root} of {self._ranks} ranks",
            )
        timeout = opts.timeout.total_seconds() if opts is not None else 0.0
        work.keep += (source, target)  # the caller may release its tensors
        if work.operation is not None:
            work.before += (work.operation,)
        work.operation = self._group.submit(
            kind,
            op,
            dtype,
            mean,
            root,
            tag,
            nbytes,
            source.data_ptr() if source is not None else 0,
            target.data_ptr() if target is not None else 0,
            timeout if timeout > 0 else self._timeout_s,
            work.ready is not None,
            work,
            *parts,
        )
        if work.ready is not None:
            self._releaser.add(work.ready, work.operation)

    def _work(self, outputs: Sequence[torch.Tensor], message: bool = False) -> Work:
        work = Work(outputs, self._completers, None if message else self._pending)
        if len(outputs) == 1 and outputs[0].numel() <= RECENT_NUMEL:
            self._recent.append(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _work_of(self, outputs: Sequence[torch.Tensor], kind: int, opts: Any = None) -> Work:
        work = self._work(outputs)
        self._submit(work, kind, opts)
        return work

    def _submit_reduction(
        self,
        work: Work,
        kind: int,
        opts: Any,
        source: torch.Tensor,
        target: torch.Tensor | None,
        nbytes: int,
        root: int = 0,
    ) -> None:
        op, dtype, mean = _coll.reduction(opts.reduceOp, source.dtype)
        self._submit(
            work,
            kind,
            opts,
            op=op,
            dtype=dtype,
            mean=mean,
            root=root,
            nbytes=nbytes,
            source=source,
            target=target,
        )

    def _reduce_all(self, work: Work, tensor: torch.Tensor, opts: Any) -> None:
        dtype = _coll.added_as(opts.reduceOp, tensor.dtype)
        memory = host(work, tensor, reads=True, writes=True, dtype=dtype)
        self._submit_reduction(work, _coll.ALL_REDUCE, opts, memory, memory, memory.nbytes)
        put_back(work, tensor, memory)

    @_routed("allreduce")
    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """Sums, or otherwise reduces, all ranks' tensors in place. Of several tensors: the sum of
        them all, in each of them.
        """
        if len(tensors) > 1:
            return self._reduce_several(tensors, opts)
        tensor = only("all_reduce", tensors)
        opts = opts or dist.AllreduceOptions()
        work = self._work(tensors)
        if tensor.is_sparse:
            _sparse.reduce(self, work, tensor, opts)
        else:
            self._reduce_all(work, tensor, opts)
        return work

    def _reduce_several(self, tensors: Tensors, opts: Any) -> Work:
        check_like("all_reduce", tensors)
        work = self._work(tensors)
        for tensor in tensors:
            prepare(work, tensor, writes=True)
        one = _coll.reduce_here(opts.reduceOp, [t.detach() for t in tensors])
        self._reduce_all(work, one, opts)
        for tensor in tensors:
            put_back(work, tensor, one)
        return work

    @_routed("allreduce_coalesced")
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduces each of several tensors as allreduce does."""
        work = self._work(tensors)
        for tensor in tensors:
            check_writable(tensor)
        into = self._pending.copies(tensors) if conflict(tensors) else tensors
        for tensor, apart in zip(tensors, into, strict=True):
            self._reduce_all(work, apart, opts or dist.AllreduceOptions())
            put_back(work, tensor, apart)
        return work

    @_routed("reduce")
    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduces all ranks' tensors, in place at the root; the others' tensors
        stay as they are.
        """
        tensor = only("reduce", tensors)
        work = self._work(tensors)
        dtype = _coll.added_as(opts.reduceOp, tensor.dtype)
        root = opts.rootRank == self._rank
        memory = host(work, tensor, reads=True, writes=root, dtype=dtype)
        self._reduce_to(work, memory, memory, opts.rootRank, opts)
        if root:
            put_back(work, tensor, memory)
        return work

    def _reduce_to(
        self, work: Work, source: torch.Tensor, target: torch.Tensor, root: int, opts: Any
    ) -> None:
        into = target if root == self._rank else None
        self._submit_reduction(work, _coll.REDUCE, opts, source, into, source.nbytes, root)

    @_routed("broadcast")
    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Sends the root's tensor to all ranks. Of several tensors: sends the one
        at opts.rootTensor to all.
        """
        if not 0 <= opts.rootTensor < len(tensors):
            raise error(
                "PAWL_EINVAL",
                f"collectives: broadcast: tensor {opts.rootTensor} of {len(tensors)}",
            )
        check_like("broadcast", tensors)
        tensor = tensors[opts.rootTensor]
        others = [t for i, t in enumerate(tensors) if i != opts.rootTensor]
        work = self._work(tensors)
        for other in others:
            prepare(work, other, writes=True)
        root = opts.rootRank == self._rank
        memory = host(work, tensor, reads=root, writes=not root)
        self._broadcast(work, memory, opts.rootRank, opts)
        for each in others if root else [tensor, *others]:
            put_back(work, each, memory)
        return work

    def _broadcast(self, work: Work, memory: torch.Tensor, root: int, opts: Any) -> None:
        self._submit(
            work,
            _coll.BROADCAST,
            opts,
            dtype=_coll.dtype_of(memory),
            root=root,
            nbytes=memory.nbytes,
            source=memory if root == self._rank else None,
            target=None if root == self._rank else memory,
        )

    # ---- blocks ----

    def _input(
        self, tensor: torch.Tensor, output: torch.Tensor, in_place: bool = True
    ) -> torch.Tensor:
        """The input of a call, or a copy of it if the output is written while it is read.

        ``in_place``: one of both may be this rank's block of the other.
        """
        if not (is_plain(tensor) and is_plain(output)):
            return tensor
        part, whole = sorted((tensor, output), key=torch.Tensor.numel)
        if in_place and part.data_ptr() == whole.data_ptr() + self._rank * part.nbytes:
            return tensor
        return self._pending.apart([tensor], [output])[0]

    def _gather_all(
        self, work: Work, output: torch.Tensor, tensor: torch.Tensor, opts: Any
    ) -> None:
        self._submit(
            work,
            _coll.ALL_GATHER,
            opts,
            dtype=_coll.dtype_of(tensor),
            nbytes=tensor.nbytes,
            source=tensor,
            target=output,
        )

    def gather_uneven(
        self, work: Work, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, opts: Any
    ) -> None:
        """Gathers tensors of different sizes: each is broadcast by its rank."""
        own = outputs[self._rank]
        if own.numel() != tensor.numel():
            raise error(
                "PAWL_EINVAL",
                f"collectives: all_gather: rank {self._rank} brings {tensor.numel()} elements, and "
                f"has room for {own.numel()}",
            )
        into = [torch.empty_like(t) for t in outputs] if conflict(outputs, [tensor]) else outputs
        self._pending.settle_all(work, tensor, writes=False)
        memories = [host(work, each, writes=True) for each in into]
        _staging.fetch(work, [(memories[self._rank].detach(), tensor.view(own.shape))])
        for root, memory in enumerate(memories):
            self._broadcast(work, memory, root, opts)
            put_back(work, into[root], memory)
            put_back(work, outputs[root], into[root])

    @_routed("allgather")
    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Gathers all ranks' tensors in a list. Of several tensors: each list holds all tensors of
        rank 0, then those of rank 1, and so on.
        """
        if len(inputs) > 1:
            return self._gather_several(outputs, inputs, opts)
        return self._gather_list(self._work(outputs[0]), outputs, inputs, opts)

    def _gather_several(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        n = len(inputs)
        if len(outputs) != n or any(len(row) != n * self._ranks for row in outputs):
            raise error(
                "PAWL_EINVAL",
                f"collectives: all_gather of {n} tensors by {self._ranks} ranks: takes {n} lists "
                f"of {n * self._ranks}; got lists of {[len(row) for row in outputs]}",
            )
        apart = self._pending.apart(inputs, [t for row in outputs for t in row])
        parts = [(row[i::n], t) for row in outputs for i, t in enumerate(apart)]
        return self._all_of(
            [self._gather_list(self._work(into), [into], [t], opts) for into, t in parts]
        )

    def _gather_list(self, work: Work, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        into, tensor = only("all_gather", outputs), only("all_gather", inputs)
        check_alike("all_gather", into, self._ranks)
        if any(t.numel() != tensor.numel() for t in into):
            self.gather_uneven(work, into, tensor, opts)
            return work
        memory = block(work, into, writes=True)
        self._gather_all(work, memory, host(work, tensor, reads=True), opts)
        spread(work, memory, into)
        return work

    @_routed("allgather_coalesced")
    def allgather_coalesced(
        self, outputs: list[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """Gathers several tensors; ``outputs[r][i]`` becomes tensor i of rank r."""
        apart = self._pending.apart(inputs, [t for row in outputs for t in row])
        works = [
            self._gather_list(
                self._work([row[i] for row in outputs]), [[row[i] for row in outputs]], [t], opts
            )
            for i, t in enumerate(apart)
        ]
        return self._all_of(works)

    @_routed("_allgather_base")
    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Gathers all ranks' tensors in one tensor, one after the other."""
        return self._gather_single(output, tensor, opts)

    def _gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        check_sizes("all_gather", output, tensor, self._ranks)
        tensor = self._input(tensor, output)
        work = self._work([output])
        memory = host(work, output, writes=True)
        self._gather_all(work, memory, host(work, tensor, reads=True), opts)
        put_back(work, output, memory)
        return work

    @_routed("allgather_into_tensor_coalesced")
    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        """Gathers several tensors, each as all_gather_single does."""
        apart = self._pending.apart(inputs, outputs)
        return self._all_of(
            [self._gather_single(o, i, opts) for o, i in zip(outputs, apart, strict=True)]
        )

    def _reduce_block(
        self, work: Work, output: torch.Tensor, source: torch.Tensor, opts: Any
    ) -> None:
        """Reduces blocks in host memory; ``output`` gets this rank's block of the sum."""
        memory = host(work, output, writes=True, dtype=source.dtype)
        self._submit_reduction(work, _coll.REDUCE_SCATTER, opts, source, memory, memory.nbytes)
        put_back(work, output, memory)

    def _reduce_uneven(
        self, work: Work, output: torch.Tensor, inputs: Sequence[torch.Tensor], opts: Any
    ) -> None:
        """Reduces tensors of different sizes, each to its rank."""
        dtype = _coll.added_as(opts.reduceOp, output.dtype)
        memory = host(work, output, writes=True, dtype=dtype)
        for root, tensor in enumerate(self._pending.apart(inputs, [output])):
            source = host(work, tensor, reads=True, dtype=dtype)
            self._reduce_to(work, source, memory, root, opts)
        put_back(work, output, memory)

    @_routed("reduce_scatter")
    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """Reduces all ranks' lists; ``outputs`` gets the element of this rank."""
        output, parts = only("reduce_scatter", outputs), only("reduce_scatter", inputs)
        check_alike("reduce_scatter", parts, self._ranks)
        work = self._work(outputs)
        if any(part.numel() != output.numel() for part in parts):
            check_sizes("reduce_scatter", parts[self._rank], output, 1)
            self._reduce_uneven(work, output, parts, opts)
        else:
            dtype = _coll.added_as(opts.reduceOp, output.dtype)
            self._reduce_block(work, output, block(work, parts, reads=True, dtype=dtype), opts)
        return work

    @_routed("_reduce_scatter_base")
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        """Reduces all ranks' tensors; ``output`` gets the part of this rank, in rank order."""
        return self._reduce_single(output, tensor, opts)

    def _reduce_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        check_sizes("reduce_scatter", tensor, output, self._ranks)
        tensor = self._input(tensor, output)
        work = self._work([output])
        dtype = _coll.added_as(opts.reduceOp, tensor.dtype)
        self._reduce_block(work, output, host(work, tensor, reads=True, dtype=dtype), opts)
        return work

    @_routed("reduce_scatter_tensor_coalesced")
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """Reduces several tensors, each as reduce_scatter_single does."""
        apart = self._pending.apart(inputs, outputs)
        return self._all_of(
            [self._reduce_single(o, i, opts) for o, i in zip(outputs, apart, strict=True)]
        )

    @_routed("gather")
    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Gathers all ranks' tensors in a list at the root."""
        tensor = only("gather", inputs)
        root = opts.rootRank == self._rank
        into = only("gather", outputs) if root else []
        work = self._work(into)
        memory = None
        if root:
            check_alike("gather", into, self._ranks)
            for each in into:
                check_sizes("gather", each, tensor, 1)
            memory = block(work, into, writes=True)
        self._gather_to(work, memory, tensor, opts)
        if memory is not None:
            spread(work, memory, into)
        return work

    def _gather_to(
        self, work: Work, memory: torch.Tensor | None, tensor: torch.Tensor, opts: Any
    ) -> None:
        """Submits a gather. ``memory``: at the root, room for all ranks' tensors,
        one after the other; elsewhere None.
        """
        self._submit(
            work,
            _coll.GATHER,
            opts,
            dtype=_coll.dtype_of(tensor),
            root=opts.rootRank,
            nbytes=tensor.nbytes,
            source=host(work, tensor, reads=True),
            target=memory,
        )

    @_routed("gather_single")
    def gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        """Gathers all ranks' tensors at the root, in one tensor. torch calls it
        from version 2.14 on.
        """
        root = opts.rootRank == self._rank
        if root:
            check_sizes("gather", output, tensor, self._ranks)
            tensor = self._input(tensor, output, in_place=False)
        work = self._work([output] if root else [])
        memory = host(work, output, writes=True) if root else None
        self._gather_to(work, memory, tensor, opts)
        if memory is not None:
            put_back(work, output, memory)
        return work

    @_routed("scatter")
    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """Sends each rank its element of a list at the root."""
        output = only("scatter", outputs)
        work = self._work(outputs)
        source = None
        if opts.rootRank == self._rank:
            parts = only("scatter", inputs)
            check_alike("scatter", parts, self._ranks)
            for part in parts:
                check_sizes("scatter", part, output, 1)
            source = block(work, parts, reads=True)
        memory = host(work, output, writes=True)
        self._submit(
            work,
            _coll.SCATTER,
            opts,
            dtype=_coll.dtype_of(output),
            root=opts.rootRank,
            nbytes=output.nbytes,
            source=source,
            target=memory,
        )
        put_back(work, output, memory)
        return work

    def _swap(
        self,
        work: Work,
        output: torch.Tensor,
        tensor: torch.Tensor,
        parts: tuple[array[int], array[int]],
        opts: Any,
    ) -> None:
        self._submit(
            work,
            _coll.ALL_TO_ALL,
            opts,
            dtype=_coll.dtype_of(tensor),
            source=tensor,
            target=output,
            parts=parts,
        )

    @_routed("alltoall_base")
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Sends rows of a tensor to each rank, and receives theirs."""
        parts = (
            row_offsets(tensor, input_splits, self._ranks, "input"),
            row_offsets(output, output_splits, self._ranks, "output"),
        )
        tensor = self._input(tensor, output, in_place=False)
        work = self._work([output])
        memory = host(work, output, writes=True)
        self._swap(work, memory, host(work, tensor, reads=True), parts, opts)
        put_back(work, output, memory)
        return work

    @_routed("alltoall")
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Sends a tensor to each rank, and receives theirs."""
        check_alike("all_to_all", outputs, self._ranks)
        check_alike("all_to_all", inputs, self._ranks)
        work = self._work(outputs)
        into = block(work, outputs, writes=True)
        parts = offsets(t.nbytes for t in inputs), offsets(t.nbytes for t in outputs)
        self._swap(work, into, block(work, inputs, reads=True), parts, opts)
        spread(work, into, outputs)
        return work

    # ---- messages ----

    @_routed("send")
    def send(self, tensors: Tensors, peer: int, tag: int) -> Work:
        """Sends a tensor to one rank, which receives it with the same tag."""
        tensor = only("send", tensors)
        work = self._work(tensors, message=True)
        self._submit(
            work,
            _coll.SEND,
            dtype=_coll.dtype_of(tensor),
            root=peer,
            tag=tag,
            nbytes=tensor.nbytes,
            source=host(work, tensor, reads=True),
        )
        return work

    def _receive(self, tensors: Tensors, peer: int, tag: int) -> Work:
        tensor = only("recv", tensors)
        work = self._work(tensors, message=True)
        memory = host(work, tensor, writes=True)
        self._submit(
            work,
            _coll.RECEIVE,
            dtype=_coll.dtype_of(tensor),
            root=peer,
            tag=tag,
            nbytes=tensor.nbytes,
            target=memory,
        )
        put_back(work, tensor, memory)
        return work

    @_routed("recv")
    def recv(self, tensors: Tensors, peer: int, tag: int) -> Work:
        """Receives a tensor from one rank."""
        return self._receive(tensors, peer, tag)

    @_routed("recv_anysource")
    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        """Receives a tensor from any rank."""
        return self._receive(tensors, _coll.ANY_RANK, tag)

    # ---- of no tensors, and of several works ----

    @_routed("barrier")
    def barrier(self, opts: Any = None) -> Work:
        """Waits until all ranks have called it."""
        return self._work_of([], _coll.BARRIER, opts)

    def _all_of(self, works: Sequence[Work]) -> Work:
        """A work that is over when all of these are."""
        work = Work([t for w in works for t in w.outputs], self._completers)
        work.operation = works[-1].operation if works else None
        work.parts = works
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return self._all_of(works)

    # Names of methods in torch up to 2.12.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    # Names of methods in torch from 2.14 on.
    recvAnysource = recv_anysource
    start_coalescing = _start_coalescing
    end_coalescing = _end_coalescing
