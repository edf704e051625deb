"""A job's states, which are saved and loaded by name wherever the job goes on."""

from __future__ import annotations

import io
import re
from typing import Any, Final, Protocol

import torch

from pawl.elastic import _wire


class Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Reader(Protocol):
    def read(self, n: int = ..., /) -> bytes: ...


_OF_EPOCH: Final = re.compile(r"adaptdl-(?:dataloader|accumulator)-epoch(\d+)-\d+")
_MADE_LATE: Final = re.compile(r"adaptdl-(?:dataloader|accumulator)-")

_states: dict[str, State] = {}
# Values for states to come, sent by a rank, or read from a checkpoint: bytes as a tensor, or the
# object of an ObjectState.
_pending: dict[str, Any] = {}
_waiting: list[State] = []  # states made before it is known whether there are values


def file_of(name: str) -> str:
    """The file of a state in a checkpoint; file names there never begin with a dot."""
    return name.lstrip(".")


def zipped(saved: Any) -> bytes:
    """An object as torch.save writes it."""
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    return buffer.getvalue()


class State:
    """Something that outlives a restart; override ``save``, ``load`` and, if need be, ``sync``."""

    def __init__(self, name: str) -> None:
        """``name``: unique in the job. Raises ValueError if it is taken."""
        if name in _states:
            raise ValueError(f"State {name!r} already exists")
        self.name = name
        _states[name] = self

    def save(self, fileobj: Writer) -> None:
        """Called at rank 0."""

    def load(self, fileobj: Reader) -> None:
        """Called at all ranks, with what was saved."""

    def sync(self) -> None:
        """Called at all ranks before rank 0 saves."""


def bytes_of(state: State) -> bytes:
    """The bytes that a state saves."""
    buffer = io.BytesIO()
    state.save(buffer)
    return buffer.getvalue()


class ObjectState(State):
    """A state whose value is an object of tensors, which checkpoints copy while
    training goes on.
    """

    def pack(self) -> Any:
        """Returns the object to save."""
        raise NotImplementedError

    def unpack(self, saved: Any) -> None:
        """Takes the object back."""
        raise NotImplementedError

    def save(self, fileobj: Writer) -> None:
        torch.save(self.pack(), fileobj)

    def load(self, fileobj: Reader) -> None:
        self.unpack(torch.load(fileobj, weights_only=False))


def load_state(state: State) -> bool:
    """Loads the saved value of a state; False: there is none."""
    from pawl.elastic import _context  # imported here: _context needs this module

    _context.job()  # reads the saved values
    value = _pending.pop(file_of(state.name), None)
    if value is None:
        return False
    if isinstance(state, ObjectState) and not isinstance(value, torch.Tensor):
        state.unpack(value)
    else:
        state.load(io.BytesIO(value.numpy().tobytes()))
    return True


def unclaimed() -> list[str]:
    """Files of states that were saved, and that the program has not made by now. Loaders and
    accumulators may still come: they are made when they are needed.
    """
    return sorted(name for name in _pending if not _MADE_LATE.match(name))


def load_when_known(state: State) -> None:
    """Loads the saved value of a state: at once if this process has met the others of its job, else
    when it has. Never waits.
    """
    from pawl.elastic import _context

    if _context.known() is None:
        _waiting.append(state)
    else:
        load_state(state)


def load_waiting() -> None:
    """Called once the saved values are known: loads the states that wait for them."""
    while _waiting:
        load_state(_waiting.pop(0))


def drop_before(epoch: int) -> None:
    """Drops states that were made in epochs that are over: they do not come again."""
    for names in (_states, _pending):
        for name in list(names):
            made = _OF_EPOCH.fullmatch(name)
            if made and int(made[1]) < epoch:
                del names[name]


def is_kept(state: State) -> bool:
    """Whether a state was not dropped."""
    return _states.get(state.name) is state


def every() -> list[State]:
    """All states, in the order in which they were made."""
    return list(_states.values())


def pack() -> dict[str, Any]:
    """All states' current values, by file: to be sent to another rank."""
    return {
        file_of(state.name): state.pack()
        if isinstance(state, ObjectState)
        else _wire.raw(bytes_of(state))
        for state in every()
    }


def promise(packed: dict[str, Any]) -> None:
    """Keeps values, which are loaded when their states are made."""
    _pending.update(packed)


def unpack(packed: dict[str, Any]) -> None:
    """Loads values: for states that do not exist yet, when they are made."""
    promise(packed)
    for state in every():
        load_state(state)
