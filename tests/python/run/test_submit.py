"""`pawl submit --check`: the meaning of a job file, and all its mistakes; docs/jobs.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import program

PROGRAM = program.find()
ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "jobs.md"

JOB = """\
name: gpt
replicas: 2..8
resources:
  accelerators: [A100, H100]
  memory: 32+
  use_spot: true
envs: {SIZE: 13b, KEY: }
secrets: {TOKEN: }
file_mounts: {"/data": "~/data/${SIZE}"}
time_limit: 36h
run: |
  python train.py --key $KEY
"""
GIVEN = ["--env", "KEY=k", "--secret", "TOKEN=hush"]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "a job.yaml"
    path.write_text(JOB)
    return path


def check(
    path: Path | str, *options: str, text: str | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "submit", "--check", *options, str(path)],
        env=program.clean_env(**extra),
        input=text,
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )


def test_what_a_file_means(job: Path) -> None:
    done = check(job, *GIVEN)
    assert done.returncode == 0 and done.stderr == ""
    lines = dict(re.findall(r"^(\S.{13}) (.*)$", done.stdout, re.M))
    said = {name.strip(): value for name, value in lines.items()}
    assert said["job"] == "gpt" and said["replicas"] == "2 to 8"
    each = "32.0 GiB of memory or more, a spot node will do"
    assert said["each replica"] == f"1 A100, {each}" and said["or"] == f"1 H100, {each}"
    assert said["on spot nodes"] == "0 to 8" and said["mount"] == "/data is ~/data/13b"
    assert said["secret"] == "TOKEN" and "hush" not in done.stdout
    assert said["time limit"] == "1d 12:00:00"
    assert said["run"] == "python train.py --key $KEY"


def test_json(job: Path) -> None:
    done = check(job, *GIVEN, "--json", "-n", "other")
    assert done.returncode == 0 and done.stderr == ""
    said = json.loads(done.stdout)
    choice = {
        "accelerator": "A100",
        "count": 1,
        "cpus": None,
        "memory_bytes": 32 << 30,
        "disk_bytes": None,
        "disk_tier": None,
        "spot": True,
    }
    assert said == {
        "file": str(job),
        "name": "other",
        "queue": "default",
        "workdir": None,
        "replicas": [2, 8],
        "choices": [choice, {**choice, "accelerator": "H100"}],
        "spot": [0, 8],
        "envs": {"SIZE": "13b", "KEY": "k"},
        "secrets": {"TOKEN": None},
        "file_mounts": [{"at": "/data", "from": "~/data/13b", "kind": "link"}],
        "priority": 0,
        "preemptible": True,
        "retries": 0,
        "time_limit_s": 36 * 3600,
        "setup": None,
        "run": "python train.py --key $KEY\n",
        "notes": [],
    }


def test_values_of_the_environment(job: Path) -> None:
    done = check(job, "--env", "KEY", "--secret", "TOKEN", "--json", KEY="of mine", TOKEN="hush")
    assert json.loads(done.stdout)["envs"]["KEY"] == "of mine" and "hush" not in done.stdout
    done = check(job, "--env", "KEY", "--secret", "TOKEN=x", "--json")
    assert done.returncode == 2 and done.stdout == ""
    assert "--env KEY: your environment has no KEY" in done.stderr
    # A variable without a value is named, with its place.
    done = check(job)
    assert done.returncode == 2 and done.stdout == ""
    errors = done.stderr.splitlines()
    assert errors[0].startswith(f"{job}:7:19: KEY has no value: give --env KEY=VALUE")
    assert errors[1].startswith(f"{job}:8:11: TOKEN has no value: give --secret TOKEN=VALUE")
    assert len(errors) == 2
    # An empty value is a value.
    assert check(job, "--env=KEY=", "--secret=TOKEN=").returncode == 0


def test_all_that_is_wrong(tmp_path: Path) -> None:
    text = "nam: x\nnum_nodes: two\nresources:\n  cpus: many\nrun: python train.py\n"
    done = check("-", "--json", text=text)
    assert done.returncode == 2
    said = json.loads(done.stdout)
    assert said["file"] == "-" and said["more"] == 0
    assert [(e["line"], e["column"]) for e in said["errors"]] == [(1, 1), (2, 12), (4, 9)]
    assert said["errors"][0]["message"] == "unknown key nam: did you mean name?"
    assert done.stderr.splitlines() == [
        f"-:{e['line']}:{e['column']}: {e['message']}" for e in said["errors"]
    ]
    done = check("-", text="".join(f"key{i}xxx: 1\n" for i in range(30)) + "run: x\n")
    assert done.returncode == 2 and done.stderr.endswith("-: and 10 more\n")
    assert done.stderr.count("\n") == 21


def test_what_is_without_effect_is_named_once_and_refused_strictly() -> None:
    text = "resources:\n  any_of: [{infra: aws}, {infra: gcp, zone: a}]\nenvs: {A: no}\nrun: x\n"
    done = check("-", text=text)
    assert done.returncode == 0 and "A=False" in done.stdout
    assert [line.split(": ")[:3] for line in done.stderr.splitlines()] == [
        ["-:2:13", "infra", "without effect here"],
        ["-:2:39", "zone", "without effect here"],
        ["-:3:11", "A", "no is a boolean"],
    ]
    said = json.loads(check("-", "--json", text=text).stdout)
    assert [(note["line"], note["column"]) for note in said["notes"]] == [(2, 13), (2, 39), (3, 11)]
    strictly = check("-", "--strict", "--json", text=text)
    assert strictly.returncode == 2 and strictly.stderr == done.stderr
    refused = json.loads(strictly.stdout)
    assert refused["errors"] == said["notes"] and refused["notes"] == []
    # Notes are given beside errors, too.
    both = check("-", "--json", text=text.replace("run: x", "runs: x"))
    assert both.returncode == 2 and json.loads(both.stdout)["notes"] == said["notes"]


def test_usage(job: Path, tmp_path: Path) -> None:
    for options, what in [
        (["-n", "a b"], "a name is letters"),
        (["--env", "1=2"], "a name is letters"),
        (["--env", "=2"], "a name is letters"),
        (["--env", "SKYPILOT_NODE_RANK=0"], "none that Pawl sets itself"),
        (["--secret", "NOT_THERE"], "your environment has no NOT_THERE"),
        (["--env", "A=" + "x" * 65536], "at most 65535 bytes"),
        (["x"], "unexpected argument"),
    ]:
        done = check(job, *options)
        assert done.returncode == 2 and done.stdout == "" and what in done.stderr
    assert "FILE or -- COMMAND is needed" in program.run("submit", "--check").stderr
    many = [word for i in range(257) for word in ("--env", f"V{i}=1")]
    assert "more than 256 variables" in check(job, *many).stderr


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    done = check(tmp_path / "none.yaml")
    assert done.returncode == 3 and "none.yaml: No such file" in done.stderr
    assert check(tmp_path).returncode == 1
    binary = tmp_path / "model.pt"
    binary.write_bytes(b"PK\x03\x04" + os.urandom(1000))
    done = check(binary)
    assert done.returncode == 2 and f"{binary}:1:3: the character U+0003" in done.stderr
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    done = check(large)
    assert done.returncode == 2 and "more than 1048576 bytes" in done.stderr


def test_nothing_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    done = check("-", text='run: "a\\e[2Jb"\nworkdir: "/x\\x9b2J"\nenvs: {A: "\\e]0;x\\a"}\n')
    assert done.returncode == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stdout)
    done = check("-", text='"a\\e[2Jb": 1\n')
    assert done.returncode == 2 and not re.search(r"[\x00-\x09\x0b-\x1f]", done.stderr)


def test_without_check_a_scheduler_is_needed(job: Path, tmp_path: Path) -> None:
    done = program.run("submit", "--root", tmp_path, *GIVEN, job)
    assert done.returncode == 3 and done.stdout == ""
    assert f"no scheduler runs in {tmp_path}: `pawl sched" in done.stderr


def test_output_that_cannot_be_written_is_an_error(job: Path) -> None:
    for options in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            command = [PROGRAM, "submit", "--check", *GIVEN, *options, str(job)]
            done = subprocess.run(command, env=program.clean_env(), stdout=full, check=False)
        assert done.returncode == 1


def test_the_guides_own_file() -> None:
    """Checks the bert_qa.yaml of SkyPilot's guide as published, where PAWL_GUIDE_YAML names a
    copy."""
    path = os.environ.get("PAWL_GUIDE_YAML")
    if path is None:
        pytest.skip("PAWL_GUIDE_YAML names no copy of the guide's bert_qa.yaml")
    given = ["-n", "bert-qa", "--env", "WANDB_API_KEY=k", "--json"]
    done = check(path, *given)
    (error,) = json.loads(done.stdout)["errors"]
    assert done.returncode == 2
    assert error["message"].startswith("file_mounts: /checkpoint names no bucket")
    ours = re.sub(r"(?m)^(    name:).*", r"\1 my-bucket", Path(path).read_text())
    done = check("-", *given, text=ours)
    assert done.returncode == 0 and json.loads(done.stdout)["name"] == "bert-qa"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.S)


def test_the_documents_example_is_what_the_program_says(tmp_path: Path) -> None:
    files = blocks("yaml")
    (tmp_path / "gpt.yaml").write_text(files[0])
    (tmp_path / "wrong.yaml").write_text(files[1])
    for block in blocks("console"):
        command, _, output = block.partition("\n")
        words = command.removeprefix("$ pawl ").split()
        done = program.run(*words, cwd=tmp_path, env=program.clean_env(WANDB_API_KEY="k"))
        assert done.stdout + done.stderr == output


def test_the_document_names_every_key() -> None:
    text = DOCUMENT.read_text()
    done = check("-", text="zzzzzzzz: 1\nresources: {zzzzzzzz: 1}\n")
    known = re.findall(r"the known keys are (.*)$", done.stderr, re.M)
    assert len(known) == 2
    for name in ", ".join(known).split(", "):
        assert f"`{name}`" in text


# ---- tools/jobfiles.py ----

TABLE = """\
     3 different files of folders: 1 (copies left out: 1)
     1 pass
     1 pass once their variables are given
     1 are refused, 1 of them with a line for each mistake

 files   alone  with line  reason (alone: files that have no other)
"""
MOUNTS = "run: x\nfile_mounts: {/a: {name: box}, /b: {name: box}}\nworking_dir: .\n"


def look(folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "jobfiles.py", *options, folder]
    return subprocess.run(
        [*map(str, command)], env=program.clean_env(), capture_output=True, text=True, check=False
    )


def test_what_becomes_of_others_job_files(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    (folder / "deep").mkdir(parents=True)
    for name, text in {
        "asks.yaml": "run: x\nenvs: {KEY: , MODE: fast}\nsecrets: {TOKEN: }\n",
        "deep/good.yml": "resources: {accelerators: A100}\nrun: x\n",
        "deep/same.yaml": "resources: {accelerators: A100}\nrun: x\n",
        "mounts.yaml": MOUNTS,
        "kustomization.yaml": "resources:\n  - other.yaml\n",
        "lint.yaml": "run: {timeout: 5}\nlinters: {}\n",
        "notes.md": "run: x\n",
    }.items():
        (folder / name).write_text(text)
    done = look(folder, "--pawl", PROGRAM, "--list")
    assert done.returncode == 0 and done.stderr == ""
    verdicts, table = done.stdout.split("\n\n", 1)
    bucket = "file_mounts: no mode means MOUNT, and that streams each file to and from the bucket"
    bucket += ", which is not supported"
    assert verdicts.splitlines() == [
        f"{folder}/asks.yaml: passes with --env KEY=x --secret TOKEN=x",
        f"{folder}/mounts.yaml:2: {bucket}; write mode: MOUNT_CACHED for what the job writes to "
        "/a, or COPY for what it reads there (and 2 more)",
        f"{folder}/deep/good.yml: passes",
    ]
    assert table == TABLE + (
        f"     1       0          1  {bucket}\n"
        "     1       0          1  unknown key working_dir: did you mean workdir?\n"
    )


def test_a_refusal_without_a_place_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: x\n")
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho 'pawl submit: it is wrong' >&2\nexit 2\n")
    mute.chmod(0o755)
    done = look(tmp_path, "--pawl", mute)
    assert done.returncode == 1 and "1 are refused, 0 of them with a line" in done.stdout
    assert "exit code 2: pawl submit: it is wrong" in done.stdout
    for wrong in (tmp_path / "none", mute):
        done = look(wrong, "--pawl", PROGRAM)
        assert done.returncode == 2 and f"jobfiles.py: {wrong}: N" in done.stderr
    (tmp_path / "job.yaml").unlink()
    assert "no YAML file that looks like" in look(tmp_path, "--pawl", PROGRAM).stderr
