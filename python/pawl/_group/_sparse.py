"""Sums of sparse tensors: all ranks' numbers are gathered, then added by every
rank in one order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pawl._group import _coll
from pawl.errors import error

if TYPE_CHECKING:
    from pawl._group._process_group import ProcessGroup
    from pawl._group._work import Work


def reduce(group: ProcessGroup, work: Work, tensor: torch.Tensor, opts: Any) -> None:
    """Makes a work all ranks' sum, or mean, of a COO tensor, in place.

    Waits until each rank's number of elements is known. They are added on the host, in the ranks'
    order. Raises PawlError: PAWL_ENOTSUP for other operations, PAWL_EMISMATCH where ranks bring
    tensors of different shapes.
    """
    mean = _coll.sparse_mean(opts.reduceOp, tensor.dtype)
    mine = tensor.detach().cpu().coalesce()
    counts = _counts(group, mine, opts)
    indices = [mine.indices().new_empty(mine.sparse_dim(), n) for n in counts]
    values = [mine.values().new_empty(n, *mine.values().shape[1:]) for n in counts]
    group.gather_uneven(work, indices, mine.indices().contiguous(), opts)
    group.gather_uneven(work, values, mine.values().contiguous(), opts)

    def add() -> None:
        # Waits for copies from a device whose tensors are read as host memory.
        for lane, event in work.brought:
            lane.await_(event)
        wide = torch.cat(values).to(_coll.added_as(opts.reduceOp, tensor.dtype))
        at = torch.cat(indices, 1)
        whole = torch.sparse_coo_tensor(at, wide, mine.shape, device="cpu").coalesce()
        whole = whole / len(counts) if mean else whole
        # On a detached tensor, copy_() would change only the indices of the detached one.
        with torch.no_grad():
            tensor.copy_(whole.to(tensor.dtype))

    work.finish_with(add)


def _counts(group: ProcessGroup, mine: torch.Tensor, opts: Any) -> list[int]:
    """The number of elements that each rank has, of tensors with the same shape."""
    own = torch.tensor([mine._nnz(), mine.sparse_dim(), *mine.shape], device="cpu")
    every = [torch.empty_like(own) for _ in range(group.size())]
    group.allgather([every], [own], timeout=opts.timeout).wait()
    for rank, theirs in enumerate(every):
        if not torch.equal(theirs[1:], own[1:]):
            raise error(
                "PAWL_EMISMATCH",
                f"collectives: all_reduce of a sparse tensor: rank {rank} brings shape "
                f"{tuple(theirs[2:].tolist())} with {int(theirs[1])} sparse dimensions, rank "
                f"{group.rank()} {tuple(mine.shape)} with {mine.sparse_dim()}",
            )
    return [int(theirs[0]) for theirs in every]
