"""The commands of `pawl`: help, usage errors, JSON, and the exit codes of docs/exit-codes.md."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

import program
import waits

PROGRAM = program.find()
CKPT = ["ls", "show", "verify", "diff", "export", "import", "rm", "gc", "repair", "watch"]
COMMANDS = ["run", *(f"ckpt {name}" for name in CKPT), "compat", "report", "env"]
COMMANDS += [
    "agent",
    "cancel",
    "cp",
    "drain",
    "explain",
    "logs",
    "ls",
    "net",
    "pause",
    "pilot",
    "pipe draw",
    "pipe predict",
    "pipe show",
    "pipe verify",
    "resume",
]
COMMANDS += ["scale", "sched", "serve", "shepherd", "show", "sim", "submit", "top", "version"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str) -> None:
    for flag in ("--help", "-h"):
        done = program.run(*command.split(), flag)
        assert done.returncode == 0 and done.stderr == ""
        assert done.stdout.startswith(f"usage: pawl {command}")
        assert "--help" in done.stdout
        lines = done.stdout.splitlines()
        assert max(map(len, lines)) <= 90
        for option in lines[lines.index("options:") + 1 :]:  # texts are below each other
            name = re.match(r"  (-\w, |    )--\S+( \S+)*", option)
            assert name and option[25] == " " != option[26]
            assert name.end() <= 25
    assert f"\n  {command}" in program.run("--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_options_are_refused(command: str) -> None:
    for option in ("--nonsense", "-Z", "--jso", "--json=1"):
        done = program.run(*command.split(), option)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert option.split("=")[0] in done.stderr
        assert f"see pawl {command} --help" in done.stderr


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["frobnicate"], "unknown command frobnicate"),
        (["ckpt", "frobnicate"], "unknown command ckpt frobnicate"),
        (["run"], "SCRIPT is missing"),
        (["run", "-n"], "-n needs a value"),
        (["run", "-n", "0", "x.py"], "from 1 to 64"),
        (["run", "-n", "2x", "x.py"], "whole number"),
        (["run", "-n", "-1", "x.py"], "whole number"),
        (["run", "--grace", "soon", "x.py"], "seconds"),
        (["run", "--grace", "-1", "x.py"], "seconds"),
        (["run", "--grace", "nan", "x.py"], "seconds"),
        (["run", "--max-restarts", "99999999999999999999", "x.py"], "whole number"),
        (["run", "--no-template=1", "x.py"], "takes no value"),
        (["ckpt", "ls"], "ROOT"),
        (["ckpt", "ls", "a", "b"], "unexpected argument b"),
        (["ckpt", "show", "a", "1", "b"], "unexpected argument b"),
        (["ckpt", "verify", "a", "1", "--all"], "--all"),
        (["ckpt", "export", "a"], "DEST"),
        (["ckpt", "export", "a", "b", "--to", "onnx"], "safetensors or dcp"),
        (["ckpt", "import", "a", "b"], "--step"),
        (["ckpt", "import", "a", "--step", "1"], "ROOT"),
        (["ckpt", "import", "a", "b", "--step", "-1"], "whole number"),
        (["ckpt", "import", "a", "b", "--step", "1", "--from", "onnx"], "safetensors or dcp"),
        (
            ["ckpt", "import", "a", "b", "--step", "1", "--split", "--partition", "x"],
            "--split cannot",
        ),
        (["ckpt", "export", "a", "1", "b", "c"], "unexpected argument c"),
        (["ckpt", "diff", "a", "1"], "two checkpoints"),
        (["ckpt", "diff", "a", "1", "2", "3"], "unexpected argument 3"),
        (["ckpt", "rm", "a"], "TAG"),
        (["ckpt", "gc"], "ROOT"),
        (["ckpt", "gc", "a", "b"], "unexpected argument b"),
        (["ckpt", "gc", "a", "--keep", "0"], "whole number"),
        (["ckpt", "gc", "a", "--keep-every", "5"], "--keep N"),
        (["ckpt", "repair"], "ROOT"),
        (["ckpt", "repair", "a", "b"], "unexpected argument b"),
        (["ckpt", "watch"], "ROOT"),
        (["ckpt", "watch", "a", "b"], "unexpected argument b"),
        (["ckpt", "watch", "a", "--interval", "x"], "seconds"),
        (["agent"], "--job"),
        (["agent", "--job", "x", "y"], "unexpected argument y"),
        (["compat", "use", "nebulaml"], "use NAME"),
        (["compat", "use", "nebulaml", "on"], "pawl, other, off"),
        (["compat", "use", "numpy", "off"], "nebulaml"),
        (["compat", "use", "nebulaml", "off", "x"], "unexpected argument x"),
        (["env", "x"], "unexpected argument x"),
        (["version", "x"], "unexpected argument x"),
    ],
)
def test_usage_errors(args: list[str], what: str) -> None:
    done = program.run(*args)
    assert done.returncode == 2 and done.stdout == ""
    assert what.lower() in done.stderr.lower() and "--help" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_command_shows_them_all() -> None:
    for args in ([], ["ckpt"], ["pipe"]):
        done = program.run(*args)
        assert done.returncode == 2 and "usage: pawl" in done.stderr
    assert program.run("ckpt", "--help").returncode == 0


def test_version() -> None:
    done = program.run("--version")
    assert re.fullmatch(r"pawl \d+\.\d+\.\d+\n", done.stdout) and done.returncode == 0
    version = json.loads(program.run("version", "--json").stdout)["version"]
    assert f"pawl {version}\n" == program.run("version").stdout


def test_env() -> None:
    env = program.clean_env(RANK="1", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", SLURM_JOB_ID="7")
    done = program.run("env", "--json", env=env)
    assert json.loads(done.stdout) == {
        "rank": 1,
        "world": 4,
        "local_rank": 1,
        "local_world": 2,
        "node_rank": 0,
        "nodes": 2,
        "source": "torchrun",
        "job": "7",
        "job_source": "SLURM_JOB_ID",
        "attempt": 0,
    }
    text = program.run("env", env=env).stdout
    assert "rank     1 of 4 (from: torchrun)" in text and "job      7" in text
    wrong = program.run("env", "--json", env=program.clean_env(RANK="x", WORLD_SIZE="4"))
    assert wrong.returncode == 2 and wrong.stdout == "" and "RANK=x" in wrong.stderr


def test_what_others_have_named_does_not_steer_a_terminal(tmp_path: Path) -> None:
    name = "a\x1b[2J\u202eb\u009bc\nd"
    shown = r"a\x1b[2J\u202eb\u009bc\nd"
    for args in (("ckpt", "ls", tmp_path / name), ("ls", "--root", tmp_path / name), ("ls", name),
                 ("ckpt", "show", tmp_path / os.fsdecode(b"\xff") / name), (name,)):  # fmt: skip
        done = program.run(*args)
        assert done.returncode in (1, 2, 3) and shown in done.stderr, done
        assert done.stderr.count("\n") == 1 and done.stderr[:-1].isprintable()
    folder = tmp_path / "a\u202eb"
    folder.mkdir()
    (folder / "job.yaml").write_text('run: "true"\nenvs: {A: "x\\e[31m\ty\u202e"}\n')
    done = program.run("submit", "--check", folder / "job.yaml")
    assert done.returncode == 0 and "A=x\\x1b[31m\ty\\u202e\n" in done.stdout, done
    done = program.run("submit", "--check", "--json", folder / "job.yaml")
    assert done.stdout.isascii() and json.loads(done.stdout)["envs"]["A"].endswith("\ty\u202e")


def test_output_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "env", "--json"], env=program.clean_env(), stdout=full, check=False
        )
    assert done.returncode == 1


# ---- pawl agent ----


def test_agent_leaves_when_idle(tmp_path: Path) -> None:
    socket = tmp_path / "a b.sock"
    began = time.monotonic()
    with waits.sooner_than(60, "an agent that is to leave after a second"):  # by default, after 60
        done = program.run("agent", "--job", "j", "--socket", socket, "--idle", "1")
    assert done.returncode == 0 and time.monotonic() - began > 0.9
    assert done.stdout == done.stderr == ""
    log = (tmp_path / "a b.log").read_text()
    assert "job j: listening" in log and "job j: leaving" in log
    assert not socket.exists()


def test_agent_is_one_a_job_and_leaves_on_a_signal(tmp_path: Path) -> None:
    socket = tmp_path / "x.sock"
    command = [PROGRAM, "agent", "--job", "j", "--socket", str(socket)]
    first = subprocess.Popen(command, env=program.clean_env())
    program.wait_until(socket.exists, "the agent listens")
    second = program.run(*command[1:])
    assert second.returncode == 75
    assert str(first.pid) in (tmp_path / "x.log").read_text()
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=program.LIMIT_S) == 143


# ---- pawl ckpt ----

TRAIN = """
    import os, sys, time, torch, pawl
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 200))
    state = {"model": model, "extra": {"epoch": 3}}
    ckpt = pawl.Checkpointer(sys.argv[1], keep=0, persist_every=0)
    for step in (1, 2, 10):
        torch.nn.init.constant_(model.module.weight, step)
        assert ckpt.save(step, state).wait("durable")
    ckpt.pin(2)
    while not any(entry["pinned"] for entry in ckpt.list()):  # the agent may end with the job
        time.sleep(0.01)  # pace
    ckpt.close()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1, 2 (pinned) and 10, written by two ranks."""
    pytest.importorskip("torch")
    if importlib.util.find_spec("pawl._core") is None:
        pytest.skip("pawl._core is not built here")
    folder = tmp_path_factory.mktemp("ckpt")
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    done = program.run_script(script, "-n", "2", "--job", "gpt", args=[str(folder / "a root")])
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "a root"


@pytest.fixture
def damaged(root: Path, tmp_path: Path) -> Path:
    """A copy of root in which one bit of step 10's model is flipped and step 2 lacks a file."""
    copy = tmp_path / "damaged"
    subprocess.run(["cp", "-a", root, copy], check=True)
    model = copy / "global_step10" / "model"
    data = bytearray(model.read_bytes())
    data[100_000] ^= 4
    model.write_bytes(data)
    (copy / "global_step2" / "extra").unlink(missing_ok=True)
    for path in (copy / "global_step2").glob("extra*"):
        path.unlink()
    return copy


def test_ls(root: Path) -> None:
    rows = json.loads(program.run("ckpt", "ls", root, "--json").stdout)
    assert [row["step"] for row in rows] == [1, 2, 10]
    for row in rows:
        assert row["tag"] == f"global_step{row['step']}"
        assert row["state"] == "complete" and row["why"] is None
        assert row["pinned"] == (row["step"] == 2)
        assert row["ranks"] == 2
        files = [
            p for p in (root / row["tag"]).iterdir() if p.name not in (".pawl", "complete.txt")
        ]
        assert row["files"] == len(files)
        assert row["bytes"] == sum(path.stat().st_size for path in files)
        created = datetime.datetime.fromisoformat(row["created"].replace("Z", "+00:00"))
        age = datetime.datetime.now(datetime.timezone.utc) - created
        assert abs(age.total_seconds()) < 3600
    table = program.run("ckpt", "ls", root).stdout.splitlines()
    assert table[0].split() == ["STEP", "STATE", "SIZE", "FILES", "RANKS", "WHEN", "PINNED", "TAG"]
    assert [line.split()[0] for line in table[1:]] == ["1", "2", "10"]


def test_show(root: Path) -> None:
    shown = json.loads(program.run("ckpt", "show", root, "--json").stdout)
    assert (shown["step"], shown["job"], shown["attempt"], shown["ranks"]) == (10, "gpt", 0, 2)
    model = next(file for file in shown["files"] if file["name"] == "model")
    assert model["file"] == "model" and model["rank"] is None
    assert model["bytes"] == (root / "global_step10" / "model").stat().st_size
    tensors = {t["name"]: (t["dtype"], t["shape"]) for t in model["tensors"]}
    assert tensors == {
        "module.weight": ("float32", [200, 300]),
        "module.bias": ("float32", [200]),
    }
    text = program.run("ckpt", "show", root, "2").stdout
    assert "job      gpt, attempt 0" in text and "pinned   yes" in text
    assert re.search(r"weight +float32 +200 x 300", text)


def test_verify(root: Path, damaged: Path) -> None:
    done = program.run("ckpt", "verify", root)
    assert done.returncode == 0 and done.stdout.startswith("global_step10: ok, ")
    done = program.run("ckpt", "verify", root, "--all", "--json")
    assert [(row["step"], row["ok"]) for row in json.loads(done.stdout)] == [
        (1, True),
        (2, True),
        (10, True),
    ]
    done = program.run("ckpt", "verify", damaged, "--all", "--json")
    rows = {row["step"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 4
    assert [rows[step]["ok"] for step in (1, 2, 10)] == [True, False, False]
    assert "global_step10/model: bytes 0.." in rows[10]["why"]
    assert "extra" in rows[2]["why"]
    assert program.run("ckpt", "verify", damaged, "1").returncode == 0
    done = program.run("ckpt", "verify", damaged, "10")
    assert done.returncode == 4 and "damaged" in done.stdout


def test_verify_passes_over_what_is_removed_meanwhile(root: Path, tmp_path: Path) -> None:
    """As retention does while a job goes on: of one checkpoint, only some of the files were read;
    another one was listed."""
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    env = program.clean_env(PAWL_FAULT="image.alloc:2:-2")  # -2: the process is stopped
    verify = subprocess.Popen(
        [PROGRAM, "ckpt", "verify", copy, "--all"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    program.wait_until(lambda: program.state_of(verify.pid) == "T", "it is stopped")
    for step in (1, 2):
        shutil.rmtree(copy / f"global_step{step}")
    verify.send_signal(signal.SIGCONT)
    told, said = verify.communicate(timeout=program.LIMIT_S)
    assert verify.returncode == 0, told + said
    assert [line.split(",")[0] for line in told.splitlines()] == ["global_step10: ok"]
    for step in (1, 2):
        assert f"global_step{step}: removed meanwhile" in said


def test_broken_tags_are_listed_and_not_the_default(damaged: Path) -> None:
    rows = {r["step"]: r for r in json.loads(program.run("ckpt", "ls", damaged, "--json").stdout)}
    assert rows[2]["state"] == "broken" and "extra" in rows[2]["why"]
    assert program.run("ckpt", "show", damaged, "2").returncode == 4
    (damaged / "global_step10" / "complete.txt").unlink()
    assert json.loads(program.run("ckpt", "show", damaged, "--json").stdout)["step"] == 1


def test_export(root: Path, damaged: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dest = tmp_path / "out dir"
    done = program.run("ckpt", "export", root, "10", dest, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0 and document["dest"] == str(dest)
    assert sorted(document["files"]) == sorted(os.listdir(dest))
    for name in document["files"]:
        assert (dest / name).read_bytes() == (root / "global_step10" / name).read_bytes()
    assert torch.load(dest / "model")["module.weight"].eq(10).all()
    # An export never replaces what exists.
    (dest / "model").write_text("mine")
    again = program.run("ckpt", "export", root, "2", dest)
    assert again.returncode == 1 and "exists already" in again.stderr
    assert (dest / "model").read_text() == "mine"
    # An export may name one partition.
    done = program.run("ckpt", "export", root, "1", tmp_path / "one", "--partition", "model")
    assert done.returncode == 0 and os.listdir(tmp_path / "one") == ["model"]
    done = program.run("ckpt", "export", root, "1", tmp_path / "none", "--partition", "x")
    assert done.returncode == 3
    # Nothing damaged is exported.
    done = program.run("ckpt", "export", damaged, "10", tmp_path / "bad", "--partition", "model")
    assert done.returncode == 4 and not (tmp_path / "bad").exists()


def test_what_is_not_there(root: Path, tmp_path: Path) -> None:
    for command in ("ls", "show", "verify"):
        done = program.run("ckpt", command, tmp_path / "nowhere")
        assert done.returncode == 3 and "nowhere" in done.stderr
        assert program.run("ckpt", command, tmp_path).returncode == 3  # no checkpoint in the folder
    assert program.run("ckpt", "ls", tmp_path, "--json").stdout == "[]\n"
    done = program.run("ckpt", "show", root, "3")
    assert done.returncode == 3 and "step 3" in done.stderr
    assert program.run("ckpt", "show", root, "three").returncode == 3
    assert program.run("ckpt", "export", root, "3", tmp_path / "x").returncode == 3
    assert not (tmp_path / "x").exists()
