"""Elastic jobs of several `pawl run` that share a membership file, for tests. Each launcher acts as
a host of its own, but all share one network."""

from __future__ import annotations

import contextlib
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import nursery
import program
from elastic_runs import SCRIPT
from elastic_said import N_MANY as N


class Launcher:
    """A `pawl run` of the job."""

    def __init__(self, job: Job, node: int, limits: str, args: Sequence[str], at: int) -> None:
        self.node = node
        self.sockets = job.sockets / str(at)
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        self.env = program.clean_env(XDG_RUNTIME_DIR=str(self.sockets), **job.env)
        self._out = job.folder / f"out{node}"
        options = ["--elastic", *limits.split(), "--door", job.url or str(job.door)]
        options += ["--job", job.name, "--node-rank", str(node), *job.options]
        options += ["--join"] if node > 0 else []
        world = nursery.World(job.hosts[node]) if job.hosts else None
        with self._out.open("a") as out:
            self.process = nursery.Popen(
                [program.find(), "run", "--python", sys.executable, *options,
                 str(job.script), *job.args, *args],
                cwd=job.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT,
                world=world,
            )  # fmt: skip

    def out(self) -> str:
        return self._out.read_text()

    def wait_for(self, pattern: str, times: int = 1) -> None:
        program.wait_until(
            lambda: len(re.findall(pattern, self.out())) >= times,
            f"launcher {self.node}: {pattern}",
            program.LIMIT_S,
        )

    def scale(self, job: str, *wanted: int) -> subprocess.CompletedProcess[str]:
        return program.run("scale", job, *map(str, wanted), env=self.env)

    def notice(self, left_s: int) -> None:
        """This launcher's machine goes away."""
        answer = program.run("notice", "--in", str(left_s), env=self.env)
        assert answer.returncode == 0, answer.stderr

    def end(self, code: int, limit_s: float = program.LIMIT_S) -> None:
        self.process.wait(timeout=limit_s)
        assert self.process.returncode == code, f"launcher {self.node}: {self.out()}"


class Job:
    """An elastic job. ``hosts``: network namespaces, one for each launcher; ``url``: address of a
    door over HTTP, whose text ``ask`` returns; ``options``: of all launchers."""

    def __init__(
        self,
        folder: Path,
        *args: str,
        script: Path = SCRIPT,
        hosts: Sequence[str] = (),
        url: str = "",
        ask: Callable[[], str] | None = None,
        options: Sequence[str] = (),
        **env: str,
    ) -> None:
        self.name = f"joint-{secrets.token_hex(4)}"
        self.folder, self.script, self.hosts, self.env = folder, script, hosts, env
        self.door = folder / "door"
        self.url, self.options = url, options
        self._ask = ask or self._read
        self.sockets = Path(tempfile.mkdtemp(prefix="pl-", dir="/tmp"))  # short, as sockets require
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._hurry = folder / "hurry"
        own = [f"logs={self.logs}", f"n={N}", f"hurry={self._hurry}"]
        self.args = [*(own if script == SCRIPT else []), *args]
        self.launchers: list[Launcher] = []

    def start(self, node: int, limits: str, *args: str, at: int | None = None) -> Launcher:
        """Starts a launcher. ``at``: the number of the launcher whose host it shares."""
        place = node if at is None else at
        self.launchers.append(Launcher(self, node, limits, args, place))
        return self.launchers[-1]

    def out(self) -> str:
        return "\n".join(launcher.out() for launcher in self.launchers)

    def said(self) -> list[list[str]]:
        """Returns the output of each process, in the order of their starts."""
        return [path.read_text().splitlines() for path in sorted(self.logs.iterdir())]

    def wait_for_trained(self, processes: int) -> None:
        """Waits until that many processes have begun a step."""
        program.wait_until(
            lambda: sum(any("TRY" in line for line in said) for said in self.said()) >= processes,
            f"{processes} processes train",
            program.LIMIT_S,
        )

    def done(self) -> set[str]:
        """Returns the steps that any rank has done."""
        return {line for said in self.said() for line in said if line.startswith("DID")}

    def durable(self) -> int:
        """Returns the newest checkpoint's number; 0: there is none."""
        tags = Path(self.env["PAWL_ELASTIC_ROOT"]).glob("elastic-*")
        return max((int(tag.name.split("-")[1]) for tag in tags), default=0)

    def pids_of(self, launcher: Launcher) -> list[int]:
        """Returns the process ids of a launcher's ranks that train, in the order of their
        starts."""
        pids = [int(path.name.split("-")[1]) for path in sorted(self.logs.iterdir())]
        told = f"XDG_RUNTIME_DIR={launcher.sockets}".encode()
        return [
            pid
            for pid in pids
            if program.is_alive(pid) and told in Path(f"/proc/{pid}/environ").read_bytes()
        ]

    def numbers(self) -> list[int]:
        """Returns the numbers of the ranks in the membership file; none: there is no file, or the
        job is over."""
        return [int(word) for word in self.membership().split()[1:]]

    def membership(self) -> str:
        """Returns the text of the membership file; "": there is none."""
        return self._ask()

    def _read(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.door.read_text()
        return ""

    def wait_for_ranks(self, ranks: int) -> None:
        """Waits until the membership file lists that many ranks and that many train: newcomers are
        listed before they train."""

        def train() -> int:
            return sum(
                "TRY" in path.read_text() and program.is_alive(int(path.name.split("-")[1]))
                for path in self.logs.iterdir()
            )

        program.wait_until(
            lambda: len(self.numbers()) == ranks and (self.script != SCRIPT or train() >= ranks),
            f"{ranks} ranks",
            program.LIMIT_S,
        )

    def end(self, *codes: int) -> list[list[str]]:
        """Waits until the launchers have ended with these codes, in the order of their starts.
        Makes the job hurry if one of the codes is 0."""
        if 0 in codes:
            self._hurry.touch()
        for launcher, code in zip(self.launchers, codes, strict=True):
            launcher.end(code)
        return self.said()

    def close(self) -> None:
        for launcher in self.launchers:
            launcher.process.kill()
            launcher.process.wait()


@contextlib.contextmanager
def running(folder: Path, *args: str, **more: object) -> Iterator[Job]:
    job = Job(folder, *args, **more)  # type: ignore[arg-type]
    try:
        yield job
    except BaseException:
        print(job.out(), *(f"{path}\n{path.read_text()}" for path in job.logs.iterdir()))
        raise
    finally:
        job.close()
