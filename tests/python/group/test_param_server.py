"""pawl.distributed.ParameterServer: its results, its bound on staleness, and lost ranks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import program
import ranks
from conftest import real_core

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
SCRIPT = Path(__file__).parent / "param_server_rank.py"
CHECKS = [
    "like_synchronous", "same_bits", "rate", "announced", "converges", "balanced", "bound",
    "uneven", "checkpoint", "wrong",
]  # fmt: skip


def test_parameter_server() -> None:
    for said in ranks.run_ranks(SCRIPT, 4):
        assert said == CHECKS


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_beside_gloo() -> None:
    env = program.clean_env(BACKEND="gloo")
    for said in ranks.run_ranks(SCRIPT, 3, "same_bits", "wrong", env=env):
        assert said == ["same_bits", "wrong"]


def test_between_hosts() -> None:
    from test_group_hosts import run

    for said in run((0, 1, 1, 2), "param_server_rank.py", "same_bits"):
        assert said == ["same_bits"]


def test_what_ends_as_it_was_waited_for() -> None:
    """An operation may end between the end of a short wait and the question whether it is over."""
    from pawl._group._param_server import _is_over
    from pawl.errors import error

    class Ends:
        waits = 0

        def wait(self, *_: object) -> bool:
            self.waits += 1
            if self.waits == 1:
                raise error("PAWL_ETIMEDOUT", "not done after 0.1 s")
            return True

        def is_completed(self) -> bool:
            return True

    assert _is_over(Ends())  # type: ignore[arg-type]


def end(how: str, of: int, staleness: int) -> list[subprocess.Popen[str]]:
    """Starts three workers and two servers, of which rank ``of`` ends badly."""
    return ranks.start_ranks(SCRIPT, 5, "end", how, str(of), str(staleness))


def hear(process: subprocess.Popen[str]) -> list[str]:
    text = process.communicate(timeout=program.LIMIT_S)[0]
    assert process.returncode == 0, text
    return ranks.say(text)


@pytest.mark.parametrize(("of", "staleness"), [(1, 0), (0, 0), (2, 3)])
def test_a_worker_dies_and_the_others_go_on(of: int, staleness: int) -> None:
    """Rank 0's process also has torch's store."""
    started = end("SIGKILL", of, staleness)
    try:
        for worker in {0, 1, 2} - {of}:
            assert hear(started[worker]) == ["40 steps"]
        for server in (3, 4):
            lost = f"parameter server: worker rank {of} is lost: its process ended"
            assert hear(started[server]) == [lost]
        assert started[of].wait(program.LIMIT_S) == -signal.SIGKILL
    finally:
        ranks.stop(started)


@pytest.mark.parametrize(("of", "staleness"), [(3, 3), (4, 0)])
def test_a_server_dies_and_every_worker_names_it(of: int, staleness: int) -> None:
    started = end("SIGKILL", of, staleness)
    try:
        for worker in range(3):
            (text,) = hear(started[worker])
            lost = f"PawlError: parameter server: server rank {of} is lost: its process ended"
            assert text == lost
        assert len(hear(started[7 - of])) == 3  # the other server loses all workers then
    finally:
        ranks.stop(started)


def test_a_worker_freezes_and_the_others_go_on() -> None:
    """When the frozen worker wakes up, it learns why it was left out."""
    started = end("SIGSTOP", 1, 1)
    try:
        assert hear(started[0]) == hear(started[2]) == ["40 steps"]
        for server in (3, 4):
            (text,) = hear(started[server])
            assert "worker rank 1 is lost: not a sign of it for" in text
        os.kill(started[1].pid, signal.SIGCONT)
        (text,) = hear(started[1])
        lost = r"PawlError: parameter server: server rank [34] took this rank for lost: not a sign"
        assert re.match(lost, text)  # names the server whose message came first
    finally:
        ranks.stop(started)


def stop(started: list[subprocess.Popen[str]]) -> None:
    for process in started:
        process.kill()
        process.communicate()
