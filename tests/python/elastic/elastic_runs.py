"""Jobs of `pawl run --elastic` for tests: started, watched, scaled and ended."""

from __future__ import annotations

import contextlib
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import program

SCRIPT = Path(__file__).with_name("elastic_rank.py")


class Run:
    """A job of `pawl run --elastic`."""

    def __init__(
        self, folder: Path, limits: str, *args: str, script: Path = SCRIPT, **env: str
    ) -> None:
        self.job = f"elastic-{secrets.token_hex(4)}"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._out = folder / "out"
        self._hurry = folder / "hurry"
        own = [f"logs={self.logs}", f"hurry={self._hurry}"]
        options = ["--elastic", *limits.split(), "--job", self.job]
        self.process = program.start_script(
            script,
            *options,
            args=[*(own if script.parent == SCRIPT.parent else []), *args],
            env=program.clean_env(**env),
            to=self._out,
        )

    def scale(self, *wanted: int) -> subprocess.CompletedProcess[str]:
        return program.run("scale", self.job, *map(str, wanted))

    def said(self) -> list[list[str]]:
        """Returns the output of each process, in the order of their starts."""
        return [path.read_text().splitlines() for path in sorted(self.logs.iterdir())]

    def pids(self) -> list[int]:
        """Returns the ids of processes that train, in the order of their starts."""
        found = [int(path.name.split("-")[1]) for path in sorted(self.logs.iterdir())]
        return [pid for pid in found if program.is_alive(pid)]

    def by_rank(self) -> list[int]:
        """Returns the ids of these processes in the order of the ranks that they had at first."""
        told = {pid: Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in self.pids()}
        ranks = {
            int(word[5:]): pid for pid, env in told.items() for word in env if word[:5] == b"RANK="
        }
        return [ranks[rank] for rank in sorted(ranks)]

    def out(self) -> str:
        return self._out.read_text()

    def wait_for(self, pattern: str, times: int = 1) -> None:
        program.wait_until(
            lambda: len(re.findall(pattern, self.out())) >= times, pattern, program.LIMIT_S
        )

    def wait_for_trained(self, processes: int) -> None:
        """Waits until that many processes have begun a step."""
        program.wait_until(
            lambda: sum(any("TRY" in line for line in said) for said in self.said()) >= processes,
            f"{processes} processes train",
            program.LIMIT_S,
        )

    def hurry(self) -> None:
        """Ends the pauses of the ranks: what the test waited for has happened."""
        self._hurry.touch()

    def end(self, code: int = 0) -> list[list[str]]:
        self.process.wait(timeout=program.LIMIT_S)
        assert self.process.returncode == code, self.out()
        return self.said()


@contextlib.contextmanager
def running(folder: Path, limits: str, *args: str, **more: str) -> Iterator[Run]:
    run = Run(folder, limits, *args, **more)  # type: ignore[arg-type]
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()
