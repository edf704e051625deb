"""PowerSGD for DDP: a gradient is sent as two thin matrices, and the rest of it at the next step.

T. Vogels, S. P. Karimireddy, M. Jaggi: PowerSGD: Practical Low-Rank Gradient Compression for
Distributed Optimization, NeurIPS 2019, arXiv:1905.13727.

A bucket goes in two sums: the gradients that are sent whole together with P = M Q of each matrix M,
then M^T P. All sums are begun by DDP's hook, in the thread of the backward pass, and so in one
order at all ranks: hook k begins the first sum of bucket k, then waits for that of bucket k - 1 and
begins its second; the hook of the last bucket finishes all. No callback of a future begins
anything.

The state that a matrix keeps between steps belongs to its parameter and lies in memory of its own:
DDP makes other buckets after the first step, and products have the same bits in those.
"""

# No postponed annotations: DDP inspects the annotations of a hook.

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from pawl.errors import error


class _Matrix:
    """A parameter's gradient, as rows by the rest of its shape."""

    def __init__(self, number: int, parameter: nn.Parameter, rank: int) -> None:
        rows = parameter.shape[0]
        columns = parameter.numel() // rows
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        self.number = number  # index of the parameter in the model
        self.rank = min(rows, columns, rank)
        self.error = torch.zeros(rows, columns, dtype=dtype, device=parameter.device)
        self.q = torch.empty(columns, self.rank, dtype=dtype, device=parameter.device)

    def draw(self, seed: int, step: int) -> None:
        """Draws another Q, the same at all ranks."""
        numbers = np.random.default_rng((seed, step, self.number))
        self.q.copy_(torch.from_numpy(numbers.standard_normal(tuple(self.q.shape))))


def _is_worth(parameter: nn.Parameter, rank: int, rate: float) -> bool:
    """Whether P and Q together are at least rate times smaller than the gradient."""
    if parameter.dim() < 2 or parameter.numel() == 0 or not parameter.is_floating_point():
        return False
    rows = parameter.shape[0]
    columns = parameter.numel() // rows
    both = (rows + columns) * min(rows, columns, rank)
    itemsize = torch.promote_types(parameter.dtype, torch.float32).itemsize
    return both * itemsize * rate < parameter.nbytes


def _orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.qr(matrix).Q  # zeros give the first unit vectors


class _Bucket:
    """A bucket being summed. Its gradients are views of the buffer, which DDP gets back."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.buffer = buffer
        devices = [buffer.device] if buffer.is_cuda else None
        self.future: Future[torch.Tensor] = Future(devices=devices)
        self.whole: list[torch.Tensor] = []  # gradients that are sent uncompressed
        # Gradients that are compressed, with their matrices.
        self.low: list[tuple[_Matrix, torch.Tensor]] = []
        self.p: list[torch.Tensor] = []  # P of each matrix in low, orthonormal
        # For each matrix in low, the number of ranks with a nonzero gradient.
        self.used: list[float] = []
        self.sum = buffer  # the sum in progress
        self.work: dist.Work | None = None  # None: no sum was begun


class PowerSGD:
    """The state of the hook of `powersgd`. Its state_dict differs from rank to rank."""

    def __init__(
        self,
        model: nn.Module,
        rank: int,
        start_iter: int,
        min_compression_rate: float,
        warm_start: bool,
        seed: int,
        group: dist.ProcessGroup | None,
    ) -> None:
        self.step = 0  # backward passes that were reduced
        self.gradient_bytes = 0  # bytes of this rank's gradients so far
        self.reduced_bytes = 0  # bytes that this rank gave all-reduce in their place
        self._start_iter = start_iter
        self._warm_start = warm_start
        self._seed = seed
        self._group = group if group is not None else dist.group.WORLD
        self._ranks = dist.get_world_size(self._group)
        self._open: list[_Bucket] = []
        if isinstance(model, DistributedDataParallel):
            model = model.module
        self._matrices: dict[str, _Matrix] = {}
        # Parameter -> matrix; None: it is sent whole.
        self._of: dict[torch.Tensor, _Matrix | None] = {}
        for number, (name, parameter) in enumerate(model.named_parameters()):
            self._of[parameter] = None
            if parameter.requires_grad and _is_worth(parameter, rank, min_compression_rate):
                matrix = self._matrices[name] = self._of[parameter] = _Matrix(
                    number, parameter, rank
                )
                matrix.draw(seed, 0)

    @property
    def compression_ratio(self) -> float:
        """Bytes of gradients divided by bytes reduced, in all steps so far; 1.0
        before the first one.
        """
        return self.gradient_bytes / self.reduced_bytes if self.reduced_bytes else 1.0

    def state_dict(self) -> dict[str, Any]:
        """The step, and for each compressed parameter, by name, the part not sent yet, and Q."""
        return {
            "step": self.step,
            "error": {name: matrix.error for name, matrix in self._matrices.items()},
            "q": {name: matrix.q for name, matrix in self._matrices.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a state_dict. Raises PawlError if it is of another model or rank."""
        mine = self.state_dict()
        for part in ("error", "q"):
            theirs = {name: tensor.shape for name, tensor in state[part].items()}
            for name in mine[part].keys() | theirs.keys():
                have = mine[part][name].shape if name in mine[part] else "whole"
                if theirs.get(name, "whole") != have:
                    raise error(
                        "PAWL_EINVAL",
                        f"powersgd: load_state_dict: {part} of {name!r} is "
                        f"{theirs.get(name, 'missing')}, and here {have}: the state is of another "
                        "model, or of other arguments",
                    )
        for part in ("error", "q"):
            for name, tensor in mine[part].items():
                tensor.copy_(state[part][name])
        self.step = int(state["step"])

    # ---- a step ----

    def reduce(self, bucket: dist.GradBucket) -> "Future[torch.Tensor]":
        """Does the work of DDP's hook; see the top of the file."""
        this = _Bucket(bucket.buffer())
        self._open.append(this)
        self.gradient_bytes += this.buffer.nbytes
        self._sort(this, bucket)
        self._begin_first(this)
        if len(self._open) > 1:
            self._begin_second(self._open[-2])
        if bucket.is_last():
            self._begin_second(this)
            for each in self._open:
                self._finish(each)
            self._open.clear()
            self.step += 1
        return this.future

    def _sort(self, this: _Bucket, bucket: dist.GradBucket) -> None:
        """Sorts a bucket's gradients into those to be compressed and those to be sent whole."""
        if this.buffer.is_sparse:
            raise error("PAWL_ENOTSUP", "powersgd: sparse gradients: make them dense")
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if parameter not in self._of:
                raise error(
                    "PAWL_EINVAL",
                    f"powersgd: a parameter of shape {tuple(parameter.shape)} is not of the model "
                    "that powersgd was called with",
                )
            matrix = self._of[parameter] if self.step >= self._start_iter else None
            if matrix is None:
                this.whole.append(gradient)
            else:
                this.low.append((matrix, gradient))

    def _begin_sum(self, this: _Bucket, tensor: torch.Tensor) -> None:
        self.reduced_bytes += tensor.nbytes
        this.sum = tensor
        this.work = dist.all_reduce(tensor, group=self._group, async_op=True)

    def _begin_first(self, this: _Bucket) -> None:
        this.buffer.div_(self._ranks)
        if not this.low:
            self._begin_sum(this, this.buffer)
            return
        for matrix, gradient in this.low:
            matrix.error.add_(gradient.view(matrix.error.shape))
            if not self._warm_start:
                matrix.draw(self._seed, self.step)
        used = torch.stack([gradient.any() for _, gradient in this.low])
        products = [matrix.error @ _orthonormal(matrix.q) for matrix, _ in this.low]
        flat = [t.reshape(-1).to(products[0].dtype) for t in (*this.whole, used, *products)]
        self._begin_sum(this, torch.cat(flat))

    def _begin_second(self, this: _Bucket) -> None:
        if not this.low:
            return
        assert this.work is not None
        this.work.wait()
        sizes = [gradient.numel() for gradient in this.whole]
        sizes += [len(this.low), *(m.error.shape[0] * m.rank for m, _ in this.low)]
        parts = this.sum.split(sizes)
        for gradient, part in zip(this.whole, parts, strict=False):
            gradient.copy_(part.view(gradient.shape))
        used, *products = parts[len(this.whole) :]
        this.used = used.tolist()
        flat = []
        for (matrix, _), product, ranks in zip(this.low, products, this.used, strict=True):
            p = _orthonormal(product.view(-1, matrix.rank))
            q = matrix.error.t() @ p
            if ranks > 0:
                matrix.error.addmm_(p, q.t(), alpha=-1)
            this.p.append(p)
            flat.append(q.view(-1))
        self._begin_sum(this, torch.cat(flat))

    def _finish(self, this: _Bucket) -> None:
        assert this.work is not None
        this.work.wait()
        if this.low:
            parts = this.sum.split([matrix.q.numel() for matrix, _ in this.low])
            sizes = torch.stack([part.abs().sum() for part in parts]).tolist()
            for i, (matrix, gradient) in enumerate(this.low):
                if this.used[i] > 0:
                    self._take(matrix, gradient, this.p[i], parts[i], sizes[i])
        this.future.set_result(this.buffer)

    def _take(
        self,
        matrix: _Matrix,
        gradient: torch.Tensor,
        p: torch.Tensor,
        q: torch.Tensor,
        size: float,
    ) -> None:
        """Stores the sum of all ranks' matrices, as far as P and Q hold it; it is
        the same at all ranks.
        """
        matrix.q.copy_(q.view(matrix.q.shape))
        gradient.view(matrix.error.shape).copy_(p @ matrix.q.t())
        # The gradient is not finite either: the step is skipped, or all is lost.
        if not math.isfinite(size):
            matrix.error.zero_()
        if not math.isfinite(size) or size == 0:  # this Q would only give zeros, or NaN, again
            matrix.draw(self._seed, self.step)


def reduce(state: PowerSGD, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """DDP's communication hook."""
    return state.reduce(bucket)
