"""Errors that name a remedy: it works."""

from __future__ import annotations

import collections
import io
import itertools
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import nursery
import program
from pawl import Checkpointer, PawlError
from pawl._ckpt import _names
from pawl._ckpt._fill import loses
from pawl._ckpt._skeleton import Partition

ROOT = Path(__file__).parents[3]
STATEFUL = "StatefulDataLoader in its place"
NAME_OF_ITS_OWN = "only if it has a name of its own in the state"
TRUST = "trust=True) saves it as it is"


class Plain:
    """A class in a module, so that pickle finds it."""

    x = 1


class Stateful(Plain):
    def state_dict(self) -> dict[str, int]:
        return {"x": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def of_a_function() -> object:
    class Local:
        pass

    return Local()


UNSAFE: list[Any] = [
    Plain(), Path("x"), collections.defaultdict(int), 1 << 5000, collections.deque([1]), range(3),
    frozenset({1}), re.compile("x"), print, Plain, torch.channels_last, torch.Generator(),
    lambda: 0, of_a_function(), threading.Lock(), io.StringIO(), sys.stdout, (i for i in ()),
    iter(DataLoader([1])), memoryview(b"x"), sys,
    {"inner": [Plain(), threading.Lock()]}, {"inner": [Path("x"), 1 << 5000]},
]  # fmt: skip


@pytest.mark.parametrize("value", UNSAFE, ids=lambda value: type(value).__name__)
def test_trust_is_named_where_it_helps(value: Any) -> None:
    """An error names trust=True only where that helps."""
    with pytest.raises(PawlError) as refused:
        Partition("part", trust=False).build(value)
    trusting = Partition("part", trust=True)
    if TRUST in str(refused.value):
        trusting.build(value)
    else:
        assert "trust=True would not save it" in str(refused.value)
        with pytest.raises(PawlError):
            trusting.build(value)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (DataLoader([1]), STATEFUL),
        ({"train": DataLoader([1], num_workers=1)}, STATEFUL),
        ({"model": nn.Linear(1, 1)}, NAME_OF_ITS_OWN),
        ([Stateful()], NAME_OF_ITS_OWN),
        (Plain(), TRUST),
    ],
)
def test_better_ways_are_named_first(value: Any, remedy: str) -> None:
    with pytest.raises(PawlError) as refused:
        Partition("part", trust=False).build(value)
    said = str(refused.value)
    assert remedy in said and (remedy == TRUST) == ("trust" in said)
    if remedy == TRUST:
        assert said.index("load_state_dict()") < said.index("trust=True")


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", [nn.UninitializedParameter, nn.parameter.UninitializedBuffer])
def test_lazy_modules_that_saw_no_batch(kind: type, trust: bool) -> None:
    with pytest.raises(PawlError, match=rf"\['x'\] is an {kind.__name__}: .* seen no batch"):
        Partition("part", trust).build({"x": kind()})


# ---- names ----


class Wrapped(nn.Module):
    """A module wrapped as torch.compile does it, and others."""

    def __init__(self, module: nn.Module, name: str = "_orig_mod") -> None:
        super().__init__()
        setattr(self, name, module)


def net(wrap: Callable[[nn.Module], nn.Module] = lambda module: module) -> nn.Module:
    return nn.Sequential(wrap(nn.Linear(3, 3)), nn.BatchNorm1d(3), wrap(nn.Linear(3, 1)))


def in_full(module: nn.Module) -> nn.Module:
    return Wrapped(module)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "plain": net,
    "whole": lambda: Wrapped(net()),
    "parts": lambda: net(in_full),
    "both": lambda: Wrapped(net(in_full)),
}


def values(module: nn.Module) -> list[torch.Tensor]:
    return list(module.state_dict().values())


@pytest.mark.parametrize(("saved", "live"), itertools.permutations(MODULES, 2))
def test_names_that_a_compiled_module_has(saved: str, live: str, tmp_path: Path) -> None:
    """The saved or the live module is compiled, in whole or in parts: the error names the right
    option."""
    was, now = MODULES[saved](), MODULES[live]()
    was.state_dict()["0.weight" if saved == "plain" else next(iter(was.state_dict()))].fill_(7)
    before = [value.clone() for value in values(now)]
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": was}).wait("committed", program.LIMIT_S)
        with pytest.raises(PawlError, match=r"""strip="_orig_mod\.""" + '"') as refused:
            ckpt.restore({"model": now})
        assert refused.value.name == "PAWL_EMISMATCH"
        assert all(map(torch.equal, values(now), before))
        assert ckpt.restore({"model": now}, strip="_orig_mod.") == 1
    assert all(map(torch.equal, values(now), values(was)))


def test_a_module_that_loads_by_itself(tmp_path: Path) -> None:
    """A module with its own loading gets its own names, and the versions of its modules."""
    seen: list[Any] = []

    class Own(nn.Linear):
        def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *rest: Any) -> None:
            seen.append((prefix, metadata.get("version")))
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    was, now = Own(2, 2), Wrapped(Own(2, 2))
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": was}).wait("committed", program.LIMIT_S)
        with pytest.raises(PawlError, match=r"strip="):
            ckpt.restore({"model": now})
        seen.clear()
        assert ckpt.restore({"model": now}, strip=["_orig_mod.", "module."]) == 1
    assert all(map(torch.equal, values(now), values(was)))
    assert seen == [("_orig_mod.", 1)]


def test_names_without_parts() -> None:
    for name, bare in {
        "_orig_mod.weight": "weight",
        "a._orig_mod.b._orig_mod.weight": "a.b.weight",
        "sub_orig_mod.weight": "sub_orig_mod.weight",
        "_orig_mod": "",
        "": "",
    }.items():
        assert _names.without(name, ["_orig_mod."]) == bare
    assert _names.without("module._orig_mod.x", ["_orig_mod.", "module."]) == "x"
    assert "strip" not in _names.for_names(["a"], ["b"])
    assert 'strip="module."' in _names.for_names(["module.a"], ["a"])
    assert not _names.for_names(["module.a"], ["module.a"])
    assert not _names.for_names(["a"], ["a", "module.a"])  # two names would become one


def test_names_that_would_be_one(tmp_path: Path) -> None:
    was = nn.ModuleDict({"a": nn.Linear(1, 1), "module": nn.ModuleDict({"a": nn.Linear(1, 1)})})
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": was}).wait("committed", program.LIMIT_S)
        with pytest.raises(PawlError, match=r"two names become one without"):
            ckpt.restore({"model": was}, strip="module.")


def test_without_strict_names_that_do_not_fit_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": net()}).wait("committed", program.LIMIT_S)
        assert ckpt.restore({"model": Wrapped(net())}, strict=False) == 1
    assert "none of its names is in global_step1/model (" in caplog.text and "strip=" in caplog.text


# ---- shapes and dtypes ----


def test_strict_is_not_about_shapes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensor = torch.zeros(2)
    state = {"model": nn.Linear(2, 2), "mean": tensor}
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": nn.Linear(3, 2), "mean": torch.ones(3)}).wait("committed")
        with pytest.raises(PawlError, match="of another shape: weight") as refused:
            ckpt.restore(state)
        assert "strict=False" not in str(refused.value)
        with pytest.raises(
            PawlError, match=r"strict=False is about names: .* leave it out by only"
        ):
            ckpt.restore(state, strict=False)
        caplog.clear()
        assert ckpt.restore(state, strict=False, only=["mean"]) == 1
    assert state["mean"].tolist() == [1, 1, 1] and tensor.tolist() == [0, 0]  # type: ignore[operator]
    told = [one for one in caplog.messages if "replaced" in one]
    assert told == ["restore step 1: replaced: state['mean'] (of shape (2,), now (3,))"]


def test_numbers_that_do_not_fit_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = {"a": torch.tensor(1.5), "b": {"c": torch.tensor([300])}, "d": torch.tensor(1.5)}
    live: dict[str, Any] = {
        "a": torch.tensor(0), "b": {"c": torch.zeros(1, dtype=torch.uint8)},
        "d": torch.tensor(0.0, dtype=torch.bfloat16),
    }  # fmt: skip
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, saved).wait("committed", program.LIMIT_S)
        assert ckpt.restore(live) == 1
    told = [one for one in caplog.messages if "converted" in one]
    names = (
        "state['a'] (torch.float32 to torch.int64), state['b']['c'] (torch.int64 to torch.uint8)"
    )
    assert told == [f"restore step 1: converted: {names}"]
    assert live["a"] == 1 and live["d"] == 1.5


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("saved", DTYPES, ids=str)
def test_what_is_lost_between_dtypes(saved: torch.dtype) -> None:
    """The loss is checked by converting the numbers at the edges."""
    if saved.is_floating_point or saved.is_complex:
        most = torch.finfo(saved if saved.is_floating_point else saved.to_real()).max / 2
        edges: list[complex] = [0, 1, 1.5, most, -most, *([1j] if saved.is_complex else [])]
    elif saved == torch.bool:
        edges = [0, 1]
    else:
        edges = [0, 1, torch.iinfo(saved).max, torch.iinfo(saved).min]
    warnings.simplefilter("ignore")  # about imaginary parts; pytest restores the filters
    was = torch.tensor(edges, dtype=saved)
    wanted = was.to(torch.complex128)
    for live in DTYPES:
        found = was.to(live).to(torch.complex128)
        lost = not torch.allclose(found, wanted, rtol=0.01, atol=0)
        assert loses(saved, live) == lost, (saved, live)


# ---- README ----


def blocks() -> list[str]:
    """README's Python runs, in its order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run_pasted(code: str, folder: Path) -> str:
    done = nursery.run(
        [sys.executable, "-c", code],
        env=program.clean_env(), cwd=folder, capture_output=True, text=True,
        timeout=program.LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stderr)


def test_readmes_first_block_runs_as_pasted(tmp_path: Path) -> None:
    first, *more = blocks()
    assert re.search(r"nothing saved yet in \S*/runs/gpt: ", run_pasted(first, tmp_path))
    (wait,) = [block for block in more if "save.wait(" in block]
    again = first.replace("1000", "1002").replace("ckpt.close()", wait)
    assert re.search(r"restored step 1000 .* from \S*/runs/gpt\n", run_pasted(again, tmp_path))


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_readmes_loader_runs_as_pasted(tmp_path: Path) -> None:
    pytest.importorskip("torchdata")
    (block,) = [one for one in blocks() if "StatefulDataLoader" in one]
    assert "nothing saved yet" in run_pasted(block, tmp_path)
    assert "restored step" in run_pasted(block, tmp_path)
