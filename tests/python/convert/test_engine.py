"""Engine: saves by tag, as integrations and programs use it."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import nursery
import program
import ranks
from conftest import SEED, real_core
from pawl import Checkpointer, PawlError
from pawl.engine import AsIs, Engine, Raw, Safetensors, beside, step_of
from test_killed import agent_pid, await_gone, kill

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

JOB = Path(__file__).with_name("engine_job.py")
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool),
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "root") as engine:
        yield engine


def bits(tensor: torch.Tensor) -> bytes:
    """Returns a tensor's bytes, to compare NaNs, too."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def kill_agent(folder: Path) -> None:
    pid = agent_pid(folder)
    kill(pid)
    await_gone(pid)


# ---- files ----


def test_files_are_what_others_read(engine: Engine, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = nn.Linear(100, 100)
    save = engine.save(
        "epoch=1-step=20",
        {
            "model.pt": model,
            "as is": AsIs({"a": 1}),
            "config.json": Raw(b'{"a": ', b"1}"),
            "model.safetensors": Safetensors(model.state_dict(), {"format": "pt"}),
            "adapter/of/a.pt": model,
            "adapter/.hidden": Raw(b"h"),
        },
    )
    assert save.wait("durable", program.LIMIT_S) and save.error is None and save.step == 20
    tag = tmp_path / "root" / "epoch=1-step=20"
    assert (tag / "complete.txt").read_text() == "OK"
    assert (tag / "config.json").read_bytes() == b'{"a": 1}'
    assert torch.load(tag / "as is") == {"a": 1}
    assert torch.load(tag / "adapter" / "of" / "a.pt").keys() == {"weight", "bias"}
    assert (tag / "adapter" / ".hidden").read_bytes() == b"h"
    for loaded in (
        torch.load(tag / "model.pt", weights_only=True),
        safetensors.load_file(tag / "model.safetensors"),
    ):
        assert {k: bits(v) for k, v in loaded.items()} == {
            k: bits(v) for k, v in model.state_dict().items()
        }
    with safetensors.safe_open(tag / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_safetensors_of_any_kind(engine: Engine, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    noise = torch.randint(0, 256, (8 * 60,), dtype=torch.uint8)
    tensors = {str(d): noise[: d.itemsize * 60].clone().view(d) for d in DTYPES[:-1]}
    tensors["bool"] = noise[:61] > 127
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 3)
    tensors["transposed"] = torch.arange(12.0).reshape(3, 4).t()
    tensors["strided"] = torch.arange(100, dtype=torch.int16)[1::3]
    tensors["conj"] = torch.complex(torch.arange(4.0), torch.ones(4)).conj()
    tensors["tied"] = tensors["view"] = torch.arange(5000.0)
    tensors["part"] = tensors["tied"][7:11]
    tensors["grad"] = nn.Parameter(torch.randn(3))
    tensors['a"\\\u00fc\n'] = torch.ones(1)
    engine.save("t", {"a.safetensors": Safetensors(tensors), "none.safetensors": Safetensors({})})
    assert engine.flush(program.LIMIT_S)
    loaded = safetensors.load_file(tmp_path / "root" / "t" / "a.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape, name
        assert bits(loaded[name]) == bits(tensor.resolve_conj()), name
    assert safetensors.load_file(tmp_path / "root" / "t" / "none.safetensors") == {}
    for bad in (torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex128)):
        with pytest.raises(PawlError, match="'w'") as caught:
            Safetensors({"w": bad})
        assert caught.value.name == "PAWL_ENOTSUP"


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_raw_files_are_of_any_size(engine: Engine, tmp_path: Path, size: int) -> None:
    data = torch.randint(0, 256, (size,), dtype=torch.uint8).numpy().tobytes()
    chunks = [data[: size // 3], memoryview(data)[size // 3 : size // 2]]
    tensor = torch.frombuffer(bytearray(data[size // 2 :] + b"x"), dtype=torch.uint8)[:-1]
    engine.save("t", {"raw": Raw(*chunks, tensor)})
    for source in ("memory", "store"):
        found = engine.find()
        assert found is not None and found.names == ["raw"] and found.read("raw") == data
        assert engine.flush(program.LIMIT_S) and (tmp_path / "root/t/raw").read_bytes() == data
        if source == "memory":
            kill_agent(tmp_path / "root")
            with contextlib.suppress(PawlError):
                engine.find()


def test_names_and_tags_are_checked(engine: Engine) -> None:
    for tag in ("", ".x", "a/b", "a\nb", "x" * 128, "\u00fc" * 64):
        with pytest.raises(ValueError, match="tag"):
            engine.save(tag, {})
    with pytest.raises(TypeError, match="a tag must be a str"):
        engine.begin(5)  # type: ignore[arg-type]
    for name in ("", ".", "/a", "a//b", "a/../b", "/".join("a" * 10), ".pawl/a", "complete.txt",
                 "x" * 181, "a\0b"):  # fmt: skip
        with pytest.raises(ValueError, match="partition"):
            engine.save("t", {name: 1})
    for tag in ("x" * 127, "17", "a b=\u00fc", "ends.new", "complete.txt", "%s"):
        engine.save(tag, {"x" * 180: tag})
    assert engine.flush(program.LIMIT_S)
    for tag in ("x" * 127, "17", "a b=\u00fc", "ends.new", "complete.txt", "%s"):
        found = engine.find(tag)
        assert found is not None and found.load("x" * 180) == tag
    assert [step_of(t) for t in ("global_step12", "a=2-b=40.ckpt", "best", "9" * 30)] == [
        12,
        40,
        None,
        None,
    ]


# ---- in pieces ----


def test_a_tag_is_put_together(engine: Engine) -> None:
    building = engine.begin("t")
    state = {"w": torch.ones(100_000)}
    building.add("a.pt", state)
    state["w"].zero_()  # add has copied the tensor
    with pytest.raises(PawlError) as caught:
        building.add("a.pt", 1)
    assert caught.value.name == "PAWL_EEXIST" and building.open
    with pytest.raises(PawlError, match="being put together") as caught:
        engine.save("u", {"x": 1})
    assert caught.value.name == "PAWL_EBUSY"
    # Flush waits only for whole tags.
    assert engine.find() is None and engine.flush(program.LIMIT_S)
    building.add("b", Raw(b"123"))
    building.add("c", Safetensors({"x": torch.ones(2)}))
    save = building.commit()
    assert building.names == ["a.pt", "b", "c"] and not building.open
    assert save.wait("committed", program.LIMIT_S) and save.stall_s > 0
    found = engine.find()
    assert found is not None and found.load("a.pt")["w"].eq(1).all() and found.read("b") == b"123"
    with pytest.raises(PawlError, match="no save is in progress"):
        building.add("d", 1)


def test_a_tag_is_written_by_the_rank_itself(engine: Engine, tmp_path: Path) -> None:
    """A streamed tag is written at once, though memory has room for it; tags before and after it
    stay in memory."""
    values = torch.arange(300_000.0)
    for number, stream in enumerate((False, True, True, False, True, False)):
        building = engine.begin(f"t{number}", number, stream=stream)
        building.add("a.pt", {"w": values + number})
        new = tmp_path / "root" / f".pawl.t{number}.new" / "a.pt"
        assert new.exists() == stream
        values[0] = number  # add has copied or written the values
        building.add("b", Raw(b"123"))
        save = building.commit()
        assert save.wait("durable" if stream else "committed", 30), save.error
        found = engine.find()
        assert found is not None and found.tag == f"t{number}"
        assert found.load("a.pt")["w"][1:].eq(values[1:] + number).all()
    assert engine.flush(program.LIMIT_S)
    assert [tag["tag"] for tag in engine.list()] == [f"t{number}" for number in range(6)]


def test_a_tag_is_dropped(engine: Engine) -> None:
    building = engine.begin("t")
    building.add("a", 1)
    building.drop("changed my mind")
    assert engine.flush(program.LIMIT_S)  # a dropped tag does not count
    assert building.save.level == "failed" and "changed my mind" in (building.save.error or "")
    assert engine.find() is None
    engine.begin("half").add("a", 1)
    engine.close()  # also drops the unfinished tag
    with Engine(engine.root) as again:
        assert again.find() is None and [e["tag"] for e in again.list()] == []


def test_a_tag_saved_twice_holds_both(engine: Engine) -> None:
    engine.save("t", {"a": 1, "b": 1})
    engine.save("t", {"b": 2, "c": 2})
    found = engine.find("t")
    assert found is not None and sorted(found.names) == ["a", "b", "c"]
    assert [found.load(name) for name in "abc"] == [1, 2, 2]


def test_a_tag_is_added_to_by_another_agent(engine: Engine) -> None:
    """What became durable before the agent died stays readable, also while the tag is being added
    to."""
    engine.save("t", {"a": 1, "b": 1})
    assert engine.flush(program.LIMIT_S)
    kill_agent(Path(engine.root))
    assert [entry["level"] for entry in engine.list()] == ["durable"]
    assert engine.find() is not None  # a new agent answers
    engine.save("t", {"b": 2, "c": 2})
    found = engine.find("t")
    assert found is not None and [found.load(name) for name in "abc"] == [1, 2, 2]


def test_a_root_that_was_removed_has_nothing(engine: Engine) -> None:
    engine.save("t", {"x": 1})
    assert engine.flush(30)
    shutil.rmtree(engine.root)
    assert engine.list() == []


@pytest.mark.parametrize("pieces", [False, True])
def test_what_was_lost_is_not_added_to(tmp_path: Path, pieces: bool) -> None:
    """A part of a tag is not taken for the whole."""
    with Engine(tmp_path / "root", persist_every=3600) as engine:
        assert engine.save("t", {"a": 1, "b": 1}).wait("committed", program.LIMIT_S)
        kill_agent(tmp_path / "root")
        assert engine.find() is None  # the other part is in another agent's memory
        if pieces:
            building = engine.begin("t")
            building.add("b", 2)
            with pytest.raises(PawlError, match="a of it was lost"):
                building.commit()
            assert building.save.level == "failed"
        else:
            save = engine.save("t", {"b": 2})
            assert save.level == "failed" and "a of it was lost" in (save.error or "")
        assert engine.find() is None and not engine.flush(5)
        engine.save("t", {"c": 3, "b": 3, "a": 3})
        found = engine.find()
        assert found is not None and [found.load(name) for name in "abc"] == [3, 3, 3]
        assert engine.flush(program.LIMIT_S)


# ---- finding ----


def test_what_is_found_is_said_or_an_error(engine: Engine, tmp_path: Path) -> None:
    assert engine.find() is None and engine.find("t") is None
    engine.save("t", {"obj": 1, "raw": Raw(b"1")})
    found = engine.find("t")
    assert found is not None and found.source == "memory" and found.tag == "t"
    with pytest.raises(FileNotFoundError, match="has no partition 'x': it has obj, raw"):
        found.load("x")
    with pytest.raises(ValueError, match=r"use read\(\) for it"):
        found.load("raw")
    with pytest.raises(ValueError, match=r"use load\(\) for it"):
        found.read("obj")
    assert engine.flush(program.LIMIT_S)
    for tag in ("u", "v"):  # memory holds two generations, so both tags push out the first
        engine.save(tag, {"other": 1})
    assert engine.flush(program.LIMIT_S)
    assert found.load("obj") == 1  # read from the store now
    shutil.rmtree(tmp_path / "root" / "t")
    with pytest.raises(OSError, match="t is gone since it was found"):
        found.read("raw")
    assert engine.find("t") is None


def test_a_tag_that_became_another_is_an_error(engine: Engine, tmp_path: Path) -> None:
    engine.save("t", {"obj": 1, "raw": Raw(b"1")})
    assert engine.flush(program.LIMIT_S)
    found = engine.find("t")
    assert found is not None
    engine.remove("t")
    program.wait_until(lambda: engine.find("t") is None, "it is removed")
    engine.save("t", {"obj": Raw(b"2")})
    for read in (lambda: found.read("raw"), lambda: found.load("obj")):
        with pytest.raises(OSError, match="since it was found"):
            read()
    engine.save("u", {"still": 1})
    assert engine.flush(program.LIMIT_S)


@pytest.mark.parametrize("raw", [False, True])
def test_damage_is_named_and_put_aside(engine: Engine, tmp_path: Path, raw: bool) -> None:
    root = tmp_path / "root"
    data = torch.ones(300_000)
    for step in (1, 2, 3, 4):
        engine.save(f"step{step}", {"x": Raw(data) if raw else data, "y": step})
        assert engine.flush(program.LIMIT_S)
    with (root / "step2" / "x").open("r+b") as file:
        file.seek((1 << 20) + 77)
        file.write(b"damage")
    found = engine.find("step2")
    assert found is not None and found.load("y") == 2
    with pytest.raises(OSError, match=r"step2/x: bytes 1048576\.\."):
        _ = found.read("x") if raw else found.load("x")
    program.wait_until(lambda: engine.find("step2") is None, "it is put aside")
    assert "1048576" in (root / ".bad" / "step2.1" / "why.txt").read_text()
    with pytest.raises(OSError, match="gone since it was found"):
        found.load("y")
    engine.close()
    program.await_let_go(root)
    (root / "step4" / "y").write_bytes(b"cut")  # shorter than its manifest says
    (root / "step3" / ".pawl" / "manifest").write_bytes(b"?")
    with Engine(root, job="another") as again:
        newest = again.find()
        assert newest is not None and newest.tag == "step1"
        assert {e["tag"]: e["level"] for e in again.list()} == {"step1": "durable"}


def test_the_highest_step_is_newest_in_memory_and_in_the_store(tmp_path: Path) -> None:
    """Case 10: steps that go back."""
    root, state = tmp_path / "root", {"x": torch.zeros(1)}
    chance = random.Random(SEED)
    steps = [1 + chance.randrange(8) for _ in range(12)]
    with contextlib.closing(Checkpointer(root, persist_every=0)) as ckpt:
        for i, step in enumerate(steps):
            assert ckpt.save(step, {"x": torch.full((1,), step)}).wait("durable", program.LIMIT_S)
            assert ckpt.restore(state) == state["x"].item() == max(steps[: i + 1])
            assert ckpt.restore(state, step=step) == state["x"].item() == step
    program.await_let_go(root)
    with contextlib.closing(Checkpointer(root, persist_every=0)) as ckpt:
        assert ckpt.restore(state) == max(steps)
        assert ckpt.save(0, state).wait("durable", program.LIMIT_S)  # memory holds nothing else
        assert ckpt.restore(state) == max(steps)


def test_the_newest_tag_is_of_the_highest_step(tmp_path: Path) -> None:
    """Of several tags of that step, the newest is the one saved last."""
    chance = random.Random(SEED)
    steps = [chance.randrange(4) for _ in range(12)]
    order = sorted(range(len(steps)), key=lambda i: (steps[i], i))
    with Engine(tmp_path / "root", persist_every=0) as engine:
        for i, step in enumerate(steps):
            assert engine.save(f"tag{i}", {"x": i}, step=step).wait("durable", program.LIMIT_S)
            found = engine.find()
            assert found is not None and found.load("x") == [n for n in order if n <= i][-1]
    program.await_let_go(tmp_path / "root")
    with Engine(tmp_path / "root", persist_every=0) as engine:
        for i in reversed(order):
            found = engine.find()
            assert found is not None and found.load("x") == i
            engine.remove(f"tag{i}")
        assert engine.find() is None


# ---- while training goes on ----


@pytest.mark.parametrize("kind", ["zip", "safetensors"])
def test_training_goes_on_while_it_is_copied(engine: Engine, kind: str) -> None:
    model = nn.Sequential(nn.Linear(1500, 1500), nn.Linear(1500, 1500))
    optimizer = torch.optim.Adam(model.parameters())
    wanted = []
    for step in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, 1500)).square().sum().backward()
        optimizer.step()
        wanted.append({k: v.clone() for k, v in model.state_dict().items()})
        part = model if kind == "zip" else Safetensors(model.state_dict())
        save = engine.save(f"s{step}", {"m": part, "o": optimizer})
        for p in model.parameters():
            p.grad = None
    assert engine.flush(program.LIMIT_S) and save.error is None
    for step, want in enumerate(wanted):
        found = engine.find(f"s{step}")
        assert found is not None
        if kind == "zip":
            got = found.load("m")
        else:
            got = pytest.importorskip("safetensors.torch").load(found.read("m"))
        assert {k: bits(v) for k, v in got.items()} == {k: bits(v) for k, v in want.items()}
        assert found.load("o")["state"][0]["step"] == step + 1


# ---- what stays ----


def test_old_ones_go_and_pinned_ones_stay(tmp_path: Path) -> None:
    with Engine(tmp_path / "root", keep=2) as engine:
        for i, tag in enumerate(["best", "a1", "a2", "other", "a3", "a4"]):
            engine.save(tag, {"x": tag})
            assert engine.flush(program.LIMIT_S)
            if i in (0, 1):
                engine.pin(tag)
        engine.pin("a1", False)
        engine.save("a5", {"x": 5})
        assert engine.flush(program.LIMIT_S)
        left = ["best", "a4", "a5"]
        program.wait_until(lambda: [e["tag"] for e in engine.list()] == left, f"{left} are left")
        assert [e["pinned"] for e in engine.list()] == [True, False, False]


def test_an_agent_that_ends_does_what_it_was_asked_for(engine: Engine, tmp_path: Path) -> None:
    """The agent has accepted the request before it ends."""
    for tag in ("t", "last"):
        engine.save(tag, {"x": 1})
        assert engine.flush(30)
    for i in range(300):  # a pin takes the storage longer than the request takes
        engine.pin("t", i % 2 == 0)
    engine.pin("last")
    pid = agent_pid(tmp_path / "root")
    os.kill(pid, signal.SIGTERM)
    await_gone(pid)
    assert (tmp_path / "root/.pins").read_text().split() == ["=last"]


def test_nothing_unfinished_lies_in_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with Engine(root, hidden=beside(root)) as engine:
        building = engine.begin("t")
        building.add("a", torch.ones(1000))
        assert list(root.iterdir()) == []
        building.commit()
        assert engine.flush(program.LIMIT_S)
        engine.pin("t")
        assert not [p.name for p in root.iterdir() if p.name.startswith(".")]
    assert beside(root) == str(tmp_path / ".root.pawl") and Path(beside(root)).is_dir()


# ---- restarts ----


def test_a_restart_finds_what_was_committed(tmp_path: Path) -> None:
    """The process is killed; the agent's memory has its saves."""
    script = (
        "import os, sys; from pawl.engine import Engine\n"
        "e = Engine(sys.argv[1], persist_every=3600, job=sys.argv[2])\n"
        "f = e.find(); print(f and (f.tag, f.load('x'), f.source), flush=True)\n"
        "e.save(sys.argv[3], {'x': sys.argv[3]}).wait('committed', 30)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    job = f"test-{secrets.token_hex(4)}"
    said = [
        nursery.run(
            [sys.executable, "-c", script, tmp_path / "root", job, tag],
            env=program.clean_env(),
            capture_output=True,
            text=True,
            timeout=program.LIMIT_S,
        ).stdout.strip()
        for tag in ("t1", "t2", "t3")
    ]
    assert said == ["None", "('t1', 't1', 'memory')", "('t2', 't2', 'memory')"]
    with Engine(tmp_path / "root", job=job) as engine:
        found = engine.find()
        assert found is not None and found.tag == "t3"


def test_flush_takes_what_a_dead_process_left(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pawl.engine import Engine\n"
        "e = Engine(sys.argv[1], persist_every=3600, job=sys.argv[2])\n"
        "assert e.save('t1', {'x': 1}).wait('committed', 30)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    root, job = tmp_path / "root", f"test-{secrets.token_hex(4)}"
    command = [sys.executable, "-c", script, root, job]
    died = nursery.run(command, env=program.clean_env(), timeout=program.LIMIT_S)
    assert died.returncode == -signal.SIGKILL and not (root / "t1").exists()
    with Engine(root, persist_every=3600, job=job) as engine:
        assert engine.flush(program.LIMIT_S)
        assert (root / "t1/complete.txt").read_text() == "OK"


def test_the_agent_is_killed(engine: Engine, tmp_path: Path) -> None:
    root = tmp_path / "root"
    engine.save("t1", {"x": 1})
    assert engine.flush(program.LIMIT_S)
    building = engine.begin("t2")
    building.add("x", 2)
    kill_agent(root)
    found = engine.find()  # a new agent answers
    assert found is not None and found.tag == "t1"
    with pytest.raises(PawlError, match="agent is gone") as caught:
        building.add("y", 2)
    assert caught.value.name == "PAWL_EPEER" and building.save.level == "failed"
    engine.save("t3", {"x": 3})
    found = engine.find()
    assert found is not None and found.tag == "t3" and found.names == ["x"]


# ---- ranks ----


def run(what: str, world: int, tmp_path: Path, **env: str) -> tuple[list[list[str]], list[int]]:
    """Runs ranks of engine_job.py. Returns their lines, and how they ended."""
    processes = ranks.start_ranks(
        JOB, world, what, str(tmp_path / "root"), env={**program.clean_env(), **env}
    )
    try:
        said = [p.communicate(timeout=program.LIMIT_S)[0] for p in processes]
    finally:
        for process in processes:
            process.kill()
    print(*said, sep="\n")
    lines = [[line[2:] for line in text.splitlines() if line.startswith("> ")] for text in said]
    return lines, [p.returncode for p in processes]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_save_together(tmp_path: Path, world: int) -> None:
    lines, codes = run("together", world, tmp_path)
    names = sorted(n for r in range(world) for n in (f"model_{r}.pt", f"raw/of_{r}.bin"))
    assert codes == [0] * world
    assert lines == [["True", f"newest step5 {' '.join(names)}"]] * world
    for alone in (1, world + 1):  # jobs of other sizes read all of the tag
        program.await_let_go(tmp_path / "root")
        with Engine(tmp_path / "root", rank=0, world_size=alone, job=f"w{alone}") as engine:
            found = engine.find()
            assert found is not None and found.tag == "step5" and sorted(found.names) == names
            assert found.load(f"model_{world - 1}.pt")["w"].eq(50 + world - 1).all()


def test_some_ranks_only_read(tmp_path: Path) -> None:
    lines, codes = run("some", 3, tmp_path)
    assert codes == [0, 0, 0] and lines == [["a b 3 2"]] * 3


def test_a_rank_is_killed_before_its_part_is_whole(tmp_path: Path) -> None:
    lines, codes = run("killed", 3, tmp_path)
    assert codes == [0, 0, -signal.SIGKILL]
    for said in lines[:2]:
        assert said[0].startswith("committed False") and said[1].startswith("newest step1 ")
    assert not (tmp_path / "root" / "step2").exists()


def test_a_rank_with_nothing_to_save_is_first(tmp_path: Path) -> None:
    """A rank with nothing to save goes on at once; the others' parts do not wait for it."""
    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(tmp_path, rank=rank, world_size=3, job="first"))
            for rank in range(3)
        ]
        assert engines[1].begin("t").commit().wait("durable", program.LIMIT_S)
        buildings = [engines[rank].begin("t") for rank in (0, 2)]
        for rank, building in zip((0, 2), buildings, strict=True):
            building.add(f"from {rank}", rank)
        for save in [building.commit() for building in buildings]:
            assert save.wait("durable", program.LIMIT_S), save.error
        found = engines[1].find()
        assert found is not None and sorted(found.names) == ["from 0", "from 2"]


@pytest.mark.parametrize("begun", ["0", "1"])
def test_a_rank_that_dies_of_an_error_leaves_no_half_tag(tmp_path: Path, begun: str) -> None:
    lines, codes = run("raises", 2, tmp_path, BEGUN=begun)
    assert codes == [0, 1]
    assert lines[0][0].startswith("committed False") and lines[0][1].startswith("newest step1 ")
    assert not (tmp_path / "root" / "step2").exists()


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_a_rank_that_leaves_is_not_waited_for(tmp_path: Path) -> None:
    lines, codes = run("leaves", 2, tmp_path)
    assert codes == [0, 0] and lines[1] == ["left"]
    assert lines[0] == ["durable True", "durable True", "newest step3 model_0.pt raw/of_0.bin"]
