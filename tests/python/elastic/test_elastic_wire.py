"""Messages between ranks of an elastic job arrive as they were sent, or are refused."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pawl  # noqa: E402
from conftest import SEED  # noqa: E402
from pawl.elastic import _wire  # noqa: E402


class _Odd:
    """An object that can only be sent as a pickle."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:  # names a test, so it must be the same in all processes
        return f"_Odd({self.word!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Odd) and other.word == self.word


VALUES: list[Any] = [
    None, True, -7, 1 << 80, 0.1, float("inf"), 2 - 3j, "ä", b"\0\xff", bytearray(b"x"), [], {},
    (1, [2, (3,)]), {3, 4}, {1: "a", "b": (None,)}, torch.float16, torch.Size([2, 3]),
    _Odd("x"), {"a": [_Odd("y"), 1]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_arrives_as_it_was(value: Any) -> None:
    told = _wire.load(_wire.dump(value))
    assert told == value and type(told) is type(value)


def test_tensors_arrive_as_they_were() -> None:
    x = torch.randn(5, 7)
    told = _wire.load(
        _wire.dump(
            {
                "x": x.t()[1:],  # not contiguous
                "tied": [x, x],
                "empty": torch.empty(0, 3),
                "one": torch.tensor(1.5, dtype=torch.bfloat16),
                "parameter": torch.nn.Parameter(x),
                "array": numpy.arange(6).reshape(2, 3),
            }
        )
    )
    assert told["x"].equal(x.t()[1:]) and told["tied"][0].equal(x)
    assert told["tied"][0].data_ptr() == told["tied"][1].data_ptr()
    assert told["empty"].shape == (0, 3) and told["one"].item() == 1.5
    assert isinstance(told["parameter"], torch.nn.Parameter)
    assert (told["array"] == numpy.arange(6).reshape(2, 3)).all()


def test_damage_is_said() -> None:
    whole = _wire.dump({"x": torch.arange(100.0), "y": [1, "two"]})
    generator = random.Random(SEED)
    for _ in range(300):
        data = whole.clone()
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(data.numel())] = generator.randrange(256)
        if generator.random() < 0.3:
            data = data[: generator.randrange(data.numel())].clone()
        with contextlib.suppress(pawl.PawlError):  # returns a changed value, or raises
            _wire.load(data)
