"""The jobs of test_acceptance.py. Usage: acceptance_job.py WHAT ROOT ARGS...

The processes that save and are killed are forked from this one, which has imported torch but not
Pawl: importing torch takes longer than all else together, and a fault that the environment asks for
is armed when Pawl is loaded. The content of a saved file follows from its tag, its name and the
commit of the tag that it belongs to.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

import leftovers
import program
import waits

torch.set_num_threads(1)

LIMIT_S = program.LIMIT_S
CRASHES = {  # fault point -> number of passes, at most, before the process crashes there
    "agent.crash.": 12,
    "aio.submit": 60,
    "proto.receive": 60,
    "proto.send": 60,
    "store.append": 8,
    "store.mkdir": 6,
    "store.open": 40,
    "store.remove": 30,
    "store.rename": 12,
    "store.sync": 40,
    "store.write": 40,
}
HUGE_PAGE = 2 << 20  # bytes that come or go with one allocation
CRASHED = 99  # exit status of a process that crashes at a fault point
LATE = 98  # exit status of a process whose wait took too long
WAYS = ("worker", "agent", "both", "crash", "crash")


class Known(NamedTuple):
    """A tag, by its step, and the number of its commits that are known to be there."""

    step: int = 0
    commits: int = 0


# ---- what is saved ----


def plan(step: int) -> list[list[str]]:
    """Returns the files of each commit of a tag; a later commit replaces a file of an
    earlier one."""
    return [[["a", "b"]], [["a", "b", "c"]], [["a", "b"], ["b", "c"]]][step % 3]


def content(step: int, name: str, commit: int) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(zlib.crc32(f"{step}/{name}/{commit}".encode()))
    sizes = (3, 1000, 40_000)
    return {str(n): torch.randint(0, 256, (n,), dtype=torch.uint8, generator=source) for n in sizes}


def same(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def commits_of(found: Any) -> int:
    """Returns how many commits of its plan a checkpoint holds. Fails unless it holds just these,
    each file whole."""
    step = int(found.tag.removeprefix("global_step"))
    files: dict[str, dict[str, torch.Tensor]] = {}
    for name in ("a", "b", "c"):
        with contextlib.suppress(FileNotFoundError):
            files[name] = found.load(name)
    wanted: dict[str, int] = {}  # file -> its newest commit
    for commit, names in enumerate(plan(step)):
        wanted.update(dict.fromkeys(names, commit))
        if wanted.keys() == files.keys() and all(
            same(files[name], content(step, name, at)) for name, at in wanted.items()
        ):
            return commit + 1
    raise AssertionError(f"{found.tag} is no whole checkpoint: it has {sorted(files)}")


# ---- the two ways in ----


class ByEngine:
    """Saves through Pawl's own calls; the agent deletes older tags."""

    def __init__(self, root: Path) -> None:
        from pawl.engine import Engine, PawlError

        self.error = PawlError
        self.engine = Engine(root, keep=3, persist_every=0.02)
        self.find = self.engine.find
        self.flush: Callable[[str | None], bool] = lambda tag=None: self.engine.flush(LIMIT_S, tag)

    def commit(self, step: int, commit: int) -> bool:
        files = {name: content(step, name, commit) for name in plan(step)[commit]}
        if step % 2:
            save = self.engine.save(f"global_step{step}", files)
            return save.wait("committed", LIMIT_S)
        try:
            building = self.engine.begin(f"global_step{step}")
            for name, value in files.items():
                building.add(name, value)
            return building.commit().wait("committed", LIMIT_S)
        except self.error as reason:
            assert reason.name in ("PAWL_EPEER", "PAWL_ECANCELED"), reason.name  # agent, parts gone
            return False

    def tags(self) -> list[str]:
        return [entry["tag"] for entry in self.engine.list() if entry["level"] != "broken"]

    def broken(self) -> list[str]:
        return [entry["tag"] for entry in self.engine.list() if entry["level"] == "broken"]


class ByNebula:
    """Saves through Nebula's module; nothing is deleted."""

    def __init__(self, root: Path) -> None:
        self.nm = importlib.import_module("nebulaml")
        self.nm.init(str(root), persistent_time_interval=0.02)

    def find(self, tag: str | None = None) -> Any:
        return self.nm.get_checkpoint(tag) if tag else self.nm.get_latest_checkpoint()

    def flush(self, tag: str | None = None) -> bool:
        return bool(self.nm.flush_persistence(tag, LIMIT_S))

    def commit(self, step: int, commit: int) -> bool:
        names = plan(step)[commit]
        files = len(names) if step % 2 else -2
        checkpoint = self.nm.Checkpoint(f"global_step{step}", files)
        for name in names:
            checkpoint.save(name, content(step, name, commit))
        return bool(checkpoint.commit())

    def tags(self) -> list[str]:
        return [tag for tag, how in self.nm.list_checkpoints().items() if how["state"] != "broken"]

    def broken(self) -> list[str]:
        return [tag for tag, how in self.nm.list_checkpoints().items() if how["state"] == "broken"]


# ---- kills ----


def write(root: Path, told: Path, by: type[ByEngine] | type[ByNebula], seed: int) -> None:
    """Saves tag after tag until it is killed. Appends to the file `told` what is safely saved."""
    chance = random.Random(seed)
    try:
        way = by(root)
        newest = way.find()
    except Exception as reason:
        assert "PAWL_FAULT" in os.environ and "agent" in str(reason), reason
        os._exit(CRASHED)  # the agent crashed at each try
    step = int(newest.tag.removeprefix("global_step")) if newest else 0
    with told.open("a", buffering=1) as file:
        print("begun", file=file)
        while True:
            step += 1
            for commit in range(len(plan(step))):
                if way.commit(step, commit):
                    print("committed", step, commit + 1, file=file)
                if chance.random() < 0.3 and way.flush(f"global_step{step}"):
                    print("durable", step, commit + 1, file=file)
            waits.pretend_to_work(chance.random() * 0.02)


def check(root: Path, told: Path, by: type[ByEngine] | type[ByNebula], least: Known) -> None:
    """Checks that the newest checkpoint is whole and not older than least, and that all listed ones
    are whole."""
    way = by(root)
    found = way.find()
    assert found is not None or least == Known(), f"nothing is there, but {least} was"
    with told.open("a", buffering=1) as file:
        if found is not None:
            known = Known(int(found.tag.removeprefix("global_step")), commits_of(found))
            assert known >= least, f"{known} is there, but {least} was"
            assert way.flush(), "what was found does not become durable"
            print("durable", *known, file=file)
    # A tag that is being deleted may look broken for a moment.
    program.wait_until(lambda: not way.broken(), f"nothing is broken, {way.broken()}")
    for tag in way.tags():
        try:
            listed = way.find(tag)
            assert listed is not None, f"{tag} is listed, but cannot be found"
            commits_of(listed)
        except (AssertionError, OSError):
            # A tag that was deleted meanwhile is no error; a damaged one is put aside.
            if tag in way.tags() or any((root / ".bad").glob(f"{tag}.*")):
                raise


def fork(run: Callable[[], None], **env: str) -> int:
    """Forks a process that calls run and exits with 0, or prints the error and exits with 1 (LATE
    for program.Late). Returns its process id."""
    pid = os.fork()
    if pid == 0:
        os.environ.update(env)
        try:
            run()
        except BaseException as reason:
            traceback.print_exc()
            os._exit(LATE if isinstance(reason, program.Late) else 1)
        os._exit(0)  # skips this process's own exit handlers
    return pid


def kill_agent(root: Path) -> None:
    """Kills the agent of root, and waits until it is gone; it is no child of this process."""
    pid = program.agent_pid(root)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    program.wait_until(lambda: not program.is_alive(pid), "the agent's end")


def kill_children() -> None:
    """Kills all agents. They are children of this process, a subreaper, since the processes that
    started them have ended. kill_agent does not find an agent that was just started: it does not
    hold the root yet."""
    for pid in leftovers.list_children(os.getpid()):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def told_since(told: Path, word: str, seen: int) -> Iterator[Known]:
    for line in told.read_text()[seen:].splitlines():
        said, *numbers = line.split()
        if said == word:
            yield Known(*map(int, numbers))


def kills(root: Path, count: str, seed: str) -> None:
    chance = random.Random(int(seed))
    told = Path(f"{root}-told")
    told.touch()
    durable = Known()
    shm = program.shared_memory()
    os.environ["PAWL_JOB_ID"] = f"acceptance-{root.parent.name}"
    leftovers.become_subreaper()
    for number in range(int(count)):
        what = chance.choice(WAYS)
        by: tuple[type[ByEngine], type[ByNebula]] = (ByEngine, ByNebula)
        writer, reader = chance.choice(by), chance.choice(by)
        env: dict[str, str] = {}
        if what == "crash":
            point = chance.choice(sorted(CRASHES))
            env["PAWL_FAULT"] = f"{point}:{chance.randint(1, CRASHES[point])}:-1"
            kill_agent(root)  # only a new agent reads PAWL_FAULT
        line = f"{number}: {what} {writer.__name__} {reader.__name__} {env.get('PAWL_FAULT', '')}"
        print(line, flush=True)
        seen = told.stat().st_size
        own = chance.randrange(1 << 30)
        pid = fork(lambda: write(root, told, writer, own), **env)  # noqa: B023  called at once
        try:
            # Agent after agent may crash, so that saving never begins.
            late, limit_s = ((program.Late,), 5) if what == "crash" else ((), 60)
            begun = lambda: "begun" in told.read_text()[seen:] or ended(pid)  # noqa: B023, E731
            with contextlib.suppress(*late):
                program.wait_until(begun, "the writer begins", limit_s)
            waits.any_moment(chance, 0, 0.4)
            if what in ("agent", "both"):
                kill_agent(root)
            if what == "agent":
                waits.any_moment(chance, 0, 0.2)
        finally:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == CRASHED, f"the writer, {line}"
        if what == "crash":
            kill_children()  # agents that are left would crash later
        durable = max([durable, *told_since(told, "durable", seen)])
        kept = told_since(told, "committed", seen) if what == "worker" else []
        least = max([durable, *kept])
        checker = fork(lambda: check(root, told, reader, least))  # noqa: B023
        status = os.waitstatus_to_exitcode(os.waitpid(checker, 0)[1])
        if status == LATE:
            raise program.Late(f"after {line}")
        assert status == 0, f"after {line}"
        durable = max([durable, *told_since(told, "durable", seen)])
    kill_agent(root)
    assert program.shared_memory() == shm
    print(f"> {durable.step} tags", flush=True)


# ---- many saves ----


class Used(NamedTuple):
    """Resources that worker and agent use together."""

    memory: int  # bytes
    fds: int
    threads: int

    @classmethod
    def by(cls, pids: list[int]) -> Used:
        memory = fds = threads = 0
        for pid in pids:
            status = Path(f"/proc/{pid}/status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines())
            kib = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))
            memory += kib << 10
            fds += len(os.listdir(f"/proc/{pid}/fd"))
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    name = (task / "comm").read_text()
                    threads += not name.startswith("iou-")  # threads of io_uring come and go
        return cls(memory, fds, threads)

    @classmethod
    def at_rest(cls, pids: list[int], like: Used | None) -> Used:
        """Returns the least of several measurements: after a flush the agent may still delete old
        tags. Waits for a while until no more is used than like, the most that was used at rest
        before."""
        looks: list[Used] = []

        def least() -> Used:
            return cls(*map(min, zip(*looks, strict=True)))

        def rests() -> bool:
            looks.append(cls.by(pids))
            more = like and any(a > b for a, b in zip(least()[1:], like[1:], strict=True))
            return len(looks) >= 5 and not more

        with contextlib.suppress(program.Late):  # The caller judges whether too much is in use.
            program.wait_until(rests, "rest", 20)
        return least()


def drift(root: Path, count: str) -> None:
    """Checks that the second half of the saves uses no more than the first half did."""
    from pawl.engine import Engine

    halves: list[list[Used]] = [[], []]
    most: Used | None = None
    with Engine(root, keep=2, persist_every=0.02) as engine:
        for number in range(int(count)):
            state = {"w": torch.full((250_000,), float(number))}
            if number % 3 == 0:
                engine.save(f"t{number}", {"a": state, "b": {"number": number}})
            elif number % 3 == 1:
                building = engine.begin(f"t{number}")
                building.add("a", state)
                building.add("b", {"number": number})
                building.commit()
            else:
                engine.save(f"t{number - 1}", {"c": state})
            if number % 10 == 9:
                assert engine.flush(LIMIT_S)
                agent = program.agent_pid(root)
                assert agent is not None
                used = Used.at_rest([os.getpid(), agent], most)
                most = Used(*map(max, zip(used, most or used, strict=True)))
                halves[2 * number // int(count)].append(used)
    first, last = (Used(*map(max, zip(*half, strict=True))) for half in halves)
    print(first, last, flush=True)
    assert last.memory <= 1.01 * first.memory + HUGE_PAGE
    assert last.fds <= first.fds and last.threads <= first.threads
    kill_agent(root)


if __name__ == "__main__":
    what = {"kills": kills, "drift": drift}[sys.argv[1]]
    what(Path(sys.argv[2]), *sys.argv[3:])
