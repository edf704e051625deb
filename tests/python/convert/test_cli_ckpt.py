"""`pawl ckpt diff|rm|gc|repair`, on roots that Checkpointer wrote."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pty
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

import program

torch = pytest.importorskip("torch")
if importlib.util.find_spec("pawl._core") is None:
    pytest.skip("pawl._core is not built here", allow_module_level=True)

WRITETAG = Path(os.environ.get("PAWL_TESTS_DIR", "build/gcc/tests")) / "lib" / "writetag"

TRAIN = """
    import sys, time, torch, pawl
    torch.manual_seed(7)
    held = torch.randn(64, 32)
    table = torch.arange(12.0).reshape(3, 4)
    state = {
        "model": {
            "weight": torch.randn(700, 900),
            "held": held,
            "tied": held,
            "half": torch.randn(5, 5).half(),
            "brain": torch.randn(3).bfloat16(),
            "count": torch.tensor(1 << 60),
            "eight": torch.zeros(4).to(torch.float8_e4m3fn),
            "empty": torch.zeros(0, 3),
            "infinite": torch.tensor([1.0, float("inf")]),
            "left": table[:, :2],
            "right": table[:, 2:],
            "expanded": torch.ones(1).expand(1000),
        },
        "extra": {"epoch": 1, "old": torch.zeros(2)},
        "gone": torch.zeros(3),
    }
    ckpt = pawl.Checkpointer(sys.argv[1], keep=0, persist_every=0)
    for step in (1, 2, 10):
        assert ckpt.save(step, state).wait("durable")
        model = state["model"]
        model["weight"][3] += 0.5
        model["half"][0, 0] += 1
        model["brain"] *= 2
        model["count"] += 1
        model["eight"] = torch.ones(4).to(torch.float8_e4m3fn)
        model["infinite"] = torch.tensor([2.0, -float("inf")])
        state["extra"] = {"epoch": 2, "new": torch.zeros(2), "old": torch.zeros(2, 2)}
        model["held"] = model["tied"] = held.double() if step == 2 else held
        state.pop("gone", None)
    ckpt.pin(2)
    while not any(entry["pinned"] for entry in ckpt.list()):  # the agent may end with the job
        time.sleep(0.01)  # pace
    ckpt.close()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1, 2 (pinned) and 10. Tests must not change them: see root."""
    folder = tmp_path_factory.mktemp("ckpt")
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    done = program.run_script(script, "--job", "gpt", args=[str(folder / "root")])
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "root"


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    shutil.copytree(made, tmp_path / "root", symlinks=True)
    return tmp_path / "root"


def run_json(*args: str | Path) -> Any:
    done = program.run("ckpt", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tags(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("global_step*"))


def flip(path: Path, at: int = 100_000) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


# ---- diff ----


def rows_of(document: Any, file: str) -> dict[str, Any]:
    (part,) = (part for part in document["files"] if part["file"] == file)
    return {row["name"]: row for row in part["tensors"]}


def test_diff_equals_torch(made: Path) -> None:
    document = run_json("diff", made, "1", "global_step2")
    before = torch.load(made / "global_step1" / "model")
    after = torch.load(made / "global_step2" / "model")
    rows = rows_of(document, "model")
    for name in ("weight", "held", "half", "brain"):
        a, b = before[name].double(), after[name].double()
        change = (b - a).norm().item()
        assert rows[name]["norm"] == pytest.approx(change, rel=1e-12), name
        assert rows[name]["relative"] == pytest.approx(change / a.norm().item(), rel=1e-12)
        assert rows[name]["max"] == pytest.approx((b - a).abs().max().item(), rel=1e-12)
        assert rows[name]["changed"] == int((a != b).sum())
        assert rows[name]["elements"] == a.numel()
        assert rows[name]["change"] == ("changed" if change else "same")
    assert (rows["count"]["norm"], rows["count"]["changed"]) == (1, 1)  # 2**60 and one more
    assert (rows["eight"]["norm"], rows["eight"]["changed"]) == (None, 4)  # compared as bytes
    assert rows["empty"]["change"] == "same" and rows["empty"]["elements"] == 0
    assert (rows["infinite"]["norm"], rows["infinite"]["not_finite"]) == (1, 1)
    for name in ("left", "right", "expanded"):
        assert rows[name]["change"] == "not comparable", name
    assert "shares memory" in rows["left"]["why"]
    assert "one run of bytes" in rows["expanded"]["why"]
    # Partitions that only one side has, or that are of another kind.
    extra = rows_of(document, "extra")
    assert {name: row["change"] for name, row in extra.items()} == {
        "new": "added",
        "old": "reshaped",
    }
    assert extra["old"]["before"]["shape"] == [2] and extra["old"]["after"]["shape"] == [2, 2]
    parts = {part["file"]: part for part in document["files"]}
    assert parts["gone"]["change"] == "removed" and parts["gone"]["bytes_after"] is None
    assert parts["extra"]["others_changed"] and not parts["rng"]["others_changed"]
    rows = rows_of(run_json("diff", made, "2", "10"), "model")
    assert rows["held"]["change"] == "retyped" and rows["held"]["after"]["dtype"] == "float64"


def test_diff_reads_again_what_it_let_go(tmp_path: Path) -> None:
    """The last tensor of one side lies at the beginning of the other."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import sys, torch, pawl
            state = {"model": {str(i): torch.full((1_000_003,), i + 1.0) for i in range(6)}}
            ckpt = pawl.Checkpointer(sys.argv[1], keep=0, persist_every=0)
            for step in (1, 2):
                assert ckpt.save(step, state).wait("durable")
                state["model"]["5"] = state["model"]["0"].detach()
                state["model"]["3"][7] = 6
            ckpt.close()
        """)
    )
    assert program.run_script(script, args=[str(tmp_path / "root")]).returncode == 0
    rows = rows_of(run_json("diff", tmp_path / "root", "1", "2"), "model")
    assert {name: row["max"] for name, row in rows.items()} == {
        **dict.fromkeys("0124", 0),
        "3": 2,
        "5": 5,
    }
    assert rows["5"]["changed"] == rows["5"]["elements"] == 1_000_003
    assert rows["3"]["changed"] == 1


def test_diff_of_one_with_itself(made: Path) -> None:
    document = run_json("diff", made, "10", "10")
    assert document["tensors"]["same"] > 8
    assert {name for name, n in document["tensors"].items() if n} == {"same", "not comparable"}
    assert not any(part["others_changed"] for part in document["files"])


def test_diff_as_text(made: Path) -> None:
    text = program.run("ckpt", "diff", made, "1", "2").stdout
    assert text.startswith("global_step1 -> global_step2\n")
    assert re.search(r"weight +float32 +700 x 900 +norm 15 +relative 0\.019 +max 0\.5", text)
    assert re.search(r"gone, 4\.0 KiB: removed", text)
    assert re.search(r"3 tensors did not change", text) and "empty" not in text
    assert "empty" in program.run("ckpt", "diff", made, "1", "2", "--all").stdout


def test_diff_of_what_is_damaged(root: Path) -> None:
    flip(root / "global_step2" / "model")
    done = program.run("ckpt", "diff", root, "1", "2")
    assert done.returncode == 4 and done.stdout == ""
    assert "global_step2/model: bytes 0.." in done.stderr
    with open(root / "global_step10" / "model", "r+b") as file:
        file.truncate(8192)
    assert program.run("ckpt", "diff", root, "1", "10").returncode == 4
    assert program.run("ckpt", "diff", root, "1", "7").returncode == 3


# ---- rm ----


def test_rm(root: Path) -> None:
    size = sum(path.stat().st_size for path in (root / "global_step1").rglob("*") if path.is_file())
    dry = run_json("rm", root, "1", "-n")
    assert dry["dry_run"] and tags(root) == ["global_step1", "global_step10", "global_step2"]
    did = run_json("rm", root, "global_step1")
    assert did == {**dry, "dry_run": False}
    assert did["acts"] == [{"act": "remove", "name": "global_step1", "bytes": size, "why": None}]
    assert did["freed_bytes"] == size and tags(root) == ["global_step10", "global_step2"]
    assert not list(root.glob(".pawl.global*"))


def test_rm_refuses(root: Path) -> None:
    before = sorted(root.rglob("*"))
    for names, why in (
        (["2"], "is pinned"),
        (["1", "2"], "is pinned"),
        (["1", "5"], "no checkpoint of step 5"),
        (["1", "../root"], "no checkpoint ../root"),
    ):
        done = program.run("ckpt", "rm", root, *names)
        assert done.returncode in (2, 3) and why in done.stderr, names
        assert done.stdout == "" and sorted(root.rglob("*")) == before
    (root / "global_step2" / "complete.txt").unlink()
    done = program.run("ckpt", "rm", root, "1", "10")
    assert done.returncode == 2 and "last complete checkpoint" in done.stderr
    assert len(tags(root)) == 3


def test_rm_with_force(root: Path) -> None:
    run_json("rm", root, "1", "2", "10", "--force")
    assert tags(root) == []
    assert (root / ".pins").read_text() == ""  # a pin is removed with its tag
    assert program.run("ckpt", "rm", root, "1").returncode == 3


def test_rm_of_a_broken_one(root: Path) -> None:
    (root / "global_step10" / "model").unlink()
    assert program.run("ckpt", "rm", root, "10").returncode == 0
    assert tags(root) == ["global_step1", "global_step2"]


# ---- gc ----


def test_gc_removes_what_a_crash_left(root: Path) -> None:
    for name in (".pawl.global_step3.new", ".pawl.global_step4.del", ".pawl.global_step1.old"):
        shutil.copytree(root / "global_step1", root / name)
    (root / ".bad" / "global_step9.1").mkdir(parents=True)
    (root / ".bad" / "global_step9.1" / "model").write_bytes(b"x" * 100)
    before = tags(root)
    dry = run_json("gc", root, "--bad", "--dry-run")
    assert len(list(root.glob(".pawl.global*"))) == 3
    assert run_json("gc", root, "--bad") == {**dry, "dry_run": False}
    assert sorted(act["name"] for act in dry["acts"]) == [
        ".bad/global_step9.1",
        ".pawl.global_step1.old",
        ".pawl.global_step3.new",
        ".pawl.global_step4.del",
    ]
    assert not list(root.glob(".pawl.global*")) and not list((root / ".bad").iterdir())
    assert tags(root) == before
    done = program.run("ckpt", "gc", root)
    assert done.returncode == 0 and done.stdout == "nothing to do\n"


def test_gc_leaves_the_only_copy(root: Path) -> None:
    (root / "global_step1").rename(root / ".pawl.global_step1.old")
    done = program.run("ckpt", "gc", root)
    assert done.returncode == 2 and "pawl ckpt repair first" in done.stderr
    assert (root / ".pawl.global_step1.old" / "model").exists()


def test_gc_by_a_rule(root: Path) -> None:
    dry = run_json("gc", root, "--keep", "1", "-n")
    assert [act["name"] for act in dry["acts"]] == ["global_step1"]  # 2 is pinned
    assert run_json("gc", root, "--keep", "1", "--keep-every", "1")["acts"] == []
    assert run_json("gc", root, "--keep", "1") == {**dry, "dry_run": False}
    assert tags(root) == ["global_step10", "global_step2"]


# ---- repair ----


def test_repair(root: Path) -> None:
    (root / "global_step10").rename(root / ".pawl.global_step10.old")
    shutil.copytree(root / "global_step1", root / ".pawl.global_step3.new")
    (root / "global_step2" / "complete.txt").write_text("O")
    csv = root / "checkpointHistories.csv"
    csv.write_text("".join(csv.read_text().splitlines(keepends=True)[:2]))  # only step 1
    dry = program.run("ckpt", "repair", root, "-n")
    assert dry.returncode == 0 and "would complete global_step2" in dry.stdout
    assert (root / ".pawl.global_step10.old").exists()
    done = program.run("ckpt", "repair", root, "--json")
    assert done.returncode == 0, done.stderr
    acts = [(act["act"], act["name"]) for act in json.loads(done.stdout)["acts"]]
    assert sorted(acts[:2]) == [("put back", "global_step10"), ("remove", ".pawl.global_step3.new")]
    assert acts[2:] == [
        ("complete", "global_step2"),
        ("add", "2 rows to checkpointHistories.csv"),
    ]
    assert len(csv.read_text().splitlines()) == 4
    assert program.run("ckpt", "verify", root, "--all").returncode == 0
    assert program.run("ckpt", "repair", root).stdout == "nothing to do\n"


def test_repair_leaves_what_is_damaged(root: Path) -> None:
    flip(root / "global_step1" / "model")
    (root / "global_step1" / "complete.txt").unlink()
    (root / "global_step10" / ".pawl" / "manifest").unlink()
    (root / ".pins").write_text("two\n")
    before = sorted(root.rglob("*"))
    done = program.run("ckpt", "repair", root)
    assert done.returncode == 4
    assert re.search(r"left global_step1: .*model: bytes 0\.\.", done.stdout)
    assert "left global_step10: manifest is missing; pawl ckpt rm removes it" in done.stdout
    assert "left .pins: " in done.stdout
    assert sorted(root.rglob("*")) == before


# ---- all of them ----


def test_a_root_in_use_is_left_alone(root: Path) -> None:
    (root / ".pawl-lock").write_text("job gpt (pid 77 on node3)\n")
    with open(root / ".pawl-lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for args in (["rm", root, "1"], ["gc", root], ["repair", root], ["gc", root, "-n"]):
            done = program.run("ckpt", *args)
            assert done.returncode == 75 and "job gpt (pid 77 on node3)" in done.stderr
    assert len(tags(root)) == 3
    assert program.run("ckpt", "rm", root, "1").returncode == 0


def test_a_directory_that_is_no_root_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for command in ("gc", "repair"):
        assert program.run("ckpt", command, tmp_path).returncode == 3
    assert program.run("ckpt", "rm", tmp_path, "mine").returncode == 3
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_read(root: Path) -> None:
    root.chmod(0)
    try:
        for args in (["ls"], ["gc"], ["repair"], ["rm", "1"], ["diff", "1", "2"]):
            done = program.run("ckpt", args[0], root, *args[1:])
            assert done.returncode == 1 and "Permission denied" in done.stderr
    finally:
        root.chmod(0o755)


@pytest.mark.slow
def test_a_terminal_sees_a_bar(made: Path, tmp_path: Path) -> None:
    """A sparse partition of half a gibibyte takes longer than half a second."""
    if not WRITETAG.exists():
        pytest.skip(f"{WRITETAG} is not built (PAWL_TESTS_DIR names the build's tests)")
    (tmp_path / "pickle").write_bytes(b"\x80\x02N.")
    with open(tmp_path / "storage", "wb") as file:
        file.truncate(1 << 29)
    command = [WRITETAG, tmp_path / "root", "5", "big", tmp_path / "pickle", tmp_path / "storage"]
    subprocess.run(command, check=True)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [program.find(), "ckpt", "verify", str(tmp_path / "root")],
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # EIO: the other end is closed
        pass
    assert process.wait(timeout=program.LIMIT_S) == 0
    assert re.search(rb"verify global_step5/big +\[=*>? *\] +\d+ % of 512\.0 MiB, ", seen)
    assert seen.endswith(b"\r\x1b[K")
    piped = program.run("ckpt", "verify", tmp_path / "root")
    assert piped.stderr == ""
