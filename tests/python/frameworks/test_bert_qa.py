"""The question-answering job of the guide: refused, killed, resumed, and logged as one run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import packages
import program
import qa_files
import waits

packages.require("transformers", "accelerate", "pawl._core")
program.find()

import torch  # noqa: E402

from bert_job import ENV, EXAMPLE, GUIDE, LIMIT_S, SHORT, Job, wandb_rows  # noqa: E402


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT, whose vocabulary is trained once, and a tiny SQuAD."""
    sys.path.insert(0, str(EXAMPLE))
    import prepare

    folder = tmp_path_factory.mktemp("qa") / "local"
    prepare.prepare(folder, train=96, validation=12, hidden=32)
    return folder


@pytest.fixture(scope="module")
def straight(local: Path) -> Job:
    """Runs the job undisturbed, with both loggers."""
    return log_job(local, local.parent / "straight", "undisturbed").finished()


def log_job(local: Path, output: Path, name: str, until: int = 0) -> Job:
    env = program.clean_env(
        SKYPILOT_TASK_ID=name, WANDB_MODE="offline", WANDB_DIR=str(output.parent / f"{name}-wandb")
    )
    return Job(local, output, "--report_to", "all", env=env, until=until)


def same_weights(a: Path, b: Path) -> bool:
    load_file = packages.Lazy("safetensors.torch").load_file
    a, b = (load_file(path / "model.safetensors") for path in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def wait_for_kept(output: Path, *steps: int) -> None:
    """Waits until only these steps are kept: checkpoints beyond the limit are deleted in the
    background."""
    wanted = {f"checkpoint-{step}" for step in steps}
    program.wait_until(
        lambda: {path.name for path in output.glob("checkpoint-*")} == wanted, f"kept: {wanted}"
    )


def scalars(folder: Path) -> list[tuple[str, int]]:
    """Returns tag and step of every scalar in the event files of a folder."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    found = []
    for path in folder.glob("*tfevents*"):
        for raw in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(raw)
            values = [v for v in event.summary.value if not v.tag.endswith("/text_summary")]
            found += [(value.tag, event.step) for value in values]
    return sorted(found)


@pytest.mark.slow
def test_killed_three_times_it_ends_the_same_and_is_one_run(
    local: Path, straight: Job, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    name = "sky-managed-1_qa_8-0"

    job = log_job(local, output, name, until=5)
    job.wait_for_step(4)
    job.kill()
    assert not output.exists() or not list(output.iterdir())  # else a new start is refused

    job = log_job(local, output, name, until=12)
    building = job.hidden / ".pawl.checkpoint-10.new"
    written = output / "checkpoint-10"  # exists already, if this process stood still meanwhile
    job.wait_for(
        "the first checkpoint is being written",
        lambda: building.exists() or written.exists(),
        waits.catch,
    )
    job.kill()
    first = {path.name for path in output.iterdir()}
    tables = {"checkpointHistories.csv", "checkpointEvents.csv"}
    assert first <= {"checkpoint-10"} | (tables if "checkpoint-10" in first else set())

    job = log_job(local, output, name, until=27)
    job.wait_for("a later checkpoint", (output / "checkpoint-20").exists)
    job.wait_for_step(15)
    job.kill()

    job = log_job(local, output, name).finished()
    assert same_weights(output, straight.output)
    wait_for_kept(output, 20, 30, 40)

    undisturbed = scalars(straight.output.with_name("straight.runs") / "undisturbed")
    assert undisturbed
    assert scalars(tmp_path / "out.runs" / name) == undisturbed
    ids, rows = wandb_rows(tmp_path / f"{name}-wandb")
    _, expected = wandb_rows(straight.output.parent / "undisturbed-wandb")
    assert ids == {name}
    steps = [row["train/global_step"] for row in expected]
    assert steps[:40] == list(range(1, 41))
    assert [row["train/global_step"] for row in rows] == steps
    losses = [[row.get("train/loss") for row in one] for one in (rows, expected)]
    assert losses[0] == losses[1]


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_output_directory_with_other_things_is_refused(local: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    job = Job(local, output)
    assert job.process.wait(LIMIT_S) == 1
    assert f"ValueError: Output directory ({output}) already exists and is not empty." in job.said()
    assert [path.name for path in output.iterdir()] == ["notes.txt"]


def test_score_is_that_of_the_paper() -> None:
    sys.path.insert(0, str(EXAMPLE))
    import squad

    examples = [{"answers": {"text": ["the Denver Broncos", "Broncos"]}}] * 4
    given = ["Denver broncos!", "Broncos", "of Denver", ""]
    score = squad.score(given, examples)
    assert score["exact_match"] == pytest.approx(50)
    assert score["f1"] == pytest.approx(100 * (1 + 1 + 0.5 + 0) / 4)


def test_features_point_at_the_answers(local: Path) -> None:
    sys.path.insert(0, str(EXAMPLE))
    import squad
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(local / "bert-base-uncased")
    examples = squad.read("squad", "train", local)
    for length in (384, 48):
        windows = squad.features(examples, tokenizer, length, 16)
        assert (length == 384) == (len(windows) == len(examples))
        found = set()
        for window in windows:
            start, end = window["start_positions"], window["end_positions"]
            if start:
                offsets, example = window["offsets"], examples[window["example"]]
                text = example["context"][offsets[start][0] : offsets[end][1]]
                assert text == example["answers"]["text"][0]
                found.add(window["example"])
        assert len(found) == len(examples)


@qa_files.needed
def test_run_qa_unmodified(local: Path, tmp_path: Path) -> None:
    """Transformers' own example."""
    (tmp_path / "evaluate.py").write_text(qa_files.METRIC)

    def start(name: str, *resume: str) -> subprocess.Popen[bytes]:
        files = {split: local / f"squad/{split}.json" for split in ("train", "validation")}
        words = [word for word in (*GUIDE, *SHORT) if word not in ("--dataset_name", "squad")]
        options = ["--train_file", files["train"], "--validation_file", files["validation"]]
        options += ["--model_name_or_path", local / "bert-base-uncased", "--max_seq_length", "96"]
        options += ["--doc_stride", "32", "--do_eval", "--output_dir", tmp_path / name, *resume]
        env = qa_files.env(**ENV)
        env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
        run = [
            sys.executable,
            "-m",
            "pawl.integrations.transformers",
            qa_files.folder() / "run_qa.py",
        ]
        return subprocess.Popen([*run, *words, *options], env=env, cwd=tmp_path)

    assert start("straight").wait(LIMIT_S) == 0
    job = start("out")
    program.wait_until((tmp_path / "out/checkpoint-20").exists, "a checkpoint", LIMIT_S)
    job.kill()
    job.wait()
    newest = f"--resume_from_checkpoint={tmp_path / 'out/checkpoint-20'}"
    assert start("out", newest).wait(LIMIT_S) == 0
    assert same_weights(tmp_path / "out", tmp_path / "straight")


@pytest.mark.skipif(not os.environ.get("PAWL_LONG"), reason="minutes: make test-long")
def test_the_guides_own_numbers(tmp_path: Path) -> None:
    """50 epochs with a checkpoint every 1000 steps, killed once after the first."""
    sys.path.insert(0, str(EXAMPLE))
    import prepare

    folder = tmp_path / "local"
    prepare.prepare(folder, train=372, validation=12, hidden=32)  # 31 steps an epoch
    env = program.clean_env(SKYPILOT_TASK_ID="long", WANDB_MODE="offline")
    job = Job(folder, tmp_path / "straight", env=env, short=False)
    job.finished()
    env["SKYPILOT_TASK_ID"] = "long-2"
    job = Job(folder, tmp_path / "out", env=env, short=False)
    job.wait_for("a checkpoint", (tmp_path / "out/checkpoint-1000").exists)
    job.kill()
    Job(folder, tmp_path / "out", env=env, short=False).finished()
    assert same_weights(tmp_path / "out", tmp_path / "straight")
    wait_for_kept(tmp_path / "out", 1000, 1550)
