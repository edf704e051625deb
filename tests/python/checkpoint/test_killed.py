"""SIGKILL of trainer, agent or both at random moments.

Durable state is there, bit for bit, and so is committed state while the agent lives.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import killed
import nursery
import program
import waits
from conftest import SEED

RUNS = 200 if os.environ.get("PAWL_LONG") else 20
SCRIPT = Path(killed.__file__)


class Trainer:
    """A process of the script, and its output so far."""

    def __init__(self, root: Path) -> None:
        self.said: dict[str, int] = {}
        self.process = nursery.Popen(
            [sys.executable, SCRIPT, "train", root, "100000"], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, number = line.split()
            self.said[word] = max(int(number), self.said.get(word, 0))

    def wait_started(self) -> None:
        def has_started() -> bool:
            assert self.process.poll() is None
            return "start" in self.said

        program.wait_until(has_started, "it starts")

    def ended(self) -> None:
        self.process.wait()
        self._reader.join()


def agent_pid(root: Path) -> int:
    text = (root / ".pawl-lock").read_text()
    return int(text.split("(pid ")[1].split(" ")[0])


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def await_gone(pid: int) -> None:
    """Waits until a process that is no child of this one is gone (or a zombie)."""
    program.wait_until(lambda: not program.is_alive(pid), f"process {pid} ends")


@pytest.mark.slow
def test_nothing_durable_is_lost(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    root = tmp_path / "root"
    durable = committed = 0
    for run in range(RUNS):
        trainer = Trainer(root)
        trainer.wait_started()
        agent = agent_pid(root)
        waits.any_moment(rng, 0, 0.4)
        what = rng.choice(("trainer", "agent", "both", "agent first"))
        if what in ("agent", "both", "agent first"):
            kill(agent)
        if what == "agent first":
            waits.any_moment(rng, 0, 0.05)
        kill(trainer.process.pid)
        trainer.ended()
        if what != "trainer":
            await_gone(agent)
            committed = 0  # memory is lost, and a new agent may have been started meanwhile
        durable = max(durable, trainer.said.get("durable", 0))
        if what == "trainer":
            committed = max(committed, trainer.said.get("committed", 0))
        found = nursery.run(
            [sys.executable, SCRIPT, "check", root], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()
        at_least = max(durable, committed)
        assert found[0] == "step" or at_least == 0, (run, what, at_least, found)
        if found[0] == "step":
            step = int(found[1])
            assert step >= at_least, (run, what, durable, committed, step)
            assert found[2] == killed.sha256(killed.make(step)), (run, what, step)
    kill(agent_pid(root))


@pytest.mark.slow
@pytest.mark.real_interpreters
@pytest.mark.parametrize("what", ["exit", "raise"])
def test_leaving_right_after_save_waits(tmp_path: Path, what: str) -> None:
    """The script calls neither close nor flush: the last save is there all the same."""
    end = "raise SystemExit(3)" if what == "exit" else "raise RuntimeError('on purpose')"
    code = (
        "import sys, torch, pawl\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "from killed import Model\n"
        f"root = {str(tmp_path / 'root')!r}\n"
        "model = Model(); ckpt = pawl.Checkpointer(root, persist_every=3600, job='killed')\n"
        f"model.become(5); ckpt.save(5, {{'model': model}})\n{end}\n"
    )
    done = nursery.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.returncode == (3 if what == "exit" else 1), done.stderr
    agent = agent_pid(tmp_path / "root")
    kill(agent)
    await_gone(agent)
    found = nursery.run(
        [sys.executable, SCRIPT, "check", tmp_path / "root"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.split()
    assert found == ["step", "5", killed.sha256(killed.make(5))]
    kill(agent_pid(tmp_path / "root"))
