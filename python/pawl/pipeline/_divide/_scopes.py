"""What a trace of a step says: calls of modules, and the tensors between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Final

from torch import Tensor

from pawl.pipeline._divide._tree import Node

OUTSIDE: Final = 0  # index of the scope that is outside of all modules


@dataclasses.dataclass
class Token:
    """A tensor that passed the border of a scope."""

    len_bytes: int
    scope: int  # the call that gave it, or in which it was first seen
    given: bool  # a result of that call
    source: int | None  # token that it is another name for, inside of the call


@dataclasses.dataclass
class Scope:
    """One call of a module, or what is outside of all."""

    node: Node | None  # None: outside
    caller: int  # index of the scope that called
    forward_s: float = 0.0  # without the scopes that it called
    backward_s: float = 0.0
    inputs_s: float = 0.0  # the backward pass, divided in two; 0: not measured
    params_s: float = 0.0
    saved: dict[Hashable, int] = dataclasses.field(default_factory=dict)  # storage -> bytes
    takes: list[int] = dataclasses.field(default_factory=list)  # tokens of its arguments
    gives: list[int] = dataclasses.field(default_factory=list)  # tokens of its results
    reads: set[int] = dataclasses.field(default_factory=set)  # tokens that its operators read
    param_reads: set[str] = dataclasses.field(default_factory=set)  # parameters, by those too
    buffer_reads: set[str] = dataclasses.field(default_factory=set)
    called: set[int] = dataclasses.field(default_factory=set)  # identities of modules it called
    needs: dict[int, set[int]] = dataclasses.field(default_factory=dict)
    wanted: set[str] = dataclasses.field(default_factory=set)  # parameters with a gradient
    operators: int = 0  # operators on tensors with a graph, outside of the scopes that it called
    # Paths of modules that draw random numbers themselves: its own, outside of the scopes that it
    # called; and where activations are computed again, those of modules that it called.
    draws: set[str] = dataclasses.field(default_factory=set)
    changes: tuple[str, ...] = ()  # arguments changed in place
    updates: bool = False  # the call changes buffers
    repeated: bool = False  # called where activations are computed again (checkpoint)
    # the graph's ends, until its backward pass has run
    roots: list[tuple[Tensor, int]] = dataclasses.field(default_factory=list)
    leaves: list[tuple[Tensor, int]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Trace:
    """What was recorded."""

    scopes: list[Scope]
    tokens: list[Token]
    reached: set[int]  # scopes whose results the loss depends on
    total_s: float  # time of all scopes
    backwards: int  # how often the step asked for a backward pass
