"""Restore fills each kind of object in a state in place, exactly, and all or nothing."""

from __future__ import annotations

import collections
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import program
from pawl import Checkpointer, PawlError
from pawl._ckpt import _match


@pytest.fixture
def ckpt(core: Any, tmp_path: Path) -> Checkpointer:
    return Checkpointer(tmp_path)  # closed by the fixture core


def save(ckpt: Checkpointer, state: dict[str, Any], step: int = 1) -> None:
    assert ckpt.save(step, state).wait("committed", program.LIMIT_S)


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[k], other[k]) for k in one)


def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 4, bias=False)
    )


def scramble(module: nn.Module) -> None:
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.copy_(torch.randint(0, 100, tensor.shape).to(tensor.dtype))


def test_module_in_place(ckpt: Checkpointer) -> None:
    module = net()
    expected = tensors_of(module)
    save(ckpt, {"m": module})
    addresses = {k: v.data_ptr() for k, v in module.state_dict().items()}
    versions = {k: v._version for k, v in module.state_dict().items()}
    parameters = list(module.parameters())
    scramble(module)
    assert ckpt.restore({"m": module}) == 1
    assert equal(tensors_of(module), expected)
    assert addresses == {k: v.data_ptr() for k, v in module.state_dict().items()}
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert all(v._version > versions[k] + 1 for k, v in module.state_dict().items())


def test_autograd_notices_a_restore(ckpt: Checkpointer) -> None:
    module = nn.Linear(3, 3)
    save(ckpt, {"m": module})
    loss = module(torch.ones(3, requires_grad=True)).square().sum()
    ckpt.restore({"m": module})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_module_tied_strided_and_of_other_dtype(ckpt: Checkpointer) -> None:
    module = net().to(memory_format=torch.channels_last)
    module.add_module("tied", nn.Linear(8, 4, bias=False))
    module.tied.weight = module[3].weight
    expected = tensors_of(module)
    save(ckpt, {"m": module})
    other = copy.deepcopy(module).to(memory_format=torch.contiguous_format).double()
    scramble(other)
    assert ckpt.restore({"m": other}) == 1
    for key, value in other.state_dict().items():
        assert torch.equal(value.to(expected[key].dtype), expected[key]), key
    assert other.tied.weight is other[3].weight and other[0].weight.is_contiguous()
    scramble(module)
    assert ckpt.restore({"m": module}) == 1
    assert equal(tensors_of(module), expected)


def test_raw_copies_are_used_where_they_can_be(fake: Any, tmp_path: Path) -> None:
    from pawl._ckpt._unpickle import unpickle

    module = net().to(memory_format=torch.channels_last)
    with Checkpointer(tmp_path) as ckpt:
        save(ckpt, {"m": module})
        found = fake.root_of(str(tmp_path)).steps[1][0][0]
    sizes = [len(data) for data in found.bytes]
    loaded = _match.Loaded(0, "tag/m", sizes)
    loaded.value = unpickle(found.pickle, sizes, loaded.fetch, "tag/m", False)
    plan = _match.Plan(strict=True)
    _match.match(plan, {"m": module}, "m", loaded)
    assert not plan.problems and not plan.calls and not plan.assignments and not loaded.to_fill
    assert len(plan.copies) == len(module.state_dict()) and not plan.overlaps()


def test_module_that_does_not_fit_lists_everything_and_changes_nothing(ckpt: Checkpointer) -> None:
    save(ckpt, {"m": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4)), "n": 5})
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 3), nn.Linear(1, 1))
    state = {"m": other, "n": 6}
    before = tensors_of(other)
    with pytest.raises(PawlError) as caught:
        ckpt.restore(state)
    message = str(caught.value)
    assert caught.value.name == "PAWL_EMISMATCH" and "restore step 1" in message
    assert "state['m']: not in global_step1/m: 2.weight, 2.bias" in message
    assert "1.weight (saved (4, 3), live (3, 4))" in message
    assert equal(before, tensors_of(other)) and state["n"] == 6
    with pytest.raises(PawlError, match=r"only in global_step1/m: 1\.weight, 1\.bias"):
        ckpt.restore({"m": nn.Sequential(nn.Linear(3, 3))})


def test_not_strict_takes_what_fits(ckpt: Checkpointer) -> None:
    saved = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 4))
    save(ckpt, {"m": saved})
    other = nn.Sequential(nn.Linear(3, 3), nn.Identity(), nn.Linear(2, 2))
    before = tensors_of(other[2])
    assert ckpt.restore({"m": other, "absent": 1}, strict=False) == 1
    assert equal(tensors_of(other[0]), tensors_of(saved[0]))
    assert equal(tensors_of(other[2]), before)
    wide = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(PawlError, match=r"of another shape \(.*\): 0\.weight"):
        ckpt.restore({"m": wide}, strict=False)


class WithExtra(nn.Module):
    """A module whose state has a value that is no tensor, and a hook that renames a key."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))
        self.extra = {"calls": 1}

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        if state.get("refuse"):
            raise ValueError("no such extra")
        self.extra = state


def test_module_with_extra_state(ckpt: Checkpointer) -> None:
    module = WithExtra()
    expected = tensors_of_plain(module)
    save(ckpt, {"m": module})
    module.extra = {"calls": 9}
    with torch.no_grad():
        module.w.zero_()
    assert ckpt.restore({"m": module}) == 1
    assert module.extra == {"calls": 1} and torch.equal(module.w, expected)


def tensors_of_plain(module: WithExtra) -> torch.Tensor:
    return module.w.detach().clone()


def test_module_with_load_hooks(ckpt: Checkpointer) -> None:
    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fresh = nn.Parameter(torch.zeros(3))
            self.register_load_state_dict_pre_hook(self.rename)

        @staticmethod
        def rename(module: nn.Module, state: Any, prefix: str, *_: Any) -> None:
            state[prefix + "fresh"] = state.pop(prefix + "w")

    old = nn.Module()
    old.w = nn.Parameter(torch.randn(3))
    save(ckpt, {"m": old})
    renamed = Renamed()
    assert ckpt.restore({"m": renamed}) == 1
    assert torch.equal(renamed.fresh, old.w)


def test_module_whose_state_is_made_of_copies(ckpt: Checkpointer) -> None:
    class Halved(nn.Module):
        """Saves other numbers than it holds."""

        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.full((3,), 8.0))

        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            whole = super().state_dict(*args, **kwargs)
            whole["w"] = whole["w"] / 2
            return whole

        def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
            super()._load_from_state_dict({**state, "w": state["w"] * 2}, prefix, *args)

    class Cloned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.full((3,), 5.0))
            self.register_state_dict_post_hook(self.clone)

        @staticmethod
        def clone(module: nn.Module, state: Any, *_: Any) -> None:
            state["w"] = state["w"].clone()

    state = {"h": Halved(), "c": Cloned()}
    save(ckpt, state)
    for module in state.values():
        nn.init.zeros_(module.w)
    assert ckpt.restore(state) == 1
    assert state["h"].w.tolist() == [8] * 3 and state["c"].w.tolist() == [5] * 3


def test_overlapping_destinations_are_found() -> None:
    plan = _match.Plan(strict=True)

    def destined(*ranges: tuple[int, int]) -> bool:
        plan.copies = {key: (0, 0, 0, *key) for key in ranges}
        return plan.overlaps()

    assert not destined((100, 10), (110, 5), (90, 10))
    assert destined((100, 10), (109, 1)) and destined((100, 10), (100, 20))
    assert list(plan.spec()) == [0, 0, 0, 100, 10, 0, 0, 0, 100, 20]


def test_module_with_sparse_and_quantized_buffers(ckpt: Checkpointer) -> None:
    module = nn.Module()
    module.register_buffer("table", torch.eye(3).to_sparse())
    module.register_buffer("w", torch.randn(3))
    save(ckpt, {"m": module})
    module.table = torch.zeros(3, 3).to_sparse()
    module.w.zero_()
    assert ckpt.restore({"m": module}) == 1
    assert torch.equal(module.table.to_dense(), torch.eye(3)) and module.w.abs().sum() > 0


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    torch.manual_seed(5)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().sum().backward()
        optimizer.step()


def deep_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(deep_equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(deep_equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["Adam", "SGD", "Adagrad", "Adafactor", "capturable"])
def test_optimizers(ckpt: Checkpointer, name: str, fresh: bool) -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        if name == "capturable":
            return torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
        options = {"SGD": {"momentum": 0.9}}.get(name, {})
        return getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)

    model = nn.Linear(6, 2)
    optimizer = make(model)
    steps(model, optimizer, 3)
    expected = copy.deepcopy(optimizer.state_dict())
    save(ckpt, {"m": model, "o": optimizer})
    if fresh:
        optimizer = make(model)
    else:
        steps(model, optimizer, 2)
        optimizer.param_groups[0]["lr"] *= 2
    lr = optimizer.param_groups[0]["lr"]
    held = {p: dict(entry) for p, entry in optimizer.state.items()}
    assert ckpt.restore({"m": model, "o": optimizer}) == 1
    assert deep_equal(optimizer.state_dict(), expected)
    for p, entry in held.items():
        if not fresh:
            tensors = [k for k, v in entry.items() if isinstance(v, torch.Tensor)]
            assert tensors and all(optimizer.state[p][k] is entry[k] for k in tensors)
    if name == "capturable" and not fresh:
        assert optimizer.param_groups[0]["lr"] is lr
    steps(model, optimizer, 1)  # still works


def test_lbfgs(ckpt: Checkpointer) -> None:
    model = nn.Linear(6, 2)
    data = torch.randn(8, 6)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = model(data).square().sum()
            value.backward()
            return value

        optimizer.step(loss)

    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    step(model, optimizer)
    state = {"m": model, "o": optimizer}
    save(ckpt, state)
    step(model, optimizer)
    expected = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    assert ckpt.restore(state) == 1
    step(model, optimizer)
    assert deep_equal((model.state_dict(), optimizer.state_dict()), expected)


def test_optimizer_that_does_not_fit(ckpt: Checkpointer) -> None:
    model = nn.Linear(6, 2)
    save(ckpt, {"o": torch.optim.Adam(model.parameters())})
    other = torch.optim.Adam([model.weight])
    with pytest.raises(PawlError, match=r"state\['o'\]: parameters of each group: saved \[2\]"):
        ckpt.restore({"o": other})
    with pytest.raises(PawlError, match=r"state\['o'\] is a module, global_step1/o is not"):
        save(ckpt, {"o": 5}, step=1)
        ckpt.restore({"o": model})


def test_optimizer_hooks_are_called(ckpt: Checkpointer) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters())
    steps(model, optimizer, 1)
    save(ckpt, {"o": optimizer})
    called = []
    optimizer.register_load_state_dict_post_hook(called.append)
    assert ckpt.restore({"o": optimizer}) == 1 and called == [optimizer]


def test_schedulers_scalers_and_own_objects(ckpt: Checkpointer) -> None:
    class Loader:
        def __init__(self) -> None:
            self.at, self.seen = 0, torch.zeros(3)

        def state_dict(self) -> dict[str, Any]:
            return {"at": self.at, "seen": self.seen}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at, self.seen = state["at"], state["seen"]

    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loader = Loader()
    loader.at, loader.seen = 4, torch.ones(3)
    optimizer.step()
    scheduler.step()
    state = {"o": optimizer, "s": scheduler, "l": loader, "g": torch.amp.GradScaler("cpu")}
    save(ckpt, state)
    scheduler.step()
    loader.at, loader.seen = 9, torch.zeros(3)
    assert ckpt.restore(state) == 1
    assert scheduler.last_epoch == 1 and optimizer.param_groups[0]["lr"] == 0.5
    assert loader.at == 4 and loader.seen.tolist() == [1, 1, 1]


def test_object_that_cannot_load_is_refused_by_name(ckpt: Checkpointer) -> None:
    class Only:
        def state_dict(self) -> dict[str, int]:
            return {"x": 1}

    save(ckpt, {"only": Only()})
    with pytest.raises(PawlError, match=r"state\['only'\] is a .*Only.*no load_state_dict"):
        ckpt.restore({"only": Only()})


class Fussy:
    """An object that changes itself, then may refuse; it can only be loaded by its own method."""

    def __init__(self, refuses: bool = False) -> None:
        self.value, self.refuses = 0, refuses

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]
        if self.refuses and state["value"] == 7:
            raise RuntimeError("not seven")


def test_a_refusing_object_leaves_everything_as_it_was(ckpt: Checkpointer) -> None:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters())
    steps(model, optimizer, 1)
    first, second, extra = Fussy(), Fussy(), WithExtra()
    first.value = second.value = 7
    state = {"m": model, "o": optimizer, "x": extra, "f": first, "n": [1], "s": second}
    save(ckpt, state)
    steps(model, optimizer, 1)
    fresh = torch.optim.Adam(model.parameters())
    first.value = second.value = 1
    extra.extra = {"calls": 5}
    second.refuses = True
    live = {**state, "o": fresh, "n": [2]}
    torch.rand(1)
    before = copy.deepcopy((model.state_dict(), fresh.state_dict(), extra.w)), torch.get_rng_state()
    with pytest.raises(PawlError, match=r"state\['s'\].load_state_dict: not seven"):
        ckpt.restore(live)
    assert deep_equal((model.state_dict(), fresh.state_dict(), extra.w), before[0])
    assert first.value == 1 and second.value == 1 and extra.extra == {"calls": 5}
    assert live["n"] == [2] and torch.equal(torch.get_rng_state(), before[1])
    second.refuses = False
    assert ckpt.restore(live) == 1
    assert first.value == second.value == 7 and live["n"] == [1] and extra.extra == {"calls": 1}


def test_tensors_and_containers_in_place(ckpt: Checkpointer) -> None:
    def make(factor: int) -> dict[str, Any]:
        return {
            "t": torch.full((3,), float(factor)),
            "zero": torch.tensor(factor),
            "view": torch.zeros(4, 4)[:, 1].fill_(factor),
            "ema": {"decay": 0.5 * factor, "shadow": [torch.full((2,), float(factor))]},
            "list": [factor, (factor, torch.ones(factor))],
            "ordered": collections.OrderedDict(a=factor),
            "none": None,
            "size": torch.Size([factor]),
        }

    saved, live = make(2), make(3)
    live["list"].append("more")
    live["ema"]["gone"] = 1
    save(ckpt, saved)
    held = dict(live)
    shadow = live["ema"]["shadow"][0]
    assert ckpt.restore(live) == 1
    assert deep_equal(live, saved)
    for name in ("t", "zero", "view", "ema", "list", "ordered"):
        assert live[name] is held[name], name
    assert live["ema"]["shadow"][0] is shadow and "gone" not in live["ema"]


def test_values_of_another_kind_are_replaced(ckpt: Checkpointer) -> None:
    save(ckpt, {"a": torch.arange(3), "b": {"x": torch.ones(2)}, "c": 1})
    live = {"a": None, "b": 5, "c": torch.zeros(1)}
    assert ckpt.restore(live) == 1
    assert live["a"].tolist() == [0, 1, 2] and live["b"]["x"].tolist() == [1, 1] and live["c"] == 1


def test_tensor_of_another_shape(ckpt: Checkpointer) -> None:
    save(ckpt, {"t": torch.ones(3), "d": {"x": torch.ones(2)}})
    live = {"t": torch.zeros(4), "d": {"x": torch.zeros(1)}}
    with pytest.raises(PawlError, match=r"state\['t'\]: of another shape.*state\['d'\]\['x'\]"):
        ckpt.restore(live)
    assert live["t"].tolist() == [0] * 4 and live["d"]["x"].tolist() == [0]
    assert ckpt.restore(live, strict=False) == 1
    assert live["t"].tolist() == [1] * 3 and live["d"]["x"].tolist() == [1, 1]


def test_aliases_and_cycles(ckpt: Checkpointer) -> None:
    shared = torch.zeros(10)
    cycle: list[Any] = [torch.ones(1)]
    cycle.append(cycle)
    both = {"k": 1}
    state = {
        "v": {"a": shared[:6], "b": shared[4:], "all": shared},
        "c": cycle,
        "two": [both, both],
    }
    shared.copy_(torch.arange(10.0))
    save(ckpt, state)
    shared.zero_()
    cycle[0].zero_()
    both["k"] = 2
    assert ckpt.restore(state) == 1
    assert shared.tolist() == list(range(10)) and both == {"k": 1}
    assert cycle[0].item() == 1 and cycle[1] is cycle and state["two"][0] is state["two"][1]


def test_special_tensors_as_values(ckpt: Checkpointer) -> None:
    complex_ = torch.randn(3, dtype=torch.complex64)
    saved = {
        "sparse": torch.eye(3).to_sparse(),
        "conj": complex_.conj(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "channels": torch.quantize_per_channel(
            torch.ones(2, 3), torch.tensor([0.5, 0.25]), torch.tensor([1, 2]), 0, torch.qint8
        ),
        "f8": torch.ones(4).to(torch.float8_e4m3fn),
        "u16": torch.arange(3).to(torch.uint16),
        "empty": torch.empty(0, 3),
        "param": nn.Parameter(torch.randn(2)),
    }
    save(ckpt, saved)
    live = dict.fromkeys(saved)
    assert ckpt.restore(live) == 1
    assert torch.equal(live["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(live["channels"].dequantize(), torch.ones(2, 3))
    assert torch.equal(live["conj"], complex_.conj()) and live["nested"].unbind()[1].shape == (3,)
    assert live["f8"].float().tolist() == [1] * 4 and live["u16"].tolist() == [0, 1, 2]
    assert live["empty"].shape == (0, 3) and torch.equal(live["param"], saved["param"])
    assert isinstance(live["param"], nn.Parameter) and live["param"].requires_grad


def test_numpy_values(ckpt: Checkpointer) -> None:
    import numpy as np

    saved = {
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.float64(2.5),
        "int": np.int16(-3),
        "dtype": np.dtype("int32"),
        "text": np.array(["a", "bc"]),
        "time": np.datetime64("2026-01-02"),
        "empty": np.zeros((0, 4)),
        "fortran": np.asfortranarray(np.eye(3)),
        "legacy": np.random.get_state(),
    }
    save(ckpt, {"np": saved})
    live: dict[str, Any] = {"np": None}
    assert ckpt.restore(live) == 1
    for name, value in saved.items():
        loaded = live["np"][name]
        assert type(loaded) is type(value), name
        if isinstance(value, np.ndarray):
            assert loaded.dtype == value.dtype and np.array_equal(loaded, value), name
        elif name != "legacy":
            assert loaded == value, name
    assert np.array_equal(live["np"]["legacy"][1], saved["legacy"][1])


@pytest.mark.parametrize("kind", ["object", "record", "matrix"])
def test_numpy_that_could_hide_objects_is_refused(ckpt: Checkpointer, kind: str) -> None:
    import numpy as np

    value = {
        "object": np.array([object()]),
        "record": np.zeros(2, dtype=[("a", "f4")]),
        "matrix": np.zeros(3).view(np.recarray),
    }[kind]
    with pytest.raises(PawlError, match=r"state\['x'\]\['y'\] is a numpy"):
        ckpt.save(1, {"x": {"y": value}})


def test_missing_partitions_and_only(ckpt: Checkpointer) -> None:
    save(ckpt, {"a": 1, "b": 2})
    live = {"a": 0, "c": 0}
    with pytest.raises(PawlError, match=r"no partition 'c' \(it has a, b\)"):
        ckpt.restore(live)
    assert live["a"] == 0
    assert ckpt.restore(live, strict=False) == 1 and live == {"a": 1, "c": 0}
    generator = torch.get_rng_state()
    torch.rand(1)
    moved = torch.get_rng_state()
    live = {"a": 0, "b": 0}
    assert ckpt.restore(live, only=["b"]) == 1 and live == {"a": 0, "b": 2}
    assert torch.equal(torch.get_rng_state(), moved)
    assert ckpt.restore(live, only=["rng"]) == 1 and live["a"] == 0
    assert torch.equal(torch.get_rng_state(), generator)
    with pytest.raises(ValueError, match="nope"):
        ckpt.restore(live, only=["nope"])
    with pytest.raises(TypeError, match="list of names"):
        ckpt.restore(live, only="a")


def test_restore_inside_and_of_inference_mode(ckpt: Checkpointer) -> None:
    module = nn.Linear(3, 3)
    with torch.inference_mode():
        made_here = torch.arange(3.0)
        doubles = torch.arange(3.0)
    state = {"m": module, "t": made_here, "d": doubles}
    expected = tensors_of(module)
    save(ckpt, state)
    scramble(module)
    with torch.inference_mode():
        made_here.zero_()
        assert ckpt.restore(state) == 1
    assert equal(tensors_of(module), expected) and made_here.tolist() == [0, 1, 2]
    with torch.inference_mode():
        state["d"] = torch.zeros(3, dtype=torch.float64)
    assert ckpt.restore(state) == 1
    assert state["d"].tolist() == [0, 1, 2]
    assert module(torch.ones(3)).sum().requires_grad


def test_compiled_and_wrapped_modules(ckpt: Checkpointer) -> None:
    module = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    averaged = torch.optim.swa_utils.AveragedModel(nn.Linear(2, 2))
    compiled = torch.compile(nn.Linear(2, 2))
    state = {"n": module, "a": averaged, "c": compiled}
    expected = {name: tensors_of(m) for name, m in state.items()}
    save(ckpt, state)
    for m in state.values():
        scramble(m)
    assert ckpt.restore(state) == 1
    assert all(equal(tensors_of(m), expected[name]) for name, m in state.items())
