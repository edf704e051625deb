"""`pawl run --elastic --door`: an elastic job of several launchers, each with ranks of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import program
from elastic_launchers import running
from elastic_said import EPOCHS, N, check_each_once, check_weights, ends

program.find()


def test_a_launcher_joins_and_leaves_again(tmp_path: Path) -> None:
    with running(tmp_path, "pause=0.3") as job:
        job.start(0, "1:2 -n 1")
        job.wait_for_trained(1)
        second = job.start(1, "1:4 -n 2")
        job.wait_for_ranks(3)
        assert sorted(job.numbers()) == [0, 64, 65]
        job.wait_for_trained(3)
        second.process.send_signal(signal.SIGUSR1)
        second.end(79)
        job.wait_for_ranks(1)
        said = job.end(0, 79)
    assert "attempt 1" not in job.out() and "restart" not in job.out()
    assert len(ends(said, "END")) == 1
    check_each_once(said, dead=(1, 2))
    check_weights(said)
    assert ends(said, "SAMPLES") == [str(N * EPOCHS)]
    assert job.door.read_text() == "over\n"
