"""How much a save costs the training that goes on."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pawl
from shared._agent import (
    NEVER,
    agent_pid,
    arena_bytes,
    huge_bytes,
    memory_of,
    opened,
    settle,
)
from shared._bound import Memcpy
from shared._peers import DcpAsync, torch_save
from shared._report import Report, percentile, upper_bound
from shared._sizes import Sizes
from shared._state import State, Training

GENERATIONS = 2  # generations in the memory tier
SLACK_BYTES = 16_000_000  # memory that the tier may take beyond its generations
UNIT_S = 0.005  # seconds of work between two checks of a save's level
TRIES = 20  # saves tried until one lasts for a unit of work
HUGE_RESTS_MAX = 30  # rests, at most, until the state is in huge pages
HUGE_REST_S = 2.0  # rest without a new huge page after which the engine has made all it wants

median = statistics.median


@dataclass
class Seen:
    """How saves slow training down at one length of forward and backward pass, in seconds."""

    pawl: list[float] = field(default_factory=list)  # paired differences
    after: list[float] = field(default_factory=list)  # the step after a saved one
    plain: list[float] = field(default_factory=list)  # other unsaved steps
    returns: list[float] = field(default_factory=list)  # times of Pawl's save()
    memcpy: list[float] = field(default_factory=list)
    torch: list[float] = field(default_factory=list)
    dcp: list[float] = field(default_factory=list)
    dcp_returns: list[float] = field(default_factory=list)
    dcp_durable: list[float] = field(default_factory=list)
    proofs: set[str] = field(default_factory=set)  # proofs that Pawl's saves had


class Overlap:
    """Saved and unsaved steps in pairs, the order alternated, with saves by the
    peers in between.
    """

    def __init__(
        self, sizes: Sizes, folder: Path, state: State, training: Training, memcpy: Memcpy
    ) -> None:
        self._sizes = sizes
        self._folder = folder
        self._state = state
        self._training = training
        self._memcpy = memcpy
        self._step = 0
        self._newest: pawl.Save | None = None

    def _saved_step(self, checkpointer: pawl.Checkpointer, seen: Seen) -> float:
        begun = time.perf_counter()
        self._step += 1
        save = checkpointer.save(self._step, self._state.parts)
        seen.returns.append(time.perf_counter() - begun)
        self._training.step()
        took = time.perf_counter() - begun
        seen.proofs.add(save.proof)
        self._newest = save
        return took

    def warm_up(self, checkpointer: pawl.Checkpointer) -> None:
        """Waits until arenas are made and the engine has turned the state into huge pages."""
        for _ in range(3):
            self._saved_step(checkpointer, Seen())
            settle(self._newest, "committed")
        checkpointer.flush()
        if not self._sizes.quick:
            last = -1
            for _ in range(HUGE_RESTS_MAX):
                if last == (last := huge_bytes()):
                    break
                time.sleep(HUGE_REST_S)

    def run(self, checkpointer: pawl.Checkpointer, seconds: float) -> Seen:
        """Measures one length of forward and backward pass."""
        seen = Seen()
        self._training.calibrate(seconds)
        self._training.step()
        each = max(1, self._sizes.pairs // self._sizes.peers)  # pairs between two saves by peers
        for pair in range(self._sizes.pairs):
            if pair % 2 == 0:
                saved = self._saved_step(checkpointer, seen)
                unsaved = self._training.step()
                seen.after.append(unsaved)
            else:
                unsaved = self._training.step()
                seen.plain.append(unsaved)
                saved = self._saved_step(checkpointer, seen)
            seen.pawl.append(saved - unsaved)
            settle(self._newest, "committed")
            if pair % each == each - 1 and len(seen.torch) < self._sizes.peers:
                self._run_peers(seen)
        return seen

    def _run_peers(self, seen: Seen) -> None:
        """Measures the bound and each peer once. The first step after a peer's save
        counts as its cost, too.
        """
        seen.memcpy.append(self._memcpy.run())
        plain_s = median(self._training.step() for _ in range(3))
        took = torch_save(self._state, self._folder / "seen.pt")
        seen.torch.append(took + self._training.step() - plain_s)
        self._training.step()
        one = DcpAsync(self._state, self._folder / "seen.dcp", self._training.step, plain_s)
        seen.dcp.append(one.seen_s)
        seen.dcp_returns.append(one.return_s)
        seen.dcp_durable.append(one.durable_s)
        self._training.step()


def measure_overlap(
    report: Report, sizes: Sizes, folder: Path, state: State, training: Training, memcpy: Memcpy
) -> None:
    """Rows: the time of save(), all that a save costs training, and the memory it takes."""
    overlap = Overlap(sizes, folder, state, training, memcpy)
    training.step()
    before = memory_of("self", "RssAnon")
    root = folder / "overlap"
    seen: dict[float, Seen] = {}
    with opened(root, persist_every=NEVER) as checkpointer:
        overlap.warm_up(checkpointer)
        huge = huge_bytes()
        grown = max(0, memory_of("self", "RssAnon") - before)
        agent = agent_pid(root)
        taken = arena_bytes(agent) + memory_of(agent, "RssAnon")
        for seconds in sizes.compute_s:
            seen[seconds] = overlap.run(checkpointer, seconds)
    report.title("save(), overlapped, in a loop with an optimizer")
    memcpy_s = median(one for part in seen.values() for one in part.memcpy)
    report.bound("memcpy_s", "memcpy into prefaulted shared memory, 1 thread", memcpy_s, "s")
    report.note("huge_mb", "of the state in huge pages", huge / 1e6, "MB")
    _report_returns(report, seen)
    for seconds, one in seen.items():
        _report_seen(report, seconds, one, memcpy_s)
    report.title("memory of the tier: agent's arenas and own, and what the trainer grew by")
    report.at_most(
        "tier_excess_mb",
        f"beyond {GENERATIONS} generations of {memcpy.size_bytes / 1e6:.0f} MB",
        (taken + grown - GENERATIONS * memcpy.size_bytes) / 1e6,
        SLACK_BYTES / 1e6,
        "MB",
        f"trainer grew by {grown / 1e6:.1f} MB",
    )


def _report_returns(report: Report, seen: dict[float, Seen]) -> None:
    returns = [one for part in seen.values() for one in part.returns]
    middle, high = median(returns), percentile(returns, 99)
    proofs = ", ".join(sorted({proof for part in seen.values() for proof in part.proofs}))
    what = f"returns, median of {len(returns)} ({proofs})"
    report.at_most("save_ms", what, 1e3 * middle, 2.5, "ms")
    report.note("save_p99_ms", "returns, 99th percentile", 1e3 * high, "ms")
    report.at_most("save_p99_to_median", "99th percentile to median", high / middle, 3, "x")
    dcp = median(one for part in seen.values() for one in part.dcp_returns)
    durable = median(one for part in seen.values() for one in part.dcp_durable)
    report.note("dcp_return_ms", "DCP async_save returns", 1e3 * dcp, "ms")
    report.note("dcp_durable_s", "DCP async_save is durable, steps going on", durable, "s")


def _report_seen(report: Report, seconds: float, seen: Seen, memcpy_s: float) -> None:
    at = f"{seconds:g}"
    bound = upper_bound(seen.pawl)
    torch_s, dcp_s = statistics.fmean(seen.torch), statistics.fmean(seen.dcp)
    report.title(f"all that training sees of a save, forward and backward {at} s")
    report.note(f"seen_{at}_s", "Pawl, mean", statistics.fmean(seen.pawl), "s")
    report.note(
        f"seen_{at}_upper_s", f"Pawl, upper 95 % bound of {len(seen.pawl)} pairs", bound, "s"
    )
    report.note(
        f"after_{at}_s",
        "of the step after a saved one, beyond other unsaved steps",
        median(seen.after) - median(seen.plain or seen.after),
        "s",
    )
    report.note(f"torch_{at}_s", f"torch.save + fsync, mean of {len(seen.torch)}", torch_s, "s")
    report.note(f"dcp_{at}_s", f"DCP async_save, mean of {len(seen.dcp)}", dcp_s, "s")
    report.at_most(f"seen_{at}_to_torch", "upper bound to torch.save", bound / torch_s, 0.1, "x")
    report.at_most(f"seen_{at}_to_dcp", "upper bound to DCP", bound / dcp_s, 0.15, "x")
    if seconds >= 0.5:
        share = bound / memcpy_s
        report.at_most(f"seen_{at}_to_memcpy", "upper bound to memcpy", share, 0.5, "x")
    else:
        report.note(f"seen_{at}_to_memcpy", "upper bound to memcpy", bound / memcpy_s, "x")


def count_in_python(numbers: int) -> int:
    """A pure-Python loop."""
    total = 0
    for number in range(numbers):
        total += number & 7
    return total


def measure_background(
    report: Report, sizes: Sizes, folder: Path, state: State, training: Training
) -> None:
    """Row: steps per second while the agent writes, compared with undisturbed windows."""
    report.title("steps per second while a save is made durable, against undisturbed windows")
    begun = time.perf_counter()
    count_in_python(100_000)
    numbers = max(1, int(100_000 * UNIT_S / (time.perf_counter() - begun)))
    loops: dict[str, Callable[[int], object]] = {
        "python": lambda index: count_in_python(numbers),
        "matmul": training.unit,
    }
    with opened(folder / "background", persist_every=0, keep=1, copy="now") as checkpointer:
        saves = (checkpointer.save(step, state.parts) for step in itertools.count(1))
        for name, work in loops.items():
            ratios = []
            units = 1
            # The first one warms up and finds the number of units.
            for round_ in range(sizes.repeats + 1):
                before = _time_units(work, units) if round_ % 2 else 0.0
                found, busy = _count_units(work, saves)
                plain = before or _time_units(work, found)
                if round_:
                    ratios.append(found / busy / ((units if before else found) / plain))
                units = found
            what = f"{name} loop, median of {sizes.repeats} (windows of {units} steps)"
            report.at_least(f"{name}_while_persisting", what, median(ratios), 0.95, "x")


def _time_units(work: Callable[[int], object], units: int) -> float:
    begun = time.perf_counter()
    for index in range(units):
        work(index)
    return time.perf_counter() - begun


def _count_units(
    work: Callable[[int], object], saves: Iterator[pawl.Save | None]
) -> tuple[int, float]:
    """Units done from a save's commit until it is durable, and the seconds they took.

    On a busy machine a save may be durable before the first unit: then the next save is taken.
    """
    for save in itertools.islice(saves, TRIES):
        settle(save, "committed")
        assert save is not None
        begun = time.perf_counter()
        units = 0
        while save.level == "committed":
            work(units)
            units += 1
        took = time.perf_counter() - begun
        settle(save, "durable")
        if units:
            return units, took
    raise RuntimeError(f"{TRIES} saves in turn were durable before the first step: too busy here")


def measure_now(report: Report, sizes: Sizes, folder: Path, state: State, memcpy: Memcpy) -> None:
    """Rows: the stall with copy="now", arenas ready, and the first save, before they are."""
    first, second, ready, bounds = [], [], [], []
    for round_ in range(sizes.repeats):
        with opened(folder / f"first{round_}", copy="now", persist_every=NEVER) as checkpointer:
            first.append(_time_save(checkpointer, 1, state))
            second.append(_time_save(checkpointer, 2, state))
    with opened(folder / "now", copy="now", persist_every=NEVER) as checkpointer:
        for step in range(1, 4):
            _time_save(checkpointer, step, state)
        checkpointer.flush()
        for step in range(4, 4 + sizes.repeats * 2):
            if step % 2:
                ready.append(_time_save(checkpointer, step, state))
                bounds.append(memcpy.run())
            else:
                bounds.append(memcpy.run())
                ready.append(_time_save(checkpointer, step, state))
    report.title('the stall with copy="now"')
    goal = 1.25 * median(bounds) + 0.005
    report.bound("memcpy_now_s", "memcpy, in turns with it", median(bounds), "s")
    report.at_most("now_s", f"arenas ready, median of {len(ready)}", median(ready), goal, "s")
    report.note("now_first_s", "first save, arenas not ready", median(first), "s")
    report.note("now_second_s", "second save, right after it", median(second), "s")


def _time_save(checkpointer: pawl.Checkpointer, step: int, state: State) -> float:
    begun = time.perf_counter()
    save = checkpointer.save(step, state.parts)
    took = time.perf_counter() - begun
    settle(save, "committed")
    return took
