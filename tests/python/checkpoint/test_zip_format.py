"""A partition file is a valid torch zip: torch.load, zipfile and unzip read it without Pawl.

The C writer (the program writetag, built with the C tests) writes the pickle and the storages of a
real torch.save file again, and readers that know nothing of Pawl read them.
"""

import collections
import io
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import zipfile

import pytest

torch = pytest.importorskip("torch")

TESTS = pathlib.Path(os.environ.get("PAWL_TESTS_DIR", "build/gcc/tests"))
WRITETAG = TESTS / "lib" / "writetag"
GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
GIB = 1 << 30

if not WRITETAG.exists():
    pytest.skip(
        f"{WRITETAG} is not built (PAWL_TESTS_DIR names the build's tests)", allow_module_level=True
    )


def unpack(saved: pathlib.Path, into: pathlib.Path) -> list[str]:
    """Writes the pickle and the storages of a torch.save file as files; returns their paths."""
    into.mkdir()
    with zipfile.ZipFile(saved) as archive:
        names = archive.namelist()
        stem = names[0].split("/")[0]
        count = sum(name.startswith(f"{stem}/data/") for name in names)
        for name in ["data.pkl"] + [f"data/{i}" for i in range(count)]:
            (into / pathlib.Path(name).name).write_bytes(archive.read(f"{stem}/{name}"))
    return [str(into / "data.pkl")] + [str(into / str(i)) for i in range(count)]


def rewrite(state: object, tmp_path: pathlib.Path) -> pathlib.Path:
    """Saves state with torch and writes it again with Pawl. Returns the partition file."""
    torch.save(state, tmp_path / "model.pt")
    return write(tmp_path, unpack(tmp_path / "model.pt", tmp_path / "parts"))


def write(tmp_path: pathlib.Path, parts: list[str]) -> pathlib.Path:
    root = tmp_path / "root"
    subprocess.run([WRITETAG, root, "500", "model", *parts], check=True)
    assert (root / "global_step500" / "complete.txt").read_bytes() == b"OK"
    return root / "global_step500" / "model"


def small_state() -> dict:
    torch.manual_seed(3)
    state = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200)).state_dict()
    large = torch.randn(400_000)
    return {
        **state,
        "large": large,
        "view of large": large[10:20],
        "not contiguous": large[:100].view(10, 10).t(),
        "0-d": torch.tensor(3.5),
        "empty": torch.zeros(0, 7),
        "bfloat16": torch.ones(33, dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "complex": torch.ones(5, dtype=torch.complex64),
        "step": 12,
    }


def assert_equal(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert found[name].dtype == value.dtype and found[name].stride() == value.stride()
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("weights_only", [False, True])
def test_torch_load_reads_it(tmp_path, weights_only, mmap):
    state = small_state()
    path = rewrite(state, tmp_path)
    found = torch.load(path, weights_only=weights_only, mmap=mmap)
    assert_equal(found, state)
    assert (
        found["view of large"].untyped_storage().data_ptr()
        == found["large"].untyped_storage().data_ptr()
    )


def test_torch_load_does_not_calculate_offsets(tmp_path, monkeypatch):
    """Offsets differ from those of torch's order and alignment: .format_version says so."""
    serialization = pytest.importorskip("torch.utils.serialization")
    state = small_state()
    path = rewrite(state, tmp_path)
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")
    with serialization.config.patch({"load.calculate_storage_offsets": True}):
        assert_equal(torch.load(path, mmap=True), state)
        assert_equal(torch.load(path), state)


def test_zip_tools_read_it(tmp_path):
    path = rewrite(small_state(), tmp_path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "model.pt") as torchs:
        assert archive.testzip() is None
        ours = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
        theirs = {name.split("/", 1)[1]: torchs.read(name) for name in torchs.namelist()}
    assert theirs.keys() <= ours.keys()  # older torch writes fewer entries
    constant = {"version", "byteorder", "data.pkl"} | {
        name for name in theirs if name.startswith("data/")
    }
    assert all(ours[name] == theirs[name] for name in constant)
    assert len(ours[".data/serialization_id"]) == 40 and ours[".data/serialization_id"].isdigit()
    assert path.stat().st_size % 4096 == 0
    if shutil.which("unzip"):
        assert (
            "No errors detected"
            in subprocess.run(
                ["unzip", "-t", path], check=True, capture_output=True, text=True
            ).stdout
        )


def test_large_payloads_are_aligned(tmp_path):
    path = rewrite(small_state(), tmp_path)
    found = torch.load(path, mmap=True)
    for name, value in found.items():
        if isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() >= 4096:
            assert value.untyped_storage().data_ptr() % 4096 == 0, name


def test_random_states(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for i in range(10):
        sizes = [
            rng.choice([0, 1, 63, 4095, 4096, 4097, rng.randrange(1 << 20)])
            for _ in range(rng.randrange(40))
        ]
        state = {
            str(k): torch.randint(0, 255, (n,), dtype=torch.uint8) for k, n in enumerate(sizes)
        }
        (tmp_path / str(i)).mkdir()
        path = rewrite(state, tmp_path / str(i))
        assert_equal(torch.load(path, weights_only=True), state)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None


def test_golden_bytes_are_written_and_loaded(tmp_path):
    """The writer's bytes have not changed since the release that made the golden ones."""
    made = write(tmp_path, unpack(GOLDEN / "torch_2_13.pt", tmp_path / "parts")).parent
    for name in ("model", ".pawl/manifest", "complete.txt"):
        assert (made / name).read_bytes() == (GOLDEN / "v2/global_step500" / name).read_bytes()
    expected = torch.load(GOLDEN / "torch_2_13.pt", weights_only=True)
    found = torch.load(GOLDEN / "v2/global_step500/model", weights_only=True)
    assert_equal(found, expected)


@pytest.mark.skipif("PAWL_LONG" not in os.environ, reason="writes 9 GiB; PAWL_LONG=1 runs it")
@pytest.mark.parametrize("sizes", [[5 * GIB, 4 << 20, 8], [3 * GIB, 2 * GIB, 8, 4 << 20]])
def test_more_than_4_gib(tmp_path, sizes):
    """Sizes and offsets that need zip64, and small entries after them."""
    if shutil.disk_usage(tmp_path).free < 20 * GIB:
        pytest.skip("less than 20 GiB free")
    parts = [tmp_path / str(k) for k in range(len(sizes))]
    for part, size in zip(parts, sizes, strict=True):
        with open(part, "wb") as file:  # sparse except for its end
            file.seek(size - 1)
            file.write(bytes([size % 251]))
    (tmp_path / "pickle").write_bytes(pickle_of_sizes(sizes))
    path = write(tmp_path, [str(part) for part in [tmp_path / "pickle", *parts]])
    for mmap in (True, False):
        found = torch.load(path, weights_only=True, mmap=mmap)
        for k, size in enumerate(sizes):
            assert found[str(k)].numel() == size and int(found[str(k)][-1]) == size % 251
            assert not found[str(k)][:7].any()
        del found
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-tq", path], check=True)


class Storage:
    def __init__(self, key: int, size: int) -> None:
        self.id = ("storage", torch.ByteStorage, str(key), "cpu", size)


class Tensor:
    def __init__(self, key: int, size: int) -> None:
        self.args = (Storage(key, size), 0, (size,), (1,), False, collections.OrderedDict())

    def __reduce__(self) -> tuple:
        return torch._utils._rebuild_tensor_v2, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> tuple | None:
        return obj.id if isinstance(obj, Storage) else None


def pickle_of_sizes(sizes: list[int]) -> bytes:
    """Returns the data.pkl of a state with one tensor of bytes of each size, without the memory for
    them."""
    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump({str(k): Tensor(k, n) for k, n in enumerate(sizes)})
    return buffer.getvalue()
