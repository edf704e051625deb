"""The pickle that _skeleton makes is the one that torch.save would have made, for everything it
takes."""

from __future__ import annotations

import collections
import io
import pickletools
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fakecore
from conftest import SEED
from pawl import PawlError
from pawl._ckpt._skeleton import Partition, Skeleton

pytestmark = [
    pytest.mark.usefixtures("fake"),
    pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:TypedStorage", "ignore:Sparse"),
    pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:The PyTorch API of nested"),
]

DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)


def build(value: Any, trust: bool = False) -> Skeleton:
    return Partition("part", trust).build(value)


def to_file(skeleton: Skeleton, path: Path) -> Path:
    spans = [(s.data_ptr(), s.nbytes(), 0, 0) for s in skeleton.storages]
    flat = [number for span in spans for number in span]
    part = fakecore._Part("part", False, skeleton.pickle, skeleton.table, array_of(flat))
    part.bytes = [fakecore._peek(a, n) for a, n, _, _ in spans]
    fakecore.write_zip(str(path), part)
    return path


def array_of(numbers: list[int]) -> Any:
    from array import array

    return array("Q", numbers)


def round_trip(value: Any, tmp_path: Path, partition: Partition | None = None) -> Any:
    skeleton = (partition or Partition("part", False)).build(value)
    return torch.load(to_file(skeleton, tmp_path / "part"), weights_only=True)


def torch_trip(value: Any) -> Any:
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=True)


def bits(tensor: torch.Tensor) -> bytes:
    """Returns the contents of a dense tensor, including NaNs."""
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = torch.empty(0, dtype=torch.uint8).set_(whole.untyped_storage())
    start = whole.storage_offset() * whole.element_size()
    return bytes(flat[start : start + whole.numel() * whole.element_size()].tolist())


def same(one: Any, other: Any) -> bool:
    """Whether two loaded states are alike in everything that torch keeps."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        if one.layout != torch.strided or one.is_nested:
            return one.layout == other.layout and torch.equal(dense(one), dense(other))
        facts = [
            (
                *(t.dtype, t.shape, t.stride(), t.storage_offset(), t.requires_grad),
                *(t.untyped_storage().nbytes(), t.is_conj(), t.is_neg(), t.device, t.__dict__),
            )
            for t in (one, other)
        ]
        return facts[0] == facts[1] and bits(one) == bits(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return (
        torch.cat([t.flatten() for t in tensor.unbind()])
        if tensor.is_nested
        else (tensor.to_dense())
    )


def of_dtype(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Returns random bytes as a tensor of dtype."""
    tensor = torch.empty(shape, dtype=dtype)
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8))
    return tensor


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_of_torch(dtype: torch.dtype, tmp_path: Path) -> None:
    if dtype in (torch.qint8, torch.quint8, torch.qint32):
        value = torch.quantize_per_tensor(torch.randn(3, 5), 0.1, 2, dtype)
    else:
        value = of_dtype(dtype, (3, 5))
    try:
        expected = torch_trip({"x": value})
    except (KeyError, RuntimeError):
        with pytest.raises(PawlError, match=r"state\['part'\]\['x'\]"):
            build({"x": value})
        return
    assert same(round_trip({"x": value}, tmp_path), expected)


def test_dtypes_cover_what_torch_stores() -> None:
    assert len(DTYPES) >= 40  # otherwise the test above would be vacuous
    assert {torch.uint16, torch.float8_e5m2, torch.complex32, torch.bfloat16} < set(DTYPES)


def views() -> dict[str, Any]:
    base = torch.arange(60.0).reshape(3, 4, 5)
    shared = torch.randn(100)
    complex_ = torch.randn(4, dtype=torch.complex64)
    return {
        "transposed": base.permute(2, 0, 1),
        "strided": base[:, ::2, 1:],
        "expanded": torch.ones(3, 1).expand(3, 4),
        "zero_dim": torch.tensor(3.5),
        "empty": torch.empty(0, 7),
        "empty_view": base[1:1],
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "tail": shared[90:],
        "head": shared[:10],
        "middle_2d": shared[10:40].view(5, 6).t(),
        "conjugate": complex_.conj(),
        "negative": complex_.conj().imag,
        "leaf": torch.randn(3, requires_grad=True),
        "inner": torch.randn(3, requires_grad=True) * 2,
        "parameter": nn.Parameter(torch.randn(2, 2)),
        "frozen": nn.Parameter(torch.randn(2), requires_grad=False),
        "big_offset": torch.zeros(70000)[69000:],
    }


@pytest.mark.parametrize("name", sorted(views()))
def test_views_and_kinds(name: str, tmp_path: Path) -> None:
    value = {"x": views()[name]}
    with torch.no_grad():
        assert same(round_trip(value, tmp_path), torch_trip(value))


def test_all_kinds_together(tmp_path: Path) -> None:
    value = {k: v for k, v in views().items() if k not in ("conjugate", "negative")}
    assert same(round_trip(value, tmp_path), torch_trip(value))
    value["conjugate"] = torch.randn(4, dtype=torch.complex64).conj()  # takes the slow path
    assert same(round_trip(value, tmp_path), torch_trip(value))


def test_two_dtypes_of_one_memory_beside_special_tensors_are_refused() -> None:
    floats = torch.randn(4)
    value = {"floats": floats, "ints": floats.view(torch.int32), "sparse": torch.eye(2).to_sparse()}
    with pytest.raises(PawlError, match=r"\['ints'\] sees as torch.int32 .* torch.float32"):
        build(value)


def test_shared_storage_stays_shared(tmp_path: Path) -> None:
    base = torch.randn(100)
    loaded = round_trip({"a": base, "b": base[50:], "c": base.view(10, 10).t()}, tmp_path)
    loaded["a"][60] = 123.0
    assert loaded["b"][10] == 123.0
    assert loaded["c"][0, 6] == 123.0


def test_same_object_comes_back_as_one(tmp_path: Path) -> None:
    tensor, param = torch.randn(4), nn.Parameter(torch.randn(4))
    tensors = {"a": tensor, "b": [tensor, param], "c": (param, torch.ones(1), tensor)}
    partition = Partition("part", False)
    for extra in (0, 5000):  # a longer pickle has a larger memo
        texts = [f"text {i}" for i in range(extra)]
        value = {"texts": texts, **tensors, "again": texts.copy()}
        loaded = round_trip(value, tmp_path, partition)
        assert loaded["a"] is loaded["b"][0] is loaded["c"][2]
        assert loaded["b"][1] is loaded["c"][0]
        assert same(loaded, torch_trip(value))


def test_memory_seen_as_two_dtypes(tmp_path: Path) -> None:
    floats = torch.randn(16)
    value = {"floats": floats, "ints": floats.view(torch.int32), "odd": floats[1:3]}
    loaded = round_trip(value, tmp_path)  # torch.save refuses this value
    assert torch.equal(loaded["floats"], floats)
    assert torch.equal(loaded["ints"], floats.view(torch.int32))
    loaded["floats"][1] = 7
    assert loaded["odd"][0] == 7


def test_storage_with_a_torn_last_item(tmp_path: Path) -> None:
    storage = torch.UntypedStorage(10)
    value = {"x": torch.empty(0, dtype=torch.float32).set_(storage, 0, (2,), (1,)).fill_(2.5)}
    assert torch.equal(round_trip(value, tmp_path)["x"], torch.tensor([2.5, 2.5]))


def test_sparse_quantized_nested_meta_and_attributes(tmp_path: Path) -> None:
    marked = torch.ones(3)
    marked.note = "kept"
    channels = torch.quantize_per_channel(
        torch.randn(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
    )
    for value in (
        torch.eye(3).to_sparse(),
        torch.eye(4).to_sparse_csr(),
        torch.eye(4).to_sparse_bsc((2, 2)),
        channels,
        torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]),
        marked,
        nn.Parameter(torch.eye(2).to_sparse()),
        [marked, torch.ones(2)],
    ):
        assert same(round_trip({"x": value}, tmp_path), torch_trip({"x": value})), value
    meta = round_trip({"x": torch.empty(3, 4, device="meta")}, tmp_path)["x"]
    assert meta.is_meta and meta.shape == (3, 4)


def test_bare_storages(tmp_path: Path) -> None:
    tensor = torch.arange(4, dtype=torch.uint8)
    loaded = round_trip({"t": tensor, "s": tensor.untyped_storage()}, tmp_path)
    assert list(loaded["s"]) == [0, 1, 2, 3]


class Wrapped(torch.Tensor):
    pass


def test_tensor_subclass_is_refused_by_name_or_trusted(tmp_path: Path) -> None:
    value = {"model": {"x": torch.ones(3).as_subclass(Wrapped)}}
    with pytest.raises(PawlError, match=r"state\['part'\]\['model'\]\['x'\] is a .*Wrapped.*trust"):
        build(value)
    path = to_file(build(value, trust=True), tmp_path / "part")
    assert type(torch.load(path, weights_only=False)["model"]["x"]) is Wrapped


def test_dtensor_is_refused_by_name() -> None:
    from torch.distributed import tensor as dt
    from torch.distributed.device_mesh import DeviceMesh

    try:
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=hash_store())
        mesh = DeviceMesh("cpu", [0])
        value = {"w": dt.distribute_tensor(torch.ones(4), mesh, [dt.Replicate()])}
        for trust in (False, True):
            with pytest.raises(PawlError, match=r"state\['part'\]\['w'\] is a DTensor"):
                build(value, trust)
    finally:
        torch.distributed.destroy_process_group()


def hash_store() -> Any:
    return torch.distributed.HashStore()


def test_opaque_and_fake_tensors_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with pytest.raises(PawlError, match=r"\['m'\] is a tensor in an opaque"):
        build({"m": torch.ones(2, 2).to_mkldnn()})
    with FakeTensorMode():
        fake = torch.ones(2)
    with pytest.raises(PawlError, match=r"\['f'\] is a FakeTensor"):
        build({"f": fake})


class Custom:
    def __init__(self) -> None:
        self.inner = 1


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        ({"a": [1, Custom()]}, r"\['a'\]\[1\]", "test_skeleton.Custom"),
        ({"a": {"f": test_bare_storages}}, r"\['a'\]\['f'\]", "test_bare_storages"),
        ({"a": Custom}, r"\['a'\]", "Custom"),
        ({"p": Point(1, 2)}, r"\['p'\]", "Point"),
        ({"s": frozenset({1})}, r"\['s'\]", "builtins.frozenset"),
        ({"n": (1 << 5000)}, r"\['n'\]", "int of more than 255 bytes"),
        ({"d": collections.defaultdict(int)}, r"\['d'\]", "defaultdict"),
        ({"p": Path("x")}, r"\['p'\]", "Path"),
        ({"t": type(None)}, r"\['t'\]", "NoneType"),
        ({"l": lambda: 0}, r"\['l'\]", "lambda"),
        ({"e": ...}, r"\['e'\]", "ellipsis"),
        ({"g": torch.Generator()}, r"\['g'\]", "Generator"),
        ({"f": torch.channels_last}, r"\['f'\]", "memory_format"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_what_the_safe_loader_lacks_is_refused_by_name(value: Any, path: str, kind: str) -> None:
    with pytest.raises(PawlError, match=rf"^state\['part'\]{path} is an?.*{kind}.*trust=True") as e:
        build(value)
    assert e.value.name == "PAWL_ENOTSUP"


def test_trust_takes_what_pickle_takes(tmp_path: Path) -> None:
    value = {"p": Point(1, torch.ones(2)), "s": frozenset({1}), "n": 1 << 5000}
    path = to_file(build(value, trust=True), tmp_path / "part")
    loaded = torch.load(path, weights_only=False)
    assert loaded["p"].x == 1 and loaded["s"] == {1} and loaded["n"] == 1 << 5000


def test_what_cannot_be_pickled_is_an_error_with_its_place() -> None:
    import threading

    with pytest.raises(PawlError, match=r"state\['part'\]\['lock'\] is a _thread.lock"):
        build({"lock": threading.Lock()})
    with pytest.raises(PawlError, match=r"state\['part'\] cannot be pickled.*lock"):
        build({"lock": threading.Lock()}, trust=True)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PawlError, match="cannot be pickled"):
        build(deep)


def test_user_allowed_classes_are_taken(tmp_path: Path) -> None:
    with torch.serialization.safe_globals([Custom]):
        loaded = round_trip({"c": Custom()}, tmp_path)
    assert loaded["c"].inner == 1


def plain_values(rng: random.Random, depth: int = 0) -> Any:
    """Returns a random nest of the objects that state_dicts are made of."""
    leaves = [
        lambda: rng.randrange(-(1 << 70), 1 << 70),
        lambda: rng.choice([None, True, False, b"", b"\x8a\x08bytes\xff", "text", "", "\u00fc"]),
        lambda: rng.random() * 10 ** rng.randrange(-9, 9),
        lambda: torch.randn(rng.randrange(4), rng.randrange(4)),
        lambda: torch.randint(9, (rng.randrange(5),), dtype=torch.int16),
        lambda: torch.Size([rng.randrange(9)]),
        lambda: complex(rng.random(), 1),
        lambda: {rng.randrange(9), "x"},
        lambda: bytearray(b"abc"),
        lambda: rng.choice([torch.float32, torch.device("cpu"), torch.strided]),
    ]
    if depth > 3 or rng.random() < 0.5:
        return rng.choice(leaves)()
    kind = rng.choice([list, tuple, dict, collections.OrderedDict, collections.Counter])
    items = [plain_values(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind is collections.Counter:
        return kind({str(i): rng.randrange(99) for i in range(3)})
    if kind in (list, tuple):
        return kind(items)
    return kind(
        (rng.choice(["k", 7, None, ("t",)]) if rng.random() < 0.2 else i, v)
        for i, v in enumerate(items)
    )


def test_random_states_equal_torch_save(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for _ in range(150):
        value = {"v": plain_values(rng), "w": plain_values(rng)}
        with torch.serialization.safe_globals([(bytes, "builtins.bytes")]):
            assert same(round_trip(value, tmp_path), torch_trip(value)), f"seed {SEED}: {value}"


def model_and_optimizer(width: int = 8) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(2, width)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_module_and_optimizer_over_steps(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    of_model, of_optimizer = Partition("model", False), Partition("optim", False)
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (step + 1)
        if step == 3:
            model.add_module("late", nn.Linear(2, 2))
        optimizer.step()
        loaded = round_trip(model.state_dict(), tmp_path, of_model)
        assert same(loaded, torch_trip(model.state_dict()))
        assert loaded._metadata == model.state_dict()._metadata
        state = optimizer.state_dict()
        assert same(round_trip(state, tmp_path, of_optimizer), torch_trip(state))


def test_unchanged_structure_is_not_built_again() -> None:
    _, optimizer = model_and_optimizer()
    partition = Partition("optim", False)
    first = partition.build(optimizer.state_dict())
    optimizer.step()
    second = partition.build(optimizer.state_dict())
    assert second.pickle is first.pickle and second.table is first.table
    optimizer.param_groups[0]["lr"] = 0.25
    third = partition.build(optimizer.state_dict())
    assert third.pickle is not first.pickle and third.table is first.table


@pytest.mark.parametrize("change", ["data", "shape", "stride", "dtype", "grad", "resize", "tie"])
def test_metadata_changes_behind_the_same_object_are_seen(change: str, tmp_path: Path) -> None:
    tensor, other = torch.randn(4, 4), torch.randn(4, 4)
    value, partition = {"x": tensor, "y": other}, Partition("part", False)
    round_trip(value, tmp_path, partition)
    with torch.no_grad():
        if change == "data":
            tensor.data = torch.randn(2, 3)
        elif change == "shape":
            tensor.data = tensor.data.view(16)
        elif change == "stride":
            tensor.t_()
        elif change == "dtype":
            tensor.data = tensor.data.view(torch.int32)
        elif change == "grad":
            tensor.requires_grad_()
        elif change == "resize":
            tensor.resize_(7, 7).fill_(1)
        elif change == "tie":
            tensor.data = other.data
    assert same(round_trip(value, tmp_path, partition), torch_trip(value))


def test_other_sharing_of_the_same_storages_is_seen(tmp_path: Path) -> None:
    a, b, c = torch.zeros(4), torch.ones(4), torch.full((4,), 2.0)
    partition = Partition("part", False)
    for one, two, three in ((a, a[:], b), (a, b, b[:]), (a, b, a[:])):
        value = {"one": one, "two": two, "three": three, "four": c}
        assert same(round_trip(value, tmp_path, partition), torch_trip(value))


def test_a_number_that_looks_like_a_marker(tmp_path: Path) -> None:
    from pawl._ckpt import _skeleton

    value = {"n": [_skeleton._MARK + i for i in range(3)], "t": torch.ones(2)}
    assert same(round_trip(value, tmp_path), torch_trip(value))
    inside = b"\1\x8a\x08" + b"\0\0\0" + _skeleton._SECRET + b"Q\1"  # part of a longer number
    value["n"] = [int.from_bytes(inside, "little")]
    assert same(round_trip(value, tmp_path), torch_trip(value))


def test_stream_has_only_what_old_readers_know() -> None:
    model, optimizer = model_and_optimizer()
    for value in (model.state_dict(), optimizer.state_dict()):
        ops = {op.name for op, _, _ in pickletools.genops(build(value).pickle)}
        stream = io.BytesIO()
        torch.save(value, stream)
        theirs = zipfile.ZipFile(stream).read("archive/data.pkl")
        known = {op.name for op, _, _ in pickletools.genops(theirs)}
        assert ops <= known | {"TUPLE", "TUPLE1", "BININT2", "LONG1"}


def test_names_and_table() -> None:
    tied = torch.randn(6)
    value = {"state": {3: {"exp_avg": tied}}, "list": [torch.ones(2, 3)], "again": tied[2:]}
    skeleton = build(value)
    assert skeleton.names == ["state.3.exp_avg", "list.0"]
    assert fakecore.decode_tensors(skeleton.table) == [
        ("state.3.exp_avg", "float32", (6,), 0, 0),
        ("list.0", "float32", (2, 3), 1, 0),
        ("again", "float32", (4,), 0, 8),
    ]
    assert build(torch.ones(1)).names == ["part"]
    partition, tensor = Partition("part", False), torch.ones(1)
    assert [partition.build({key: tensor}).names for key in "xy"] == [["x"], ["y"]]
    odd = {"a\0b": torch.ones(1), "c\ud800": torch.ones(1)}
    names = [row[0] for row in fakecore.decode_tensors(build(odd).table)]
    assert names == ["a?b", "c?"]


def test_inside_no_grad_and_inference_mode(tmp_path: Path) -> None:
    model, _ = model_and_optimizer()
    expected = torch_trip(model.state_dict())
    with torch.no_grad():
        assert same(round_trip(model.state_dict(), tmp_path), expected)
    with torch.inference_mode():
        made_here = {"x": torch.ones(3)}
        skeleton = build(model.state_dict())
        here = build(made_here)
    assert same(torch.load(to_file(skeleton, tmp_path / "a")), expected)
    assert torch.load(to_file(here, tmp_path / "b"))["x"].tolist() == [1, 1, 1]


def test_device_tensors_keep_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with a GPU, the pickle names the device."""
    from pawl._ckpt import _skeleton

    monkeypatch.setattr(_skeleton, "_on_cpu", lambda tensor: tensor.dim() == 1)
    monkeypatch.setattr(_skeleton, "location_tag", lambda s: "cuda:0" if s.nbytes() > 9 else "cpu")
    value = {"a": torch.ones(2, 2), "b": torch.zeros(2)}
    path = to_file(build(value), tmp_path / "part")
    seen: list[str] = []

    def place(storage: Any, tag: str) -> Any:
        seen.append(tag)
        return storage

    loaded = torch.load(path, map_location=place, weights_only=True)
    assert torch.equal(loaded["a"], value["a"]) and seen == ["cuda:0", "cpu"]
