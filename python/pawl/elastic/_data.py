"""Loops over data: the position of each, for all ranks together, and the size of its steps."""

from __future__ import annotations

import contextlib
import json
import logging
import operator
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from pawl._report._training import Row
from pawl._times import seconds
from pawl.elastic import _alike, _context, _epochs, _metrics, _record, _states
from pawl.elastic._job import Job, Skipped
from pawl.elastic._plan import Batch, Micro, cut, order

log = logging.getLogger("pawl")

_MOST: Final = (1 << 31) - 1  # samples of a step, at most
_WISHES: Final = _epochs.WISHES + _alike.N
_ROW_LEN: Final = 5 + _WISHES  # numbers that a rank sends at each step: see words()

_loop: AdaptiveDataLoaderHelper | None = None  # the current loop; None: there is none
# The helper of the loader that models are trained with.
_training: AdaptiveDataLoaderHelper | None = None


def current_dataloader() -> AdaptiveDataLoaderHelper | None:
    """The helper of the loader whose loop is under way; None: there is none."""
    return _loop


def _whole(name: str, value: Any, least: int, most: int) -> int:
    """value as an int; NumPy's ints are allowed, bool is not. Raises ValueError."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or not least <= found <= most:
        raise ValueError(f"{name}={value!r}: must be an int from {least} to {most}")
    return found


def refuse_in_loop(what: str) -> None:
    """Raises RuntimeError inside of a loop: after a restart the step in which it
    was made would not recur.
    """
    if _loop is not None:
        raise RuntimeError(f"{what} may not be made inside of a loop over a loader: do so before")


def training_loop() -> AdaptiveDataLoaderHelper | None:
    """The current loop, if its loader is the one that trains; else None."""
    return _loop if _loop is not None and _loop is _training else None


class _Position(_states.State):
    """The position of a loop; named after the loop's place in its epoch."""

    def __init__(self, helper: AdaptiveDataLoaderHelper) -> None:
        super().__init__(_epochs.name_here("adaptdl-dataloader"))
        self._of = helper
        self.began = -1.0  # the job's progress when the loop began; below 0: it has not
        # Last finished loop, of this epoch ("None": outside of epochs).
        self.last: dict[str, int] = {}
        _states.load_when_known(self)

    def save(self, fileobj: _states.Writer) -> None:
        of = self._of
        fields = [
            of.current_index,
            of.end_index,
            self.began,
            self.last,
            of._chosen,
            of._has_trained,
        ]
        fileobj.write(json.dumps(fields).encode())

    def load(self, fileobj: _states.Reader) -> None:
        of, fields = self._of, json.loads(fileobj.read())
        of.current_index, of.end_index, self.began, self.last, chosen, training = fields
        of._chosen = tuple(chosen) if chosen else None
        of._has_trained = training


class AdaptiveDataLoaderHelper:
    """The part of a loader that makes it adaptive: AdaptiveDataLoader has one; your
    own loaders may, too.

    ``batch_size``: samples in a step of all ranks together, for which the learning rate was chosen.
    """

    # Number of the last loop begun in this run, by epoch.
    position: Final[dict[int | None, int]] = {}
    _rounds_up = False  # whether ranks have equally many samples, and so a step some more

    def __init__(self, batch_size: int = 1) -> None:
        refuse_in_loop("a loader")
        self.batch_size = _whole("batch_size", batch_size, 1, _MOST)
        self.max_batch_size: int | None = None
        self.local_bsz_bounds: tuple[int, int] | None = None
        self.current_index = 0  # samples that all ranks have taken since the loop began
        self.end_index = 0
        self.samples = 0  # samples in the dataset; 0: not known
        self._accumulate = False
        self._has_trained = False
        # Atomic, accum, number of ranks they are for.
        self._chosen: tuple[int, int, int] | None = None
        self._micro: Micro | None = None  # current part, in our loops; loops of others use _count
        self._count = 0  # gradients of the current step, before this one
        self._begun_at = 0  # current_index at the start of the current step
        self._redo = False
        self._sent_as = (0, (1, 1, 1))  # rank, and Job.place, when this rank last sent its wishes
        self._wished = [False] * 3  # wishes of any rank: newcomers, checkpoint, end
        self._parting: bool | None = None  # whether this rank leaves; None: no rank does
        # Choice for the next step on: atomic, accum, ranks.
        self._next: tuple[int, int, int] | None = None
        self._gains: list[float] = []  # gain of each model in the current step
        self._listeners: set[Callable[[bool], None]] = set()
        # Seconds to the gradient, of the step; atomic batch: still to be sent.
        self._measured = (0.0, 0.0, 0)
        self._wait_s = 0.0
        # Properties of the current step:
        self.scale = 1.0  # initial batches in it: the rest of a pass has fewer samples
        self.share = 1.0  # weight of this rank's gradient in the mean over all samples
        # Whether all ranks' gradients are of nearly as many samples as they should be.
        self.is_even = True
        self.count = 1.0  # equivalent number of ranks' gradients: see Micro.gradients
        self._state = _Position(self)
        job = _context.known()
        self._generation = 0 if job is None else job.generation

    # ---- queries ----

    @property
    def _job(self) -> Job:
        return _context.job()

    @property
    def training(self) -> bool:
        """Whether this is the loader that a model is trained with."""
        return _training is self

    def train(self) -> None:
        """Makes this loader the one that trains, unless there is one already: the first loader
        whose loop calls a model. A loader of an epoch that is over does not count.
        """
        global _training
        if _training is None or (_training is not self and not _states.is_kept(_training._state)):
            _training = self

    def take_over(self) -> None:
        """Called when a loop back-propagates: its loader trains from now on,
        whenever its loop is under way.
        """
        global _training
        _training = self
        self._has_trained = True

    @property
    def batch(self) -> Batch:
        """The sizes of a full step, as of now."""
        ranks = self._job.ranks
        if not self.training or self.max_batch_size is None:
            atomic = -(-self.batch_size // ranks)
            return Batch(atomic, 0, ranks * atomic if self._rounds_up else self.batch_size)
        if self._chosen is None:
            return self._divide(self.batch_size)
        atomic, accum, chosen_for = self._chosen
        if chosen_for != ranks:  # until a better one is chosen
            return self._divide(chosen_for * atomic * (accum + 1))
        return Batch(atomic, accum, ranks * atomic * (accum + 1))

    def _divide(self, total: int) -> Batch:
        """About ``total`` samples, divided among the ranks that there are, within bounds."""
        ranks = self._job.ranks
        _, most, least_local, most_local, accumulate = self._bounds()
        each = -(-total // ranks) if self._rounds_up else max(1, total // ranks)
        parts = -(-each // most_local) if accumulate else 1
        atomic = min(max(each // parts, least_local), most_local, max(1, most // ranks // parts))
        return Batch(atomic, parts - 1, ranks * atomic * parts)

    @property
    def current_local_bsz(self) -> int | None:
        """Samples of this rank at once; None: outside of its loop."""
        return self.batch.atomic if _loop is self else None

    @property
    def current_batch_size(self) -> int | None:
        """Samples in a step of all ranks; None: outside of its loop."""
        return self.batch.total if _loop is self else None

    @property
    def accumulation_steps(self) -> int:
        """The number of gradients that are added before that of the step."""
        return self._micro.parts - 1 if self._micro is not None else self.batch.accum

    @property
    def gradients(self) -> int:
        """The number of gradients of the current step, the current gradient included."""
        return (self._micro.index if self._micro is not None else self._count) + 1

    @property
    def progress(self) -> float:
        """The number of steps of an initial batch that the steps of this loop were worth."""
        return _metrics.current().progress - self._state.began

    def is_optim_step(self) -> bool:
        """Whether the optimizer steps after the current gradient."""
        return self._micro.last if self._micro is not None else self._count >= self.batch.accum

    def is_accum_step(self) -> bool:
        """Whether more gradients come before the optimizer steps."""
        return not self.is_optim_step()

    def to_tensorboard(self, writer: Any, global_step: int, tag_prefix: str = "") -> None:
        """Writes the current batch to a SummaryWriter."""
        values = {
            "Total_Batch_Size": self.batch.total,
            "Local_Batch_Size": self.batch.atomic,
            "Accumulation_Steps": self.batch.accum,
        }
        _metrics.write_scalars(writer, values, global_step, tag_prefix)

    # ---- choosing the batch ----

    def autoscale_batch_size(
        self,
        max_batch_size: int,
        local_bsz_bounds: tuple[int, int] | None = None,
        gradient_accumulation: bool = False,
    ) -> None:
        """Lets the batch of all ranks vary between batch_size and
        ``max_batch_size``, which is never exceeded.

        ``local_bsz_bounds``: least and most samples of a rank at once; each may be None.
        ``gradient_accumulation``: whether a step may have several gradients of a rank.

        Raises ValueError for values that are no int, or bounds that do not fit each other.
        """
        most = _whole("max_batch_size", max_batch_size, self.batch_size, _MOST)
        bounds = (None, None) if local_bsz_bounds is None else local_bsz_bounds
        if not isinstance(bounds, Sequence) or len(bounds) != 2:
            raise ValueError(
                f"local_bsz_bounds={bounds!r}: must be a pair of ints, (lowest, highest)"
            )
        low, high = bounds
        of, batch = f"local_bsz_bounds={bounds!r}, of which", self.batch_size
        low = 1 if low is None else _whole(f"{of} the lowest", low, 1, batch)
        high = most if high is None else _whole(f"{of} the highest", high, batch, _MOST)
        self.max_batch_size = most
        self.local_bsz_bounds = (low, high)
        self._accumulate = bool(gradient_accumulation)

    def _bounds(self) -> tuple[int, int, int, int, bool]:
        assert self.max_batch_size is not None and self.local_bsz_bounds is not None
        return (self.batch_size, self.max_batch_size, *self.local_bsz_bounds, self._accumulate)

    def _decide(self) -> tuple[int, int]:
        """At rank 0, the (atomic, accum) of the next steps; (0, 0): they stay as they are."""
        if self._job.rank != 0:
            return 0, 0
        if not _record.current().begun:
            self._write_down(_metrics.Choice(None, None, "as it was given"))
        if not _metrics.current().is_due():
            return 0, 0
        choice = self._choose()
        self._write_down(choice)
        return choice.batch or (0, 0)

    def _choose(self) -> _metrics.Choice:
        metrics = _metrics.current()
        if self.max_batch_size is None:
            return _metrics.Choice(None, None, "it is fixed")
        if metrics.is_early():
            return _metrics.Choice(None, None, "its noise is not known yet")
        if not metrics.fit():
            return _metrics.Choice(None, None, "nothing was measured yet")
        metrics.report_fit(self._bounds(), self._remaining())
        now = (self.batch.atomic, self.batch.accum)
        return metrics.choose(self._bounds(), self._job.place, now)

    def _remaining(self) -> float | None:
        """Steps of an initial batch until the last epoch is over, if each epoch has one loop like
        this one; None: the size of the dataset is not known.
        """
        if self.samples == 0:
            return None
        return max(_epochs.epochs_left() * self.samples / self.batch_size - self.progress, 0.0)

    def _write_down(self, choice: _metrics.Choice) -> None:
        metrics, batch, place = _metrics.current(), self.batch, self._job.place
        atomic, accum = choice.batch or (batch.atomic, batch.accum)
        row = Row(
            step=metrics.steps,
            epoch=_epochs.current_epoch(),
            progress=metrics.progress,
            ranks=place[1],
            nodes=place[0],
            batch=place[1] * atomic * (accum + 1) if choice.batch else batch.total,
            atomic=atomic,
            accum=accum,
            predicted=choice.goodput,
            why=choice.why,
        )
        sqr, var = metrics.moments()
        if sqr > 0 and var > 0:
            row.noise = self.batch_size * var / sqr
            low, high = metrics.noise_interval() or (None, None)
            row.noise_low = None if low is None else low * self.batch_size
            row.noise_high = None if high is None else high * self.batch_size
        _record.current().add(row, metrics.samples, self.batch_size)

    # ---- steps ----

    def words(self, wait_s: float) -> list[float]:
        """The numbers that this rank sends when a step is complete. ``wait_s``: time
        waited for others' gradients.
        """
        self._wait_s = wait_s
        if self._job.generation != self._generation:
            self._generation = self._job.generation
            self._measured = (0.0, 0.0, 0)  # the measurement was made with other ranks
            _metrics.current().hurry()
        return [*self._measured, *self._decide(), *self._wishes()]

    def listen(self, rows: torch.Tensor) -> None:
        """Handles the rows of all ranks, each with the numbers of words()."""
        grad_s, step_s, measured = rows[:, :3].mean(0).tolist()
        place = self._sent_as[1]
        # True if all ranks that made the step have sent a time.
        if rows[:, 2].min() > 0 and len(rows) == place[1]:
            _metrics.current().record(place, round(measured), grad_s, step_s)
        self._measured = (0.0, 0.0, 0)
        atomic, accum = (int(number) for number in rows[0, 3:5].tolist())
        if atomic > 0:
            self._next = (atomic, accum, len(rows))
        self._receive_wishes(rows[:, _ROW_LEN - _WISHES : _ROW_LEN])

    def _wishes(self) -> list[float]:
        """This rank's wishes: newcomers are there; a checkpoint is due; all are to end; this rank
        is to leave; then the values that must be alike at all ranks.
        """
        job, checkpoints = self._job, _context.checkpoints()
        self._sent_as = (job.rank, job.place)
        due = job.rank == 0 and checkpoints.is_due(job.generation)
        leaves = job.can_go_on and _context.is_to_leave()
        wishes = (job.arrivals() > 0, due, checkpoints.is_last(), leaves)
        return [*map(float, wishes), *self._whereabouts()]

    def _whereabouts(self) -> list[float]:
        """The values that _alike compares."""
        epoch = _epochs.current_epoch()
        bounds = _alike.checksum((self.max_batch_size, self.local_bsz_bounds, self._accumulate))
        values = [-1 if epoch is None else epoch, self.position.get(epoch, -1), self.samples]
        return [*map(float, values), float(self.batch_size), bounds, float(self.current_index)]

    def _receive_wishes(self, wishes: torch.Tensor) -> None:
        """Handles wishes. Rows are of the ranks that have sent them; some of these
        may be gone, and ranks renumbered since.
        """
        _alike.check(wishes[:, -_alike.N :].tolist())
        wishes = wishes[:, : -_alike.N]
        *self._wished, _ = (wishes > 0).any(0).tolist()
        rank, place = self._sent_as
        rank = rank if len(wishes) == place[1] else self._job.rank
        leavers = wishes[:, -1].nonzero().flatten().tolist()
        if len(leavers) == len(wishes):
            leavers.pop()  # one rank stays
        self._parting = rank in leavers if leavers else None

    def _do_wishes(self) -> None:
        """Fulfils the wishes that all ranks have received."""
        if self._next is not None:
            self._chosen, self._next = self._next, None
        arrivals, due, ends = self._wished
        parting, self._parting = self._parting, None
        self._wished = [False] * 3
        if arrivals or due or ends or parting is not None:
            for state in _states.every():
                state.sync()
        if due or ends:
            _context.save(ends)
        if parting is not None:
            self._job.part(parting)
        if arrivals:
            self._job.admit(_states.pack)

    def end_step(self) -> None:
        """Between two steps: fulfils the wishes received in the last one. Where nothing is trained
        they are exchanged here first.
        """
        if not self.training:
            with contextlib.suppress(Skipped):
                self._receive_wishes(self._job.agree(self._wishes()))
        self._do_wishes()
        self._job.write_imports()

    def settle_ranks(self) -> None:
        """Before a step: lets newcomers find the job, and waits while there are
        fewer ranks than it needs.
        """
        job, logged = self._job, False
        job.open_door()
        while job.ranks < job.least:
            if not logged and job.rank == 0:
                log.warning("elastic: waiting for ranks: %d of at least %d", job.ranks, job.least)
            logged = True
            self._receive_wishes(job.agree(self._wishes()))
            self._do_wishes()
            job.open_door()
            time.sleep(seconds("elastic_data_look"))

    def redo(self) -> None:
        """Marks the current step as failed: its samples come again."""
        self._redo = True

    def tell_after(self, listener: Callable[[bool], None]) -> None:
        """Calls ``listener`` when the current step is over: with False if it is done again."""
        self._listeners.add(listener)

    def gain(self, gain: float) -> None:
        """Records that a model has made a step in this one, worth ``gain`` steps of
        an initial batch.
        """
        self._gains.append(gain)

    def _end_step(self) -> None:
        if self._gains:
            samples = self._micro.size if self._micro is not None else self.batch.total
            _metrics.current().advance(sum(self._gains) / len(self._gains), samples)
            self._gains.clear()
        for listener in self._listeners:
            listener(not self._redo)
        self._listeners.clear()

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """The context of a loop. Raises RuntimeError if another one is under way."""
        global _loop
        if _loop is not None:
            raise RuntimeError("overlapping dataloader iterations")
        epoch = _epochs.current_epoch()
        self.position[epoch] = self.position.get(epoch, -1) + 1
        _loop = self
        if self._has_trained:
            self.take_over()
        if self._state.began < 0:
            self._state.began = _metrics.current().progress
        try:
            yield
        finally:
            self._end_step()
            outside = {e: at for e, at in self._state.last.items() if e == "None"}
            self._state.last = {**outside, str(epoch): self.position[epoch]}
            if self.training:
                _context.checkpoints().hurry()
            self.current_index = 0
            self._state.began = -1.0
            self._micro = None
            _loop = None

    def skipdone(self) -> bool:
        """Whether this loop was finished before a restart, so that it is not to be run."""
        epoch = _epochs.current_epoch()
        return self._state.last.get(str(epoch), -1) >= self.position[epoch]

    def made_of(self) -> tuple[Any, ...]:
        """The values that decide on batches: when they change, batches are cut anew."""
        scales = self.max_batch_size is not None and self.training
        return self._job.generation, self._chosen, scales

    def _begin(self, micro: Micro | None) -> None:
        batch, job = self.batch, self._job
        part = batch.total // (batch.accum + 1)
        parts = micro.parts if micro is not None else batch.accum + 1
        self._micro = micro
        self._redo = False
        self.scale = (micro.size if micro is not None else part * parts) / self.batch_size
        self.share = 1 / (job.ranks * parts)
        self.is_even = True
        self.count = float(job.ranks)
        if micro is not None:
            self.share = micro.share(job.rank, job.ranks)
            self.count = micro.gradients(job.ranks)
            self.is_even = micro.n == part and micro.even(job.ranks)

    @contextlib.contextmanager
    def profile(self, commit: bool, micro: Micro | None = None) -> Iterator[None]:
        """The context of a batch's computation; set ``current_index`` after the batch in it.

        It is set back where a step is to be done again. ``commit``: whether the time counts.
        ``micro``: the part of the step, in loops of ours, which see to current_index themselves.
        """
        if micro is None and self._count == 0:
            self.settle_ranks()
            self._begun_at = self.current_index
        self._begin(micro)
        begin = time.monotonic()
        yield
        took = time.monotonic() - begin
        if self.is_optim_step():
            self._end_step()
        if commit and self.training and self.is_optim_step() and self.is_even and not self._redo:
            self._measured = (max(took - self._wait_s, 1e-9), took, self.batch.atomic)
        if micro is None:
            whole = self.is_optim_step()
            self._count = 0 if whole else self._count + 1
            if whole:
                if self._redo:
                    self.current_index = self._begun_at
                self.end_step()


class AdaptiveDataLoaderMixin:
    """For loaders of your own: ``_elastic`` is the helper; the mixin offers its queries, too."""

    _helper: type[AdaptiveDataLoaderHelper] = AdaptiveDataLoaderHelper

    def __init__(self, batch_size: int) -> None:
        self._elastic = self._helper(batch_size)

    def autoscale_batch_size(
        self,
        max_batch_size: int,
        local_bsz_bounds: tuple[int, int] | None = None,
        gradient_accumulation: bool = False,
    ) -> None:
        """Makes the helper; see AdaptiveDataLoaderHelper."""
        self._elastic.autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)

    @property
    def current_local_bsz(self) -> int | None:
        return self._elastic.current_local_bsz

    @property
    def accumulation_steps(self) -> int:
        return self._elastic.accumulation_steps

    def to_tensorboard(self, writer: Any, global_step: int, tag_prefix: str = "") -> None:
        """Writes the current batch to a SummaryWriter."""
        self._elastic.to_tensorboard(writer, global_step, tag_prefix)

    @property
    def training(self) -> bool:
        return self._elastic.training

    @property
    def current_batch_size(self) -> int | None:
        return self._elastic.current_batch_size


class _Batches(Sampler[list[int]]):
    """This rank's part of the rest of a pass."""

    def __init__(self, helper: AdaptiveDataLoaderHelper, n: int, shuffle: bool) -> None:
        self._helper = helper
        self._n = n
        self._shuffle = shuffle
        self._turn = (-1, -1)  # epoch and pass that _order is for
        self._order = torch.empty(0, device="cpu")

    def micros(self) -> Iterator[Micro]:
        """The parts of steps from the loop's position to the end of the pass."""
        at = self._helper.current_index
        return cut(at, at - at % self._n + self._n, self._helper.batch)

    def __iter__(self) -> Iterator[list[int]]:
        job = self._helper._job
        turn = (_epochs.current_epoch() or 0, self._helper.current_index // self._n)
        if turn != self._turn:
            self._order = order(self._n, *turn, self._shuffle)
            self._turn = turn
        for micro in self.micros():
            own = micro.of(job.rank, job.ranks) or range(micro.begin, micro.begin + 1)
            first = own.start % self._n
            yield self._order[first : first + len(own)].tolist()

    def __len__(self) -> int:
        return sum(1 for _ in self.micros())


def _length(dataset: Any) -> int:
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError(
            f"AdaptiveDataLoader: {kind} is an IterableDataset, or has no len(): give it one with "
            "len() and numbered samples, or write a loader with AdaptiveDataLoaderHelper"
        )
    n = len(dataset)
    if n < 1:
        raise ValueError(
            f"AdaptiveDataLoader: {kind} has len() {n}: it must have at least 1 sample"
        )
    return n


class _Seeds:
    """Makes a worker's seed the same at all ranks' workers, then calls the user's
    ``worker_init_fn``.
    """

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self.rank = 0
        self._then = then

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        seed = info.seed + self.rank * info.num_workers
        if self.rank > 0:
            random.seed(seed)
            torch.manual_seed(seed)
            with contextlib.suppress(ImportError):
                import numpy

                numpy.random.seed(seed % (1 << 32))
        if self._then is not None:
            self._then(worker)


class AdaptiveDataLoader(DataLoader[Any], AdaptiveDataLoaderMixin):
    """A DataLoader whose batches are of all ranks together, and may change.

    Each sample of a pass comes once, at one of the ranks, however their number and the batch change
    meanwhile. Where a pass ends with fewer samples than ranks, ranks without one get one of the
    others' samples, whose gradient has weight 0.
    """

    _needs_epochs = True  # True: loops are allowed inside of epochs only

    def __init__(
        self, dataset: Dataset[Any], batch_size: int = 1, shuffle: bool = False, **kwargs: Any
    ) -> None:
        """``batch_size``: samples in a step of all ranks, for which the learning rate was chosen.
        ``kwargs``: DataLoader's, except sampler, batch_sampler and drop_last.
        """
        for name in ("sampler", "batch_sampler"):
            if kwargs.pop(name, None) is not None:
                raise ValueError(f"AdaptiveDataLoader has its own {name}")
        kwargs.pop("drop_last", None)
        AdaptiveDataLoaderMixin.__init__(self, batch_size)
        self._elastic.samples = _length(dataset)
        self._batches = _Batches(self._elastic, self._elastic.samples, shuffle)
        self._seeds = _Seeds(kwargs.pop("worker_init_fn", None))
        self._keeps_workers = bool(kwargs.get("persistent_workers"))
        if kwargs.get("num_workers", 0) > 0:
            kwargs["persistent_workers"] = True  # until the loop ends
        super().__init__(dataset, batch_sampler=self._batches, worker_init_fn=self._seeds, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        if _epochs.current_epoch() is None:
            if self._needs_epochs:
                raise RuntimeError("AdaptiveDataLoader: loop over it inside remaining_epochs_until")
            _context.enter()
        helper = self._elastic
        with helper.context():
            if helper.skipdone():
                return
            try:
                while not self._is_over():
                    yield from self._run()
            finally:
                if not self._keeps_workers:
                    self._end_workers()

    def _end_workers(self) -> None:
        """Ends the workers, so that the next loop sees the dataset as it is then."""
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator._shutdown_workers()  # type: ignore[attr-defined]

    def _is_over(self) -> bool:
        helper, n = self._elastic, len(self.dataset)  # type: ignore[arg-type]
        if helper.max_batch_size is None or not helper.training:
            return helper.current_index >= n
        return helper.progress * helper.batch_size > n - 0.5  # half a sample, for rounding errors

    def _run(self) -> Iterator[Any]:
        """Yields batches until a pass ends, or the batch or the ranks change."""
        helper = self._elastic
        helper.settle_ranks()
        begun_as = helper.made_of()
        self._seeds.rank = helper._job.rank
        micros = self._batches.micros()
        for number, (micro, batch) in enumerate(zip(micros, super().__iter__(), strict=False)):
            with helper.profile(number > 0, micro):
                yield batch
            if helper._redo:
                return
            if not micro.last:
                continue
            helper.current_index += micro.size
            helper.end_step()
            if helper.made_of() != begun_as or self._is_over():
                return
