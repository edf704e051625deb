"""The jobs of several ranks of test_acceptance.py. Usage: acceptance_ranks.py WHAT ROOT ARGS...

Ranks are forked from this process, as in acceptance_job.py, and use Nebula's module. Some call it
as the engines of old DeepSpeed releases do, call by call.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import program
import ranks
import waits
from acceptance_job import LIMIT_S, fork, kill_agent

MODEL = "mp_rank_00_model_states.pt"
WEIGHTS = "pytorch_model.bin"
DEAD = 2  # the rank that is killed

Run = Callable[["Rank"], None]


class Rank:
    """A forked rank: Nebula's module, and places where all ranks meet."""

    def __init__(self, root: Path, number: int, world: int, meeting: Path) -> None:
        self.root, self.number, self.world = root, number, world
        self.nm: Any = importlib.import_module("nebulaml")
        self._meeting = meeting

    def meet(self, name: str, without: int | None = None) -> None:
        (self._meeting / f"{name}.{self.number}").touch()
        others = [r for r in range(self.world) if r != without]
        there = lambda: all((self._meeting / f"{name}.{r}").exists() for r in others)  # noqa: E731
        program.wait_until(there, f"all ranks come to {name}")


def run(root: Path, world: int, what: Run) -> list[int]:
    """Runs a job of `world` forked ranks. Returns each rank's exit status, as os.waitpid
    gives it."""
    meeting = Path(f"{root}-meeting{time.monotonic_ns()}")
    meeting.mkdir(parents=True)
    pids = []
    for number in range(world):
        env = ranks.rank_env(number, world, 1, f"acceptance-{root.parent.name}")
        pids.append(fork(lambda n=number: what(Rank(root, n, world, meeting)), **env))
    return [os.waitpid(pid, 0)[1] for pid in pids]


def file_of(rank: int) -> str:
    return f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def content(step: int, name: str) -> dict[str, Any]:
    source = torch.Generator().manual_seed(step)
    return {"file": name, "step": step, "w": torch.randn(20_000, generator=source)}


def is_content(got: Any, step: int, name: str) -> bool:
    want = content(step, name)
    return got["file"] == name and got["step"] == step and torch.equal(got["w"], want["w"])


# ---- as old DeepSpeed releases do ----


class OldEngine:
    """Works like NebulaCheckpointEngine of DeepSpeed 0.7.3 to 0.16: one Checkpoint for all of a
    tag."""

    def __init__(self, nm: Any, root: Path, interval_s: float) -> None:
        self.nm, self.path = nm, str(root)
        nm.init(
            persistent_storage_path=self.path,
            persistent_time_interval=interval_s,
            num_of_version_in_retention=2,
        )

    def create(self, tag: str) -> None:
        self.checkpoint = self.nm.Checkpoint(tag, -2)

    def save(self, state: Any, path: Path) -> None:
        torch.save("", path)  # a dummy file, so that loading lists it
        self.checkpoint.save(path.name, state)

    def commit(self, tag: str) -> Any:
        return self.checkpoint.commit()

    def load(self, path: Path, map_location: Any = None) -> Any:
        tag = path.parent.name
        if tag in (None, "latest", "latest_universal"):
            found = self.nm.get_latest_checkpoint(persist_path=self.path)
        else:
            found = self.nm.get_checkpoint(tag=tag, persist_path=self.path)
        if found is None or found.tag == "":
            found = self.nm.get_latest_checkpoint(persist_path=self.path)
            if found is None or found.tag == "":
                self.nm.get_latest_checkpoint()  # logs the newest checkpoint
                return None
        return found.load(path.name, map_location=map_location)


class CloningEngine(OldEngine):
    """Clones all tensors before it saves, as some releases do."""

    def save(self, state: Any, path: Path) -> None:
        cloned = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
        super().save(cloned, path)


class OldestEngine(OldEngine):
    """Uses one Checkpoint for each file, and another one to commit, as the oldest releases do."""

    def create(self, tag: str) -> None:
        pass

    def save(self, state: Any, path: Path) -> None:
        torch.save("", path)
        checkpoint = self.nm.Checkpoint(path.parent.name, -2)
        checkpoint.save(path.name, state)

    def commit(self, tag: str) -> Any:
        checkpoint = self.nm.Checkpoint(tag, -2)
        return checkpoint.commit()


def engine_of_release(nm: Any, root: Path, interval_s: float) -> Any:
    """Returns the class itself, out of the package of DeepSpeed 0.7.3, which runs on no torch of
    today.

    No other code of that package runs: the modules that surround the class are empty here.
    """
    (folder,) = os.environ["PYTHONPATH"].split(os.pathsep)[:1]
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.checkpoint_engine"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(Path(folder, *name.split(".")))]
    utils: Any = types.ModuleType("deepspeed.utils")
    utils.logger, utils.log_dist = logging.getLogger("deepspeed"), lambda *what, **ranks: None
    sys.modules[utils.__name__] = utils
    module = importlib.import_module("deepspeed.runtime.checkpoint_engine.nebula_checkpoint_engine")
    assert module.torch_nebula is nm
    config = types.SimpleNamespace(
        enable_nebula_load=True,
        load_path=None,
        persistent_storage_path=str(root),
        persistent_time_interval=interval_s,
        num_of_version_in_retention=2,
    )
    return module.NebulaCheckpointEngine(config)


ENGINES = {
    "release": engine_of_release,
    "object": OldEngine,
    "cloned": CloningEngine,
    "file": OldestEngine,
}


def save_checkpoint(rank: Rank, engine: Any, folder: Path, step: int) -> None:
    """Saves as DeepSpeedEngine.save_checkpoint does."""
    tag = f"global_step{step}"
    if rank.number == 0:
        (folder / tag).mkdir(parents=True)
    rank.meet(f"{tag}-folder")
    engine.create(tag)
    names = [MODEL, file_of(0)] if rank.number == 0 else [file_of(rank.number)]
    for name in names:
        state = content(step, name)
        engine.save(state, folder / tag / name)
        state["w"].zero_()  # training goes on
    assert engine.commit(tag)
    if rank.number == 0:
        (folder / "latest").write_text(tag)
    rank.meet(f"{tag}-saved")


def save_16bit_model(rank: Rank, engine: Any, folder: Path, step: int) -> None:
    """Saves as DeepSpeedEngine.save_16bit_model does: it opens the same tag again."""
    tag = f"global_step{step}"
    engine.create(tag)
    if rank.number == 0:
        engine.save(content(step, WEIGHTS), folder / tag / WEIGHTS)
    assert engine.commit(tag)
    rank.meet(f"{tag}-16bit")


def load_checkpoint(engine: Any, folder: Path) -> dict[str, Any]:
    """Loads as DeepSpeedEngine.load_checkpoint does: each file by itself, of the tag that `latest`
    names."""
    tag = (folder / "latest").read_text()
    return {
        path.name: engine.load(path, map_location=lambda storage, where: storage)
        for path in sorted((folder / tag).iterdir())
    }


def deepspeed(root: Path, form: str) -> None:
    folder = root.parent / "deepspeed"
    make: Callable[[Any, Path, float], Any] = ENGINES[form]

    def first(rank: Rank) -> None:
        engine = make(rank.nm, root, 0)
        assert engine.load(folder / "global_step1" / MODEL) is None  # no checkpoint is there
        for step in (1, 2):
            save_checkpoint(rank, engine, folder, step)
        save_16bit_model(rank, engine, folder, 2)
        rank.nm._shutdown()

    assert run(root, 2, first) == [0, 0]
    names = [MODEL, WEIGHTS, file_of(0), file_of(1)]
    for step in (1, 2):
        here = [name for name in names if name != WEIGHTS or step == 2]
        saved = {name: torch.load(root / f"global_step{step}" / name) for name in here}
        assert all(is_content(saved[name], step, name) for name in here)
        assert (root / f"global_step{step}" / "complete.txt").read_text() == "OK"

    def second(rank: Rank) -> None:
        """Kills all ranks after `latest` was written, before anything is durable."""
        engine = make(rank.nm, root, 3600)
        loaded = load_checkpoint(engine, folder)
        assert sorted(loaded) == sorted(names)
        assert all(is_content(got, 2, name) for name, got in loaded.items())
        save_checkpoint(rank, engine, folder, 3)
        if rank.number == 0:
            kill_agent(root)  # as if the machine died
        rank.meet("killed")
        os.kill(os.getpid(), signal.SIGKILL)

    assert run(root, 2, second) == [signal.SIGKILL] * 2
    assert (folder / "latest").read_text() == "global_step3"

    def third(rank: Rank) -> None:
        loaded = load_checkpoint(make(rank.nm, root, 3600), folder)
        assert sorted(loaded) == [MODEL, file_of(0), file_of(1)]
        assert all(is_content(got, 2, name) for name, got in loaded.items())
        rank.meet("loaded")

    assert run(root, 2, third) == [0, 0]


# ---- a rank that is killed ----


def save(rank: Rank, step: int, die: str = "") -> bool:
    """Saves a step; rank 1 commits without a partition. die: the point at which rank 2 is
    killed."""
    if rank.number == DEAD and die == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    checkpoint = rank.nm.Checkpoint(f"global_step{step}", -2)
    for part in range(2 if rank.number != 1 else 0):
        name = f"{part}-{rank.number}"
        checkpoint.save(name, content(step, name))
        if rank.number == DEAD and die == f"in {part}":
            os.kill(os.getpid(), signal.SIGKILL)
    return bool(checkpoint.commit())


NAMES = [f"{part}-{rank}" for part in range(2) for rank in (0, 2, 3)]


def newest_is(rank: Rank, step: int) -> None:
    """Checks that the newest checkpoint is the one of this step, in every file."""
    for name in NAMES:
        found = rank.nm.get_latest_checkpoint()
        assert found is not None and found.tag == f"global_step{step}", found
        assert is_content(found.load(name), step, name)


def dead(root: Path, die: str) -> None:
    """Kills rank 2 of 4; then starts all ranks anew, and then jobs of 1, 2 and 8 ranks."""

    def first(rank: Rank) -> None:
        rank.nm.init(str(root), persistent_time_interval=0)
        rank.meet("open")
        assert save(rank, 1) and rank.nm.flush_persistence("global_step1", LIMIT_S)
        rank.meet("first")
        committed = save(rank, 2, die)
        rank.meet("second", without=DEAD)
        waits.stays(
            lambda: rank.nm.get_checkpoint(tag="global_step2", persist_path=str(root)) is None,
            "what is not whole is not found",
            0.3,
        )
        assert "global_step2" not in rank.nm.list_checkpoints()
        for name in NAMES:
            try:
                rank.nm.Checkpoint("global_step2").load(name)
            except FileNotFoundError:
                continue
            raise AssertionError(f"{name} of a tag that is not whole, {committed}")
        newest_is(rank, 1)
        rank.meet("looked", without=DEAD)

    assert run(root, 4, first) == [0, 0, signal.SIGKILL, 0]

    def again(rank: Rank) -> None:
        rank.nm.init(str(root), persistent_time_interval=0)
        newest_is(rank, 1)
        rank.meet("found")
        assert save(rank, 2)
        rank.meet("committed")
        assert rank.nm.flush_persistence("global_step2", LIMIT_S)
        newest_is(rank, 2)
        rank.meet("done")
        rank.nm._shutdown()

    assert run(root, 4, again) == [0] * 4

    def read(rank: Rank) -> None:
        rank.nm.init(str(root))
        newest_is(rank, 2)
        rank.meet("read")

    for world in (1, 2, 8):
        assert run(root, world, read) == [0] * world


# ---- memory ----

CAP = 200_000_000  # NEBULA_MEMORY_BUFFER_SIZE; a rank's share is 25 MB
PART = 25_000_000  # bytes of a partition; a rank has four
ROOM = 16 << 20  # bytes for everything else


def status_of(pid: int | str, field: str) -> int:
    """Returns a field of a process's status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise KeyError(field)


def memfds(pid: int) -> int:
    """Returns the size of a process's memory files, in bytes."""
    held = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor was closed meanwhile
            if os.readlink(fd).startswith("/memfd:"):
                held += os.stat(fd).st_blocks * 512
    return held


def memory(root: Path) -> None:
    os.environ["NEBULA_MEMORY_BUFFER_SIZE"] = str(CAP)

    def save_much(rank: Rank) -> None:
        rank.nm.init(str(root), persistent_time_interval=0)
        state = [torch.full((PART,), 4 * rank.number + at, dtype=torch.uint8) for at in range(4)]
        rank.meet("open")
        before = status_of("self", "VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        for step in (1, 2):
            checkpoint = rank.nm.Checkpoint(f"global_step{step}", -2)
            for at, tensor in enumerate(state):
                checkpoint.save(f"{at}-{rank.number}", tensor)
            assert checkpoint.commit() and rank.nm.flush_persistence(None, LIMIT_S)
            rank.meet(f"saved {step}")
        more = status_of("self", "VmHWM") - before
        agent = program.agent_pid(root)
        assert agent is not None
        print(f"rank {rank.number}: {more >> 20} MiB more, agent {memfds(agent) >> 20}", flush=True)
        assert more < CAP // 8 + ROOM and memfds(agent) < CAP // 2
        rank.meet("end")
        rank.nm._shutdown()

    assert run(root, 4, save_much) == [0] * 4
    for rank in range(4):
        for at in range(4):
            got = torch.load(root / "global_step2" / f"{at}-{rank}")
            assert got.shape == (PART,) and got.eq(4 * rank + at).all()


if __name__ == "__main__":
    what = {"deepspeed": deepspeed, "dead": dead, "memory": memory}[sys.argv[1]]
    try:
        what(Path(sys.argv[2]), *sys.argv[3:])
    finally:
        kill_agent(Path(sys.argv[2]))
