"""All or nothing, for each kind of saved value and each kind of live value at restore: restore()
gives the saved value, or refuses and has changed nothing."""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import program
from pawl import Checkpointer, PawlError

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of prototypes and lost parts


def strided(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(1, 13).reshape(4, 3).to(dtype)[::2, ::2]


def spare(values: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Returns a tensor without memory, as FSDP leaves what it has sharded."""
    tensor = values().clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def float4() -> torch.Tensor:
    return torch.tensor([[18, 52]] * 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def inferred() -> torch.Tensor:
    with torch.inference_mode():
        return torch.full((2, 2), 3.0)


KINDS: dict[str, Callable[[], Any]] = {
    "float32": lambda: torch.full((2, 2), 1.5),
    "float64": lambda: torch.full((2, 2), 2.5, dtype=torch.float64),
    "float16": lambda: torch.full((2, 2), 3.5, dtype=torch.float16),
    "bfloat16": lambda: torch.full((2, 2), 4.5, dtype=torch.bfloat16),
    "float8": lambda: torch.full((2, 2), 2.0).to(torch.float8_e4m3fn),
    "float4": float4,
    "int64": lambda: torch.full((2, 2), 5),
    "uint8": lambda: torch.full((2, 2), 6, dtype=torch.uint8),
    "uint16": lambda: torch.full((2, 2), 7).to(torch.uint16),
    "bool": lambda: torch.tensor([[True, False], [False, True]]),
    "complex": lambda: torch.full((2, 2), 1 + 2j),
    "conjugate": lambda: torch.full((2, 2), 1 + 3j).conj(),
    "negative": lambda: torch.full((2, 2), 1 + 4j).conj().imag,
    "vector": lambda: torch.arange(1.0, 4),
    "number": lambda: torch.tensor(2.25),
    "empty": lambda: torch.empty(0, 2),
    "strided": lambda: strided(torch.float32),
    "strided int": lambda: strided(torch.int64),
    "transposed": lambda: torch.arange(1.0, 5).reshape(2, 2).t(),
    "expanded": lambda: torch.full((1, 2), 7.0).expand(2, 2),
    "expanded to": lambda: torch.arange(1.0, 3).expand(2, 2),
    "expanded int": lambda: torch.full((), 3).expand(2, 2),
    "differs": lambda: torch.arange(1.0, 5).reshape(2, 2),
    "inferred": inferred,
    "numpy's memory": lambda: torch.from_numpy(numpy.full((2, 2), 8.0, dtype="float32")),
    "no memory": lambda: spare(lambda: torch.full((2, 2), 9.0)),
    "meta": lambda: torch.empty(2, 2, device="meta"),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "csr": lambda: torch.eye(2).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, 2), 0.5, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "requires grad": lambda: torch.full((2, 2), 1.25, requires_grad=True),
    "int": lambda: 3,
    "float": lambda: 0.5,
    "text": lambda: "saved",
    "nothing": lambda: None,
    "array": lambda: numpy.arange(3.0),
    "scalar": lambda: numpy.float64(0.75),
    "list": lambda: [1, torch.ones(2)],
    "dict": lambda: {"a": torch.ones(2), "b": 2},
    "ordered": lambda: collections.OrderedDict(a=torch.ones(2)),
}
if not hasattr(torch, "float4_e2m1fn_x2"):  # exists in torch from 2.8 on
    del KINDS["float4"]
NOT_SAVED = ("no memory", "meta", "float4")  # save() refuses these, or they cannot be compared


class Buffer(nn.Module):
    def __init__(self, leaf: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("leaf", leaf)


class Parameter(nn.Module):
    def __init__(self, leaf: torch.Tensor) -> None:
        super().__init__()
        self.leaf = nn.Parameter(leaf, requires_grad=False)


class Own:
    """A user's object with a state."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    def state_dict(self) -> dict[str, Any]:
        return {"leaf": self.leaf}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.leaf = state["leaf"]


class Momentum(torch.optim.SGD):
    """An optimizer with the leaf as the state of one parameter."""

    def __init__(self, leaf: Any) -> None:
        parameter = nn.Parameter(torch.zeros(2, 2))
        super().__init__([parameter], lr=0.1, momentum=0.9)
        if isinstance(leaf, (str, collections.OrderedDict)):
            raise TypeError("torch's load_state_dict makes something else of it")
        self.state[parameter]["momentum_buffer"] = leaf

    @property
    def leaf(self) -> Any:
        (entry,) = self.state.values()
        return entry["momentum_buffer"]


PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "value": (lambda leaf: leaf, lambda x: x),
    "dict": (lambda leaf: {"k": leaf}, lambda x: x["k"]),
    "list": (lambda leaf: [0, leaf], lambda x: x[1]),
    "tuple": (lambda leaf: (0, leaf), lambda x: x[1]),
    "buffer": (Buffer, lambda x: x.leaf),
    "parameter": (Parameter, lambda x: x.leaf),
    "own": (Own, lambda x: x.leaf),
    "optimizer": (Momentum, lambda x: x.leaf),
}


def put(place: str, kind: str) -> Any:
    """Returns a state with such a value at place; None: the value cannot stand there."""
    leaf = KINDS[kind]()
    is_tensor = isinstance(leaf, torch.Tensor)
    if place in ("buffer", "parameter") and not is_tensor:
        return None
    try:
        return PLACES[place][0](leaf)
    except Exception:  # torch restricts what may be a parameter
        return None


def state(place: str, kind: str, value: float) -> dict[str, Any] | None:
    x = put(place, kind)
    if x is None:
        return None
    first = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.fill_(value)
    return {"first": first, "x": x, "last": [value]}


def spell(value: Any) -> Any:
    """Returns a value that == can compare: types, shapes and numbers, not addresses."""
    if isinstance(value, dict):
        return [type(value).__name__, {key: spell(inner) for key, inner in value.items()}]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(spell, value)]
    if isinstance(value, numpy.ndarray):
        return ["ndarray", str(value.dtype), value.tolist()]
    if not isinstance(value, torch.Tensor):
        return [type(value).__name__, value]
    plain = value.detach()
    if plain.is_meta or (plain.layout == torch.strided and not plain.is_nested and (
        plain.numel() > 0 and plain.untyped_storage().nbytes() == 0
    )):  # fmt: skip
        return ["no values", str(plain.device), list(plain.shape)]
    if plain.is_nested:
        return ["nested", *map(spell, plain.unbind())]
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.layout != torch.strided:
        return [str(plain.layout), spell(plain.to_dense())]
    plain = plain.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return [str(plain.dtype), list(value.shape), plain.view(torch.uint8).tolist()]


def all_of(state: dict[str, Any], place: str) -> Any:
    return [spell(state["first"].weight), spell(PLACES[place][1](state["x"])), state["last"]]


def is_what_was_saved(got: Any, saved: Any) -> bool:
    """Whether got is the saved value, or that value converted to the live kind."""
    if spell(got) == spell(saved):
        return True
    if not isinstance(got, torch.Tensor) or not isinstance(saved, torch.Tensor):
        return False
    if got.is_quantized:
        return torch.allclose(got.dequantize(), saved.float(), atol=got.q_scale())
    return torch.equal(wide(got), wide(saved.detach().to(got.dtype)))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    return plain.to(torch.complex128 if plain.is_complex() else torch.float64)


def try_one(ckpt: Checkpointer, step: int, place: str, kind: str, saved: Any) -> bool:
    """Restores over a live value. Returns whether that was refused."""
    live = state(place, kind, 0.0)
    assert live is not None
    before = all_of(live, place)
    try:
        assert ckpt.restore(live, step=step) == step
    except PawlError as why:
        assert why.name in ("PAWL_EMISMATCH", "PAWL_ENOTSUP"), why
        assert all_of(live, place) == before, why
        return True
    assert live["first"].weight.unique().tolist() == [7.0] and live["last"] == [7.0]
    assert is_what_was_saved(PLACES[place][1](live["x"]), saved)
    return False


@pytest.mark.parametrize("place", PLACES)
def test_all_or_nothing(fake: Any, tmp_path: Path, place: str) -> None:
    tried = refused = step = 0
    with Checkpointer(tmp_path, keep=1000) as ckpt:
        for kind in KINDS:
            made = state(place, kind, 7.0) if kind not in NOT_SAVED else None
            if made is None:
                continue
            step += 1
            try:
                ckpt.save(step, made).wait("committed", program.LIMIT_S)
            except PawlError as why:
                assert why.name == "PAWL_ENOTSUP", why
                continue
            saved = PLACES[place][1](made["x"])
            for live in KINDS:
                if put(place, live) is None:
                    continue
                try:
                    refused += try_one(ckpt, step, place, live, saved)
                except BaseException as why:
                    raise AssertionError(f"{place}: {kind} into {live}: {why!r}") from why
                tried += 1
    print(f"{place}: {tried} pairs, {refused} refused")
    assert tried > 200 and refused < tried
