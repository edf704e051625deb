"""`pawl pipe draw`: traces are read as they are written, whatever their layout; what is in the
picture; what is refused, and by which exit code."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import program
from pawl import report
from pawl._report import _pipeline_report, _pipeline_trace
from pawl._report._pipeline_trace import BACKWARD, FORWARD, Trace

PROGRAM = program.find()
GIB = 1 << 30
SUMS = {"step_s": 0.5}  # seconds of a step that ends after its last task


def task(
    stage: int, kind: str, microbatch: int, begun: float, took: float, **fields: Any
) -> dict[str, Any]:
    """An event. Times in seconds."""
    args = {"chunk": stage, "microbatch": microbatch}
    event = {"ph": "X", "name": f"{kind[0]}{microbatch}", "cat": kind, "pid": 0, "tid": stage}
    return {**event, "ts": begun * 1e6, "dur": took * 1e6, "args": args, **fields}


def memory(stage: object, count: object) -> dict[str, Any]:
    args = {"bytes": count}
    return {"ph": "C", "name": f"memory of stage {stage}", "pid": 0, "ts": 0, "args": args}


def document(*events: Any, **fields: Any) -> dict[str, Any]:
    name = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "two stages, $made$ up"}}
    return {"displayTimeUnit": "ms", **fields, "traceEvents": [name, *events]}


STEP = (
    task(0, FORWARD, 0, 0, 0.1),
    task(1, FORWARD, 0, 0.1, 0.1),
    task(1, BACKWARD, 0, 0.2, 0.1),
    task(0, BACKWARD, 0, 0.3, 0.1),
    memory(0, 2 * GIB),
    memory(0, 5 * GIB),
    memory(0, 2 * GIB),
    memory(1, 3 * GIB),
)


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def show(folder: Path, *options: str | Path) -> Any:
    rows = [{"name": f"h.{u}", "forward_s": 0.01, "backward_s": 0.02} for u in range(8)]
    for row in rows:
        row |= {"param_bytes": 1 << 20, "saved_bytes": 1 << 18, "weight_s": 0.01}
    model = write(folder / "model.json", {"pipe_model": 1, "name": "made-up", "units": rows})
    size = ("--stages", "4", "--microbatches", "8", "--json")
    done = program.run("pipe", "show", model, *size, *options)
    assert done.returncode == 0 and done.stderr == "", done
    return json.loads(done.stdout)


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    plan = show(tmp_path, "--schedule", "zero-bubble", "--trace", path)
    trace, of = _pipeline_trace.read(path), plan["report"]
    assert trace.name == "made-up, zero-bubble, predicted"
    assert (trace.stages, trace.count) == (4, 4 * 8 * 3)
    assert [len(tasks.stage) for tasks in trace.tasks.values()] == [32, 0, 32, 32]
    assert trace.step_s == pytest.approx(of["step_s"])
    assert trace.finish_s == pytest.approx(of["finish_s"])
    busy = sum(stage["busy_s"] for stage in of["stages"])
    assert trace.idle == pytest.approx(1 - busy / (4 * of["finish_s"]))
    peaks = [trace.memory[s][1] for s in range(4)]
    assert peaks == [stage["peak_bytes"] for stage in of["stages"]]
    assert [trace.memory[s][0] for s in range(4)] == [s["state_bytes"] for s in plan["stages"]]
    # Other layouts are read at once.
    events = json.loads(path.read_text())
    for other in (json.dumps(events), json.dumps(events, indent=1)):
        (tmp_path / "other.json").write_text(other)
        assert _pipeline_trace.read(tmp_path / "other.json") == trace


def test_times_begin_with_the_first_task(tmp_path: Path) -> None:
    later = [{**event, "ts": event["ts"] + 7e12} for event in STEP]
    trace = _pipeline_trace.read(write(tmp_path / "t.json", later))  # a list is a trace, too
    assert trace.tasks[FORWARD].begun.tolist() == pytest.approx([0, 0.1], abs=1e-3)
    assert trace.step_s == trace.finish_s == pytest.approx(0.4, abs=1e-3)
    assert trace.idle == pytest.approx(0.5, abs=1e-2)
    assert trace.memory == {0: (2 * GIB, 5 * GIB), 1: (3 * GIB, 3 * GIB)}


def comments(svg: str) -> list[str]:
    """The texts of a picture: matplotlib draws their letters, and writes them in comments."""
    return re.findall(r"<!-- (.*) -->", svg)


def boxes(svg: str, name: str) -> int:
    """The number of boxes in a group; -1: there is no such group."""
    group = re.search(rf'<g id="{name}">(.*?)</g>', svg, re.S)
    return group[1].count("<path ") if group else -1


def test_the_picture_shows_all_tasks(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    show(tmp_path, "--schedule", "1f1b", "--trace", tmp_path / "1f1b.json")
    step = write(tmp_path / "step.json", document(*STEP, otherData=SUMS))
    out = tmp_path / "picture.svg"
    _pipeline_report.write_picture([tmp_path / "1f1b.json", step], out)
    svg = out.read_text()
    names = ("forward-0", "backward-0", "forward-1", "backward-1", "backward-inputs-0")
    assert [boxes(svg, name) for name in names] == [32, 32, 2, 2, -1]
    texts = comments(svg)
    for said in (
        "made-up, 1f1b, predicted", "step 660 ms, idle 27.3 %", "two stages, $made$ up",
        "step 500 ms, idle 50 %", "time, ms", "backward", "rest of the step", "5.0 GiB", "3.0 GiB",
    ):  # fmt: skip
        assert said in texts, (said, texts)
    assert texts.count("7") >= 8  # the last microbatch, forwards and backwards on each stage


def test_many_tasks_become_an_image(tmp_path: Path) -> None:
    """Its colours are as bright on average as the tasks."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    trace = Trace("many", stages=2, finish_s=1.0, step_s=1.0)
    for stage, i in itertools.product(range(2), range(4000)):
        kind = trace.tasks[FORWARD if i % 2 else BACKWARD]
        kind.stage.append(stage)
        kind.microbatch.append(i // 2)
        kind.begun.append(i / 4000)
        kind.ended.append((i + 0.75) / 4000)
    figure = _pipeline_report.draw([trace])
    (image,) = figure.axes[0].images
    colors = [_pipeline_report.COLORS[kind] for kind in (FORWARD, BACKWARD)]
    for channel, at in enumerate((1, 3, 5)):  # "#06356B"
        ink = sum(int(color[at : at + 2], 16) / 255 for color in colors) / 2
        assert image.get_array()[..., channel].mean() == pytest.approx(0.25 + 0.75 * ink, abs=1e-3)
    assert len(figure.axes[0].texts) == 0 and len(figure.axes[0].collections) == 1  # lines only
    pyplot.close(figure)


def test_a_plan_is_printed_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = show(tmp_path, "--picture", tmp_path / "step.png", "--python", sys.executable)
    assert plan["report"]["stages"]
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


def test_the_program_draws_traces(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    by = ("--python", sys.executable)
    step = write(tmp_path / "step.json", document(*STEP))
    done = program.run("pipe", "draw", step, step, "-o", tmp_path / "step.svg", *by)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert boxes((tmp_path / "step.svg").read_text(), "forward-1") == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["draw"], "TRACE.json is missing"),
        (["draw", "t.json"], "--out FILE is missing"),
        (["draw", "t.json", "--out", "t.pdf"], "--out t.pdf: a name that ends in .png or .svg"),
        (["draw", *["t.json"] * 17, "--out", "t.png"], "at most 16 traces"),
        (["show", "m.json", "--stages", "2", "--picture", "t"], "--picture t: a name that ends in"),
        (["show", "m.json", "--stages", "2", "--python", "p"], "--python is for --picture"),
    ],
)
def test_usage_errors_of_pictures(options: list[str], what: str) -> None:
    done = program.run("pipe", *options)
    assert done.returncode == 2 and done.stdout == "" and what in done.stderr, done
    assert done.stderr.count("\n") == 1 and f"see pawl pipe {options[0]} --help" in done.stderr


FIRST = STEP[0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "not JSON: Expecting property name"),
        ('{"displayTimeUnit":"ms","traceEvents":[\n{"ph":"X"},\n', "not JSON: "),
        ('{"traceEvents":[\n{"ph":"M"}\n]}\n{}', "not JSON: Extra data"),
        ("[" * 100_000, "not JSON: "),
        ("[]", "there is no task in it"),
        ({"displayTimeUnit": "ms"}, "it has no list traceEvents"),
        ({"pipe_plan": 1}, "not a trace, but a plan: `pawl pipe show MODEL.json"),
        ({"pipe_model": 1}, "not a trace, but a model: `pawl pipe show`"),
        (document(3), "event 1: not an event: 3"),
        (document({**FIRST, "args": None}), "event 1: not an event: {"),
        (document({**FIRST, "ts": "soon"}), "event 1: ts must be a number"),
        (document({**FIRST, "ts": float("nan")}), "event 1: ts must be a number"),
        (document({**FIRST, "dur": 0}), "all of its tasks take no time"),
        (document(FIRST, {**FIRST, "dur": -1}), "event 2: dur must be a number from 0 on"),
        (document({**FIRST, "tid": 256}), "event 1: tid must be a whole number from 0 to 255"),
        (document(task(0, FORWARD, 4096, 0, 1)), "event 1: microbatch must be a whole number"),
        (document(FIRST, {**FIRST, "pid": 1}), "event 2: a task of another pid"),
        (document(FIRST, memory("x", 1)), "event 2: memory of stage x: a number from 0 to 255"),
        (document(FIRST, memory(0, "lots")), "event 2: bytes must be a number"),
        (document(FIRST, otherData={"step_s": -1}), "step_s of otherData must be a number"),
    ],
)
def test_files_that_are_no_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, what: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert report.main(["--pipeline", "--out", str(tmp_path / "t.png"), str(path)]) == 4
    said = capsys.readouterr().err
    assert said.startswith(f"pawl pipe draw: {path}: ") and what in said, said
    assert not (tmp_path / "t.png").exists()


def test_files_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    step = write(tmp_path / "step.json", document(*STEP))
    (tmp_path / "folder.png").mkdir()
    for trace, out, code, what in (
        ("none.json", "t.png", 3, "none.json: there is no such trace; `pawl pipe show --trace"),
        ("step.json", "no/t.png", 3, "no/t.png: there is no such directory; make it first"),
        ("step.json", "folder.png", 1, "folder.png"),
    ):
        words = ["--pipeline", "--out", str(tmp_path / out), "--", str(tmp_path / trace)]
        assert report.main(words) == code
        said = capsys.readouterr().err
        assert said.startswith("pawl pipe draw: ") and what in said
    done = program.run("pipe", "draw", step, "--out", "t.png", "--python", "/none")
    assert done.returncode == 3 and "/none" in done.stderr


def test_without_matplotlib_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('no')\n")
    step = write(tmp_path / "step.json", document(*STEP))
    done = program.run(
        "pipe", "draw", step, "--out", tmp_path / "t.png", "--python", sys.executable,
        env=program.clean_env(PYTHONPATH=f"{tmp_path}:{program.PYTHON_DIR}"),
    )  # fmt: skip
    assert done.returncode == 1 and "pip install 'pawl[report]'" in done.stderr
