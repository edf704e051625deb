"""A measured step as a trace: what each stage computed when. docs/pipeline.md has the format."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pawl.errors import error
from pawl.pipeline._notes import BACKWARD, FORWARD, INPUTS, PARAMETERS

if TYPE_CHECKING:
    from pawl.pipeline._world import World

_NAMES: Final = {
    FORWARD: ("F", "forward"),
    BACKWARD: ("B", "backward"),
    INPUTS: ("I", "backward, inputs"),
    PARAMETERS: ("W", "backward, parameters"),
}
_JOIN_NS: Final = 200_000  # calls of one task that follow each other sooner are one bar


class Recorder:
    """What one rank computes in a step."""

    def __init__(self) -> None:
        self.begun_ns = time.time_ns()
        self._bars: list[list[Any]] = []  # kind, microbatch, begin, end

    def add(self, task: tuple[int, int, int], begun_ns: int) -> None:
        """A call of a task has ended now."""
        ended_ns = time.time_ns()
        kind, _, microbatch = task
        last = self._bars[-1] if self._bars else None
        if last and last[:2] == [kind, microbatch] and begun_ns - last[3] < _JOIN_NS:
            last[3] = ended_ns
        else:
            self._bars.append([kind, microbatch, begun_ns, ended_ns])

    def encode(self) -> bytes:
        """For the rank that writes the trace."""
        return json.dumps([self.begun_ns, time.time_ns(), self._bars]).encode()


def write(path: Path, world: World, recorder: Recorder) -> None:
    """Gathers a step from the ranks of a pipeline. Its first stage writes the file; all call it."""
    found = world.gather_bytes(recorder.encode())
    if found is None or world.replica != 0:
        return
    stages = [json.loads(data) for data in found]
    start = min(stage[0] for stage in stages)
    first = min((bar[2] for stage in stages for bar in stage[2]), default=start)
    lines = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 1,
            "args": {"name": f"measured, {len(stages)} stages"},
        }
    ]
    for tid, (_, _, bars) in enumerate(stages):
        for kind, microbatch, begun, ended in bars:
            letter, category = _NAMES[kind]
            lines.append(
                {
                    "name": f"{letter}{microbatch}",
                    "cat": category,
                    "ph": "X",
                    "pid": 1,
                    "tid": tid,
                    "ts": (begun - first) / 1e3,
                    "dur": (ended - begun) / 1e3,
                    "args": {"microbatch": microbatch},
                }
            )
    step_s = (max(stage[1] for stage in stages) - first) / 1e9
    head = json.dumps({"step_s": step_s})
    text = ",\n".join(json.dumps(line) for line in lines)
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(f'{{"otherData": {head}, "traceEvents": [\n{text}\n]}}\n')
        os.replace(part, path)
    except OSError as raised:
        raise error("PAWL_EIO", f"pipeline: write trace {path}: {raised.strerror}") from None
