"""A rank of a pipeline of two stages: _pipelined.py ROUNDS ROWS TINY_STEPS. ROWS: of a microbatch.

First a model of many tiny units, all but the first at the other rank: what is left of the first
rank's CPU time is what calls cost it. Then a GPT-2: its speed beside torch's 1F1B with the blocks
cut by hand, its bytes, its memory, its profile, and the gradients of shared weights. Prints, as the
first rank, a JSON object after each part; a part that cannot run is left out, with why.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from programs._stages import Loss, Ours, Theirs, join, over_ranks, race
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

MICROBATCHES = 8
TINY_UNITS, TINY_WIDTH = 64, 8
WARM = 3  # steps of tiny units before those that count
LAYERS, WIDTH, HEADS, TOKENS = 8, 256, 4, 128
WORDS = 11_136  # the head is as large, beside the blocks, as in GPT-2 small
# The model of the gradients that are compared.
SMALL = {"layers": 4, "width": 64, "words": 499, "tokens": 32}
SMALL_ROWS, SMALL_MICROBATCHES = 8, 4
SAME_LOSS = 1e-3  # difference that rounding may make
PLAIN_RUNS = 3  # passes without a pipeline; the fastest counts
Found = dict[str, Any]


# ---- tiny units ----


def measure_calls(steps: int) -> Found:
    """CPU seconds of the first rank for a call that another rank carries out."""
    torch.manual_seed(0)
    module = nn.Sequential(*[nn.Linear(TINY_WIDTH, TINY_WIDTH) for _ in range(TINY_UNITS + 1)])
    places = {str(unit): int(unit > 0) for unit in range(TINY_UNITS + 1)}
    ours = Ours(
        module, MICROBATCHES, lambda model, rows: model(rows).sum(), "1f1b", partition=places
    )
    batch = torch.randn(MICROBATCHES * 2, TINY_WIDTH)
    for _ in range(WARM):
        ours.step(batch)
    own = OwnWork(ours.pipeline.owner)
    before = ours.stats()
    begun, took = time.process_time(), []
    for _ in range(steps):
        dist.barrier()
        started = time.perf_counter()
        ours.step(batch)
        took.append(time.perf_counter() - started)
    cpu_s = time.process_time() - begun
    after = ours.stats()
    calls = after["calls_issued"] - before["calls_issued"] - own.calls
    ours.close()
    each = over_ranks(cpu_s)
    if dist.get_rank() != 0:
        return {}
    alone = nn.Sequential(*[nn.Linear(TINY_WIDTH, TINY_WIDTH) for _ in range(TINY_UNITS)])
    plain_s = min(cpu_of(lambda: alone(batch[:2]).sum().backward())[0] for _ in range(steps))
    return {
        "cpu_s": (cpu_s - own.cpu_s) / calls,
        "other_s": each[1] / calls,
        "plain_s": plain_s / (2 * TINY_UNITS),
        "calls": calls / steps,
        "own_s": own.cpu_s / steps,
        "own_calls": own.calls / steps,
        "step_s": min(took),
    }


class OwnWork:
    """Notes CPU time and number of the calls that this rank carries out itself."""

    def __init__(self, owner: Any) -> None:
        self.calls, self.cpu_s = 0, 0.0
        carry_out = owner._call

        def noted(*args: Any) -> None:
            begun = time.thread_time()
            carry_out(*args)
            self.cpu_s += time.thread_time() - begun
            self.calls += 1

        owner._call = noted


# ---- GPT-2 ----


def make_gpt2(layers: int, width: int, words: int, tokens: int) -> nn.Module:
    """transformers' own model: tied, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    plain = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=words,
            n_positions=tokens,
            n_embd=width,
            n_layer=layers,
            n_head=HEADS,
            use_cache=False,
            bos_token_id=1,
            eos_token_id=1,
            **plain,
        )
    )


def loss_of(model: Callable[..., Any], ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids, labels=ids, use_cache=False).loss


class Part(nn.Module):
    """Half of a GPT-2, as users of torch's pipelines cut it: blocks, with the embeddings before or
    the head behind them.
    """

    def __init__(self, model: Any, rank: int) -> None:
        super().__init__()
        inner, half = model.transformer, len(model.transformer.h) // 2
        self.first = rank == 0
        self.blocks = nn.ModuleList(inner.h[:half] if self.first else inner.h[half:])
        if self.first:
            self.wte, self.wpe, self.drop = inner.wte, inner.wpe, inner.drop
        else:
            self.ln_f, self.lm_head = inner.ln_f, model.lm_head

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.first:
            tensor = self.drop(self.wte(tensor) + self.wpe(torch.arange(tensor.shape[1])))
        for block in self.blocks:
            tensor = block(tensor)
        return tensor if self.first else self.lm_head(self.ln_f(tensor))


def by_hand(layers: int) -> dict[str, int]:
    """The same halves, for our pipeline."""
    places = {f"transformer.h.{i}": int(i >= layers // 2) for i in range(layers)}
    places |= {"transformer.wte": 0, "transformer.wpe": 0, "transformer.ln_f": 1, "lm_head": 1}
    return places


def measure_speed(rank: int, rounds: int, rows: int) -> Found:
    """Steps of ours, cut by its plan and by hand, beside torch's; bytes, memory and profile."""
    torch.manual_seed(1)
    ids = torch.randint(0, WORDS, (rows * MICROBATCHES, TOKENS))
    whole = make_gpt2(LAYERS, WIDTH, WORDS, TOKENS)
    model_loss = whole.loss_function

    def their_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return model_loss(logits=logits, labels=labels, vocab_size=WORDS)

    theirs = Theirs(Part(whole, rank), MICROBATCHES, their_loss, "Schedule1F1B")
    found: Found = {}
    hand = {"partition": by_hand(LAYERS), "tied": "replicate"}
    for cut, schedule, options in (
        ("plan", "1f1b", {}),
        ("hand", "1f1b", hand),
        ("auto", "auto", {}),
    ):
        model = make_gpt2(LAYERS, WIDTH, WORDS, TOKENS)
        ours = Ours(model, MICROBATCHES, loss_of, schedule, **options)
        losses: dict[str, float] = {}

        def one(name: str, step: Callable[[], float], losses: Any = losses) -> Callable[[], Any]:
            return lambda: losses.update({name: step()})

        found[cut] = race(
            {
                "ours": one("ours", lambda ours=ours: ours.step(ids)),
                "torch": one("torch", lambda: theirs.step(ids, ids)),
            },
            rounds,
        )
        found[cut] |= look_at(ours, ids)
        gap = abs(losses["ours"] - over_ranks(losses["torch"])[-1])
        assert gap < SAME_LOSS, f"the losses differ by {gap}"
        if cut == "plan":
            found["profile"] = measure_profile(ours, ids[:rows])
        ours.close()
    return found


def look_at(ours: Ours, ids: torch.Tensor) -> Found:
    """One more step: bytes that are sent, and activations at this rank."""
    plan: Any = ours.model.plan
    before = ours.stats()
    live = Live(ours.pipeline.units, ours.pipeline.world.stage)
    ours.step(ids)
    assert live.most > 0, "no activation was seen"
    after = ours.stats()
    stage = ours.pipeline.world.stage
    units = [place.unit for place in plan.places if place.stage == stage]
    planned = plan.stage[stage].peak_live * sum(unit.saved_bytes for unit in units)
    return {
        "stages": {p.unit.path: p.stage for p in plan.places},
        "schedule": plan.schedule if plan.each == 1 else f"{plan.schedule}, {plan.each} chunks",
        "predicted_s": plan.step_s,
        "sent_bytes": sum(over_ranks(after["values_bytes"] - before["values_bytes"])),
        "frames_bytes": sum(over_ranks(after["frames_bytes"] - before["frames_bytes"])),
        "edge_bytes": 2 * ids.numel() * WIDTH * 4,
        "live_bytes": over_ranks(live.most),
        "live_planned": over_ranks(planned),
        "values_most": over_ranks(after["bytes_most"]),
    }


class Live:
    """Bytes that autograd keeps for this rank's units, parameters apart: now, and at most."""

    def __init__(self, units: list[Any], stage: int) -> None:
        self.now = self.most = 0
        self._counts: dict[int, int] = {}
        self._apart = {p.untyped_storage().data_ptr() for u in units for _, p in u.parameters}
        for unit in units:
            if unit.rank == stage:
                unit.forward = self._watched(unit.forward)

    def _watched(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with saved_tensors_hooks(lambda tensor: _Kept(self, tensor), lambda kept: kept.tensor):
                return forward(*args, **kwargs)

        return run

    def add(self, tensor: torch.Tensor, by: int) -> None:
        """A node of a graph keeps a tensor, or keeps it no longer."""
        storage = tensor.untyped_storage()
        at = storage.data_ptr()
        if at in self._apart:
            return
        count = self._counts.get(at, 0)
        self._counts[at] = count + by
        if count == 0 or count + by == 0:
            self.now += by * storage.nbytes()
            self.most = max(self.most, self.now)


class _Kept:
    def __init__(self, live: Live, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()
        self._live = live
        live.add(self.tensor, 1)

    def __del__(self) -> None:
        self._live.add(self.tensor, -1)


def measure_profile(ours: Ours, ids: torch.Tensor) -> Found:
    """What a measured pass of the profile takes, beside a pass without one: CPU seconds."""
    from pawl.pipeline._divide import _profile

    if dist.get_rank() != 0:
        return {}
    model = make_gpt2(LAYERS, WIDTH, WORDS, TOKENS)
    passes = 0

    def sample(backward: Callable[..., None]) -> torch.Tensor:
        nonlocal passes
        passes += 1
        loss = loss_of(model, ids)
        backward(loss)
        return loss

    def plain() -> None:
        loss_of(model, ids).backward()
        for parameter in model.parameters():
            parameter.grad = None

    plain()
    whole_s = min(cpu_of(plain)[0] for _ in range(PLAIN_RUNS))
    usual, _profile.RUNS_MAX = _profile.RUNS_MAX, 1  # one pass a call
    first_s, seen = cpu_of(lambda: _profile.survey(model, sample))
    units = [seen.tree.by_path[path] for path in ours.model.plan.units]

    def measure(halves: bool) -> list[tuple[float, Any]]:
        return [
            cpu_of(lambda: _profile.measure(seen, units, sample, halves)) for _ in range(PLAIN_RUNS)
        ]

    runs, halved = measure(False), measure(True)
    _profile.RUNS_MAX = usual
    passes = 0
    both_s, _ = cpu_of(
        lambda: _profile.measure(_profile.survey(model, sample), units, sample, True)
    )
    each = [
        (sum(u.forward_s + u.backward_s for u in c.units), c.frame.forward_s + c.frame.backward_s)
        for _, c in runs
    ]
    return {
        "whole_s": whole_s,
        "survey_s": first_s,
        "measure_s": min(seconds for seconds, _ in runs),
        "halves_s": min(seconds for seconds, _ in halved),
        "units_s": min(units for units, _ in each),
        "outside_s": min(outside for _, outside in each),
        "first_step_s": both_s,
        "first_step_passes": passes,
    }


def cpu_of(function: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.thread_time()
    made = function()
    return time.thread_time() - begun, made


# ---- gradients of tied weights ----


class Logits(nn.Module):
    """A GPT-2 without its loss, which torch's pipelines take apart from the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def measure_gradients(rank: int) -> Found:
    """Largest relative errors of gradients beside those of one process, in float64."""
    whole: Any = make_gpt2(**SMALL).double()
    torch.manual_seed(1)
    ids = torch.randint(0, SMALL["words"], (SMALL_ROWS, SMALL["tokens"]))
    right = copy.deepcopy(whole)
    for part in ids.chunk(SMALL_MICROBATCHES):
        (loss_of(right, part) / SMALL_MICROBATCHES).backward()
    wanted = {name: p.grad for name, p in right.named_parameters(remove_duplicate=False)}
    found: Found = {}
    for tied in ("replicate", "visit"):
        options: dict[str, Any] = {"tied": tied}
        if tied == "replicate":
            options["partition"] = by_hand(SMALL["layers"])
        ours = Ours(copy.deepcopy(whole), SMALL_MICROBATCHES, loss_of, "1f1b", **options)
        ours.step(ids)
        found[tied] = worst(dict(ours.model.local_named_parameters()), wanted)[0]
        ours.close()

    def their_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return whole.loss_function(logits=logits, labels=labels, vocab_size=SMALL["words"])

    theirs = torch_split(whole, ids, rank, their_loss)
    theirs.step(ids, ids)
    named = {
        name.removeprefix("model."): parameter
        for name, parameter in theirs.submod.named_parameters(remove_duplicate=False)
    }
    used = {name: one for name, one in named.items() if one.grad is not None}
    found["torch"], found["torch_at"] = worst(used, wanted)
    return found


def torch_split(whole: nn.Module, ids: torch.Tensor, rank: int, loss: Loss) -> Any:
    """This rank's part of a model that torch's pipeline() has cut in the middle."""
    from torch.distributed.pipelining import SplitPoint, pipeline

    middle = f"model.transformer.h.{SMALL['layers'] // 2}"
    parts = pipeline(
        Logits(copy.deepcopy(whole)),
        (ids.chunk(SMALL_MICROBATCHES)[0],),
        split_spec={middle: SplitPoint.BEGINNING},
    )
    stage = parts.build_stage(rank, torch.device("cpu"))
    made = Theirs(stage, SMALL_MICROBATCHES, loss, "Schedule1F1B")
    return made


def worst(named: dict[str, Any], wanted: dict[str, Any]) -> tuple[float, str]:
    """The largest relative error over all ranks, and the parameter's name."""
    errors = {}
    for name, parameter in named.items():
        right = wanted[name]
        errors[name] = float((parameter.grad - right).abs().max() / right.abs().max())
    largest = max(errors, key=lambda name: errors[name])
    found = over_ranks(errors[largest])
    names: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(names, largest)
    at = found.index(max(found))
    return found[at], names[at]


def main() -> None:
    rounds, rows, steps = (int(word) for word in sys.argv[1:])
    rank, _ = join()
    found: Found = {}

    def say(part: str, made: Found) -> None:
        found[part] = made
        if rank == 0:
            print(json.dumps(found), flush=True)

    say("calls", measure_calls(steps))
    try:
        import transformers
    except ImportError as missing:
        say("without", {"why": str(missing)})
        return
    transformers.logging.set_verbosity_error()
    say("gpt2", measure_speed(rank, rounds, rows))
    say("gradients", measure_gradients(rank))


if __name__ == "__main__":
    main()
