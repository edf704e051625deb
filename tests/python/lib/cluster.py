"""A scheduler on this machine for the tests: they start it, kill it, query it and remove it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import program

PROGRAM = program.find()
OVER = ("done", "failed", "cancelled")


class Cluster:
    """A directory, and the schedulers that run in it, one after the other."""

    def __init__(
        self,
        root: Path,
        *options: str,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.options = options
        self.env = dict(env or {})
        self.prefix = prefix  # words before every command line, such as one that changes the user
        self.said = root.with_name(root.name + ".said")
        self.daemon: subprocess.Popen[str] | None = None

    def start(self, *wrapper: str, **env: str) -> None:
        """Starts the scheduler, and returns once it answers. wrapper: a command that runs the
        program, by exec; env: variables to add to its environment."""
        ours = [*self.prefix, *wrapper, PROGRAM, "sched", "--root", str(self.root)]
        command = [*ours, *self.options]
        with self.said.open("a") as said:
            self.daemon = subprocess.Popen(
                command,
                env=program.clean_env(**self.env, **env),
                stdin=subprocess.DEVNULL,
                stderr=said,
                text=True,
            )
        program.wait_until(self._answers, "a scheduler that answers")

    def _answers(self) -> bool:
        assert self.daemon is not None and self.daemon.poll() is None, self.said.read_text()
        return self.run("ls").returncode == 0

    def kill(self, how: int = signal.SIGKILL) -> int:
        assert self.daemon is not None
        self.daemon.send_signal(how)
        return self.daemon.wait(program.LIMIT_S)

    def run(self, *args: str, cwd: Path | None = None, **extra: Any) -> Any:
        """Runs a command to its end. extra: more arguments for subprocess.run."""
        name, *rest = args
        return subprocess.run(
            [*self.prefix, PROGRAM, name, "--root", str(self.root), *rest],
            env=program.clean_env(**self.env),
            capture_output=True,
            text=True,
            timeout=program.LIMIT_S,
            check=False,
            cwd=cwd or self.root.parent,
            **extra,
        )

    def ask(self, *args: str) -> Any:
        """Runs a command with --json, and returns its output."""
        done = self.run(args[0], "--json", *args[1:])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def submit(self, *words: str, options: Sequence[str] = (), **extra: Any) -> int:
        done = self.run("submit", "--json", *options, "--", *words, **extra)
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["id"])

    def submit_file(self, text: str) -> int:
        """Submits a job file with that text."""
        file = self.root.parent / "job.yaml"
        file.write_text(text)
        done = self.run("submit", "--json", str(file))
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["id"])

    def sh(self, script: str, *options: str, **extra: Any) -> int:
        """Submits a job that is a line of shell."""
        return self.submit("bash", "-c", script, options=options, **extra)

    def job(self, job: int | str) -> Any:
        return self.ask("show", str(job))

    def state(self, job: int) -> str:
        return str(self.job(job)["state"])

    def await_state(self, job: int, *states: str, limit_s: float = program.LIMIT_S) -> None:
        program.wait_until(
            lambda: self.state(job) in states, f"job {job} {' or '.join(states)}", limit_s
        )

    def log(self, job: int) -> str:
        return str(self.run("logs", str(job)).stdout)

    def lines(self, job: int) -> list[str]:
        """Returns the lines that the job itself printed."""
        return [line for line in self.log(job).splitlines() if not line.startswith("pawl: ")]

    def keepers(self) -> list[int]:
        """Returns the ids of the shepherds, which keep jobs running, in ascending order; each runs
        on its job's node."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if b"shepherd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return sorted(found)

    def processes(self) -> list[int]:
        """Returns the processes of all runs of this scheduler, including those that keep them
        running."""
        mark = f"PAWL_SCHED_RUN={self.root}/runs/".encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    environ = Path(f"/proc/{entry}/environ").read_bytes()
                    if any(var.startswith(mark) for var in environ.split(b"\0")):
                        found.append(int(entry))
        return found

    def close(self) -> None:
        if self.daemon is not None and self.daemon.poll() is None:
            self.kill()

        def killed() -> bool:
            for pid in (left := self.processes()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        program.wait_until(killed, "nothing is left of the jobs")


@contextlib.contextmanager
def cluster(*options: str, start: bool = True) -> Iterator[Cluster]:
    """Yields a scheduler in a directory of its own, with a path that is short enough for
    sockets."""
    folder = Path(tempfile.mkdtemp(prefix="pawl-", dir="/tmp"))
    folder.chmod(0o755)
    made = Cluster(folder / "s", *options)
    try:
        if start:
            made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def wait(true: Callable[[], object], what: str, limit_s: float = program.LIMIT_S) -> None:
    program.wait_until(true, what, limit_s)
