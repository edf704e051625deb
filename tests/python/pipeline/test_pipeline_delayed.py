"""Models whose parameters get memory and values once it is known which rank has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pawl.pipeline as pp
import ranks
from pawl.errors import PawlError

HERE = Path(__file__).parent
WIDTH = 32


class Scaled(nn.Module):
    """Has a parameter of its own, whose values its constructor makes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((WIDTH, WIDTH), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.scale


class Block(nn.Module):
    def __init__(self, scaled: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = Scaled() if scaled else nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).tanh())


def make(*blocks: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *blocks)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A pipeline of one stage."""
    pp.init(stages=1, microbatches=2, seed=3, units=["0", "1", "2"])
    yield
    pp.shutdown()


def delayed(initialize: Callable[[nn.Module], Any] | None = None) -> Any:
    with pp.delayed_init(least_bytes=1024):
        module = make(Block(), Block())
    assert module[1].up.weight.device.type == "meta" and module[1].norm.weight.device.type == "cpu"
    return pp.DistributedModel(module, initialize)


def train(model: Any) -> Tensor:
    @pp.step
    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        model.backward(loss)
        return loss

    out: Tensor = step(torch.ones(4, WIDTH)).reduce_mean()
    return out


def test_values_come_in_the_first_step() -> None:
    model = delayed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = optimizer.param_groups[0]["params"]
    with pytest.raises(PawlError, match=r"state_dict\(\) of a model that was made in delayed_init"):
        model.state_dict()
    loss = train(model)
    assert loss.isfinite() and all(p is q for p, q in zip(held, model.parameters(), strict=True))
    weight = model.module[1].up.weight
    limit = WIDTH**-0.5  # Linear.reset_parameters: uniform
    assert 0.9 * limit < weight.abs().max() < limit
    assert not torch.equal(weight, model.module[2].up.weight)  # each module draws its own
    assert all(p.grad is not None for p in model.parameters())
    assert len(model.state_dict()) == 14


def test_a_function_gives_the_values() -> None:
    seen: list[nn.Module] = []

    def initialize(module: nn.Module) -> None:
        seen.append(module)
        if isinstance(module, nn.Linear):
            module.weight.fill_(0.25)
            module.bias.zero_()

    model = delayed(initialize)
    train(model)
    assert all(bool((m.weight == 0.25).all()) for m in seen if isinstance(m, nn.Linear))
    last = {id(module): n for n, module in enumerate(seen)}
    root, block = model.module, model.module[1]
    assert last[id(block.up)] < last[id(block)] < last[id(root)]  # inner ones first
    assert id(block.norm) not in last  # the norm had its values


def test_what_nobody_gives_values_is_refused() -> None:
    with pp.delayed_init(least_bytes=1024):
        module = make(Block(), Scaled())
    model = pp.DistributedModel(module)
    with pytest.raises(PawlError, match=r"2 \(Scaled\) .* has no reset_parameters"):
        train(model)


def test_a_function_that_forgets_a_parameter_is_refused() -> None:
    model = delayed(lambda module: isinstance(module, Block) and module.up.weight.zero_())
    with pytest.raises(PawlError, match=r"0.weight of a model .* got no values"):
        train(model)


def test_buffers_without_memory_are_refused() -> None:
    with torch.device("meta"):
        module = make(nn.BatchNorm1d(WIDTH))
    with pytest.raises(PawlError, match=r"the buffer 1\.running_mean has no memory"):
        pp.DistributedModel(module)


def test_a_state_dict_gives_the_values() -> None:
    torch.manual_seed(8)
    plain = make(Block(), Block())
    model = delayed()
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model.state_dict()["1.up.weight"], plain[1].up.weight)
    wanted = plain(torch.ones(2, WIDTH)).square().mean()
    assert torch.equal(train(model), wanted)


def test_two_stages_begin_with_the_values_of_one() -> None:
    model = delayed()
    train(model)
    one = {name: p.detach().sum().item().hex() for name, p in model.module.named_parameters()}
    found = {}
    for said in ranks.run_ranks(HERE / "pipeline_delayed_rank.py", 2):
        found |= dict(line.split() for line in said)
    assert found == one


@pytest.mark.slow
def test_a_rank_needs_the_memory_of_its_share() -> None:
    for said in ranks.run_ranks(HERE / "pipeline_delayed_rank.py", 4, "large"):
        share, unit, grown = map(int, said[0].split())
        assert grown < share + unit + (48 << 20), said[0]
