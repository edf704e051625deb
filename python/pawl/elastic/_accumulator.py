"""Sums over all ranks' samples, as a dictionary."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from pawl.elastic import _context, _data, _epochs, _states

_Values: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]


class _Slot:
    """``a[key]`` while adding: only ``+=`` and ``-=`` make sense."""

    def __init__(self) -> None:
        self.added: list[tuple[Any, int]] = []

    def __iadd__(self, value: Any) -> _Slot:
        self.added.append((value, 1))
        return self

    def __isub__(self, value: Any) -> _Slot:
        self.added.append((value, -1))
        return self


class _History(_states.State):
    """The results of an accumulator's synchronizations, so that nothing is summed twice."""

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__(_epochs.name_here("adaptdl-accumulator"))
        self._of = accumulator
        # Results of synchronizations outside of loops, by epoch; None: outside of epochs.
        self.results: dict[int | None, list[dict[Any, Any]]] = {}
        _states.load_when_known(self)

    def save(self, fileobj: _states.Writer) -> None:
        fileobj.write(pickle.dumps((self.results, self._of._results, self._of._updates)))

    def load(self, fileobj: _states.Reader) -> None:
        self.results, self._of._results, self._of._updates = pickle.loads(fileobj.read())

    def sync(self) -> None:
        self._of._sum()

    def drop_before(self, epoch: int) -> None:
        """Drops the results of epochs that are over: they do not come again."""
        self.results = {e: r for e, r in self.results.items() if e is None or e >= epoch}


class Accumulator(MutableMapping[Any, Any]):
    """Statistics of all ranks' samples, wherever they were computed.

        stats = Accumulator()
        for batch in loader:
            stats["loss"] += loss.item() * len(batch)
            stats["samples"] += len(batch)
        with stats.synchronized():
            print(stats["loss"] / stats["samples"])

    Outside of ``synchronized`` values can only be added: reads find nothing, and ``stats["a"] = b``
    raises TypeError. Inside it is a dictionary of all ranks' sums; all ranks must change it alike.
    Values that a rank has added since the last synchronization are lost with that rank.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes a dictionary's arguments. Raises RuntimeError inside of a loop over a loader."""
        _data.refuse_in_loop("an Accumulator")
        self._results: dict[Any, Any] = dict(*args, **kwargs)
        self._updates: dict[Any, Any] = {}  # this rank's updates, not summed yet
        # Updates of the current step, which may have to be done again.
        self._tried: dict[Any, Any] = {}
        # The results shown inside of synchronized; None: outside.
        self._shown: dict[Any, Any] | None = None
        self._replayed: dict[int | None, int] = {}
        self._history = _History(self)

    # ---- adding ----

    def update(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Adds values by key, of a mapping or of pairs."""
        self._add(dict(*args, **kwargs), 1)

    def subtract(self, *args: Any, **kwargs: Any) -> None:
        """Subtracts values by key."""
        self._add(dict(*args, **kwargs), -1)

    def __iadd__(self, other: _Values) -> Accumulator:
        self._add(dict(other), 1)
        return self

    def __isub__(self, other: _Values) -> Accumulator:
        self._add(dict(other), -1)
        return self

    def _add(self, other: Mapping[Any, Any], sign: int) -> None:
        into = self._shown
        if into is None:
            loop = _data.training_loop()
            into = self._updates if loop is None else self._tried
            if loop is not None:
                loop.tell_after(self._try_is_over)
        _add_to(into, other if sign > 0 else {key: -value for key, value in other.items()})

    def _try_is_over(self, well: bool) -> None:
        """Called when the step is over in which something was added: drops it if
        the step is done again.
        """
        if well:
            _add_to(self._updates, self._tried)
        self._tried = {}

    def __getitem__(self, key: Any) -> Any:
        return _Slot() if self._shown is None else self._shown[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._shown is not None:
            self._shown[key] = value
            return
        if not isinstance(value, _Slot):
            raise TypeError(f"accumulator: {key!r} can only be added to, with += and -=")
        for term, sign in value.added:
            self._add({key: term}, sign)

    # ---- reading ----

    def __delitem__(self, key: Any) -> None:
        del self._visible()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._visible())

    def __len__(self) -> int:
        return len(self._visible())

    def __contains__(self, key: object) -> bool:
        return key in self._visible()

    def __repr__(self) -> str:
        return f"Accumulator({self._visible()!r})"

    def _visible(self) -> dict[Any, Any]:
        return {} if self._shown is None else self._shown

    @contextmanager
    def synchronized(self) -> Iterator[Accumulator]:
        """Sums the updates of all ranks; all ranks call it. Inside of another
        synchronized it does nothing.
        """
        if self._shown is not None:
            yield self
            return
        if _data.current_dataloader() is None:
            self._shown = self._replay_or_sum()
        else:
            self._shown = self._sum()
        try:
            yield self
        finally:
            self._shown = None

    def _replay_or_sum(self) -> dict[Any, Any]:
        """Between loops. After a restart, returns the results of that time, since the samples are
        not computed again. Results that were there when the job was saved may be of later loops,
        and stay.
        """
        epoch = _epochs.current_epoch()
        self._history.drop_before(_epochs.finished_epochs())
        done = self._history.results.setdefault(epoch, [])
        at = self._replayed.get(epoch, 0)
        self._replayed[epoch] = at + 1
        if at < len(done):
            self._updates.clear()
            return dict(done[at])
        done.append(dict(self._sum()))
        return self._results

    def _sum(self) -> dict[Any, Any]:
        """Adds all ranks' updates to the results, at all ranks."""
        self._try_is_over(True)
        for updates in _context.job().agree_objects(self._updates):
            _add_to(self._results, updates)
        self._updates = {}
        return self._results


def _add_to(into: dict[Any, Any], other: Mapping[Any, Any]) -> None:
    for key, value in other.items():
        into[key] = into[key] + value if key in into else value
