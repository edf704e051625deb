"""AdaptDL's names behave as its documents and its own tests say."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import json
import math
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ranks
from conftest import SEED, real_core
from test_adaptdl import start

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")


# ---- what waits for nobody ----

ASUNDER = """
import io, os, sys, time
import adaptdl, adaptdl.env, adaptdl.collective, adaptdl.torch as adl
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(40, 4))
first = adaptdl.env.replica_rank() == 0

def make():
    sums, loader = adl.Accumulator(), adl.AdaptiveDataLoader(data, batch_size=9, shuffle=True)
    sampler = adl.ElasticSampler(data)
    assert (len(sampler), len(list(sampler))) == (20, 20) and adl.current_epoch() is None
    return sums, loader

# Each makes what it needs in its own time: before they have met, and between two barriers.
while not first and not os.path.exists(sys.argv[1]):
    time.sleep(0.05)  # pace
early = make()
open(sys.argv[1], "w").close()
adl.init_process_group("gloo")
late = make() if first else None
dist.barrier()
late = late or make()

seen = []
for x, in early[1]:  # in no epoch
    seen.append(len(x))
assert seen == [5] * 4, seen  # ranks have equally many: steps of 10, not of 9
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
model = adl.AdaptiveDataParallel(net, optimizer)
assert model._state.model is net and model._state.optimizer is optimizer
torch.save(model._state.model, io.BytesIO())
sums, loader = late
for epoch in adl.remaining_epochs_until(2):
    for x, in loader:
        assert loader.current_local_bsz == 5 and loader.current_batch_size == 10
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        sums["n"] += len(x)
with sums.synchronized():
    assert sums["n"] == 80
assert model._state.gain >= 1.0 and model._state.lr_factor > 0
assert adaptdl.collective.allreduce({adaptdl.env.replica_rank()}, lambda a, b: a | b) == {0, 1}
print("> END", dist.get_backend(), flush=True)
"""


def test_what_is_made_waits_for_nobody(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(ASUNDER)
    said = ranks.hear_ranks(start(2, script, [str(tmp_path / "made")]))
    assert said == [["END gloo"]] * 2


CHILD = """
import multiprocessing, os, pathlib
import adaptdl.checkpoint as checkpoint, adaptdl.torch as adl

class Large(checkpoint.State):
    def save(self, fileobj): fileobj.write(bytes(100 << 20))

def train():
    adl.init_process_group("gloo")
    large = Large("large")
    for epoch in adl.remaining_epochs_until(1):
        pass

child = multiprocessing.get_context("fork").Process(target=train)
child.start()
child.join()
whole = list(pathlib.Path(os.environ["ADAPTDL_CHECKPOINT_PATH"]).glob("*/complete.txt"))
print("> ENDED", child.exitcode, len(whole), flush=True)
"""


def test_a_rank_that_is_a_child_ends_when_all_is_durable(tmp_path: Path) -> None:
    """Such child processes end without the exit handlers of others."""
    script = tmp_path / "job.py"
    script.write_text(CHILD)
    env = {"ADAPTDL_CHECKPOINT_PATH": str(tmp_path / "root")}
    assert ranks.hear_ranks(start(1, script, **env)) == [["ENDED 0 1"]]


@pytest.fixture
def unmet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields a process whose ranks have not met. Calling it makes that many ranks meet."""
    from pawl.elastic import _context, _data, _epochs, _states

    for module, name, value in (
        (_context, "_job", None),
        (_states, "_states", {}),
        (_states, "_pending", {}),
        (_states, "_waiting", []),
        (_epochs, "_epochs", None),
        (_epochs, "_made", {}),
        (_data, "_training", None),
    ):
        monkeypatch.setattr(module, name, value)

    def meet(n: int, rank: int = 0, **saved: bytes) -> None:
        job = SimpleNamespace(ranks=n, rank=rank, generation=0, newcomer=False)
        monkeypatch.setattr(_context, "_job", job)
        _states.promise({name: torch.tensor(list(of)).byte() for name, of in saved.items()})
        _states.load_waiting()

    yield meet


def test_what_was_saved_is_loaded_once_the_ranks_have_met(unmet: Any) -> None:
    from pawl.compat.adaptdl import torch as adl
    from pawl.elastic import _accumulator

    loader, sums = adl.AdaptiveDataLoader(list(range(9)), batch_size=2), adl.Accumulator()
    assert isinstance(sums._history, _accumulator._History)
    assert loader._elastic.current_index == 0
    position = json.dumps([4, 0, 1.0, {"3": 0}, None, True]).encode()
    unmet(2, **{"adaptdl-dataloader-epochNone-0": position})
    assert loader._elastic.current_index == 4 and loader._elastic._has_trained
    assert adl.AdaptiveDataLoader(list(range(9)), batch_size=2)._elastic.current_index == 0


# ---- loaders and samplers ----


def test_ranks_have_equally_many_samples(unmet: Any) -> None:
    """Through AdaptDL's names, batches are rounded as AdaptDL rounds; elsewhere, a batch is as
    asked for."""
    from pawl import elastic
    from pawl.compat.adaptdl import torch as adl

    rng = random.Random(SEED)
    made = []
    for _ in range(200):
        batch = rng.randint(1, 70)
        theirs = adl.AdaptiveDataLoader([0.0] * 100, batch)._elastic
        made.append((batch, theirs, elastic.AdaptiveDataLoader([0.0] * 100, batch)._elastic))
    for n in range(1, 7):
        unmet(n)
        for batch, theirs, ours in made:
            each = math.ceil(batch / n)
            assert (theirs.batch.atomic, theirs.batch.total) == (each, n * each)
            assert ours.batch.total == batch


def test_who_autoscales_trains(unmet: Any) -> None:
    from pawl.compat.adaptdl import torch as adl

    valid, loader = (adl.AdaptiveDataLoader([0.0] * 100, 10) for _ in range(2))
    assert not loader.training
    loader.autoscale_batch_size(64, (2, 32))
    assert loader.training and not valid.training
    valid.autoscale_batch_size(64)
    assert loader.training and not valid.training
    unmet(4)
    assert loader._elastic.batch.total == 12  # never less than the batch that was asked for
    assert loader.current_local_bsz is None and loader.current_batch_size is None


def test_parts_of_a_sampler(unmet: Any) -> None:
    """A sampler can be split over any number of replicas, from any sample on."""
    from pawl.compat.adaptdl.torch.data import ElasticSampler

    rng = random.Random(SEED)
    for _ in range(300):
        n, replicas, shuffle = rng.randint(1, 40), rng.randint(1, 7), rng.random() < 0.5
        epoch, index = rng.randint(0, 3), rng.randint(0, 100)
        left = n - index % n
        sampler = ElasticSampler([0] * n, shuffle=shuffle)
        assert (sampler.rank, sampler.num_replicas) == (0, 1)
        sampler.num_replicas = replicas
        sampler.set_epoch(epoch, index)
        seen: collections.Counter[int] = collections.Counter()
        for rank in range(replicas):
            sampler.rank = rank
            part = list(sampler)
            assert len(part) == len(sampler) == math.ceil(left / replicas) and part == list(sampler)
            seen.update(part)
        assert len(seen) == left and set(seen) <= set(range(n))
        if not shuffle:
            assert set(seen) == set(range(n - left, n))
        assert sum(seen.values()) - left < replicas
    one, other = ElasticSampler([0] * 40), ElasticSampler([0] * 40)
    other.set_epoch(1)
    assert list(one) != list(other)
    unmet(3, rank=2)
    assert (one.rank, one.num_replicas) == (2, 3)  # the sampler follows the job


# ---- goodput ----


def slow_optimize(
    fun: Any, nodes: int, replicas: int, most: int, low: int, high: int, accumulation: bool
) -> tuple[float, int, int]:
    """Tries one candidate after the other."""
    init, best = fun._init, (-1.0, 0, 0)
    for total in np.geomspace(max(init, low * replicas), most, 50):
        each = total / replicas
        accum = 0
        if accumulation:
            accum = math.ceil(each / high - 1e-8) - 1
            if replicas == 1 and each > init + 1e-8:
                accum = max(accum, 1)
            atomic = math.ceil(each / (accum + 1) - 1e-8)
        else:
            atomic = init if replicas == 1 else math.ceil(each - 1e-8)
        atomic = max(low, min(high, atomic))
        worth = fun.evaluate(nodes, replicas, atomic, accum)
        if worth > best[0]:
            best = (worth, atomic, accum)
    return best


def draw_function(rng: np.random.RandomState, init: int) -> Any:
    from pawl.compat.adaptdl.goodput import GoodputFunction

    return GoodputFunction(rng.gamma(2.0, 2.0, 7) + 1.0, rng.gamma(2.0, 2.0, 2), init)


def test_optimize_rounds_as_adaptdl() -> None:
    rng = np.random.RandomState(SEED % (1 << 32))
    for _ in range(40):
        fun = draw_function(rng, 128)
        assert fun.optimize(1, 3)[1:] == (43, 0)  # rounded up, so that 128 samples fit
        assert fun.optimize(1, 1, atomic_bsz_range=(256, 256))[1:] == (256, 0)
        goodput, atomic, accum = fun.optimize(4, 4, 1024, (128, 128))
        assert goodput > 0 and (atomic, accum) == (128, 0)
        assert isinstance(goodput, float) and isinstance(atomic, int) and isinstance(accum, int)
        low, high = sorted(rng.randint(1, 300, 2).tolist())
        most, accumulation = int(rng.randint(128, 3000)), bool(rng.randint(2))
        replicas = np.arange(1, 12)
        for nodes in (np.ones_like(replicas), replicas):
            found = fun.optimize(nodes, replicas, most, (low, high), accumulation)
            assert all(row.shape == (11,) for row in found)
            assert (found[0] > 0).all() and (found[1] >= low).all() and (found[1] <= high).all()
            for i, k in enumerate(replicas):
                slow = slow_optimize(fun, nodes[i], k, most, low, high, accumulation)
                assert found[0][i] == pytest.approx(slow[0], rel=1e-12)
    with pytest.raises(ValueError, match="at least the initial one, 128"):
        fun.optimize(1, 1, 64)


# ---- rules by hand ----


def double(sqr: Any, var: Any, progress: float = 0.0) -> Any:
    """Stands in for a model with the values that a rule asks for."""
    gns = SimpleNamespace(
        raw_sqr_avg=np.asarray(sqr, dtype=float),
        raw_var_avg=np.asarray(var, dtype=float),
        get_progress=lambda: progress,
    )
    return SimpleNamespace(gns=gns, require_backward_grad_sync=True)


def test_factors_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors are exactly those of AdaptDL's formulas, for any noise, in groups."""
    from pawl.compat.adaptdl.torch import scaling_rules as rules

    rng = np.random.RandomState(SEED % (1 << 32))
    optimizer = SimpleNamespace(step=None, param_groups=[])
    for _ in range(200):
        sqr, var, scale = rng.normal(0, 2, 4), rng.normal(0, 2, 4), float(rng.uniform(0.25, 30))
        want = np.maximum(var, 1e-6) + np.maximum(sqr, 0)
        want /= np.maximum(var, 1e-6) / scale + np.maximum(sqr, 0)
        for rule, power in ((rules.AdaScale(), 1.0), (rules.AdamScale(), 0.5)):
            rule.initialize(double(sqr, var), optimizer)
            found = rule.scale_lr(scale)
            np.testing.assert_allclose(found, want**power, rtol=1e-12)
            assert isinstance(found, np.ndarray)
        assert rules.LinearScale().scale_lr(scale) == scale
        assert rules.SqrtScale().scale_lr(scale) == pytest.approx(math.sqrt(scale), rel=1e-15)
    legw = rules.LEGWScale(10, 1000)
    for batch, progress, scale, factor in (
        (100, 5, 4, 1 / 40),
        (50, 400, 9, 2 / 3),
        (50, 9e3, 9, 3),
    ):
        legw.initialize(double([1], [1], progress), optimizer)
        loader = SimpleNamespace(batch_size=batch)
        monkeypatch.setattr(rules, "current_dataloader", lambda loader=loader: loader)
        assert legw.scale_lr(scale) == pytest.approx(factor, rel=1e-15)
    monkeypatch.setattr(rules, "current_dataloader", lambda: None)
    with pytest.raises(ValueError, match="within a loop over a loader"):
        legw.scale_lr(2.0)
    with pytest.raises(ValueError, match="pass the scaling rule to AdaptiveDataParallel first"):
        rules.AdaScale().scale_lr(2.0)


def by_hand(parameters: Any, kind: str = "SGD", **options: Any) -> tuple[Any, Any, Any]:
    """Returns stand-ins for a model, an optimizer and gns, for a rule by hand."""
    from pawl.compat.adaptdl.torch import gradient_noise_scale as of

    adp = SimpleNamespace(require_backward_grad_sync=True)
    optimizer = getattr(torch.optim, kind)(parameters, lr=0.1)
    measured = of.AdamGradientNoiseScale if kind == "Adam" else of.GradientNoiseScale
    adp.gns = measured(adp, optimizer, num_replicas=1, **{"accum_scale": 1.0, **options})
    return adp, optimizer, adp.gns


def test_a_rule_steps_without_a_model() -> None:
    """Schedulers made before and after the rule keep setting their rates."""
    from pawl.compat.adaptdl.torch.scaling_rules import ScalingRuleBase

    class Twice(ScalingRuleBase):
        def scale_lr(self, scale: float) -> float:
            asked.append(scale)
            return 2.0

    asked: list[float] = []
    weight = nn.Parameter(torch.tensor([1.0]))
    adp, optimizer, gns = by_hand([weight], accum_scale=3.0)
    before = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    rule = Twice()
    rule.initialize(adp, optimizer, patch_optimizer=True)
    behind = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for number in range(6):
        adp.require_backward_grad_sync = number % 2 == 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if number % 2 else "error")
            optimizer.zero_grad()
        was = weight.item()
        (weight * 1.0).sum().backward()
        optimizer.step()
        assert weight.item() == pytest.approx(was - 0.2 * (number % 2))  # 0.1 doubled, mean 1
        assert optimizer.param_groups[0]["lr"] == 0.1
    before.step()
    behind.step()
    assert asked == [6.0] * 3  # two gradients of three initial batches each
    assert gns.get_progress() == pytest.approx(sum([gns.gain(6.0)] * 3), rel=0.9)


def told_by_hand(rows: list[Any], replicas: int, parts: int) -> tuple[float, float]:
    """Returns the averages from norms computed here; grads: rows of gradients, one for each step
    and part."""
    sqr = var = weight = 0.0
    for step in rows:
        local = float(np.mean([(g**2).sum() for g in step]))
        total = float((np.mean(step, 0) ** 2).sum())
        n, scale, kept = len(step), float(parts * replicas), 0.999 ** (parts * replicas)
        weight = kept * weight + 1 - kept
        sqr = kept * sqr + (1 - kept) * (n * total - local) / (n - 1)
        var = kept * var + (1 - kept) * (local - total) * scale / (n - 1)
    return sqr / weight, var / weight


def test_noise_is_measured_by_hand() -> None:
    """Noise is measured from accumulated gradients, or those of two steps; a GradScaler's factor is
    divided out."""
    for parts, factor in ((3, 1.0), (3, 64.0), (1, 1.0)):
        weight = nn.Parameter(torch.zeros(5))
        scaler = SimpleNamespace(get_scale=lambda factor=factor: factor)
        adp, _, gns = by_hand([weight], mp_scaler=scaler)
        drawn = np.random.RandomState(3).normal(1, 1, (20, parts, 5)).astype(np.float32)
        for step in drawn:
            gns.reset_accumulation()
            for number, gradient in enumerate(step):
                adp.require_backward_grad_sync = number == parts - 1
                (weight * torch.tensor(gradient) * factor).sum().backward()
                assert gns.should_zero_grad == (number == parts - 1)
                assert gns.accum_count == number + 1
            np.testing.assert_allclose(weight.grad / factor, step.mean(0), rtol=1e-5)
        if parts > 1:
            want = told_by_hand(list(drawn), 1, parts)
        else:
            want = told_by_hand([np.concatenate(pair) for pair in itertools.pairwise(drawn)], 1, 2)
        assert (gns.raw_sqr_avg[0], gns.raw_var_avg[0]) == pytest.approx(want, rel=1e-5)
        assert gns.sqr_avg() == pytest.approx(max(want[0], 0)) and gns._state["biased"] == (
            parts < 2
        )
        scale = 4.0
        gain = (want[1] + want[0]) / (want[1] / scale + want[0])
        assert gns.gain(scale) == pytest.approx(gain, rel=1e-4)


def test_what_is_known_by_hand() -> None:
    """Values at first are known; values that are not finite are ignored; the state is saved with
    the optimizer."""
    weight = nn.Parameter(torch.zeros(5))
    _, optimizer, gns = by_hand([weight], accum_scale=None)
    assert gns.accum_scale == 1.0 and gns.gain(2.0) == pytest.approx(1.0)
    gns.set_accum_scale(3.0)
    assert gns.accum_scale == 3.0
    gns._state["var_avg"] = 3.0
    assert gns.gain(3.0) == pytest.approx(2.0)
    gns._state["var_avg"] = [3.0]
    for value in (1.0, math.nan, 2.0, math.inf, 4.0):
        gns.reset_accumulation()
        (weight * value).sum().backward()
        assert math.isfinite(gns.sqr_avg() + gns.var_avg())
    gns.set_progress(7.0)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    _, other, again = by_hand([nn.Parameter(torch.zeros(5))])
    other.load_state_dict(torch.load(saved, weights_only=True))
    assert again.get_progress() == 7.0 and again.sqr_avg() == gns.sqr_avg()


def test_adam_is_left_as_it_is() -> None:
    """AdaptDL zeroed Adam's state whenever the batch changed."""
    weight = nn.Parameter(torch.ones(5))
    _, optimizer, gns = by_hand([weight], "Adam")
    for number in range(12):
        gns.reset_accumulation()
        gns.set_accum_scale(1.0 + number // 6)
        before = [v.clone() for v in optimizer.state[weight].values()] if number else []
        (weight * torch.arange(1.0, 6.0) * (1 + number % 2)).sum().backward()
        after = list(optimizer.state[weight].values()) if number else []
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        optimizer.step()
    divisor = gns._divisor(0, weight)
    state = optimizer.state[weight]
    want = (state["exp_avg_sq"] / (1 - 0.999 ** state["step"].item())).sqrt() + 1e-8
    torch.testing.assert_close(divisor, want)


REPLICAS = """
import collections, os, sys
import numpy as np, torch, torch.distributed as dist
import adaptdl.env, adaptdl.reducer, adaptdl.torch as adl
from adaptdl.torch.gradient_noise_scale import GradientNoiseScale
from adaptdl.torch.scaling_rules import AdaScale
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, n = adaptdl.env.replica_rank(), adaptdl.env.num_replicas()
reducer = adaptdl.reducer.Reducer(rank, n, "127.0.0.1", int(sys.argv[1]))
value = np.full(3, 1 + rank)
late = reducer.allreduce_async(value)
assert reducer.broadcast(28 if rank == 0 else None) == 28
both = reducer.allreduce(collections.Counter({"foo" if rank == 0 else "bar": 1}))
assert both == {"foo": 1, "bar": n - 1}
assert (late.result() == n * (n + 1) / 2).all() and (value == 1 + rank).all()
assert reducer.allreduce([rank], lambda a, b: a + b) == list(range(n))  # in their order

adl.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Linear(4, 1, bias=False)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model.gns = GradientNoiseScale(model, optimizer)
AdaScale().initialize(model, optimizer, patch_optimizer=True)
assert model.gns.accum_scale == n
own = torch.tensor([[1.0 + rank, 2.0, 3.0, 4.0 - rank]])
optimizer.zero_grad()
model(own).sum().backward()
every = np.array([[1.0 + r, 2.0, 3.0, 4.0 - r] for r in range(n)])
local, total = (every**2).sum(1).mean(), (every.mean(0) ** 2).sum()
assert np.isclose(model.gns.raw_sqr_avg[0], (n * total - local) / (n - 1))
assert np.isclose(model.gns.raw_var_avg[0], (local - total) * n / (n - 1))
optimizer.step()
assert 1 <= model.gns.get_progress() <= n
last = [reducer.allreduce_async(number) for number in range(5)]
assert [of.result() for of in last] == [number * n for number in range(5)]
os._exit(0)
"""


def test_replicas_by_hand(tmp_path: Path) -> None:
    """adaptdl.reducer works, and a rule and its noise with DDP. A rank that has its result
    may end."""
    script = tmp_path / "job.py"
    script.write_text(REPLICAS)
    started = start(3, script, [str(ranks.free_port())])
    try:
        said = [rank.communicate(timeout=ranks.program.LIMIT_S)[0] for rank in started]
    finally:
        ranks.stop(started)
    assert [rank.returncode for rank in started] == [0] * 3, said


def test_a_reducer_of_one() -> None:
    from pawl.compat.adaptdl.reducer import Reducer, default_reduce_fn

    reducer = Reducer(0, 1, "127.0.0.1", 0)
    assert reducer.allreduce([1]) == [1] and reducer.broadcast("x") == "x"
    with pytest.raises(TypeError):
        default_reduce_fn(1, "x")


def test_an_unknown_hint_is_said_and_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pawl.compat.adaptdl import sched_hints
    from pawl.elastic import _hints

    told: list[Any] = []
    monkeypatch.setattr(_hints, "post", lambda *row: told.append(row))
    sched_hints.post_sched_hints({"speed": 1}, "a/b")
    assert not told and "these names are unknown: speed" in caplog.text
    sched_hints.post_sched_hints({"maxBatchSize": 8}, "a/b")
    assert told == [({"maxBatchSize": 8}, "a/b")]
    with contextlib.suppress(TypeError):
        sched_hints.SCHED_HINTS["more"] = 1  # type: ignore[index]
    assert "more" not in sched_hints.SCHED_HINTS
