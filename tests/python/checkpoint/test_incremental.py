"""full_every: tensors that did not change since the last durable checkpoint are not written
again."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import pawl
import program
from conftest import real_core
from pawl.engine import Engine, Raw
from test_killed import agent_pid

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

MIB = 1 << 20


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], text=True, capture_output=True)


@pytest.fixture(params=["linked", "cloned"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yields a directory of a file system whose files cannot share bytes, and of one whose files
    can."""
    if request.param == "linked":
        if shares_bytes(tmp_path):
            pytest.skip(f"files in {tmp_path} can share bytes")
        yield tmp_path
        return
    image, mount = tmp_path / "image", tmp_path / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(400 * MIB)
    if shutil.which("mkfs.xfs") is None or run("mkfs.xfs", "-q", image).returncode != 0:
        pytest.skip("no mkfs.xfs here (apt-get install xfsprogs)")
    if (why := run("mount", "-o", "loop", image, mount)).returncode != 0:
        pytest.skip(f"no loop mount of xfs here: {why.stderr.strip()}")
    yield mount
    try:
        program.wait_until(lambda: run("umount", mount).returncode == 0, "it is free", 10)
    except program.Late:
        run("umount", "-l", mount)


def shares_bytes(folder: Path) -> bool:
    (folder / "a").write_bytes(bytes(4096))
    done = run("cp", "--reflink=always", folder / "a", folder / "b").returncode == 0
    for name in "ab":
        (folder / name).unlink(missing_ok=True)
    return done


class Half(nn.Module):
    """A model of 16 MiB, half of which is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(2))
        self.live = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(2))
        for i, p in enumerate(self.parameters()):
            nn.init.normal_(p, i)

    def train_to(self, step: int) -> Half:
        with torch.no_grad():
            for layer in self.live:
                layer.weight.fill_(step)
                layer.weight[0, :] = torch.arange(1024)
        return self

    def assert_at(self, step: int) -> None:
        assert all(layer.weight[1:].eq(step).all() for layer in self.live), step
        for layer, mean in zip(self.frozen, (0, 1), strict=True):
            assert abs(layer.weight.mean().item() - mean) < 0.1


def bytes_written(root: Path) -> int:
    """Returns the bytes that the agent has written so far."""
    io = Path(f"/proc/{agent_pid(root)}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in io if line.startswith("write_bytes"))


def open_root(root: Path, **options: object) -> pawl.Checkpointer:
    if (root / ".pawl-lock").exists():
        program.await_let_go(root)  # an agent of another job had the root
    job = f"test-{secrets.token_hex(4)}"
    return pawl.Checkpointer(root, job=job, persist_every=0, **options)  # type: ignore[arg-type]


def save(ckpt: pawl.Checkpointer, step: int, state: dict[str, object]) -> int:
    """Saves, and returns the number of bytes written."""
    root = Path(ckpt.root)
    before = bytes_written(root)
    done = ckpt.save(step, state)
    assert done.wait("durable", program.LIMIT_S), done.error
    return bytes_written(root) - before


def is_linked(root: Path, step: int, file: str) -> bool:
    shown = json.loads(program.run("ckpt", "show", root, str(step), "--json").stdout)
    return next(f["linked"] for f in shown["files"] if f["file"] == file)


def test_half_of_it_is_written(folder: Path) -> None:
    root = folder / "root"
    model = Half()
    with open_root(root, keep=2, full_every=100) as ckpt:
        whole = save(ckpt, 1, {"model": model.train_to(1)})
        taken = [save(ckpt, step, {"model": model.train_to(step)}) for step in range(2, 7)]
    assert whole > 16 * MIB
    assert max(taken) <= 0.55 * whole, (whole, taken)
    with open_root(root) as ckpt:  # the first agent's data are still there
        fresh = Half()
        assert ckpt.restore({"model": fresh}) == 6
        fresh.assert_at(6)
        assert ckpt.restore({"model": fresh}, step=5) == 5
        fresh.assert_at(5)
        for a, b in zip(fresh.frozen.parameters(), model.frozen.parameters(), strict=True):
            assert a.equal(b)
    assert "ok" in program.run("ckpt", "verify", root, "--all").stdout


def test_linked_is_told_and_never_half_a_file(folder: Path) -> None:
    root = folder / "root"
    model = Half()
    with open_root(root, full_every=100) as ckpt:
        for step in (1, 2):
            save(ckpt, step, {"model": model.train_to(step)})
    file = root / "global_step2" / "model"
    if folder.name == "disk":
        assert not is_linked(root, 2, "model")
        assert torch.load(file, weights_only=True)["live.0.weight"][1:].eq(2).all()
        return
    assert is_linked(root, 2, "model") and not is_linked(root, 1, "model")
    with pytest.raises(FileNotFoundError):
        torch.load(file)
    out = folder / "out"
    done = program.run("ckpt", "export", root, "2", out)
    assert done.returncode == 0, done.stderr
    loaded = torch.load(out / "model", weights_only=True)
    assert loaded["live.0.weight"][1:].eq(2).all()
    assert loaded["frozen.1.weight"].equal(model.frozen[1].weight)
    assert torch.load(out / "model", weights_only=True, mmap=True).keys() == loaded.keys()


def test_one_of_so_many_is_whole(folder: Path) -> None:
    model = Half()
    with open_root(folder / "root", full_every=3) as ckpt:
        taken = [save(ckpt, step, {"model": model.train_to(step)}) for step in range(1, 8)]
    assert [t > 16 * MIB for t in taken] == [True, False, False, True, False, False, True]


def test_no_deletion_breaks_a_chain(folder: Path) -> None:
    root = folder / "root"
    model = Half()
    with open_root(root, keep=0, full_every=100) as ckpt:
        for step in range(1, 6):
            if step == 3:  # a frozen tensor changes once, too, so that three versions exist
                nn.init.ones_(model.frozen[0].weight)
            save(ckpt, step, {"model": model.train_to(step)})
    kept = model.frozen[1].weight.detach().clone()
    program.await_let_go(root)
    for step in (3, 1, 4, 2):
        done = program.run("ckpt", "rm", root, str(step))
        assert done.returncode == 0, done.stderr
        assert program.run("ckpt", "verify", root, "5").returncode == 0
    with open_root(root, full_every=100) as ckpt:
        fresh = Half()
        assert ckpt.restore({"model": fresh}) == 5
        assert fresh.frozen[0].weight.eq(1).all() and fresh.frozen[1].weight.equal(kept)
        assert save(ckpt, 6, {"model": fresh.train_to(6)}) < 10 * MIB  # shares with 5


def test_a_damaged_base_damages_nobody_unnoticed(folder: Path) -> None:
    """Shared bytes are stored once: each checkpoint that shares them is reported damaged."""
    root = folder / "root"
    model = Half()
    with open_root(root, full_every=100) as ckpt:
        for step in (1, 2, 3):
            save(ckpt, step, {"model": model.train_to(step)})
    if folder.name == "disk":
        with (root / "global_step1" / "model").open("r+b") as file:
            file.seek(3 * MIB)
            file.write(b"damage")  # damages this checkpoint's own copy: the others keep theirs
        assert program.run("ckpt", "verify", root, "1").returncode != 0
        assert program.run("ckpt", "verify", root, "3").returncode == 0
        return
    with (root / "global_step1" / "model").open("r+b") as file:
        file.seek(3 * MIB)
        file.write(b"damage")
    for step in (1, 2, 3):
        done = program.run("ckpt", "verify", root, str(step))
        assert done.returncode != 0 and "3145728" in done.stdout + done.stderr
    with open_root(root, full_every=100) as ckpt:
        assert ckpt.restore({"model": Half()}) is None
        # Step 4 is written whole, since the damaged ones were put aside.
        assert save(ckpt, 4, {"model": model.train_to(4)}) > 16 * MIB


def test_tags_share_and_are_added_to(folder: Path) -> None:
    root = folder / "root"
    frozen, raw = torch.randn(3 * MIB), torch.randn(2 * MIB)
    with Engine(root, full_every=100, job=f"test-{secrets.token_hex(4)}") as engine:
        for step in range(4):
            live = torch.full((2 * MIB,), float(step))
            parts = {"in/m.pt": {"f": frozen, "l": live}, "in/side/raw.bin": Raw(raw)}
            engine.save(f"t{step}", parts)
            assert engine.flush(program.LIMIT_S)
        engine.save("t3", {"more.pt": {"step": 3}})
        engine.save("t3", {"in/m.pt": {"f": frozen, "l": live + 1}})
        assert engine.flush(program.LIMIT_S)
        engine.remove("t2")
        found = engine.find("t3")
        assert found is not None and sorted(found.names) == [
            "in/m.pt", "in/side/raw.bin", "more.pt",
        ]  # fmt: skip
        loaded = found.load("in/m.pt")
        assert loaded["f"].equal(frozen) and loaded["l"].eq(4).all()
        assert found.read("in/side/raw.bin") == raw.numpy().tobytes()
    # Other programs read raw files, so these are always complete.
    assert (root / "t3" / "in" / "side" / "raw.bin").stat().st_size == raw.numel() * 4
    with pytest.raises(ValueError, match="full_every"):
        pawl.Checkpointer(folder / "other", full_every=True)
