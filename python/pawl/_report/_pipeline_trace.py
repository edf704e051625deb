"""The trace of a pipeline's step, as `pawl pipe show --trace` writes it (docs/pipeline.md)."""

from __future__ import annotations

import io
import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

STAGES_MAX: Final = 256  # include/pawl/pipe.h has the same limits
MICROBATCHES_MAX: Final = 4096
TASKS_MAX: Final = 1 << 22
BYTES_MAX: Final = 1 << 30
WHOLE_BYTES_MAX: Final = 1 << 27  # limit of a file that has not one event in a line

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
INPUTS: Final = "backward, inputs"
PARAMETERS: Final = "backward, parameters"
KINDS: Final = (FORWARD, BACKWARD, INPUTS, PARAMETERS)

_US: Final = 1e-6  # times of a trace are in microseconds
_TIME_MAX: Final = 1e18
_MEMORY: Final = "memory of stage "
_LINES_BYTES: Final = 1 << 22  # size of the lines that are decoded at once
_REMEDY: Final = "`pawl pipe show --trace FILE` writes one"
_OTHERS: Final = {
    "pipe_plan": "a plan: `pawl pipe show MODEL.json --stages N --trace FILE` writes its trace",
    "pipe_model": "a model: `pawl pipe show` with --stages N --trace FILE writes a trace",
}


@dataclass
class Tasks:
    """Columns of the tasks of one kind. Times in seconds from the step's begin."""

    stage: array[int] = field(default_factory=lambda: array("H"))
    microbatch: array[int] = field(default_factory=lambda: array("H"))
    begun: array[float] = field(default_factory=lambda: array("d"))
    ended: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class Trace:
    name: str = ""
    tasks: dict[str, Tasks] = field(default_factory=lambda: {kind: Tasks() for kind in KINDS})
    # Lowest and highest bytes of each stage of which the trace has them.
    memory: dict[int, tuple[float, float]] = field(default_factory=dict)
    stages: int = 0
    finish_s: float = 0.0  # end of the last task
    step_s: float = 0.0  # end of the step, not before finish_s

    @property
    def count(self) -> int:
        """Number of tasks."""
        return sum(len(tasks.stage) for tasks in self.tasks.values())

    @property
    def idle(self) -> float:
        """The share of the stages' time until the last task's end in which no task ran."""
        busy = sum(sum(tasks.ended) - sum(tasks.begun) for tasks in self.tasks.values())
        return max(0.0, 1 - busy / (self.stages * self.finish_s))


def read(path: Path) -> Trace:
    """Reads a trace. Raises FileNotFoundError; OSError; ValueError naming the file and what is
    wrong.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such trace; {_REMEDY}") from None
    with file:
        source: BinaryIO = file
        if not file.seekable():  # a pipe is read once
            source = io.BytesIO(file.read(WHOLE_BYTES_MAX + 1))
        try:
            size = source.seek(0, io.SEEK_END)
            if size > BYTES_MAX:
                raise ValueError(f"over {BYTES_MAX >> 30} GiB, the limit of a trace")
            return _read(source, size)
        except ValueError as reason:
            raise ValueError(f"{path}: {reason}") from None


class _OtherLayoutError(Exception):
    """The file has not one event in a line."""


def _read(source: BinaryIO, size: int) -> Trace:
    source.seek(0)
    try:
        return _collect(_by_lines(source))
    except _OtherLayoutError:
        pass
    if size > WHOLE_BYTES_MAX:
        raise ValueError(
            f"over {WHOLE_BYTES_MAX >> 20} MiB, and not JSON with one event in a line: {_REMEDY}"
        )
    source.seek(0)
    return _collect(_at_once(source.read()))


# ---- events ----


def _by_lines(source: BinaryIO) -> Iterator[Any]:
    """What is beside the events, then each event, of a file with one of them in a line.

    Only some lines are in memory at a time: the largest trace would take gigabytes.
    """
    document = _decode(source.readline(_LINES_BYTES).strip() + b"]}")
    if [*document][-1:] != ["traceEvents"]:
        raise _OtherLayoutError
    yield document
    ended = False
    while lines := source.readlines(_LINES_BYTES):
        text = b"".join(lines).strip()
        if ended and text:
            raise _OtherLayoutError
        ended = text.endswith(b"]}")
        text = text.removesuffix(b"]}").strip().strip(b",")
        yield from _decode(b"[" + text + b"]")
    if not ended:
        raise _OtherLayoutError


def _decode(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _OtherLayoutError from None


def _at_once(text: bytes) -> Iterator[Any]:
    """The same of any file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise ValueError(f"not JSON: {reason}; {_REMEDY}") from None
    if isinstance(document, list):
        document = {"traceEvents": document}
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        kind = next((key for key in _OTHERS if isinstance(document, dict) and key in document), "")
        if kind:
            raise ValueError(f"not a trace, but {_OTHERS[kind]}")
        raise ValueError(f"not a trace: it has no list traceEvents; {_REMEDY}")
    yield document
    yield from events


# ---- what the events say ----


def _collect(events: Iterator[Any]) -> Trace:
    """Makes a trace of the document, which comes first, and its events."""
    trace = Trace()
    document = next(events)
    stages: dict[str, int] = {}  # by the names of the counters
    process = None
    for at, event in enumerate(events):
        try:
            phase = event.get("ph")
            if phase == "X":
                kind = trace.tasks.get(event.get("cat"))
                if kind is None:
                    continue
                _add_task(kind, event)
                if process is None:
                    process = event.get("pid")
                elif process != event.get("pid"):
                    raise ValueError("a task of another pid: a trace has one pipeline")
            elif phase == "C":
                _add_memory(trace, stages, event)
            elif phase == "M" and event.get("name") == "process_name":
                trace.name = str(event.get("args", {}).get("name", ""))
        except ValueError as reason:
            raise ValueError(f"event {at}: {reason}") from None
        except (AttributeError, TypeError):
            raise ValueError(f"event {at}: not an event: {str(event)[:80]}") from None
    _finish(trace, document)
    return trace


def _number(event: dict[str, Any], key: str, least: float) -> float:
    value = event.get(key)
    if type(value) not in (int, float) or not least <= value <= _TIME_MAX:
        raise ValueError(f"{key} must be a number{' from 0 on' if least == 0 else ''}")
    return value


def _whole(event: dict[str, Any], key: str, limit: int) -> int:
    value = event.get(key)
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{key} must be a whole number from 0 to {limit - 1}")
    return value


def _add_task(tasks: Tasks, event: dict[str, Any]) -> None:
    begun = _number(event, "ts", -_TIME_MAX) * _US
    tasks.stage.append(_whole(event, "tid", STAGES_MAX))
    tasks.microbatch.append(_whole(event.get("args", {}), "microbatch", MICROBATCHES_MAX))
    tasks.begun.append(begun)
    tasks.ended.append(begun + _number(event, "dur", 0) * _US)
    if len(tasks.stage) > TASKS_MAX:
        raise ValueError(f"more than {TASKS_MAX} tasks of one kind")


def _add_memory(trace: Trace, stages: dict[str, int], event: dict[str, Any]) -> None:
    name = event.get("name")
    stage = stages.get(name)
    if stage is None:
        if not name.startswith(_MEMORY):
            return
        number = name.removeprefix(_MEMORY)
        stage = int(number) if number.isdecimal() else STAGES_MAX
        if stage >= STAGES_MAX:
            raise ValueError(f"{name[:80]}: a number from 0 to {STAGES_MAX - 1} is needed")
        stages[name] = stage
    count = _number(event.get("args", {}), "bytes", 0)
    known = trace.memory.get(stage)
    if known is None:
        trace.memory[stage] = (count, count)
    elif not known[0] <= count <= known[1]:
        trace.memory[stage] = (min(known[0], count), max(known[1], count))


def _finish(trace: Trace, document: dict[str, Any]) -> None:
    """Counts times from the first task on, and sums up."""
    if trace.count == 0:
        raise ValueError(
            f"there is no task in it: no event with ph X and cat {FORWARD} or {BACKWARD}; {_REMEDY}"
        )
    some = [tasks for tasks in trace.tasks.values() if tasks.stage]
    zero = min(min(tasks.begun) for tasks in some)
    if zero != 0:
        for tasks in some:
            tasks.begun = array("d", [time - zero for time in tasks.begun])
            tasks.ended = array("d", [time - zero for time in tasks.ended])
    trace.stages = 1 + max(max(tasks.stage) for tasks in some)
    trace.memory = {stage: of for stage, of in trace.memory.items() if stage < trace.stages}
    trace.finish_s = max(max(tasks.ended) for tasks in some)
    if trace.finish_s <= 0:
        raise ValueError("all of its tasks take no time: dur is in microseconds")
    other = document.get("otherData")
    step_s = other.get("step_s", 0.0) if isinstance(other, dict) else 0.0
    if type(step_s) not in (int, float) or not 0 <= step_s <= _TIME_MAX:
        raise ValueError("step_s of otherData must be a number from 0 on")
    trace.step_s = max(trace.finish_s, step_s)
