"""Checks the output of elastic_rank.py: was every sample taken once, and is the result right?"""

from __future__ import annotations

import functools
from collections import Counter

import pytest

import program
import ranks

N, EPOCHS = 230, 2  # as in elastic_rank.py
N_MANY = 2300  # number of samples that no job finishes within a test


def steps(said: list[str]) -> tuple[dict[str, list[int]], list[str]]:
    """Returns, for each first sample of a step, this rank's samples at the last try; and the steps
    done."""
    tried, done = {}, []
    for line in said:
        word, _, rest = line.partition(" ")
        if word == "TRY":
            first, _, samples = rest.partition(": ")
            tried[first] = [int(i) for i in samples.split()]
        elif word == "DID":
            done.append(rest)
    return tried, done


def check_each_once(said: list[list[str]], dead: tuple[int, ...] = (), n: int = N) -> None:
    """Checks that every sample was taken once in each epoch, by the steps of a rank that was there
    all the time. Samples that a lost rank tried count if the others have not tried the step again:
    they had its gradients. Later ranks must have done all that was left."""
    whole = next(lines for rank, lines in enumerate(said) if rank not in dead)
    done = steps(whole)[1]
    assert len(set(done)) == len(done)
    tries = [
        Counter(line.split()[1] for line in lines if line.startswith("TRY ")) for lines in said
    ]
    most = tries[said.index(whole)]
    taken: Counter[tuple[str, int]] = Counter()
    for rank, lines in enumerate(said):
        tried, own = steps(lines)
        assert rank in dead or own == done[len(done) - len(own) :]
        for first in done:
            here = f"{first}:"
            if first in tried and (rank not in dead or tries[rank][here] == most[here]):
                taken.update((first.split(":")[0], i) for i in tried[first])
    assert set(taken.values()) == {1} and len(taken) == n * EPOCHS


def ends(said: list[list[str]], word: str) -> list[str]:
    return [
        line.split(" ", 1)[1] for lines in said for line in lines if line.startswith(f"{word} ")
    ]


@functools.cache
def undisturbed(n: int = N) -> float:
    """Returns the norm of the weights that a single rank gets."""
    alone = ranks.run_ranks(program.script("elastic_rank.py"), 1, f"n={n}")
    return float(ends(alone, "WEIGHTS")[0])


def check_weights(said: list[list[str]], n: int = N) -> None:
    """Checks that the weights are those of an undisturbed run, but for rounding."""
    for weights in ends(said, "WEIGHTS"):
        assert float(weights) == pytest.approx(undisturbed(n), abs=1e-8)


def check_no_restart(out: str) -> None:
    """Fails, with the launchers' own lines but not their ranks', if a launcher has restarted."""
    own = [line for line in out.splitlines() if not line.startswith("[rank")]
    assert "attempt 1" not in out, "\n".join(own)
