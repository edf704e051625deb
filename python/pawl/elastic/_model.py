"""AdaptiveDataParallel: DDP with our reduction, and an optimizer that steps when
all ranks agree.
"""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from pawl import _core
from pawl._group import _process_group, _register
from pawl.elastic import _context, _data, _metrics, _rules, _states
from pawl.elastic._gns import GradientNoiseScale
from pawl.elastic._gradients import Norms, Pair, Parts, Span, Step, is_host, unflatten
from pawl.elastic._job import Skipped
from pawl.elastic._noise import NoiseScale
from pawl.errors import PawlError

# DDP's own reducer only fills buckets. Their layout never changes, so that newcomers have the same
# ones; all gradients are in them, whichever parameters DDP takes to be unused.
_FIXED = {
    "find_unused_parameters": True,
    "gradient_as_bucket_view": True,
    "init_sync": False,
}
# The first name exists from torch 2.13 on.
SYNC_BUFFERS = ("forward_sync_buffers", "broadcast_buffers")
_COALESCED_BYTES = 250 << 20  # bytes of buffers that are sent at a time, as by DDP


def _alone() -> dist.ProcessGroup:
    """A group of this process alone, for DDP, which must not know the other
    ranks: they go and come.
    """
    store = dist.HashStore()
    made = _process_group.make(store, 0, 1)
    _register.enroll_alone(made, store)
    return made


class _ModelState(_states.ObjectState):
    """The state of a model, its optimizer, scheduler and scaler."""

    def __init__(self, of: AdaptiveDataParallel) -> None:
        super().__init__(of.key)
        parts = {
            "model": of.module,
            "optimizer": of.optimizer,
            "lr_scheduler": of.lr_scheduler,
            "mp_scaler": of.mp_scaler,
            "noise": of.noise,
        }
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self._of = of
        self.model, self.optimizer = of.module, of.optimizer
        self.lr_scheduler, self.mp_scaler = of.lr_scheduler, of.mp_scaler
        _states.load_state(self)

    @property
    def gain(self) -> float:
        """AdaptiveDataParallel's gain."""
        return self._of.gain

    @property
    def lr_factor(self) -> float:
        """The factor on the learning rate of the first group, in the last step."""
        return self._of._last.factor

    def pack(self) -> Any:
        return {name: part.state_dict() for name, part in self._parts.items()}

    def unpack(self, saved: Any) -> None:
        for name, part in self._parts.items():
            if saved.get(name) is not None:
                part.load_state_dict(saved[name])


class _Scaler:
    """A GradScaler that looks for infinities only in gradients that are complete, at all ranks."""

    def __init__(self, of: AdaptiveDataParallel, scaler: Any) -> None:
        self._of = of
        self._plain_step, self._plain_update = scaler.step, scaler.update
        self._plain_unscale = scaler.unscale_
        self._looked = True
        # True: these gradients were unscaled, so it is known whether they are complete.
        self.unscaled = False
        self.stepping = False  # True: in the optimizer's step, which the scaler calls
        scaler.step, scaler.update = self._step, self._update
        scaler.unscale_ = self._unscale

    def _is_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether optimizer is the model's, and its loop trains."""
        return optimizer is self._of.optimizer and _data.training_loop() is not None

    def _unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_of(optimizer) and not self.stepping:
            whole = self.look()
            self.unscaled = True
            if not whole:
                return
        self._plain_unscale(optimizer)

    def look(self) -> bool:
        """Whether gradients are complete at all ranks; decided once for each step."""
        if not self.unscaled:
            self._looked = self._of.complete(_data.training_loop())
        self.unscaled = False
        return self._looked

    def _step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if not self._is_of(optimizer):
            return self._plain_step(optimizer, *args, **kwargs)
        if not self.look():
            return None
        self.stepping = True
        try:
            return self._plain_step(optimizer, *args, **kwargs)
        finally:
            self.stepping = False

    def _update(self, *args: Any, **kwargs: Any) -> None:
        if self._looked:
            self._plain_update(*args, **kwargs)


@dataclass
class _Last:
    """Properties of the last step."""

    scale: float = 1.0  # initial batches in it
    parts: int = 1
    factor: float = 1.0  # factor on the learning rate of the first group
    initial_batch: int = 1  # samples in an initial batch


class AdaptiveDataParallel(DistributedDataParallel):
    """A model whose batch size, learning rate and ranks may change while it is trained.

    A subclass of torch's DistributedDataParallel, and used like it. The optimizer's ``step`` and
    ``zero_grad`` are replaced: they do nothing while gradients are accumulated.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        lr_scheduler: Any = None,
        mp_scaler: Any = None,
        scaling_rule: _rules.ScalingRuleBase | None = None,
        name: str = "adaptdl-dataparallel",
        **ddp_kwargs: Any,
    ) -> None:
        """``lr_scheduler`` and ``mp_scaler`` (a GradScaler) are saved with the model.

        ``scaling_rule``: default AdaScale, or AdamScale for Adam and the like. ``name``: must
        differ between models. ``ddp_kwargs``: DDP's arguments.
        """
        for key in ("process_group", "device_mesh", "static_graph"):
            if ddp_kwargs.get(key):
                raise ValueError(f"AdaptiveDataParallel has no {key}: its ranks change")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError(
                "AdaptiveDataParallel: LBFGS needs several gradients of the same samples in a "
                "step, but ranks reduce only one: use SGD, Adam or another that needs one"
            )
        self._job = _context.job()
        asked = [ddp_kwargs.pop(name, None) for name in SYNC_BUFFERS]
        known = inspect.signature(DistributedDataParallel).parameters
        off = next(name for name in SYNC_BUFFERS if name in known)
        super().__init__(model, process_group=_alone(), **{**ddp_kwargs, **_FIXED, off: False})
        self._buffers_alike = False not in asked
        self.optimizer = optimizer
        self.key = name
        self.mp_scaler = mp_scaler
        self.lr_scheduler = lr_scheduler
        self.scaling_rule = scaling_rule or _rules.default_for(optimizer)
        whitens = isinstance(self.scaling_rule, _rules.AdamScale)
        self._norms = Norms(
            optimizer,
            functools.partial(_rules.second_moment, optimizer) if whitens else lambda *_: None,
        )
        self.noise = NoiseScale(self._norms.groups)
        self._parts = Parts(self._norms)  # gradients of the current step
        self._pair = Pair(self._norms)
        self._on_host = all(is_host(p) for p in self.module.parameters())
        self._last = _Last()
        # Buckets of the last backward pass.
        self._buckets: list[tuple[torch.Tensor, list[Span]]] = []
        self._reduced_ns = 0  # time when the last bucket was handed over
        self._may_zero = True
        self._scaler = None if mp_scaler is None else _Scaler(self, mp_scaler)
        self._patch(optimizer)
        self.scaling_rule.initialize(self, optimizer)
        self.register_comm_hook(None, lambda _, bucket: self._reduce(bucket))
        if not self._job.newcomer:
            self._send_first()
        self._state = _ModelState(self)
        _metrics.current().enroll(self)

    # ---- queries ----

    @property
    def gain(self) -> float:
        """The number of initial batches that a step is worth, as of the last one."""
        return _core.gain(self.noise.moments(), self.scale)

    @property
    def scale(self) -> float:
        """Initial batches in a current step; outside of the loop that trains: in its last one."""
        loop = _data.training_loop()
        return loop.scale if loop is not None else self._last.scale

    @property
    def initial_batch(self) -> int:
        """The batch, in samples of all ranks, for which the learning rate was chosen."""
        loop = _data.training_loop()
        return loop.batch_size if loop is not None else self._last.initial_batch

    @property
    def progress(self) -> float:
        """The number of steps of an initial batch that all steps so far were worth."""
        return _metrics.current().progress

    @property
    def gns(self) -> GradientNoiseScale:
        """The noise scale, under the names that AdaptDL's scaling rules use."""
        return GradientNoiseScale(self, self.optimizer)

    def to_tensorboard(self, writer: Any, global_step: int, tag_prefix: str = "") -> None:
        """Writes statistics of gradients and progress to a SummaryWriter."""
        sqr, var = self.noise.moments()
        last = self._last
        values = {
            "Gradient_Norm_Sqr": sqr,
            "Gradient_Variance": var,
            "Gain": self.gain,
            "Learning_Rate_Factor": last.factor,
            "Accum_Scale": last.scale / last.parts,
            "Progress": self.progress,
        }
        if last.parts > 1:
            values["Accum_Count"] = last.parts
        _metrics.write_scalars(writer, values, global_step, tag_prefix)

    # ---- forward and backward ----

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        loop = _data.current_dataloader()
        if torch.is_grad_enabled() and self.training and loop is not None:
            loop.train()
            syncs = self.require_backward_grad_sync and loop.is_optim_step()
            if self._buffers_alike and syncs:
                self._send_buffers()
        return super().forward(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing but warn: the gradients may be in the middle of a step."""
        warnings.warn("model.zero_grad() does nothing: use the optimizer's", stacklevel=2)

    def _send_first(self) -> None:
        """Gives all ranks rank 0's parameters and buffers."""
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            self._job.broadcast(tensor.detach())

    def _send_buffers(self) -> None:
        """Sends rank 0's buffers, as DDP does."""
        buffers = [buffer.detach() for buffer in self.module.buffers()]
        if self._job.ranks > 1 and buffers and not self._job.has_lost:
            try:
                dist._broadcast_coalesced(self._job.group, buffers, _COALESCED_BYTES, 0)
            except PawlError as lost:
                self._job.lose(lost)

    def _reduce(self, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """DDP's hook: the mean of a bucket, with each rank's gradient weighted by its samples."""
        loop = _data.current_dataloader()
        if loop is None:
            raise RuntimeError("backpropagation outside AdaptiveDataLoader")
        loop.take_over()
        buffer = bucket.buffer()
        if buffer.layout is not torch.strided:
            raise self._not_dense(bucket)
        job, norms = self._job, self._norms
        self._regroup()
        index, layout = bucket.index(), norms.layout(bucket)
        if self._scaler is not None:
            self._scaler.unscaled = False
        if loop.is_accum_step():
            loop.tell_after(self._end_parts)
            self._parts.put(index, buffer, layout)
            return _done(buffer)
        self._parts.take(index, buffer)
        if index == 0:
            norms.restart()
            self._buckets.clear()
        self._buckets.append((buffer, layout))
        self._reduced_ns = time.monotonic_ns()
        if loop.share != 1:
            buffer.mul_(loop.share)
        if job.ranks == 1:
            norms.add_total(buffer, layout, 0, 1)
            if self._on_host and loop.accumulation_steps == 0:
                self._pair.see(index, buffer, layout)
        if job.ranks == 1 or job.has_lost:
            return _done(buffer)
        norms.add_local(buffer, layout)
        try:
            work = job.sum(buffer)
        except PawlError as lost:
            job.lose(lost)
            return _done(buffer)

        def finish(done: Future[Any]) -> torch.Tensor:
            try:
                if job.can_go_on:
                    work.wait()  # the sum is over: raises its error
                done.value()
                norms.add_total(buffer, layout, job.rank, job.ranks)
            except PawlError as lost:
                job.lose(lost)
            return buffer

        return work.get_future().then(finish)  # type: ignore[no-any-return]

    def _not_dense(self, bucket: dist.GradBucket) -> Exception:
        own = {id(p) for p in bucket.parameters()}
        names = [name for name, p in self.module.named_parameters() if id(p) in own]
        return ValueError(
            f"AdaptiveDataParallel: the gradient of {', '.join(names)} is sparse: make it dense "
            "(nn.Embedding's sparse=False)"
        )

    # ---- the step ----

    def _patch(self, optimizer: torch.optim.Optimizer) -> None:
        self._plain_step = optimizer.step
        self._plain_zero_grad = optimizer.zero_grad

        @functools.wraps(optimizer.step)  # keeps attributes that a scheduler has set on it
        def step(*args: Any, **kwargs: Any) -> Any:
            return self._step(*args, **kwargs)

        optimizer.step = step  # type: ignore[method-assign]
        optimizer.zero_grad = self._zero_grad  # type: ignore[method-assign]

    def _zero_grad(self, set_to_none: bool = True) -> None:
        # Set to None, so that a parameter used by no rank in a step has no gradient.
        if self._may_zero:
            self._plain_zero_grad(set_to_none=True)

    def _step(self, *args: Any, **kwargs: Any) -> Any:
        loop = _data.training_loop()
        if loop is None:
            return self._plain_step(*args, **kwargs)
        closure, args, kwargs = _closure_of(*args, **kwargs)
        if closure is None:
            return self._scaled_step(loop, args, kwargs) if self._is_whole(loop) else None
        with torch.enable_grad():
            loss = closure()
        if self._is_whole(loop):
            self._scaled_step(loop, (_Once(loss), *args), kwargs)
        return loss

    def _is_whole(self, loop: Any) -> bool:
        """Whether gradients are complete; a scaler has found that out already."""
        if self._scaler is None:
            return self.complete(loop)
        return self._scaler.stepping or self._scaler.look()

    def complete(self, loop: Any) -> bool:
        """Whether the optimizer may step: all gradients of the step are there, at all ranks."""
        self._may_zero = loop.is_optim_step()
        if not self._may_zero:
            if self._job.ranks == 1 and self._on_host:
                self._parts.end()
            return False
        if not self._commit(loop):
            self._plain_zero_grad()
            return False
        return True

    def _regroup(self) -> None:
        """Adopts groups that were added to the optimizer, by all ranks."""
        if self._norms.regroup():
            self.noise.grow(self._norms.groups)
            self._parts.first = []
            self._pair.forget()

    def _end_parts(self, _was_made: bool) -> None:
        """Drops the parts of a step that is over, or whose loop was left in it."""
        self._parts.clear()
        self._may_zero = True

    def _scaled_step(self, loop: Any, args: Any, kwargs: Any) -> Any:
        """The optimizer's own step, with the learning rate set by the rule."""
        self._last = last = _Last(loop.scale, loop.accumulation_steps + 1, 1.0, loop.batch_size)
        # Below an initial batch, as at the end of a pass, the learning rate is not reduced.
        factors = self.scaling_rule.scale_lr(max(loop.scale, 1.0))
        last.factor = float(np.ravel(factors)[0])
        with _rules.scaled(self.optimizer, factors):
            return self._plain_step(*args, **kwargs)

    def _commit(self, loop: Any) -> bool:
        """Whether all ranks have this step's gradients; takes in the statistics of the step."""
        wait_s = (time.monotonic_ns() - self._reduced_ns) / 1e9
        job = self._job
        first = self._parts.first
        step = Step(
            ranks=job.ranks,
            count=loop.count,
            parts=loop.accumulation_steps + 1,
            scale=loop.scale,
            even=loop.is_even,
            square=1 / (1.0 if self.mp_scaler is None else self.mp_scaler.get_scale()) ** 2,
            generation=job.generation,
        )
        try:
            job.check_gradients()
            lacks = any(span.lacks for _, layout in self._buckets for span in layout)
            row = [*loop.words(wait_s), float(lacks)]
            sums, of = self._norms.take(step)
            rows = job.agree([*row, *sums])
            loop.listen(rows)
            if step.ranks > 1 and rows[:, len(row) - 1].any():
                self._take_unused()
            self.noise.age(step.scale)
            if of is not None and len(rows) == of.ranks:  # else the norms of lost ranks are missing
                total = rows[:, len(row) :].sum(0).tolist()
                self._take_norms(of, total, first if of is step else None)
            self._regroup()
            loop.gain(_core.gain(self.noise.moments(), loop.scale))
            return True
        except Skipped:
            loop.redo()
            return False

    def _take_unused(self) -> None:
        """Gives gradients to parameters that have one at other ranks only, as DDP does. (Here DDP's
        reducer takes them for unused everywhere.)
        """
        spans = [(buffer, span) for buffer, layout in self._buckets for span in layout]
        used = self._job.agree_objects([not span.lacks for _, span in spans])
        for (buffer, span), anywhere in zip(spans, map(any, zip(*used, strict=True)), strict=True):
            if span.lacks and anywhere:
                mean = buffer[span.first : span.first + span.n].clone()
                span.parameter.grad = unflatten(mean, span.parameter)

    def _take_norms(self, step: Step, sums: list[float], first: list[float] | None) -> None:
        n = self._norms.groups
        total = [norm * step.square for norm in sums[n:]]
        if step.ranks > 1:
            self._pair.forget()
            if step.count > 1:
                each = step.square * step.count  # undoes the weighting by each rank's share
                self.noise.add([norm * each for norm in sums[:n]], total, step.count, step.scale)
        elif not self._on_host:
            return  # the other ways would wait for the device
        elif step.parts > 1:
            self._pair.forget()
            if first:
                local = [norm * step.square for norm in first]
                self.noise.add(local, total, step.parts, step.scale)
        elif not step.even:
            self._pair.forget()
        elif (pair_norms := self._pair.next(total, step.square, step.scale)) is not None:
            self.noise.add(*pair_norms, 2, 2 * step.scale, differences=True)


def _closure_of(closure: Any = None, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
    """Splits the arguments of optimizer.step() into the closure and all others."""
    return closure, args, kwargs


class _Once:
    """A closure that was called before it was known whether all ranks have its gradients."""

    def __init__(self, loss: Any) -> None:
        self._loss: Any = loss
        self._called = False

    def __call__(self) -> Any:
        if self._called:
            raise ValueError("an optimizer that calls its closure twice cannot be elastic")
        self._called = True
        return self._loss


def _done(buffer: torch.Tensor) -> Future[torch.Tensor]:
    future: Future[torch.Tensor] = Future()
    future.set_result(buffer)
    return future
