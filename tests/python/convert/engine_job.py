"""Ranks for test_engine.py. Usage, as a launcher would start it: engine_job.py WHAT ROOT

A rank prints its results after "> ". Files in ROOT's parent show how far the ranks are.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

import program
from pawl.engine import Engine, Raw

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
LIMIT_S = program.LIMIT_S


def say(*words: object) -> None:
    print(">", *words, flush=True)


class Signs:
    """Marks that a rank has come to a place, by a file, and waits for the files of the others."""

    def __init__(self, root: str) -> None:
        self._folder = Path(root).parent

    def put(self, name: str) -> None:
        (self._folder / f"{name}.{RANK}").touch()

    def wait(self, name: str, ranks: range | None = None) -> None:
        for rank in ranks if ranks is not None else range(WORLD):
            sign = self._folder / f"{name}.{rank}"
            program.wait_until(sign.exists, f"rank {rank} comes to {name}")

    def meet(self, name: str) -> None:
        self.put(name)
        self.wait(name)


def parts(step: int) -> dict[str, object]:
    return {
        f"model_{RANK}.pt": {"w": torch.full((1000,), step * 10 + RANK), "step": step},
        f"raw/of_{RANK}.bin": Raw(bytes([step, RANK]) * 3001),
    }


def first(engine: Engine, signs: Signs) -> None:
    """Saves a tag by all ranks, and waits until it is durable."""
    signs.meet("open")
    save = engine.save("step1", parts(1))
    assert save.wait("durable", LIMIT_S), (save.level, save.error)
    signs.meet("first")


def tell_newest(engine: Engine) -> None:
    found = engine.find()
    say("newest", found.tag if found else None, *sorted(found.names if found else []))


def together(engine: Engine, signs: Signs) -> None:
    first(engine, signs)
    for step in range(2, 6):
        building = engine.begin(f"step{step}")
        for name, obj in parts(step).items():
            building.add(name, obj)
        building.commit()
    say(engine.flush(LIMIT_S))
    tell_newest(engine)
    found = engine.find("step3")
    assert found is not None
    for rank in range(WORLD):
        loaded = found.load(f"model_{rank}.pt")
        assert loaded["step"] == 3 and loaded["w"].eq(30 + rank).all()
        assert found.read(f"raw/of_{rank}.bin") == bytes([3, rank]) * 3001
    signs.meet("end")


def some(engine: Engine, signs: Signs) -> None:
    """Rank 0 alone saves the same tag twice; the others only read."""
    signs.meet("open")
    if RANK == 0:
        engine.save("last", {"a": 1}, alone=True).wait("committed", LIMIT_S)
        engine.save("last", {"b": 2, "a": 3}, alone=True).wait("committed", LIMIT_S)
        signs.put("saved")
    signs.wait("saved", range(1))
    found = engine.find("last")
    assert found is not None
    say(*sorted(found.names), found.load("a"), found.load("b"))
    signs.meet("end")


def killed(engine: Engine, signs: Signs) -> None:
    """The last rank is killed in the middle of its part of a tag."""
    first(engine, signs)
    if RANK == WORLD - 1:
        engine.begin("step2").add("half.pt", torch.ones(1000))
        signs.put("begun")
        signs.wait("saved", range(WORLD - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    signs.wait("begun", range(WORLD - 1, WORLD))
    save = engine.save("step2", parts(2))
    signs.put("saved")
    say("committed", save.wait("committed", 2), save.level)
    tell_newest(engine)
    os._exit(0)  # as a launcher ends the other ranks


def raises(engine: Engine, signs: Signs) -> None:
    """The last rank dies of an error before its part is whole; its exit must not make the part
    whole."""
    first(engine, signs)
    if RANK == WORLD - 1:
        if os.environ["BEGUN"] == "1":
            engine.begin("step2").add("half.pt", torch.ones(1000))
        signs.wait("saved", range(WORLD - 1))
        raise RuntimeError("on purpose")
    save = engine.save("step2", parts(2))
    signs.put("saved")
    say("committed", save.wait("committed", 3), save.level)
    tell_newest(engine)
    os._exit(0)


def leaves(engine: Engine, signs: Signs) -> None:
    """The last rank has nothing more to save, and leaves; the others go on."""
    first(engine, signs)
    if RANK == WORLD - 1:
        engine.close()
        say("left")
        return
    save = engine.save("step2", parts(2))
    say("durable", save.wait("durable", LIMIT_S))
    save = engine.save("step3", parts(3))
    say("durable", save.wait("durable", LIMIT_S))
    tell_newest(engine)


def main() -> None:
    engine = Engine(sys.argv[2])
    globals()[sys.argv[1]](engine, Signs(sys.argv[2]))


if __name__ == "__main__":
    main()
