"""`pawl ckpt export` and `import`, and pawl.convert: round trips through the real packages."""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

import nursery
import program
import waits

torch = pytest.importorskip("torch")
if importlib.util.find_spec("pawl._core") is None:
    pytest.skip("pawl._core is not built here", allow_module_level=True)

import numpy  # noqa: E402

import pawl  # noqa: E402
from pawl import PawlError, convert  # noqa: E402
from pawl._ckpt._structure import flatten, rebuild  # noqa: E402

program.find()
FORMATS = ["torch", "safetensors", "dcp"]
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
INTS = (torch.int8, torch.int16, torch.int32, torch.int64)
INTS += (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def make_tensors() -> dict[str, Any]:
    torch.manual_seed(5)
    tied = torch.randn(64, 8)
    wide = torch.randn(6, 4)
    made = {str(dtype): torch.randn(3, 2).to(dtype) for dtype in (*FLOATS, *FP8)}
    made |= {str(dtype): torch.arange(5).to(dtype) for dtype in INTS}
    return made | {
        "bool": torch.tensor([True, False]),
        "complex64": torch.randn(2, dtype=torch.complex64),
        "conjugate": torch.randn(2, dtype=torch.complex64).conj(),
        "0-d": torch.tensor(3.5),
        "empty": torch.zeros(0, 7),
        "transposed": wide.t(),
        "slice": torch.randn(10, 10)[2:4, 1::3],
        "tied": tied,
        "tied again": tied,
        "tied as data": tied.detach(),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "frozen": torch.nn.Parameter(torch.randn(3), requires_grad=False),
        "large": torch.randn(300_000),
    }


def make_values() -> dict[str, Any]:
    return {
        "none": None,
        "int": 1 << 200,
        "floats": [0.1, -0.0, float("inf"), float("nan")],
        "text": 'dé "x"\n\u2028',
        "nested": {0: {"lr": 1e-3, (1, "a"): ()}, True: [], None: {}},
        "tuple": (1, (torch.ones(2), "x"), [torch.zeros(1)]),
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"abc"),
        "complex": complex(1, -2),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "array": numpy.arange(6, dtype="uint16").reshape(2, 3),
        "scalar": numpy.float32(2.5),
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
    }


def assert_same(a: Any, b: Any, path: str = "") -> None:
    assert type(a) is type(b), path
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad), path
        raw = [t.detach().resolve_conj().contiguous().flatten().view(torch.uint8) for t in (a, b)]
        assert torch.equal(*raw), path
    elif isinstance(a, numpy.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all(), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path  # keys must be in the same order, too
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
        assert_same(getattr(a, "__dict__", None), getattr(b, "__dict__", None), f"{path}.__dict__")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}.{index}")
    else:
        assert repr(a) == repr(b), path


def make_model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20))


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that pawl.convert runs has its interpreters forked from the nursery."""
    instead = types.SimpleNamespace(run=nursery.run, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(convert, "subprocess", instead)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one checkpoint, step 7. Tests must not change it."""
    root = tmp_path_factory.mktemp("convert") / "root"
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    state = {
        "model": model,
        "optimizer": optimizer,
        "tensors": make_tensors(),
        "values": make_values(),
        "empty": {},
        "bare": torch.arange(4),
    }
    ckpt = pawl.Checkpointer(root, persist_every=0)
    assert ckpt.save(7, state).wait("durable", timeout=program.LIMIT_S)
    ckpt.close()
    return root


@pytest.mark.real_interpreters
@pytest.mark.slow("dcp")
@pytest.mark.parametrize("kind", FORMATS)
def test_round_trip(made: Path, tmp_path: Path, kind: str) -> None:
    """A round trip keeps dtypes, nesting, order, keys that are no str, and tied memory."""
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    files = getattr(convert, f"to_{kind}")(made, tmp_path / "out", 7)
    assert sorted(files) == sorted(os.listdir(tmp_path / "out"))
    tag = getattr(convert, f"from_{kind}")(tmp_path / "out", tmp_path / "root", 9)
    assert tag == "global_step9"
    before, after = pawl.load(made), pawl.load(tmp_path / "root")
    assert_same(before, after)
    tensors = after["tensors"]
    assert tensors["tied"].data_ptr() == tensors["tied again"].data_ptr()
    assert tensors["tied"].data_ptr() == tensors["tied as data"].data_ptr()
    shown = json.loads(program.run("ckpt", "show", tmp_path / "root", "--json").stdout)
    names = {t["name"] for file in shown["files"] for t in file["tensors"]}
    assert {"0.weight", "state.0.exp_avg", "nested" not in names and "tied"} <= names
    assert program.run("ckpt", "verify", tmp_path / "root").returncode == 0
    history = (tmp_path / "root" / "checkpointHistories.csv").read_text()
    assert ",9,global_step9," in history
    # The result is a checkpoint like any other.
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20))
    ckpt = pawl.Checkpointer(tmp_path / "root")
    assert ckpt.restore({"model": model}) == 9
    ckpt.close()
    assert_same(dict(make_model()[0].state_dict()), dict(make_model()[0].state_dict()))
    assert torch.equal(model[1].running_mean, before["model"]["1.running_mean"])


@pytest.mark.slow
def test_two_of_one_name(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    value = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1), "__metadata__": torch.ones(2)}}
    torch.save(value | {"__metadata__": torch.ones(3)}, tmp_path / "x.pt")
    convert.from_torch(tmp_path / "x.pt", tmp_path / "root", 1)
    convert.to_safetensors(tmp_path / "root", tmp_path / "out")
    convert.from_safetensors(tmp_path / "out", tmp_path / "root", 2)
    assert_same(pawl.load(tmp_path / "root", 1), pawl.load(tmp_path / "root", 2))
    with pytest.raises(PawlError, match=r"duplicated flatten key x\.a\.b"):  # a limit of DCP's own
        convert.to_dcp(tmp_path / "root", tmp_path / "dcp")


# ---- what others read and write ----


def test_others_read_our_safetensors(made: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    convert.to_safetensors(made, tmp_path / "out", partition="model")
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]
    tensors = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    saved = pawl.load(made)["model"]
    assert_same(dict(sorted(tensors.items())), dict(sorted(saved.items())))


def test_we_read_safetensors_of_others(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    source = tmp_path / "hub"
    source.mkdir()
    weights = {f"layer.{i}.weight": torch.randn(4, 4) for i in range(4)}
    names = sorted(weights)
    for part in (1, 2):
        own = {name: weights[name] for name in names[2 * part - 2 : 2 * part]}
        safetensors.save_file(own, source / f"model-{part:05}-of-00002.safetensors", {"x": "y"})
    (source / "model.safetensors.index.json").write_text("{}")
    (source / "config.json").write_text("{}")
    done = program.run("ckpt", "import", source, tmp_path / "root", "--step", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == ["model"]
    assert done.stderr == f"pawl ckpt import: {source}/config.json is left out\n"
    assert_same(pawl.load(tmp_path / "root")["model"], {name: weights[name] for name in names})


def test_others_read_our_dcp(made: Path, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    convert.to_dcp(made, tmp_path / "out")
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20))
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path / "out", no_dist=True)
    assert_same(dict(state["model"]), dict(pawl.load(made)["model"]))
    dcp_to_torch_save(tmp_path / "out", tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=False)
    groups = pawl.load(made)["optimizer"]["param_groups"]
    assert_same(whole["optimizer"]["param_groups"], groups)


@pytest.mark.slow
def test_we_read_dcp_of_others(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    state = {"model": {"w": torch.randn(3, 3), "n": 3}, "extra": {"lr": 0.1, "list": [1, (2, 3)]}}
    dcp.save(state, checkpoint_id=tmp_path / "out", no_dist=True)
    convert.from_dcp(tmp_path / "out", tmp_path / "root", 1)
    assert_same(pawl.load(tmp_path / "root"), {name: state[name] for name in ("extra", "model")})
    convert.from_dcp(tmp_path / "out", tmp_path / "root", 2, partition="all")
    assert_same(pawl.load(tmp_path / "root", 2)["all"], state)
    dcp.save({"w": torch.ones(2)}, checkpoint_id=tmp_path / "flat", no_dist=True)
    with pytest.raises(PawlError, match="--partition NAME"):
        convert.from_dcp(tmp_path / "flat", tmp_path / "root", 3)
    convert.from_dcp(tmp_path / "flat", tmp_path / "root", 3, partition="model")
    assert_same(pawl.load(tmp_path / "root", 3), {"model": {"w": torch.ones(2)}})


@pytest.mark.slow
def test_we_read_torch_files(tmp_path: Path) -> None:
    model = make_model()
    whole = {"model": model.state_dict(), "epoch": 3}
    torch.save(whole, tmp_path / "last.ckpt")
    root = tmp_path / "root"
    assert convert.from_torch(tmp_path / "last.ckpt", root, 1) == "global_step1"
    assert_same(pawl.load(root, 1), {"last": whole})
    convert.from_torch(tmp_path / "last.ckpt", root, 2, split=True)
    assert_same(pawl.load(root, 2), {"epoch": 3, "model": whole["model"]})
    convert.from_torch(tmp_path / "last.ckpt", root, 3, partition="x")
    assert list(pawl.load(root, 3)) == ["x"]
    torch.save(whole, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    convert.from_torch(tmp_path / "old.pt", root, 4)
    assert_same(pawl.load(root, 4), {"old": whole})


def test_ranks(tmp_path: Path) -> None:
    """Each rank gets its own files back."""
    source = tmp_path / "in"
    source.mkdir()
    for name in ("model", "rng-rank0", "rng-rank2", "odd-rank01"):
        torch.save({"name": name}, source / name)
    convert.from_torch(source, tmp_path / "root", 1)
    shown = json.loads(program.run("ckpt", "show", tmp_path / "root", "--json").stdout)
    assert shown["ranks"] == 3
    assert {file["file"]: (file["name"], file["rank"]) for file in shown["files"]} == {
        "model": ("model", None),
        "odd-rank01": ("odd-rank01", None),
        "rng-rank0": ("rng", 0),
        "rng-rank2": ("rng", 2),
    }


# ---- what formats cannot express, and what must not be run ----


class Custom:
    pass


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [Custom()]}, "a.0 is a .*Custom"),
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.empty(2, device="meta"), "no device"),
        (numpy.array([object()]), "array of object"),
        ({Custom(): 1}, r"\(a key\) is a .*Custom"),
        (collections.Counter("a"), "collections.Counter"),
    ],
)
def test_what_has_no_form_is_named(value: Any, why: str) -> None:
    with pytest.raises(PawlError, match=why):
        flatten(value, "extra")


def test_a_value_that_contains_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(PawlError, match="contains itself"):
        flatten(value, "extra")


def test_structures_that_are_damaged() -> None:
    good = flatten(make_values(), "x")
    for node in ({"tensor": "no"}, {"decode": 1}, {"array": "", "dtype": "O", "shape": [0]}, {}):
        with pytest.raises(PawlError, match="structure is damaged"):
            rebuild({"dict": {"a": node}}, good.tensors, "x")
    with pytest.raises(PawlError, match="structure is damaged"):
        rebuild({"dtype": "load"}, {}, "x")


@pytest.mark.slow
def test_a_dtype_that_safetensors_has_not(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    torch.save({"c": torch.ones(2, dtype=torch.complex128)}, tmp_path / "x.pt")
    convert.from_torch(tmp_path / "x.pt", tmp_path / "root", 1)
    with pytest.raises(PawlError, match=r"x: c is of torch.complex128"):
        convert.to_safetensors(tmp_path / "root", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    convert.to_dcp(tmp_path / "root", tmp_path / "out")


@pytest.mark.slow
def test_no_code_is_run(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    torch.save({"x": Evil(tmp_path / "ran")}, tmp_path / "evil.pt")
    state = {"a": {"w": torch.ones(2), "x": Evil(tmp_path / "ran")}}
    dcp.save(state, checkpoint_id=tmp_path / "values", no_dist=True)
    dcp.save({"a": {"w": torch.ones(2)}}, checkpoint_id=tmp_path / "meta", no_dist=True)
    (tmp_path / "meta" / ".metadata").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    for source, read in (
        ("evil.pt", convert.from_torch),
        ("values", convert.from_dcp),
        ("meta", convert.from_dcp),
    ):
        with pytest.raises(PawlError, match="would run code, which --trust allows"):
            read(tmp_path / source, tmp_path / "root", 1)
        assert not (tmp_path / "ran").exists() and not (tmp_path / "root").exists()
    convert.from_torch(tmp_path / "evil.pt", tmp_path / "root", 1, trust=True)
    assert (tmp_path / "ran").exists()


# ---- what is there already ----


@pytest.mark.slow("dcp")
@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_is_overwritten(made: Path, tmp_path: Path, kind: str) -> None:
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    export = getattr(convert, f"to_{kind}")
    files = export(made, tmp_path / "out", partition="model")
    (tmp_path / "out" / "mine").write_text("mine")
    taken = tmp_path / "out" / sorted(files)[0]
    taken.write_text("taken")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(PawlError, match="exists already"):
        export(made, tmp_path / "out", partition="model")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    export(made, tmp_path / "out", partition="model", force=True)
    assert sorted(os.listdir(tmp_path / "out")) == sorted([*files, "mine"])
    assert taken.read_bytes() != b"taken" and (tmp_path / "out" / "mine").read_text() == "mine"


@pytest.mark.slow
def test_import_replaces_only_by_force(made: Path, tmp_path: Path) -> None:
    torch.save({"n": 1}, tmp_path / "x.pt")
    root = tmp_path / "root"
    convert.from_torch(tmp_path / "x.pt", root, 1)
    torch.save({"n": 2}, tmp_path / "x.pt")
    with pytest.raises(PawlError, match="exists already: nothing was imported"):
        convert.from_torch(tmp_path / "x.pt", root, 1)
    assert pawl.load(root, 1) == {"x": {"n": 1}} and not list(root.glob(".global*"))
    convert.from_torch(tmp_path / "x.pt", root, 1, force=True)
    assert pawl.load(root, 1) == {"x": {"n": 2}}


# ---- faults ----


def test_sources_that_are_damaged_or_not_there(made: Path, tmp_path: Path) -> None:
    convert.to_dcp(made, tmp_path / "dcp")
    data = tmp_path / "dcp" / "__0_0.distcp"
    data.write_bytes(data.read_bytes()[:5000])
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    (tmp_path / "cut.pt").write_bytes((made / "global_step7" / "model").read_bytes()[:4096])
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "void").mkdir()
    for source, code in (
        ("dcp", 4),
        ("cut.safetensors", 4),
        ("cut.pt", 4),
        ("text.pt", 4),
        ("void", 3),
        ("nowhere", 3),
    ):
        if source == "cut.safetensors" and importlib.util.find_spec("safetensors") is None:
            continue
        done = program.run("ckpt", "import", tmp_path / source, tmp_path / "root", "--step", "1")
        assert done.returncode == code, (source, done.stderr)
        assert done.stderr.count("\n") == 1 and done.stdout == "", (source, done.stderr)
        assert not (tmp_path / "root").exists(), source


def test_a_damaged_checkpoint_is_not_let_out(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(made, root)
    data = bytearray((root / "global_step7" / "optimizer").read_bytes())
    data[-9000] ^= 1
    (root / "global_step7" / "optimizer").write_bytes(data)
    for kind in FORMATS:
        if kind == "safetensors" and importlib.util.find_spec("safetensors") is None:
            continue
        done = program.run("ckpt", "export", root, tmp_path / "out", "--to", kind)
        assert done.returncode == 4 and "are not what was written" in done.stderr, kind
        assert os.listdir(tmp_path) == ["root"], kind


def test_python_without_pawl(made: Path, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 7\n")
    fake.chmod(0o755)
    done = program.run("ckpt", "export", made, tmp_path / "o", "--to", "dcp", "--python", fake)
    assert done.returncode == 1 and "ended with code 7" in done.stderr and "--python" in done.stderr
    done = program.run("ckpt", "export", made, tmp_path / "o", "--to", "dcp", "--python", "/none")
    assert done.returncode == 3
    assert os.listdir(tmp_path) == ["python"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("kind", FORMATS)
def test_a_full_disk(made: Path, tmp_path: Path, kind: str) -> None:
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = textwrap.dedent(f"""
        mount -t tmpfs -o size=300k none {disk} || exit 99
        "$@"
        code=$?
        find {disk} -mindepth 1 >{tmp_path}/left
        exit $code
    """)
    words = ["ckpt", "export", made, disk / "out", "--to", kind, "--python", sys.executable]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", program.find(), *map(str, words)],
        env=program.clean_env(),
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("no mounts of one's own here")
    assert done.returncode == 1, done.stderr
    assert "no space left" in done.stderr.lower()
    assert (tmp_path / "left").read_text() == ""


@pytest.mark.slow("dcp-2", "safetensors-2")
@pytest.mark.parametrize(
    ("kind", "number"), [*((kind, signal.SIGINT) for kind in FORMATS), ("torch", signal.SIGTERM)]
)
def test_stopped_in_the_middle(
    made: Path, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    """Whenever the signal comes, the output is complete or absent."""
    if kind == "safetensors":
        pytest.importorskip("safetensors")
    files = getattr(convert, f"to_{kind}")(made, tmp_path / "whole")
    for wait in (0.001, 0.02, 1.2, 2.0) if kind != "torch" else (0.001, 0.003, 0.01):
        process = subprocess.Popen(
            [program.find(), "ckpt", "export", "--to", kind, made, tmp_path / "out"],
            env=program.clean_env(),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        waits.moment(wait)
        process.send_signal(number)
        code = process.wait(timeout=program.LIMIT_S)
        assert code in (0, 128 + number, -number), code  # < 0: no handler was set yet
        if code == 0:
            assert sorted(os.listdir(tmp_path / "out")) == sorted(files)
            shutil.rmtree(tmp_path / "out")
        elif code > 0:
            assert os.listdir(tmp_path) == ["whole"]
    # SIGKILL leaves a hidden folder, which the next export removes.
    (tmp_path / ".out.pawl-export").mkdir(exist_ok=True)
    (tmp_path / ".out.pawl-export" / "x").write_text("x")
    getattr(convert, f"to_{kind}")(made, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["out", "whole"]


def test_import_stopped_in_the_middle(made: Path, tmp_path: Path) -> None:
    big = {"x": torch.zeros(64 << 20, dtype=torch.uint8)}
    torch.save(big, tmp_path / "big.pt")
    for wait in (0.01, 0.1, 0.3):
        process = nursery.Popen(
            [program.find(), "ckpt", "import", "--step=1", tmp_path / "big.pt", tmp_path / "root"],
            env=program.clean_env(),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        waits.moment(wait)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=program.LIMIT_S)
        if code == 0:
            shutil.rmtree(tmp_path / "root")
        elif code > 0:
            assert code == 130 and os.listdir(tmp_path) == ["big.pt"]
