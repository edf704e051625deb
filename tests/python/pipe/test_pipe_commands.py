"""`pawl pipe`: plans as text, JSON and traces; what is refused, and by which exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import program

PROGRAM = program.find()


def make_model(units: int = 8, **fields: Any) -> dict[str, Any]:
    rows = [
        {"name": f"h.{u}", "forward_s": 0.01, "backward_s": 0.02, "param_bytes": 1 << 20}
        for u in range(units)
    ]
    for row in rows:
        row |= {"saved_bytes": 1 << 18, "cut_bytes": 1 << 16}
    return {"pipe_model": 1, "name": "made-up", "units": rows, **fields}


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "model.json", make_model())


def show(model: Path, *options: str) -> Any:
    done = program.run("pipe", "show", model, "--stages", "4", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_says_what_it_takes_and_why(model: Path) -> None:
    done = program.run("pipe", "show", model, "--stages", "4", "--microbatches", "8")
    assert done.returncode == 0 and done.stderr == ""
    assert "made-up: 8 units, 80 ms forward and 160 ms backward" in done.stdout
    assert (
        "schedule interleaved, 2 chunks a stage: a step takes 570 ms, bubble 0.1875" in done.stdout
    )
    assert "no cut has less than 30 ms (proven)" in done.stdout
    assert "\n* interleaved, 2 chunks a stage" in done.stdout
    assert "8 units cannot fill 12 chunks" in done.stdout  # 3 chunks a stage


def test_the_document_of_a_plan_can_be_verified(model: Path, tmp_path: Path) -> None:
    plan = show(model, "--schedule", "1f1b", "--microbatches", "8")
    assert plan["schedule"] == "1f1b" and len(plan["stages"]) == len(plan["chunks"]) == 4
    assert plan["report"]["step_s"] == pytest.approx(11 * 0.06)
    assert plan["largest_s"] == pytest.approx(0.06) == plan["bound"]
    done = program.run("pipe", "verify", write(tmp_path / "plan.json", plan), "--json")
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout) == {"valid": True, "report": plan["report"]}
    text = program.run("pipe", "verify", tmp_path / "plan.json").stdout
    assert "4 stages, 4 chunks, 8 microbatches: a step takes 660 ms, bubble 0.3750" in text


def test_plans_pass_through_pipes(model: Path) -> None:
    command = f"{PROGRAM} pipe show - --stages 2 --json | {PROGRAM} pipe verify - --json"
    with open(model) as source:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], stdin=source, env=program.clean_env(),
            capture_output=True, text=True, check=False, timeout=program.LIMIT_S,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["valid"] is True


def test_a_deadlock_is_named(model: Path, tmp_path: Path) -> None:
    plan = show(model, "--schedule", "1f1b", "--microbatches", "2")
    plan["stages"][0]["tasks"] = "0F0 0B0 0F1 0B1"
    plan["stages"][1]["tasks"] = "1F0 1F1 1B0 1B1"
    done = program.run("pipe", "verify", write(tmp_path / "plan.json", plan), "--json")
    assert done.returncode == 4
    answer = json.loads(done.stdout)
    assert answer["valid"] is False and "wait for each other for ever" in answer["reason"]
    assert {"stage": 1, "task": "1F1", "needs": "0F1"} in answer["cycle"]
    assert "stage 1, before F of chunk 1, microbatch 1, waits for F of chunk 0" in done.stderr


def test_a_stage_without_enough_memory_is_named(model: Path, tmp_path: Path) -> None:
    plan = show(model, "--schedule", "1f1b")
    plan["stages"][2]["cap_bytes"] = 1000
    done = program.run("pipe", "verify", write(tmp_path / "plan.json", plan))
    assert done.returncode == 4
    assert "stage 2 needs 9.0 MiB at its peak, and has 1000 B" in done.stderr


def test_a_trace_has_all_tasks(model: Path, tmp_path: Path) -> None:
    plan = show(model, "--schedule", "1f1b", "--trace", str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tasks = [event for event in events if event["ph"] == "X"]
    assert len(tasks) == sum(len(stage["tasks"].split()) for stage in plan["stages"]) == 64
    ends = [task["ts"] + task["dur"] for task in tasks]
    assert max(ends) == pytest.approx(1e6 * plan["report"]["finish_s"])
    peaks = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert max(peaks) == max(stage["peak_bytes"] for stage in plan["report"]["stages"])


def test_predictions_are_those_of_the_plans(model: Path) -> None:
    done = program.run(
        "pipe", "predict", model, "--stages", "2,4", "--microbatches", "4,8", "--json"
    )
    assert done.returncode == 0 and done.stderr == ""
    rows = json.loads(done.stdout)
    assert len(rows) == 2 * 2 * 6  # all schedules but auto
    (row,) = [
        row for row in rows
        if (row["stages"], row["microbatches"], row["schedule"]) == (4, 8, "1f1b")
    ]  # fmt: skip
    assert row["step_s"] == pytest.approx(0.66) and row["speedup"] == pytest.approx(1.92 / 0.66)
    refused = {row["schedule"] for row in rows if "refused" in row}
    assert refused == {"zero-bubble", "zbv"}  # no unit has a weight_s
    text = program.run("pipe", "predict", model, "--stages", "4", "--schedule", "auto,1f1b").stdout
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ([], "--stages N is needed"),
        (["--stages", "0"], "from 1 to 256"),
        (["--stages", "2,4"], "pawl pipe predict compares several"),
        (["--stages", "4", "--schedule", "gpipe"], "--schedule gpipe"),
        (["--stages", "4", "--microbatches", "x"], "whole number"),
        (["--stages", "4", "--memory", "lots"], "--memory lots"),
        (["--stages", "4", "--memory", "1GiB,2GiB"], "2 entries for 4 stages"),
        (["--stages", "4", "--speeds", "0"], "--speeds 0"),
        (["--stages", "4", "--link", "1e9,x"], "--link x"),
        (["--stages", "4", "--tied", "both"], "replicate or visit"),
        (["--stages", "4", "--pin", "h.1"], "UNIT=STAGE"),
        (["--stages", "4", "--pin", "nobody=1"], "no unit of that name"),
        (["--stages", "4", "--memory-weight", "2"], "from 0 to 1"),
        (["--stages", "4", "b.json"], "unexpected argument b.json"),
    ],
)
def test_usage_errors(model: Path, options: list[str], what: str) -> None:
    done = program.run("pipe", "show", model, *options)
    assert done.returncode == 2 and done.stdout == "" and what in done.stderr, done
    assert done.stderr.count("\n") == 1 and "see pawl pipe show --help" in done.stderr


def test_impossible_plans_are_refused_by_name(model: Path) -> None:
    done = program.run("pipe", "show", model, "--stages", "4", "--memory", "3MiB")
    assert done.returncode == 2 and done.stdout == ""
    assert "pawl pipe show: unit h.0 alone needs 5.0 MiB" in done.stderr
    assert "would do" in done.stderr
    done = program.run("pipe", "show", model, "--stages", "9")
    assert done.returncode == 2 and "8 units cannot fill 9 chunks" in done.stderr
    back = ["pipe", "show", model, "--stages", "2", "--pin", "h.1=1", "--pin", "h.6=0"]
    done = program.run(*back, "--schedule", "1f1b")
    assert done.returncode == 2 and "h.1 is wanted on stage 1, and h.6, behind it" in done.stderr
    assert "schedule interleaved" in program.run(*back).stdout  # a later chunk of stage 0 has h.6


def test_files_that_are_missing_or_malformed(model: Path, tmp_path: Path) -> None:
    for command in (["show", "--stages", "2"], ["predict", "--stages", "2"], ["verify"]):
        done = program.run("pipe", *command, tmp_path / "none.json")
        assert done.returncode == 3 and "none.json" in done.stderr
        assert program.run("pipe", *command).returncode == 2
        malformed = tmp_path / "malformed.json"
        malformed.write_text("{")
        done = program.run("pipe", *command, malformed)
        assert done.returncode == 4 and "malformed.json: not JSON: line 1" in done.stderr
    document = make_model()
    document["units"][3]["forward_s"] = "long"
    done = program.run("pipe", "show", "--stages", "2", write(tmp_path / "wrong.json", document))
    assert done.returncode == 4
    assert "wrong.json: unit 3 (h.3): forward_s must be a number" in done.stderr
    done = program.run("pipe", "show", "--stages", "2", "--trace", tmp_path / "no/t.json", model)
    assert done.returncode == 3 and "t.json" in done.stderr
