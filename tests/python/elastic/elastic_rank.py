"""A rank of an elastic job, in an unmodified loop. Usage: elastic_rank.py [OPTION=VALUE...]

`kill=RANK@STEP,...`: the rank ends itself in that step, in its backward pass or (`at=forward`,
`at=step`) before or after it. `pause=SECONDS` in each step, until the file `hurry=FILE` exists.
`mark=FILE` is made after the fourth step. `logs=DIR`: each process writes its output to a file
there, too. `fail=FILE`: at the end, rank 1 of the first attempt waits for the file, and fails.
`hold=FILE`: newcomers wait for the file before they join; it is made after the last step. `own=1`:
a loader as users write them.

`short=RANK`: that rank lacks a sample. `odd=WHAT` makes rank 1 differ: in its batch, its bounds, or
where it leaves: `odd=loop:STEP` that loop, at that step, `odd=epochs` all epochs but the first,
`odd=end` the program after that.

Every rank prints "> TRY FIRST: SAMPLES" before a step, "> DID FIRST" after it, and at the end ">
END RANK of RANKS: WEIGHTS" with their norm, "> SAMPLES N" with the count in its statistics, and ">
NOISE" with the noise, as far as it is known.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

import pawl.elastic as el

OPTIONS = dict(word.split("=", 1) for word in sys.argv[1:])
N = int(OPTIONS.get("n", "230"))
EPOCHS = int(OPTIONS.get("epochs", "2"))
BATCH = int(OPTIONS.get("batch", "24"))
NEWCOMER = bool(os.environ.get("PAWL_ELASTIC_JOIN"))
VICTIMS = [
    (int(who), int(when))
    for who, when in (w.split("@") for w in OPTIONS.get("kill", "").split(",") if w)
    if not NEWCOMER
]
ODD = OPTIONS.get("odd", "") if os.environ.get("RANK") == "1" else ""
BEGUN = time.monotonic_ns()
RANK = int(os.environ.get("RANK", "0"))
N -= int(OPTIONS.get("short", "-1")) == RANK


class Numbers(Dataset):
    """Sample i: its number, an input vector and a target."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(N, 8, generator=generator, dtype=torch.float64)
        self.y = self.x.sum(1, keepdim=True) + torch.randn(N, 1, generator=generator).double()

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return i, self.x[i], self.y[i]


class Own(el.AdaptiveDataLoaderMixin):
    """A loader as users write them: in order."""

    def __init__(self, numbers: Numbers, batch_size: int) -> None:
        super().__init__(batch_size)
        self.numbers = numbers

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        helper = self._elastic
        with helper.context():
            while not helper.skipdone() and helper.current_index < len(self.numbers):
                with helper.profile(self.training):
                    each = helper.current_local_bsz
                    job = helper._job
                    whole = job.ranks * each  # read before the step, in which ranks may be lost
                    at = helper.current_index + job.rank * each
                    numbers = torch.arange(at, min(at + each, len(self.numbers)))
                    yield numbers, self.numbers.x[numbers], self.numbers.y[numbers]
                    helper.current_index += whole


class Die(torch.autograd.Function):
    """Ends the process in the backward pass."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return grad


def say(*words: object) -> None:
    print(">", *words, flush=True)
    if "logs" in OPTIONS:
        with Path(OPTIONS["logs"], f"{BEGUN}-{os.getpid()}").open("a") as log:
            print(*words, file=log)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model: nn.Module = nn.Sequential(nn.Linear(8, 50), nn.Tanh(), nn.Linear(50, 1)).double()
    kind = getattr(torch.optim, OPTIONS.get("optimizer", "SGD"))
    optimizer = kind(model.parameters(), lr=0.01)
    loader = (
        Own(Numbers(), BATCH)
        if "own" in OPTIONS
        else el.AdaptiveDataLoader(
            Numbers(),
            batch_size=BATCH + (ODD == "batch"),
            shuffle=True,
            num_workers=int(OPTIONS.get("workers", "0")),
        )
    )
    if OPTIONS.get("odd") == "bounds":
        loader.autoscale_batch_size(BATCH * (4 if ODD else 2))
    # Small buckets, so that there are several.
    model = el.AdaptiveDataParallel(model, optimizer, bucket_cap_mb=0.001)
    stats = el.Accumulator()
    step = 0
    while NEWCOMER and "hold" in OPTIONS and not Path(OPTIONS["hold"]).exists():
        time.sleep(0.05)  # pace
    for epoch in el.remaining_epochs_until(1 if ODD == "epochs" else EPOCHS):
        for numbers, x, y in loader:
            if f"loop:{step}" == ODD:
                step += 1
                break
            dies = (RANK, step) in VICTIMS
            at = OPTIONS.get("at", "backward")
            helper = loader._elastic
            first = f"{epoch}:{helper.current_index}"
            micro = helper._micro
            share = micro.of(helper._job.rank, helper._job.ranks) if micro else numbers
            own = numbers[: len(share)].tolist()
            say(f"TRY {first}: {' '.join(map(str, own))}")
            if dies and at == "forward":
                os.kill(os.getpid(), signal.SIGKILL)
            if "hurry" not in OPTIONS or not Path(OPTIONS["hurry"]).exists():
                time.sleep(float(OPTIONS.get("pause", "0")))  # pace
            optimizer.zero_grad()
            out = model(x)
            if dies and at == "backward":
                out = Die.apply(out)
            loss = (out - y).square().mean()
            loss.backward()
            stats["samples"] += len(own)
            if dies and at == "step":
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            if not helper._redo:
                say(f"DID {first}")
            if step == 3 and "mark" in OPTIONS:
                Path(OPTIONS["mark"]).touch()
            step += 1
        if ODD == "end":
            sys.exit()
    if "hold" in OPTIONS:
        Path(OPTIONS["hold"]).touch()
    job = loader._elastic._job
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    digest = hashlib.sha256(weights).hexdigest()[:16]
    say(f"END {job.rank} of {job.ranks}: {digest}")
    norm = sum(float(p.detach().square().sum()) for p in model.parameters())
    say(f"WEIGHTS {norm:.9f}")
    with stats.synchronized():
        say(f"SAMPLES {stats['samples']}")
    sqr, var = model.noise.moments()
    say(f"NOISE {sqr > 0} {var > 0} {model.progress:.6f}")
    if "fail" in OPTIONS and RANK == 1 and os.environ["PAWL_ATTEMPT"] == "0":
        while not Path(OPTIONS["fail"]).exists():
            time.sleep(0.05)  # pace
        sys.exit("it fails at last")


if __name__ == "__main__":
    main()
