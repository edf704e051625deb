"""Whatever is under a name in a root, the newest whole step is restored, and `pawl ckpt` reports
the damage and ends. tests/unit/agent/test_ckpt_odd.c covers all names and kinds; here are those
that matter, through program, agent and package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pawl
import program

TAG = "global_step3"
NAMES = ("", ".pawl", ".pawl/manifest", "complete.txt", "state", "note")
HARMLESS = ("latest", ".pins", "checkpointHistories.csv", "checkpointEvents.csv", ".bad")


def sock(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


KINDS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.touch(),
    "garbage": lambda path: path.write_bytes(b"\x80\xff no such thing"),
    "large": large,
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "socket": sock,
    "dangling": lambda path: path.symlink_to("no/such/place"),
    "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("odd") / "root"
    with pawl.Checkpointer(root, persist_every=0, job="odd") as ckpt:
        for step in (1, 2, 3):
            save = ckpt.save(step, {"state": {"w": torch.full((9,), float(step))}, "note": "x"})
            assert save.wait("durable", program.LIMIT_S)
    return root


def harmed(made: Path, top: Path, name: str, kind: str) -> Path:
    """Makes a copy of the root, with something else under a name. Each test has its own copy: an
    agent outlives its job."""
    root = top / f"{name}-{kind}".replace("/", "-")
    shutil.copytree(made, root)
    path = root / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    before = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        KINDS[kind](Path(path.name))
    finally:
        os.chdir(before)
    return root


def restored(root: Path, job: str) -> tuple[int | None, float]:
    state: dict[str, object] = {"state": {}, "note": ""}
    with pawl.Checkpointer(root, job=job) as ckpt:
        step = ckpt.restore(state)
    return step, float(state["state"]["w"][0])  # type: ignore[index]


@pytest.mark.parametrize("kind", ["directory", "fifo", "large"])
def test_an_odd_manifest_costs_one_step(made: Path, tmp_path: Path, kind: str) -> None:
    root = harmed(made, tmp_path, f"{TAG}/.pawl/manifest", kind)
    assert program.run("ckpt", "verify", root, "3").returncode == 4
    assert restored(root, f"odd-{kind}") == (2, 2.0)
    assert [aside.name for aside in (root / ".bad").iterdir()] == [f"{TAG}.1"]


@pytest.mark.slow
def test_odd_names_of_the_newest(made: Path, tmp_path: Path) -> None:
    for name in NAMES:
        for kind in KINDS:
            root = harmed(made, tmp_path, f"{TAG}/{name}".rstrip("/"), kind)
            tag_there = name not in ("", ".pawl") or (name == ".pawl" and kind not in ("missing",))
            told = program.run("ckpt", "verify", root, TAG)
            assert told.returncode == (4 if tag_there else 3), (name, kind, told)
            told = program.run("ckpt", "verify", root, "--all")
            assert told.returncode == (4 if tag_there else 0), (name, kind, told)
            assert "global_step2: ok" in told.stdout
            listed = program.run("ckpt", "ls", root, "--json")
            assert listed.returncode == 0, (name, kind, listed)
            states = {row["tag"]: row["state"] for row in json.loads(listed.stdout)}
            assert states["global_step2"] == "complete"
            assert restored(root, f"odd-{name}-{kind}".replace("/", "-")) == (2, 2.0), (name, kind)


@pytest.mark.slow
def test_odd_names_beside_the_tags(made: Path, tmp_path: Path) -> None:
    for name in HARMLESS:
        for kind in KINDS:
            root = harmed(made, tmp_path, name, kind)
            assert program.run("ckpt", "verify", root, "--all").returncode == 0, (name, kind)
            assert program.run("ckpt", "ls", root).returncode == 0, (name, kind)
            assert restored(root, f"odd-{name}-{kind}") == (3, 3.0), (name, kind)


def test_a_lock_that_is_none_says_what_to_remove(made: Path, tmp_path: Path) -> None:
    root = harmed(made, tmp_path, ".pawl-lock", "fifo")
    told = program.run("ckpt", "gc", root)
    assert told.returncode == 1
    assert f"its lock file is a FIFO: remove {root}/.pawl-lock" in told.stderr


def test_a_name_that_is_no_text_is_listed(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(made, root)
    odd = os.fsencode(root) + b"/run\xff-7/.pawl"
    os.makedirs(odd)
    listed = program.run("ckpt", "ls", root, "--json")
    assert listed.returncode == 0, listed.stderr
    rows = {row["tag"]: row for row in json.loads(listed.stdout)}
    assert rows["run?-7"]["state"] == "broken"
    told = program.run("ckpt", "verify", root, "--all", "--json")
    assert told.returncode == 4 and len(json.loads(told.stdout)) == 4
    with pawl.Checkpointer(root, job="odd-text") as ckpt:
        assert len(ckpt.list()) == 4


def test_an_export_of_many_tags_ends_by_a_signal(made: Path, tmp_path: Path) -> None:
    """An export catches signals, to clean up, and checks for them between tags. Here it is stopped
    as it opens one of the first of 2000 tags, and finds a signal pending when it goes on."""
    root = tmp_path / "root"
    shutil.copytree(made, root)
    for step in range(100, 2100):
        (root / f"global_step{step}" / ".pawl").mkdir(parents=True)
    env = program.clean_env(PAWL_FAULT="store.open:40:-2")  # -2: the process is stopped
    command = [program.find(), "ckpt", "export", str(root), str(tmp_path / "out")]
    export = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    program.wait_until(lambda: program.state_of(export.pid) == "T", "the export is stopped")
    export.send_signal(signal.SIGTERM)
    export.send_signal(signal.SIGCONT)
    _, said = export.communicate(timeout=program.LIMIT_S)
    assert export.returncode == 128 + signal.SIGTERM, said
    assert "broken off" in said
    assert not (tmp_path / "out").exists()
