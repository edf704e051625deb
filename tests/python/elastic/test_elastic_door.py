"""`pawl run --elastic --door`: an elastic job of several launchers, each with ranks of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import netns
import program
from elastic_launchers import Job, Launcher, N, running
from elastic_said import EPOCHS, check_each_once, check_no_restart, check_weights, ends

program.find()
LIMIT_S = program.LIMIT_S
# In this script, all ranks fail with 7 once a file "fail" exists; a newcomer fails with the code in
# a file "fail1"; steps are long while "slow" exists. SIGTERM ends a rank as it ends a script of
# bash.
FAILS = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *args: sys.exit(143))
import torch
from torch.nn.parallel import DistributedDataParallel
import torch.distributed as dist
import pawl.elastic as el

print("PID", os.getpid())
el.init_process_group("pawl")
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model = DistributedDataParallel(net)
here = pathlib.Path(__file__).parent
while not (here / "end").exists():
    el.step_boundary(in_place=True)
    if (here / "fail").exists():
        sys.exit(7)
    if "PAWL_ELASTIC_JOIN" in os.environ and (here / "fail1").exists():
        sys.exit(int((here / "fail1").read_text()))
    if (here / "slow").exists():
        print("SLOW")
        time.sleep(25)  # pace: more than a launcher waits where it sees nobody
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.1)  # pace
"""


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
    check_no_restart(job.out())
    assert "restart" not in job.out()
    assert len(ends(said, "END")) == 1
    check_each_once(said, dead=(1, 2), n=N)
    check_weights(said, N)
    assert ends(said, "SAMPLES") == [str(N * EPOCHS)]
    assert job.door.read_text() == "over\n"


@pytest.mark.slow
@pytest.mark.parametrize("noticed", [False, True])
def test_the_founder_leaves(noticed: bool, tmp_path: Path) -> None:
    """Another rank saves then, and newcomers find the join listener at that rank. With a notice,
    the last one stops the job: nobody else can train on."""
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    with running(tmp_path, "pause=0.3", **env) as job:
        first = job.start(0, "1:1")
        job.wait_for_trained(1)
        second = job.start(1, "1:1")
        job.wait_for_ranks(2)
        if noticed:
            first.notice(60)
        else:
            first.process.send_signal(signal.SIGUSR1)
        first.end(79)
        job.wait_for_ranks(1)
        durable = job.durable()
        program.wait_until(lambda: job.durable() > durable, "one more is durable", LIMIT_S)
        third = job.start(2, "1:1")
        job.wait_for_ranks(2)
        if noticed:
            third.notice(60)
            third.end(79)
            job.wait_for_ranks(1)
            second.notice(8)
        else:
            third.process.send_signal(signal.SIGTERM)
            third.end(143)
        second.end(143)
        assert job.door.read_text() == "over 143\n"
    assert "more" not in job.out()  # no rank replaces one that was stopped
    check_no_restart(job.out())
    assert "restart" not in job.out()
    before = job.done()
    (tmp_path / "again").mkdir()
    with running(tmp_path / "again", **env) as again:
        again.start(0, "1:1")
        said = again.end(0)
    # The second job begins after the steps of the first.
    assert len(before) > 3 and not before & again.done()
    check_weights(said, N)


def test_rank_0_is_killed_and_another_launcher_saves(tmp_path: Path) -> None:
    """The launcher of rank 0 stays, but has released the root."""
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    with running(tmp_path, "pause=0.3", **env) as job:
        first = job.start(0, "1:1")
        job.wait_for_trained(1)
        program.wait_until(job.durable, "a first one is durable", LIMIT_S)
        second = job.start(1, "1:1")
        job.wait_for_ranks(2)
        (rank,) = job.pids_of(first)
        os.kill(rank, signal.SIGKILL)
        job.wait_for_trained(3)
        durable = job.durable()
        program.wait_until(lambda: job.durable() > durable, "one more is durable", LIMIT_S)
        first.process.send_signal(signal.SIGTERM)
        said = job.end(143, 143)
    assert "was killed by SIGKILL" in first.out() and "1 more worker" in first.out()
    assert "Traceback" not in job.out() and "more" not in second.out()
    assert not ends(said, "END")


def test_rank_0_stands_still_and_keeps_the_root(tmp_path: Path) -> None:
    """The job saves when rank 0 wakes, and ends; until then the others train on."""
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    with running(tmp_path, "pause=0.3", **program.SILENT, **env) as job:
        first = job.start(0, "1:1")
        job.wait_for_trained(1)
        program.wait_until(job.durable, "a first one is durable", LIMIT_S)
        second = job.start(1, "1:1")
        job.wait_for_ranks(2)
        (rank,) = job.pids_of(first)
        os.kill(rank, signal.SIGSTOP)
        second.wait_for("skipped a save; the next one will try again: .* in use by job", 2)
        durable = job.durable()
        os.kill(rank, signal.SIGCONT)
        program.wait_until(lambda: job.durable() > durable, "one more is durable", LIMIT_S)
        job.wait_for_ranks(2)
        second.process.send_signal(signal.SIGTERM)
        said = job.end(143, 143)
    assert not ends(said, "END")


def test_a_launcher_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "pause=0.3") as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        second = job.start(1, "1:2 -n 2")
        third = job.start(2, "1:1")
        job.wait_for_ranks(4)
        second.process.kill()
        job.wait_for_ranks(2)
        said = job.end(0, -9, 0)
    assert "was killed" not in third.out() and "restart" not in job.out()
    assert len(ends(said, "END")) == 2
    check_each_once(
        said, dead=tuple(i for i, lines in enumerate(said) if not ends([lines], "END")), n=N
    )
    check_weights(said, N)


def test_the_founders_launcher_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "pause=0.3") as job:
        first = job.start(0, "1:1")
        job.wait_for_trained(1)
        second = job.start(1, "1:3 -n 2")
        job.wait_for_ranks(3)
        first.process.kill()
        job.wait_for_ranks(2)
        assert second.scale(job.name, 3).returncode == 0
        job.wait_for_ranks(3)
        said = job.end(-9, 0)
    assert len(ends(said, "END")) == 3
    assert job.door.read_text() == "over\n"
    check_weights(said, N)


def test_the_only_rank_of_a_launcher_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "pause=0.4") as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        second = job.start(1, "1:1")
        job.wait_for_trained(2)
        job.wait_for_ranks(2)
        (rank,) = job.pids_of(second)
        os.kill(rank, signal.SIGKILL)
        job.wait_for_trained(3)
        said = job.end(0, 0)
    assert "was killed by SIGKILL" in second.out() and "1 more worker" in second.out()
    assert len(ends(said, "END")) == 2
    check_each_once(said, dead=tuple(i for i in range(3) if not ends([said[i]], "END")), n=N)
    check_weights(said, N)


def pid_of(launcher: Launcher) -> int:
    """Returns the process id of the launcher's only rank, started last, of a job of FAILS."""
    return int(re.findall(r"PID (\d+)", launcher.out())[-1])


@contextlib.contextmanager
def in_a_slow_step(folder: Path) -> Iterator[Job]:
    """Yields a job of two launchers, which show that they are alive, with a rank each; a step lasts
    until "slow" is removed."""
    script = folder / "slow.py"
    script.write_text(FAILS)
    with running(folder, script=script) as job:
        job.start(0, "1:1")
        program.wait_until(job.door.exists, "the door", LIMIT_S)
        job.start(1, "1:1")
        job.wait_for_ranks(2)
        alive = [folder / "door.alive0", folder / "door.alive1"]
        program.wait_until(lambda: all(path.exists() for path in alive), "both show", LIMIT_S)
        (folder / "slow").touch()
        for launcher in job.launchers:
            launcher.wait_for("SLOW")
        yield job


def test_a_long_step_is_waited_for(tmp_path: Path) -> None:
    """A launcher sees that a rank elsewhere is alive, though that rank has yet to notice its lost
    peer."""
    with in_a_slow_step(tmp_path) as job:
        second = job.launchers[1]
        os.kill(pid_of(second), signal.SIGKILL)
        (tmp_path / "slow").unlink()
        second.wait_for("1 more worker")
        program.wait_until(lambda: job.numbers() == [0, 65], "another one", LIMIT_S)
        (tmp_path / "end").touch()
        job.end(0, 0)
    assert "no other rank can go on" not in job.out()
    assert not list(tmp_path.glob("door.alive*"))


def test_a_launcher_that_stands_still_is_not_waited_for(tmp_path: Path) -> None:
    with in_a_slow_step(tmp_path) as job:
        first, second = job.launchers
        first.process.send_signal(signal.SIGSTOP)
        os.kill(pid_of(first), signal.SIGSTOP)
        os.kill(pid_of(second), signal.SIGKILL)
        second.end(137)
        first.process.kill()
        job.end(-9, 137)
    assert "no other rank can go on" in second.out()


def test_a_script_that_ends_with_143_by_itself_stops_no_other(tmp_path: Path) -> None:
    """There is no root, so no rank has saved. The launcher's own signal stops no other rank,
    either."""
    with in_a_slow_step(tmp_path) as job:
        second = job.launchers[1]
        os.kill(pid_of(second), signal.SIGTERM)  # the rank is a member until the step is over
        (tmp_path / "slow").unlink()
        program.wait_until(lambda: job.numbers() == [0, 65], "another one", LIMIT_S)
        second.process.send_signal(signal.SIGTERM)
        second.end(143)
        program.wait_until(lambda: job.numbers() == [0], "the other goes on", LIMIT_S)
        (tmp_path / "end").touch()
        job.end(0, 143)
    assert "because the job is stopping" not in job.out()


def test_a_launcher_that_cannot_show_its_ranks_says_so_once(tmp_path: Path) -> None:
    """The ranks train on."""
    (tmp_path / "door.alive0").mkdir()  # writing fails, as on a full disk
    with running(tmp_path, "pause=0.4") as job:
        first = job.start(0, "1:1")
        job.wait_for_trained(1)
        second = job.start(1, "1:1")
        job.wait_for_ranks(2)
        first.wait_for("other launchers cannot see that ranks live here: write .*: Is a directory")
        (rank,) = job.pids_of(second)
        os.kill(rank, signal.SIGKILL)
        job.wait_for_trained(3)
        said = job.end(0, 0)
    assert job.out().count("cannot see that ranks live") == 1
    check_weights(said, N)


def test_one_of_several_ranks_is_replaced_at_once(tmp_path: Path) -> None:
    """Other ranks of the launcher are alive, so it waits for nothing."""
    with running(tmp_path, "pause=0.4") as job:
        first = job.start(0, "1:3 -n 2")
        job.wait_for_trained(2)
        job.start(1, "1:1")
        job.wait_for_ranks(3)
        os.kill(job.pids_of(first)[1], signal.SIGKILL)
        job.wait_for_trained(4)
        said = job.end(0, 0)
    check_each_once(
        said, dead=tuple(i for i, lines in enumerate(said) if not ends([lines], "END")), n=N
    )
    check_weights(said, N)


def test_all_fail(tmp_path: Path) -> None:
    """Each launcher ends with the code, and none starts ranks for ever."""
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    with running(tmp_path, script=script) as job:
        job.start(0, "1:1")
        program.wait_until(job.door.exists, "the door", LIMIT_S)
        job.start(1, "1:1")
        job.wait_for_ranks(2)
        (tmp_path / "fail").touch()
        job.end(7, 7)
    assert job.door.read_text() == "over 7\n"
    # The last launcher alone starts again, three times.
    assert job.out().count("exited with code 7") <= 8


def test_a_founder_that_fails_before_it_trains_is_told_to_all(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys\nsys.exit(9)\n")
    with running(tmp_path, script=script) as job:
        joiner = tmp_path / "waits.py"
        joiner.write_text(FAILS)
        job.script = joiner
        job.start(1, "1:2 -n 2")
        job.script = script
        job.start(0, "1:1")
        job.end(9, 9)


def test_a_rank_that_says_no_more_is_not_replaced(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    with running(tmp_path, script=script) as job:
        job.start(0, "1:1")
        program.wait_until(job.door.exists, "the door", LIMIT_S)
        second = job.start(1, "1:1")
        job.wait_for_ranks(2)
        (tmp_path / "fail1").write_text("65")
        second.end(65)
        (tmp_path / "end").touch()
        job.end(0, 65)


def test_ranks_that_nobody_lets_in_are_not_started_for_ever(tmp_path: Path) -> None:
    """The ranks fail late, and the join listener belongs to ranks that are gone."""
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    with running(tmp_path, script=script) as job:
        first = job.start(0, "1:1")
        program.wait_until(lambda: job.numbers() == [0], "the door", LIMIT_S)
        first.process.kill()
        first.process.wait()
        script.write_text("import sys, time\ntime.sleep(6)\nsys.exit(4)\n")  # pace
        second = job.start(1, "1:1 --max-restarts 1")
        job.end(-9, 4)
    assert second.out().count("exited with code 4") == 3


def test_the_least_is_that_of_the_job(tmp_path: Path) -> None:
    """The environment's minimum counts over all launchers."""
    with running(tmp_path, "pause=0.3", PAWL_ELASTIC_MIN="2") as job:
        first = job.start(0, "1:1")
        first.wait_for("waiting for ranks: 1 of at least 2")
        job.start(1, "1:1")
        job.wait_for_trained(2)
        said = job.end(0, 0)
    check_each_once(said, n=N)


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_two_on_one_host_are_told_apart(tmp_path: Path) -> None:
    with running(tmp_path, "pause=0.3") as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        job.start(1, "1:1", at=0).end(75)
        assert f"job {job.name} has an agent already" in job.out()
        job.end(0, 75)


def test_a_launcher_may_be_a_task_of_slurms(tmp_path: Path) -> None:
    """How many nodes that step has is another matter."""
    env = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3"}
    env |= {"SLURM_STEP_NUM_TASKS": "3", "SLURM_NTASKS": "3", "SLURM_NNODES": "3"}
    env |= {"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"}
    env |= {"SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_STEP_NODELIST": "a[1-3]"}
    with running(tmp_path, "pause=0.3", **env) as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        job.start(1, "1:2")
        job.wait_for_ranks(3)
        said = job.end(0, 0)
    check_each_once(said, n=N)


def test_who_comes_when_it_is_over_ends(tmp_path: Path) -> None:
    with running(tmp_path) as job:
        job.start(0, "1:1")
        job.end(0)
        job.start(1, "1:2")
        job.end(0, 0)


def test_ranks_of_a_launcher_are_more_and_fewer(tmp_path: Path) -> None:
    """The launcher was there before there was a job to join."""
    with running(tmp_path, "pause=0.3") as job:
        second = job.start(1, "1:4 -n 1")
        second.wait_for("1 worker started")
        job.start(0, "1:1")
        job.wait_for_ranks(2)
        asked = second.scale(job.name, 3)
        assert asked.stdout == f"{job.name}: 1 rank, 3 wanted, from 1 to 4\n"
        job.wait_for_ranks(4)
        assert sorted(job.numbers()) == [0, 64, 65, 66]
        second.scale(job.name, 1)
        second.wait_for("has left the others", 2)
        job.wait_for_ranks(2)
        said = sorted(job.end(0, 0), key=len, reverse=True)
    check_each_once(
        said, dead=tuple(i for i, lines in enumerate(said) if not ends([lines], "END")), n=N
    )
    check_weights(said, N)


def test_two_hosts(tmp_path: Path) -> None:
    """The first launcher leaves, and the join listener moves to another host."""
    with netns.hosts(2) as hosts:
        with running(tmp_path, "pause=0.3", hosts=hosts, PAWL_IFNAME="eth0") as job:
            first = job.start(0, "1:1")
            job.wait_for_trained(1)
            job.start(1, "1:2 -n 1")
            job.wait_for_ranks(2)
            assert job.door.read_text().startswith(f"{netns.address(0)}:")
            first.process.send_signal(signal.SIGUSR1)
            first.end(79)
            job.wait_for_ranks(1)
            assert job.door.read_text().startswith(f"{netns.address(1)}:")
            said = job.end(79, 0)
        check_weights(said, N)
        assert ends(said, "SAMPLES") == [str(N * EPOCHS)]


def test_what_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("")
    door = ["--door", str(tmp_path / "door")]
    elastic = ["--elastic", "1:2"]
    for options, text in [
        ([*door, "--node-rank", "0"], "goes with --elastic"),
        ([*elastic, *door], "--door needs --node-rank"),
        ([*elastic, *door, "--node-rank", "1"], "the launcher that starts the job has 0"),
        ([*elastic, *door, "--node-rank", "1024", "--join"], "from 0 to 1023"),
        ([*elastic, "--door", "door", "--node-rank", "0"], "an absolute path"),
        ([*elastic, "--join"], "--join goes with --door"),
        ([*elastic, *door, "--node-rank", "0", "--nnodes", "2"], "not with --nnodes"),
        ([*elastic, *door, "--node-rank", "0", "--rendezvous", "::1:1"], "not with --nnodes"),
    ]:
        done = program.run_script(script, *options)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
