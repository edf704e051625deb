"""A rank's part of a pass, for loaders of users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from pawl.elastic import _context
from pawl.elastic._plan import order


class ElasticSampler(Sampler[int]):
    """A rank's part of a pass, for loaders of your own: every n-th sample, for n ranks.

    Rank and ranks are those of the job, and change with it, unless they were set. Never waits:
    where the ranks have not met yet, the launcher's values hold.
    """

    def __init__(self, dataset: Any, shuffle: bool = True) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.epoch = self.index = 0
        self._rank: int | None = None  # the rank that the user has set; None: the job's
        self._num_replicas: int | None = None

    @property
    def rank(self) -> int:
        """The rank whose part it is."""
        return _context.place()[0] if self._rank is None else self._rank

    @rank.setter
    def rank(self, rank: int) -> None:
        self._rank = rank

    @property
    def num_replicas(self) -> int:
        """The number of parts of a pass."""
        return _context.place()[1] if self._num_replicas is None else self._num_replicas

    @num_replicas.setter
    def num_replicas(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas

    def set_epoch(self, epoch: int, index: int = 0) -> None:
        """Begins at a sample of a pass; ``index`` may be beyond one pass, and counts on."""
        self.epoch, self.index = epoch, index

    def __iter__(self) -> Iterator[int]:
        n, rank = len(self.dataset), self.rank
        turn, first = divmod(self.index, n)
        left = order(n, self.epoch, turn, self.shuffle)[first:].tolist()
        own = left[rank :: self.num_replicas]
        if len(own) < len(self):  # adds one, so that all ranks have equally many
            own.append(left[rank % len(left)])
        return iter(own)

    def __len__(self) -> int:
        left = len(self.dataset) - self.index % len(self.dataset)
        return -(-left // self.num_replicas)
