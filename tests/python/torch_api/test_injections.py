"""Something happens to a rank, a link, a server or the launcher while ranks communicate: the tests
check who is named.

Each injection is drawn from the seed. 3 to 6 ranks do every kind of collective and message, steps
of DDP and saves of a checkpoint, all with known results, and at some moment something happens to
one of them. Then either all go on, with right results; or soon, without waiting for a timeout, all
others get an error that names the rank, and go on without it. Or all ranks leave, and something
happens meanwhile: then all others end as soon. No rank hangs, and nothing is left behind.
bench/injections.py judges how soon that is, in the long tests without other tests beside them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

import conftest
import injections
import netns
import nursery
import program
import ranks
import waits
from conftest import SEED, real_core
from injection_rank import Order

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

LONG = bool(os.environ.get("PAWL_LONG"))
# Timeout of collectives: ranks are named, and end, sooner. pytest's summary has the measured times.
# Beside other tests a rank may stand still for seconds, so these times prove nothing.
TIMEOUT_S = 60
ONE_HOST = ["kill", "stop", "pause", "exit", "leave", "skip", "kind", "shape", "dtype", "order"]
BETWEEN = ["link", "flap", "silent", "server", "stopped server"]
LAUNCHERS = ["run", "torchrun"]
LEAVING = ["shutdown kill", "shutdown stop", "shutdown link"]
QUIET = ("stop", "link", "silent", "stopped server", "shutdown stop", "shutdown link")
KINDS = [*BETWEEN, *LAUNCHERS, *ONE_HOST, *LEAVING]
INSIDE = ("exit", "leave", "skip", "kind", "shape", "dtype", "order")  # done by the victim
ALL_LIVE = ("skip", "kind", "shape", "dtype", "order")
HARMLESS = ("pause", "flap", "torchrun")
PORT = 29547
N = 200 if LONG else 20
TOOK: dict[str, list[float]] = {}  # kind -> seconds of each injection


@dataclass
class Case:
    """An injection, and the ranks that it happens to."""

    kind: str
    rng: random.Random
    folder: Path
    where: list[int]  # host of each rank
    order: Order
    job: str = field(default_factory=lambda: f"inject-{secrets.token_hex(4)}")
    hosts: list[str] = field(default_factory=list)  # network namespaces; none: one host
    pids: list[int] = field(default_factory=list)
    server: subprocess.Popen[str] | None = None
    agent: subprocess.Popen[bytes] | None = None

    @property
    def ranks(self) -> range:
        return range(len(self.where))

    @property
    def lost(self) -> list[int]:
        """Returns the ranks that cannot go on with the others."""
        if self.kind in ("link", "silent"):
            host = self.where[self.order.victim]
            return [rank for rank in self.ranks if self.where[rank] == host]
        return [self.order.victim] if self.kind in ("kill", "stop", "exit", "leave") else []

    @property
    def left(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self.lost]


def draw(number: int, folder: Path) -> Case:
    kind = KINDS[number % len(KINDS)]
    rng = random.Random(f"{SEED}.{number}")
    spread = kind in BETWEEN or (kind in ONE_HOST and rng.random() < 0.25)
    world = rng.randint(3, 6)
    where = [0] * world
    if spread:
        where = [0, 1, *(rng.choice((0, 1, 2)) for _ in range(world - 2))]
    victim = rng.randrange(world)
    least = 1
    if kind in ("link", "silent", "shutdown link"):
        where = [0] * (world // 2 + 1) + [1] * (world - world // 2 - 1)  # the first part is larger
        rng.shuffle(where)
        victim = rng.choice([rank for rank in range(world) if where[rank] == 1])
        least = world // 2 + 1
    order = Order(
        seed=rng.randrange(1 << 32),
        folder=str(folder),
        saves=max(where) == 0 and kind not in LAUNCHERS and rng.random() < 0.5,
        least=least,
        how=kind if kind in INSIDE or kind in LEAVING else "",
        victim=victim,
        at=rng.randrange(2, 60) if kind in INSIDE else 0,
        apart_s=rng.uniform(0, 0.1) if kind in LEAVING else -1,
        destroys=kind not in LEAVING or rng.random() < 0.5,
        limit_s=TIMEOUT_S,
    )
    return Case(kind, rng, folder, where, order)


# ---- starting ----


def beat(case: Case) -> dict[str, str]:
    """Returns PAWL_HEARTBEAT for the ranks; none: program.clean_env sets it."""
    if LONG:
        return {"PAWL_HEARTBEAT": "0.5" if case.kind in QUIET else "1"}
    return program.SILENT if case.kind in QUIET else {}


def rank_env(case: Case, rank: int, port: int) -> dict[str, str]:
    env = ranks.rank_env(rank, len(case.where), port, case.job)
    host = case.where[rank]
    env["LOCAL_RANK"] = str(case.where[:rank].count(host))
    env["LOCAL_WORLD_SIZE"] = str(case.where.count(host))
    if case.hosts:
        env["MASTER_ADDR"] = netns.address(case.where[0])
    return env | beat(case)


@contextlib.contextmanager
def serve(case: Case) -> Iterator[str]:
    """Runs `pawl serve` on a host of its own. Yields PAWL_SERVERS for the ranks."""
    host = max(case.where) + 1
    command = ["ip", "netns", "exec", case.hosts[host], program.find(), "serve"]
    case.server = subprocess.Popen(
        [*command, "--listen", netns.address(host)], env=program.clean_env(**beat(case)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert case.server.stdout is not None
        yield case.server.stdout.readline().strip()
    finally:
        case.server.kill()
        case.server.communicate()


@contextlib.contextmanager
def agent(case: Case) -> Iterator[None]:
    """Starts the job's agent: an agent that the ranks start waits for others after its ranks have
    ended."""
    folder = Path(os.environ["XDG_RUNTIME_DIR"])
    others = set(folder.rglob("*.sock"))
    command = [program.find(), "agent", "--job", case.job]
    case.agent = subprocess.Popen(command, env=program.clean_env(PAWL_JOB_ID=case.job))
    try:
        program.wait_until(lambda: set(folder.rglob("*.sock")) - others, "the agent's socket")
        yield
    finally:
        case.agent.kill()
        case.agent.wait()


def fork_ranks(case: Case, forker: injections.Forker, servers: str = "") -> None:
    port = PORT if case.hosts else ranks.free_port()
    for rank in case.ranks:
        env = rank_env(case, rank, port)
        if servers:
            env["PAWL_SERVERS"] = servers
        network = case.hosts[case.where[rank]] if case.hosts else ""
        case.pids.append(forker.fork(replace(case.order, env=env, network=network)))


def wait_all(case: Case, who: Sequence[int], *what: str) -> None:
    injections.wait(
        case.folder,
        case.pids,
        lambda: all(injections.find(case.folder, rank, *what) for rank in who),
        f"{case.kind}: ranks {list(who)} say {' or '.join(what)}",
    )


# ---- what happens ----


def inject(case: Case) -> None:
    """Does what happens to the ranks from outside."""
    victim = case.pids[case.order.victim]
    if case.kind in ("kill", "stop"):
        os.kill(victim, signal.SIGKILL if case.kind == "kill" else signal.SIGSTOP)
    elif case.kind == "pause":
        os.kill(victim, signal.SIGSTOP)
        waits.any_moment(case.rng, 0.1, 1)
        os.kill(victim, signal.SIGCONT)
    elif case.kind in ("link", "flap", "shutdown link"):
        name = case.hosts[case.where[case.order.victim]]
        netns.ip("-n", name, "link", "set", "eth0", "down")
        if case.kind == "flap":
            waits.any_moment(case.rng, 0.05, 0.6)
            netns.ip("-n", name, "link", "set", "eth0", "up")
    elif case.kind == "silent":
        netns.silence(case.hosts[case.where[case.order.victim]])
    elif case.kind in ("server", "stopped server"):
        assert case.server is not None
        how = signal.SIGKILL if case.kind == "server" else signal.SIGSTOP
        case.server.send_signal(how)


def blamed(case: Case) -> list[str]:
    """Returns texts, one of which must be in the error."""
    if case.kind in ("server", "stopped server"):
        return ["server 0 "]
    return [f"rank {rank} " for rank in case.lost or [case.order.victim]]


# ---- what must come of it ----


def check_no_wrong_results(case: Case) -> None:
    for rank in case.ranks:
        wrong = injections.find(case.folder, rank, "wrong")
        assert wrong is None, (case, wrong)


def check_all_go_on(case: Case) -> None:
    waits.pretend_to_work(1)  # the ranks do some more operations
    (case.folder / "end").touch()
    wait_all(case, case.ranks, "done", "error", "wrong")
    for rank in case.ranks:
        assert injections.find(case.folder, rank, "done"), injections.hear(case.folder, rank)


def check_named(case: Case, since_s: float) -> None:
    """Checks that all ranks that are left name the victim, and then form a group of their own."""
    others = case.ranks if case.kind in ALL_LIVE else case.left
    wait_all(case, others, "shrunk", "alone", "wrong", "done")
    named, shrunk = [], []
    for rank in others:
        error = injections.find(case.folder, rank, "error")
        group = injections.find(case.folder, rank, "shrunk")
        assert error is not None, injections.hear(case.folder, rank)
        text = error["text"]
        assert any(name in text for name in blamed(case)), (case, rank, text)
        assert group is not None, injections.hear(case.folder, rank)
        assert group["left"] == case.left, (case, rank, group)
        named.append(error["t"] - since_s)
        shrunk.append(group["t"] - error["t"])
    waits.check_sooner(max(named), TIMEOUT_S, f"{case.kind}: whoever is lost is named")
    TOOK.setdefault(f"{case.kind}: named after", []).append(max(named))
    TOOK.setdefault("the next right sum, after that", []).append(max(shrunk))


def check_all_end(case: Case) -> None:
    """All ranks leave, while something happens to one; checks that all end."""
    (case.folder / "end").touch()
    wait_all(case, case.ranks, "done", "error", "wrong")
    (case.folder / "leave").touch()
    since_s = time.monotonic()
    if case.kind == "shutdown link":
        waits.any_moment(case.rng, 0, case.order.apart_s)
        inject(case)
    else:
        wait_all(case, [case.order.victim], "misbehaves")
    others = [r for r in case.ranks if case.kind == "shutdown link" or r != case.order.victim]
    wait_all(case, others, "ends")
    took = []
    for rank in others:
        ended = injections.find(case.folder, rank, "ends")
        assert ended is not None
        assert injections.find(case.folder, rank, "done"), injections.hear(case.folder, rank)
        took.append(ended["t"] - since_s)
    waits.check_sooner(max(took), TIMEOUT_S, f"{case.kind}: the others end")
    how = "destroyed" if case.order.destroys else "left to the interpreter's exit"
    TOOK.setdefault(f"{case.kind}, {how}: all ended after", []).append(max(took))


def end_rest(case: Case) -> None:
    """Lets lost ranks that are alive notice it: they report it, and end."""
    if case.kind in ("link", "silent"):
        wait_all(case, case.lost, "alone")
    if case.kind in ("stop", "shutdown stop"):
        victim = case.pids[case.order.victim]
        program.wait_until(lambda: program.state_of(victim) == "T", f"{victim} is stopped")
        os.kill(victim, signal.SIGCONT)
        wait_all(case, case.lost, "alone")


def end_agent(case: Case) -> None:
    """Ends the agent, once the ranks have ended."""
    if case.agent is not None:
        program.wait_until(
            lambda: not any(map(program.is_alive, case.pids)), "no rank is left", injections.GONE_S
        )
        case.agent.terminate()
        case.agent.wait(program.LIMIT_S)


def ports_of(case: Case, before: set[str]) -> Callable[[], set[str]]:
    if not case.hosts:
        return set
    return lambda: set().union(*(injections.listening(name) for name in case.hosts)) - before


@pytest.fixture(scope="module")
def forker() -> Iterator[injections.Forker]:
    made = injections.Forker()
    yield made
    made.close()
    report_took()


def report_took() -> None:
    """Reports the times in pytest's summary, and in the file that PAWL_INJECTIONS names, for
    bench/injections.py."""
    load = " ".join(Path("/proc/loadavg").read_text().split()[:3])
    conftest.SUMMARY.append(f"injections, seconds: how many, median, most (load {load})")
    for what, took in sorted(TOOK.items()):
        row = f"{len(took):5} {statistics.median(took):8.3f} {max(took):8.3f}"
        conftest.SUMMARY.append(f"  {what:<66} {row}")
    if path := os.environ.get("PAWL_INJECTIONS"):
        Path(path).write_text(json.dumps(TOOK))


def run_forked(case: Case, forker: injections.Forker, stack: contextlib.ExitStack) -> None:
    servers = ""
    if max(case.where) > 0:
        case.hosts = stack.enter_context(netns.hosts(max(case.where) + 2))
    if case.kind in ("server", "stopped server"):
        servers = stack.enter_context(serve(case))
    if case.order.saves:
        stack.enter_context(agent(case))
    before = set().union(*(injections.listening(name) for name in case.hosts))
    fork_ranks(case, forker, servers)
    stack.callback(kill_all, case)
    wait_all(case, case.ranks, "begins")
    waits.any_moment(case.rng, 0, 1)
    since_s = time.monotonic()
    if case.kind in INSIDE:
        wait_all(case, [case.order.victim], "misbehaves")
        said = injections.find(case.folder, case.order.victim, "misbehaves")
        assert said is not None
        since_s = said["t"]
    elif case.kind not in LEAVING:
        inject(case)
    if case.kind in HARMLESS:
        check_all_go_on(case)
    elif case.kind in LEAVING:
        check_all_end(case)
    else:
        check_named(case, since_s)
    end_rest(case)
    end_agent(case)
    injections.check_nothing_left(case.job, case.pids, ports_of(case, before))


def run_launched(case: Case, stack: contextlib.ExitStack) -> None:
    """Starts the ranks by `pawl run`, with which they die, or by torchrun, without which they go
    on."""
    path = case.folder / "order"
    path.write_text(json.dumps(asdict(case.order)))
    script = str(injections.HERE / "injection_rank.py")
    n = len(case.where)
    command = [program.find(), "run", "-n", str(n), "--python", sys.executable]
    if case.kind == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={n}"]
    env = program.clean_env(
        PAWL_JOB_ID=case.job, OMP_NUM_THREADS="1", TMPDIR=str(case.folder), **beat(case)
    )
    with open(case.folder / "output", "w") as out:
        launcher = nursery.Popen(
            [*command, script, str(path)], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    stack.callback(launcher.wait)
    stack.callback(kill_all, case)
    stack.callback(launcher.kill)
    wait_all(case, case.ranks, "begins")
    for rank in case.ranks:
        said = injections.find(case.folder, rank, "begins")
        assert said is not None
        case.pids.append(said["pid"])
    waits.any_moment(case.rng, 0, 1)
    launcher.kill()
    launcher.wait()
    if case.kind == "torchrun":
        check_all_go_on(case)
    injections.check_nothing_left(case.job, case.pids, set)


def kill_all(case: Case) -> None:
    for pid in case.pids:
        if program.is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow("19", "6")
@pytest.mark.parametrize("number", range(N))
def test_injection(number: int, forker: injections.Forker, tmp_path: Path) -> None:
    case = draw(number, tmp_path)
    print(case)
    with contextlib.ExitStack() as stack:
        try:
            if case.kind in LAUNCHERS:
                run_launched(case, stack)
            else:
                run_forked(case, forker, stack)
        except AssertionError:
            print(injections.dump_stacks(case.folder, case.pids))
            raise
        check_no_wrong_results(case)
    shutil.rmtree(tmp_path)
