"""`pawl ckpt` on roots of named tags: raw files, names beside the root, foreign directories."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import program

torch = pytest.importorskip("torch")
if importlib.util.find_spec("pawl._core") is None:
    pytest.skip("pawl._core is not built here", allow_module_level=True)

import pawl  # noqa: E402
from pawl import convert  # noqa: E402
from pawl._ckpt._raw import Raw, Safetensors  # noqa: E402
from pawl.engine import Engine, beside  # noqa: E402

program.find()


def run_json(*words: str | Path) -> Any:
    done = program.run("ckpt", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fill(root: Path, hidden: str | None = None) -> None:
    with_steps = {"first": 100, "best": 200, "epoch=2-step=200": 200}
    engine = Engine(root, hidden=hidden, job="named")
    for number, (tag, step) in enumerate(with_steps.items()):
        weights = {"w": torch.full((1000, 3), float(number)), "same": torch.ones(5)}
        parts = {
            "model": weights,
            "config.json": Raw(b'{"n": %d}' % (number // 2)),
            "model.safetensors": Safetensors(weights),
        }
        assert engine.save(tag, parts, step=step).wait("durable", timeout=program.LIMIT_S)
    engine.pin("best")
    engine.close(timeout=program.LIMIT_S)
    program.await_let_go(Path(hidden or root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "root")
    return tmp_path / "root"


def test_by_name_or_step(root: Path) -> None:
    assert [row["tag"] for row in run_json("ls", root)] == ["first", "best", "epoch=2-step=200"]
    assert run_json("show", root, "100")["tag"] == "first"
    assert run_json("show", root, "best")["step"] == 200
    done = program.run("ckpt", "show", root, "200")
    assert done.returncode == 2 and "best and epoch=2-step=200: name one of them" in done.stderr
    done = program.run("ckpt", "verify", root, "--all")
    assert done.returncode == 0 and done.stdout.count(": ok") == 3


def test_diff_of_raw_files(root: Path) -> None:
    document = run_json("diff", root, "first", "best")
    files = {part["file"]: part for part in document["files"]}
    assert not files["config.json"]["others_changed"] and files["config.json"]["tensors"] == []
    for name in ("model", "model.safetensors"):
        rows = {row["name"]: row for row in files[name]["tensors"]}
        assert rows["w"]["norm"] == pytest.approx(3000**0.5), name
        assert rows["same"]["change"] == "same" and not files[name]["others_changed"], name
    files = {p["file"]: p for p in run_json("diff", root, "best", "epoch=2-step=200")["files"]}
    assert files["config.json"]["others_changed"]


def test_rm_and_gc(root: Path) -> None:
    assert program.run("ckpt", "rm", root, "best").returncode == 2
    dry = run_json("gc", root, "--keep", "1", "-n")
    assert [act["name"] for act in dry["acts"]] == ["first"]
    run_json("rm", root, "best", "first", "--force")
    assert [row["tag"] for row in run_json("ls", root)] == ["epoch=2-step=200"]


def test_convert(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    files = convert.to_torch(root, tmp_path / "torch", "best")
    assert sorted(files) == ["config.json", "model", "model.safetensors"]
    assert (tmp_path / "torch" / "config.json").read_bytes() == b'{"n": 0}'
    done = program.run("ckpt", "export", root, "best", tmp_path / "st", "--to", "safetensors")
    assert done.returncode == 0 and "config.json is not a Python object" in done.stderr
    assert os.listdir(tmp_path / "st") == ["model.safetensors"]
    words = ["import", tmp_path / "st", tmp_path / "new", "--step", "7"]
    assert run_json(*words, "--tag", "release")["tag"] == "release"
    assert torch.equal(pawl.load(tmp_path / "new", 7)["model"]["w"], torch.full((1000, 3), 1.0))
    assert program.run("ckpt", *words, "--tag", ".x").returncode == 2


def test_folders_are_exported(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    root, out = tmp_path / "root", tmp_path / "out"
    parts = {"in/a": {"w": torch.ones(3)}, "in/deep/b": Raw(b"b"), "c": {"w": torch.zeros(1)}}
    with Engine(root) as engine:
        assert engine.save("t", parts).wait("durable", timeout=program.LIMIT_S)
    assert program.run("ckpt", "verify", root).returncode == 0
    assert "in/deep/b" in program.run("ckpt", "show", root).stdout
    assert sorted(convert.to_torch(root, out, "t")) == ["c", "in/a", "in/deep/b"]
    assert torch.load(out / "in" / "a")["w"].equal(torch.ones(3))
    again = program.run("ckpt", "export", root, "t", out)
    assert again.returncode != 0 and "exists already" in again.stderr
    (out / "in" / "a").unlink()
    (out / "in" / "mine").write_text("mine")
    (out / "c").unlink()
    assert program.run("ckpt", "export", root, "t", out, "--partition", "in/a").returncode == 0
    assert program.run("ckpt", "export", root, "t", out, "--force").returncode == 0
    assert sorted(os.listdir(out)) == ["c", "in"]
    assert sorted(os.listdir(out / "in")) == ["a", "deep", "mine"]
    convert.to_safetensors(root, tmp_path / "st", "t")
    assert (tmp_path / "st" / "in" / "a.safetensors").is_file()


def test_an_export_follows_no_link(tmp_path: Path) -> None:
    """The owner of DEST could have Pawl write anywhere."""
    root, out, theirs = tmp_path / "root", tmp_path / "out", tmp_path / "theirs"
    with Engine(root) as engine:
        parts = {"in/a": Raw(b"a"), "b": Raw(b"b")}
        assert engine.save("t", parts).wait("durable", timeout=program.LIMIT_S)
    for made in (out, theirs):
        made.mkdir()
    (theirs / "a").write_text("theirs")
    (out / "in").symlink_to(theirs)
    (out / "b").symlink_to(theirs / "a")
    refused = program.run("ckpt", "export", root, "t", out, "--force")
    assert refused.returncode == 1 and "behind a symbolic link" in refused.stderr
    (out / "in").unlink()
    assert program.run("ckpt", "export", root, "t", out, "--force").returncode == 0
    assert (theirs / "a").read_text() == "theirs" and os.listdir(theirs) == ["a"]
    assert (out / "b").read_text() == "b" and (out / "in" / "a").read_text() == "a"
    assert sorted(os.listdir(out)) == ["b", "in"]


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
def test_an_export_removes_nothing_that_was_moved_to_its_place(tmp_path: Path) -> None:
    """The owner of DEST may rename a directory of this user's there to the name of an export's
    hidden directory."""
    root, out = tmp_path / "root", tmp_path / "out"
    with Engine(root) as engine:
        assert engine.save("t", {"a": Raw(b"a")}).wait("durable", timeout=program.LIMIT_S)
    out.mkdir()
    os.chown(out, 1, 1)
    (moved := out / ".pawl-export").mkdir(mode=0o755)  # perhaps an older export of root's
    (moved / "kept").touch()
    refused = program.run("ckpt", "export", root, "t", out)
    assert refused.returncode == 75 and "no export made it" in refused.stderr
    assert (moved / "kept").exists()
    moved.chmod(0o700)  # as a killed export leaves it
    done = program.run("ckpt", "export", root, "t", out)
    assert done.returncode == 0 and os.listdir(out) == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
@pytest.mark.slow
def test_an_export_into_another_users_directory(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    root, out = tmp_path / "root", tmp_path / "out"
    with Engine(root) as engine:
        assert engine.save("t", {"in/a": {"w": torch.ones(3)}}).wait(
            "durable", timeout=program.LIMIT_S
        )
    (out / ".pawl-export").mkdir(parents=True)
    for path in (out, out / ".pawl-export"):
        os.chown(path, 1, 1)
    to = (root, "t", out, "--to", "safetensors", "--python", sys.executable)
    refused = program.run("ckpt", "export", *to)
    assert refused.returncode == 75 and "another user's" in refused.stderr
    (out / ".pawl-export").rmdir()
    done = program.run("ckpt", "export", *to)
    assert done.returncode == 0, done.stderr
    assert (out / "in" / "a.safetensors").is_file() and os.listdir(out) == ["in"]


def test_what_is_beside_the_root(tmp_path: Path) -> None:
    """Trainer's directory must hold only finished checkpoints of Pawl's."""
    root = tmp_path / "out"
    fill(root, beside(root))
    (root / "runs").mkdir()
    names = sorted(os.listdir(root))
    assert ".pawl-lock" not in names
    hidden = Path(beside(root))
    shutil.copytree(root / "first", hidden / ".pawl.late.new")
    assert program.run("ckpt", "rm", root, "best").returncode == 2  # the root has a file .pins, too
    engine = Engine(root, hidden=beside(root), job="another")
    weights = {"w": torch.ones(3)}
    late = engine.save("late2", {"model": weights}, step=300)
    assert late.wait("durable", timeout=program.LIMIT_S)
    done = program.run("ckpt", "rm", root, "first")
    assert done.returncode == 75 and "job another" in done.stderr
    assert "job another (pid " in program.run("ckpt", "watch", root, "--once").stdout
    engine.close(timeout=program.LIMIT_S)
    program.await_let_go(hidden)
    shutil.copytree(root / "first", hidden / ".pawl.late.new")
    acts = run_json("gc", root)["acts"]
    assert [act["name"] for act in acts] == [".pawl.late.new"]
    run_json("rm", root, "late2")
    assert sorted(os.listdir(root)) == names


def test_directories_of_others_are_no_tags(root: Path) -> None:
    for name in ("runs", "global_step500", ".old.del"):
        (root / name).mkdir()
        (root / name / "file").write_text("mine")
    assert len(run_json("ls", root)) == 3
    assert program.run("ckpt", "rm", root, "global_step500", "--force").returncode == 3
    run_json("gc", root, "--keep", "1")
    assert run_json("repair", root)["acts"] == []
    for name in ("runs", "global_step500", ".old.del"):
        assert (root / name / "file").read_text() == "mine"
