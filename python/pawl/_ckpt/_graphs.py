"""CUDA graphs that step an optimizer: no hook and no counter shows the changes by their replays.

Before such a replay everything is fenced. A graph counts as one unless its capture was observed and
no optimizer stepped in it: graphs of forward and backward passes go on while a save is copied.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

_steps = 0  # optimizer steps that were captured
# Graph under capture -> _steps at its begin.
_began: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_harmless: weakref.WeakSet[Any] = weakref.WeakSet()  # graphs captured without an optimizer step


def captures_step() -> bool:
    """Called in an optimizer's step: whether a graph is being captured, so that
    nothing changes yet.
    """
    global _steps
    if not torch.cuda.is_initialized() or not torch.cuda.is_current_stream_capturing():
        return False
    _steps += 1
    return True


def classes() -> list[Any]:
    """torch's classes of graphs: torch 2.13, for one, has a second."""
    other = getattr(getattr(torch, "accelerator", None), "Graph", None)
    return [torch.cuda.CUDAGraph, *([other] if other is not None else [])]


def install(fence_all: Callable[[], None], graphs: Any) -> None:
    """Has ``fence_all`` called before every replay that may change memory.

    Calls it before a capture, too: a captured step moves version counters and changes nothing.
    ``graphs``: a class of graphs.
    """
    begin, end, replay = graphs.capture_begin, graphs.capture_end, graphs.replay

    @functools.wraps(begin)
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
        fence_all()
        _harmless.discard(graph)
        _began[graph] = _steps
        begin(graph, *args, **kwargs)

    @functools.wraps(end)
    def capture_end(graph: Any) -> None:
        end(graph)
        if _began.pop(graph, None) == _steps:
            _harmless.add(graph)

    @functools.wraps(replay)
    def fenced_replay(graph: Any) -> None:
        if graph not in _harmless:
            fence_all()
        replay(graph)

    graphs.capture_begin, graphs.capture_end = capture_begin, capture_end
    graphs.replay = fenced_replay
