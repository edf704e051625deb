"""Changes of a tensor while it is being copied: each route is detected, or comes too late.

The fake core copies at the last moment, so that every change between save() and the fence is a
change under the copy. Its checksums stand for the kernel's watch. reference: which changes move a
tensor's version counter, and which do not.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import program
from pawl import Checkpointer
from pawl._ckpt import _fence

WIDTH = 256  # 256 KiB a weight: above the size that is copied at once


@pytest.fixture(scope="module", autouse=True)
def light() -> None:
    """Spares the tests' own collections what the first optimizer of a process imports."""
    training()
    gc.collect()
    gc.freeze()


def training(
    kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW, **options: Any
) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False))
    optimizer = kind(model.parameters(), **{"lr": 0.01, **options})
    one_step(model, optimizer)
    return model, optimizer


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(torch.randn(2, WIDTH)).square().mean()
        value.backward()
        return value

    loss()
    optimizer.step(loss) if isinstance(optimizer, torch.optim.LBFGS) else optimizer.step()


def flat(value: Any) -> list[torch.Tensor]:
    """Returns copies of all tensors of a nested state."""
    if isinstance(value, torch.Tensor):
        return [value.detach().clone()]
    if isinstance(value, dict):
        return [t for item in value.values() for t in flat(item)]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in flat(item)]
    return []


def saved(tmp_path: Path, name: str) -> list[torch.Tensor]:
    return flat(torch.load(tmp_path / "global_step1" / name, weights_only=True))


def alike(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(map(torch.equal, one, other))


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {"foreach": False}),
    "adam_foreach": (torch.optim.Adam, {"foreach": True}),
    "adamw_fused": (torch.optim.AdamW, {"fused": True}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adafactor": (torch.optim.Adafactor, {}),
    "lbfgs": (torch.optim.LBFGS, {"max_iter": 2}),
}
if hasattr(torch.optim, "Muon"):
    OPTIMIZERS["muon"] = (torch.optim.Muon, {})


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_step_waits_for_the_copy(fake: Any, tmp_path: Path, name: str) -> None:
    kind, options = OPTIMIZERS[name]
    model, optimizer = training(kind, **options)
    with Checkpointer(tmp_path) as ckpt:
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        before = flat(model.state_dict()), flat(optimizer.state_dict())
        assert save.level == "staging" and save.proof == "watched"
        one_step(model, optimizer)
        assert save.level == "committed", save.error
        assert save.wait("durable", program.LIMIT_S)
    assert not alike(before[0], flat(model.state_dict()))  # the step changed something
    assert alike(before[0], saved(tmp_path, "model"))
    assert alike(before[1], saved(tmp_path, "optim"))


def test_a_compiled_step_waits_too(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training(torch.optim.Adam)
    step = torch.compile(optimizer.step, backend="eager")
    with Checkpointer(tmp_path) as ckpt:
        for number in range(1, 4):
            save = ckpt.save(number, {"model": model, "optim": optimizer})
            model(torch.randn(2, WIDTH)).square().mean().backward()
            assert save.level == "staging"
            step()
            assert save.level == "committed", save.error


def weight(model: nn.Module) -> nn.Parameter:
    parameter = model[0].weight
    assert isinstance(parameter, nn.Parameter)
    return parameter


COUNTED: dict[str, Callable[[nn.Parameter], Any]] = {
    "add_": lambda p: p.detach().add_(1),
    "copy_": lambda p: p.detach().copy_(torch.ones_like(p)),
    "foreach": lambda p: torch._foreach_add_([p.detach()], 1),
    "view": lambda p: p.detach()[3:5].mul_(2),
    "no_grad": lambda p: torch.no_grad()(lambda: p.zero_())(),
    "setitem": lambda p: p.detach().__setitem__(0, 5.0),
    "inference_mode": lambda p: torch.inference_mode()(lambda: p.add_(1))(),
    "init": lambda p: nn.init.normal_(p),
}
NOT_COUNTED: dict[str, Callable[[nn.Parameter], Any]] = {
    "data.add_": lambda p: p.data.add_(1),
    "numpy": lambda p: p.detach().numpy().__setitem__((0, 0), 77.0),
    "storage": lambda p: p.untyped_storage().fill_(7),
}


@pytest.mark.parametrize("watch", ["kernel", "versions", "both"])
@pytest.mark.parametrize("route", sorted(COUNTED))
def test_counted_changes_are_seen(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str, watch: str
) -> None:
    """Changes are seen by the kernel and by the version counters, and by either with the other
    switched off."""
    monkeypatch.setattr(fake, "kernel", watch != "versions")
    if watch == "kernel":
        monkeypatch.setattr(_fence, "_versions", lambda tensors: [0] * len(tensors))
    expect_withdrawn(tmp_path, COUNTED[route])


@pytest.mark.parametrize("route", sorted(NOT_COUNTED))
def test_uncounted_changes_are_seen_by_the_kernel(fake: Any, tmp_path: Path, route: str) -> None:
    expect_withdrawn(tmp_path, NOT_COUNTED[route])


REPLACING: dict[str, Callable[[nn.Parameter], Any]] = {
    "data": lambda p: setattr(p, "data", torch.zeros_like(p)),
    "nothing": lambda p: setattr(p, "data", torch.empty(0)),
    "resized": lambda p: p.data.resize_(0),
    "set_": lambda p: p.detach().set_(torch.zeros(4)),
}


@pytest.mark.parametrize("watch", ["kernel", "both"])
@pytest.mark.parametrize("route", sorted(COUNTED | NOT_COUNTED | REPLACING))
def test_never_wrong(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str, watch: str
) -> None:
    """Whenever the copy takes place, the published state is the one at the call of save().

    That holds even if the version counters see nothing. Counters without the kernel are tested with
    the fake (and on devices): on the host, the core leaves nothing for later that the kernel does
    not watch.
    """
    if watch == "kernel":
        monkeypatch.setattr(_fence, "_versions", lambda tensors: [0] * len(tensors))
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = {"model": model, "optim": optimizer}
    change = (COUNTED | NOT_COUNTED | REPLACING)[route]
    with Checkpointer(tmp_path, persist_every=0, on_exit="warn") as ckpt:
        for step in range(2):
            expected = flat(model.state_dict())
            save = ckpt.save(step, state)
            change(model[-1 - step].weight)
            gc.collect()
            junk = [torch.full((1024, 1024), 9.0) for _ in range(4)]  # takes the freed memory
            if save.wait("durable", program.LIMIT_S):
                loaded = torch.load(tmp_path / f"global_step{step}" / "model", weights_only=True)
                assert alike(expected, flat(loaded))
            else:
                assert save.error is not None and f"{3 - step}.weight changed" in save.error
            del junk
    assert route not in REPLACING or save.error is None


def expect_withdrawn(tmp_path: Path, change: Callable[[nn.Parameter], Any]) -> None:
    model, optimizer = training()
    state = {"model": model, "optim": optimizer}
    with Checkpointer(tmp_path) as ckpt:
        assert ckpt.save(1, state).wait("committed", program.LIMIT_S)
        save = ckpt.save(2, state)
        change(weight(model))
        one_step(model, optimizer)
        assert save.level == "failed" and not save.wait("staged", 1)
        assert save.error is not None and "step2: model: 0.weight changed" in save.error
        assert [entry["step"] for entry in ckpt.list()] == [1]
        again = ckpt.save(3, state)  # the changed tensor is now copied at once
        expected = flat(model.state_dict())
        change(weight(model))
        one_step(model, optimizer)
        assert again.level == "committed", again.error
        assert again.wait("durable", program.LIMIT_S)
    loaded = torch.load(tmp_path / "global_step3" / "model")
    assert alike(expected, flat(loaded))


def test_a_change_of_an_optimizer_tensor_is_named(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path, on_exit="warn") as ckpt:
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        optimizer.state[model[1].weight]["exp_avg_sq"].mul_(2)
        one_step(model, optimizer)
        assert save.error is not None and "optim: state.1.exp_avg_sq changed" in save.error


def test_the_warning_comes_once(fake: Any, tmp_path: Path, caplog: Any) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        weight(model).data.add_(1)
        one_step(model, optimizer)
        assert save.level == save.level == "failed"
        ckpt.save(2, {"model": model, "optim": optimizer})
    assert caplog.text.count("0.weight changed") == 1


def test_a_failure_nobody_asked_about_is_still_heard(
    fake: Any, tmp_path: Path, caplog: Any
) -> None:
    model, optimizer = training()
    state = {"model": model, "optim": optimizer}
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, state)
        weight(model).data.add_(1)
        assert ckpt.save(2, state).wait("committed", program.LIMIT_S)
        assert "step1: model: 0.weight changed" in caplog.text
        ckpt.save(3, state)
        weight(model).data.add_(1)
        one_step(model, optimizer)
        assert ckpt.list()[-1]["step"] == 3


@pytest.mark.parametrize("route", sorted(REPLACING))
def test_replaced_memory_is_held_until_copied(fake: Any, tmp_path: Path, route: str) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        expected = flat(model.state_dict())
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        REPLACING[route](weight(model))
        gc.collect()
        junk = [torch.full((WIDTH, WIDTH), 9.0) for _ in range(50)]  # takes the freed memory
        assert save.wait("durable", program.LIMIT_S), save.error
        del junk
    assert alike(expected, saved(tmp_path, "model"))


@pytest.mark.parametrize("how", ["cleared", "data", "loaded"])
def test_replaced_optimizer_state_is_held(fake: Any, tmp_path: Path, how: str) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        expected = flat(optimizer.state_dict())
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        if how == "cleared":
            optimizer.state.clear()
        elif how == "data":  # the tensor stays, but drops its memory
            for entry in optimizer.state.values():
                entry["exp_avg"].data = torch.zeros(1)
        else:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        gc.collect()
        junk = [torch.full((WIDTH, WIDTH), 9.0) for _ in range(50)]
        assert save.wait("durable", program.LIMIT_S), save.error
        del junk
    assert alike(expected, saved(tmp_path, "optim"))


def test_memory_is_let_go_once_staged(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        storage = weakref.ref(weight(model).untyped_storage())
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        assert save.wait("staged", program.LIMIT_S)
        weight(model).data = torch.zeros(1)
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        assert storage() is None and not _fence._captures


def test_batch_norm_statistics_are_copied_at_once(fake: Any, tmp_path: Path) -> None:
    """Batch norm statistics change in the forward pass, uncounted, whatever their size."""
    model = nn.BatchNorm1d(WIDTH * WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Checkpointer(tmp_path) as ckpt:
        expected = flat(model.state_dict())
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        model(torch.randn(2, WIDTH * WIDTH)).sum().backward()
        optimizer.step()
        assert save.wait("durable", program.LIMIT_S), save.error
    assert alike(expected, saved(tmp_path, "model"))
    assert not alike(expected, flat(model.state_dict()))


def groups_of(state: dict[str, Any], tmp_path: Path) -> dict[str, list[int]]:
    """Returns partition -> groups of its storages, as a save passes them to the core."""
    with Checkpointer(tmp_path) as ckpt:
        session = ckpt._live()
        whole = session.save
        seen = {}

        def save(step: int, parts: list[Any], watch: bool) -> int:
            seen.update({part[0]: list(part[4])[2::4] for part in parts})
            return whole(step, parts, watch)

        session.save = save
        ckpt.save(1, state).wait("staged", program.LIMIT_S)
    return seen


def test_who_is_guarded(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    ema = {key: value.clone() for key, value in model.state_dict().items()}
    small = nn.Linear(4, 4)
    small_optimizer = torch.optim.Adam(small.parameters())
    groups = groups_of(
        {
            "model": model,
            "optim": optimizer,
            "ema": ema,
            "small": small,
            "small_optim": small_optimizer,
            "alias": model[0].weight.detach(),
        },
        tmp_path,
    )
    bit = _fence.mask_of(optimizer)
    assert groups["model"] == [bit, bit]
    assert groups["optim"] == [0, bit, bit, 0, bit, bit]  # "step" is small
    assert groups["ema"] == [0, 0] and set(groups["small"]) == {0}
    assert groups["alias"] == [bit]  # shares the memory of a weight
    assert set(groups["rng"]) == {0}


def test_an_optimizer_outside_the_state_guards_once_seen(fake: Any, tmp_path: Path) -> None:
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    assert groups_of({"model": model}, tmp_path / "1") == {"model": [0], "rng": [0]}
    model(torch.randn(1, WIDTH)).sum().backward()
    optimizer.step()
    bit = _fence.mask_of(optimizer)
    assert groups_of({"model": model}, tmp_path / "2")["model"] == [bit]
    moment = optimizer.state[model.weight]["exp_avg"]
    assert groups_of({"m": moment}, tmp_path / "3")["m"] == [bit]


def test_each_optimizer_waits_for_its_own(fake: Any, tmp_path: Path) -> None:
    one, one_optimizer = training()
    two, two_optimizer = training()
    state = {"one": one, "two": two, "oo": one_optimizer, "to": two_optimizer}
    with Checkpointer(tmp_path) as ckpt:
        expected = flat(two.state_dict()), flat(one.state_dict())
        save = ckpt.save(1, state)
        one_step(one, one_optimizer)
        assert save.level == "staging"  # the other optimizer's tensors are still being copied
        one_step(one, one_optimizer)  # fine: the tensors of this one are copied
        assert save.level == "staging"
        stranger = training()  # steps, too, but is in no save
        one_step(*stranger)
        one_step(two, two_optimizer)
        assert save.wait("durable", program.LIMIT_S), save.error
        fences = [entry for entry in ckpt._live().log if entry.startswith("fence")]
        assert fences[0] == f"fence {_fence.mask_of(one_optimizer):x}"
    assert alike(expected[0], saved(tmp_path, "two")) and alike(expected[1], saved(tmp_path, "one"))


def test_shared_parameters_wait_for_both(fake: Any, tmp_path: Path) -> None:
    model, first = training()
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    groups = groups_of({"model": model, "a": first, "b": second}, tmp_path)
    assert groups["model"] == [_fence.mask_of(first) | _fence.mask_of(second)] * 2


def test_an_unknown_optimizer_waits_for_everything(fake: Any, tmp_path: Path) -> None:
    """An unknown optimizer may wrap a known one, or share its parameters: nobody can tell before
    its step."""
    model, optimizer = training()
    unknown = torch.optim.SGD(model.parameters(), lr=0.1)
    with Checkpointer(tmp_path) as ckpt:
        expected = flat(model.state_dict())
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        unknown.step()
        assert save.wait("durable", program.LIMIT_S), save.error
    assert alike(expected, saved(tmp_path, "model"))


def test_memory_that_others_write_is_copied_at_once(fake: Any, tmp_path: Path) -> None:
    model = nn.Linear(WIDTH, WIDTH, bias=False).share_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    assert groups_of({"m": model, "o": optimizer}, tmp_path / "1")["m"] == [0]
    file = tmp_path / "weights"
    file.write_bytes(bytes(WIDTH * WIDTH * 4))
    for shared in (True, False):
        mapped = torch.from_file(str(file), shared=shared, size=WIDTH * WIDTH)
        model = nn.Linear(WIDTH, WIDTH, bias=False)
        model.weight = nn.Parameter(mapped.view(WIDTH, WIDTH))
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        assert groups_of({"m": model, "o": optimizer}, tmp_path / f"f{shared}")["m"] == [0]


def test_bits_run_out_gently(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fence, "_known", {})
    parameter = nn.Parameter(torch.zeros(WIDTH, WIDTH))
    many = [torch.optim.SGD([parameter], lr=0.1) for _ in range(70)]
    masks = [_fence.mask_of(optimizer) for optimizer in many]
    assert masks[:63] == [1 << bit for bit in range(63)] and set(masks[63:]) == {1 << 63}
    assert _fence.guarded()[parameter.data_ptr()] == _fence.EVERYTHING
    del many[5]
    gc.collect()
    assert _fence.mask_of(torch.optim.SGD([parameter], lr=0.1)) == 1 << 5
    with Checkpointer(tmp_path) as ckpt:
        save = ckpt.save(1, {"p": parameter, "last": many[-1]})
        parameter.grad = torch.ones_like(parameter)
        many[-1].step()
        assert save.wait("durable", program.LIMIT_S), save.error
    assert saved(tmp_path, "p")[0].abs().max() == 0


def test_dead_optimizers_are_forgotten(fake: Any) -> None:
    model, optimizer = training()
    _fence.mask_of(optimizer)
    known, address = len(_fence._known), weight(model).data_ptr()
    assert address in _fence.guarded()
    del optimizer
    gc.collect()
    assert len(_fence._known) < known and address not in _fence.guarded()


def test_without_the_kernels_watch_nothing_is_left_for_later(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "proof", 0)
    model, optimizer = training()
    groups = groups_of({"model": model, "optim": optimizer}, tmp_path / "1")
    assert set(groups["model"]) == {0}
    with Checkpointer(tmp_path / "2") as ckpt:
        save = ckpt.save(1, {"model": model, "optim": optimizer})
        assert save.level == "committed" and save.proof == "copied"


def test_the_hook_costs_nothing_between_saves(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": model, "optim": optimizer})
        one_step(model, optimizer)
        calls = len(ckpt._live().log)
        for _ in range(10):
            one_step(model, optimizer)
        assert len(ckpt._live().log) == calls and not _fence._captures


def test_a_save_inside_inference_mode(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        with torch.inference_mode():
            made_here = torch.ones(WIDTH, WIDTH)
            save = ckpt.save(1, {"model": model, "optim": optimizer, "x": made_here})
        expected = flat(model.state_dict())
        one_step(model, optimizer)
        assert save.wait("durable", program.LIMIT_S), save.error
    assert alike(expected, saved(tmp_path, "model"))


def test_a_restore_waits_for_the_copy(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    state = {"model": model, "optim": optimizer}
    with Checkpointer(tmp_path) as ckpt:
        assert ckpt.save(1, state).wait("committed", program.LIMIT_S)
        one_step(model, optimizer)
        expected = flat(model.state_dict())
        save = ckpt.save(2, state)
        assert save.level == "staging" and ckpt.restore(state, step=1) == 1
        assert save.wait("durable", program.LIMIT_S), save.error
    assert alike(expected, flat(torch.load(tmp_path / "global_step2" / "model")))


def test_state_that_grows_and_shrinks(fake: Any, tmp_path: Path) -> None:
    model, optimizer = training()
    with Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"model": model, "optim": optimizer})
        one_step(model, optimizer)
        late = nn.Parameter(torch.randn(WIDTH, WIDTH))
        optimizer.add_param_group({"params": [late]})
        save = ckpt.save(2, {"model": model, "optim": optimizer, "late": late})
        late.grad = torch.ones_like(late)
        before = late.detach().clone()
        one_step(model, optimizer)
        optimizer.step()
        assert save.wait("durable", program.LIMIT_S), save.error
    assert torch.equal(torch.load(tmp_path / "global_step2" / "late", weights_only=True), before)
