"""`pawl run --elastic` and `pawl scale`: ranks are replaced, come and go; every sample is trained
once."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from pathlib import Path

import pytest

import program
import ranks
import waits
from conftest import SEED
from elastic_runs import SCRIPT, running
from elastic_said import (
    EPOCHS,
    N_MANY,
    N,
    check_each_once,
    check_no_restart,
    check_weights,
    ends,
)

program.find()
EVENTS = 8
MANY = f"n={N_MANY}"  # a test ends such a job early
SEQUENCES = 50 if os.environ.get("PAWL_LONG") else 2


def unended(said: list[list[str]]) -> tuple[int, ...]:
    """Returns the indices of processes that have not come to the job's end."""
    return tuple(i for i in range(len(said)) if not ends([said[i]], "END"))


@pytest.mark.slow
def test_a_rank_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "1:3", MANY, "pause=0.5", "kill=1@4") as run:
        run.wait_for_trained(4)
        run.hurry()
        said = run.end()
    assert len(said) == 4
    assert "was killed by SIGKILL" in run.out() and "restart" not in run.out()
    check_each_once(said, dead=unended(said), n=N_MANY)
    check_weights(said, N_MANY)
    assert {end.split(": ")[0].split()[-1] for end in ends(said, "END")} == {"3"}


def test_a_frozen_rank_is_left_behind_and_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "1:3", MANY, "pause=0.4", **program.SILENT) as run:
        run.wait_for_trained(3)
        frozen = run.pids()[2]
        os.kill(frozen, signal.SIGSTOP)

        def begun() -> int:
            """Returns the steps of the other ranks."""
            return sum("TRY" in line for said in run.said()[:2] for line in said)

        before = begun()
        program.wait_until(lambda: begun() >= before + 6, "the others train", program.LIMIT_S)
        os.kill(frozen, signal.SIGCONT)
        run.wait_for(rf"\(pid {frozen}\) exited with code")  # must be noticed before the others end
        run.hurry()
        said = run.end()
    check_no_restart(run.out())
    assert f"(pid {frozen}) exited with code" in run.out()
    check_each_once(said, dead=unended(said), n=N_MANY)
    check_weights(said, N_MANY)


@pytest.mark.parametrize("which", [0, 2])
def test_who_is_left_behind_and_wakes_behind_the_end_is_not_missed(
    tmp_path: Path, which: int
) -> None:
    """The rank fails, because its group went on without it; that is no reason to start the job
    again."""
    env = {**program.SILENT, "PAWL_LOG": "debug"}
    with running(tmp_path, "1:3", MANY, "pause=0.4", **env) as run:
        run.wait_for_trained(3)
        frozen = run.by_rank()[which]
        os.kill(frozen, signal.SIGSTOP)
        run.wait_for("2 of 3 ranks go on")
        run.hurry()
        run.wait_for("ended with status 0", 2)
        os.kill(frozen, signal.SIGCONT)
        said = run.end()
    assert f"(pid {frozen}) exited with code 1" in run.out()
    check_no_restart(run.out())
    assert len(said) == 3
    check_weights(said, N_MANY)
    assert {end.split(": ")[0].split()[-1] for end in ends(said, "END")} == {"2"}


def test_who_fails_behind_the_end_of_others_is_missed(tmp_path: Path) -> None:
    """The rank was training, so its last step is missing."""
    fail = tmp_path / "fail"
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_LOG": "debug"}
    with running(tmp_path, "1:2", f"fail={fail}", **env) as run:
        run.wait_for("ended with status 0")
        fail.touch()
        said = run.end()
    assert "restart 1 of 3" in run.out() and len(ends(said, "END")) == 4
    check_weights(said)


def test_ranks_are_more_and_fewer(tmp_path: Path) -> None:
    with running(tmp_path, "1:4 -n 2", MANY, "pause=0.5") as run:
        run.wait_for_trained(2)
        asked = run.scale(3)
        assert asked.stdout == f"{run.job}: 2 ranks, 3 wanted, from 1 to 4\n"
        run.wait_for_trained(3)
        assert run.scale().stdout == f"{run.job}: 3 ranks, 3 wanted, from 1 to 4\n"
        run.scale(1)
        run.wait_for("has left the others", 2)
        run.hurry()
        said = run.end()
    check_no_restart(run.out())
    assert len(ends(said, "END")) == 1
    check_each_once(said, dead=unended(said), n=N_MANY)
    check_weights(said, N_MANY)
    assert ends(said, "SAMPLES") == [str(N_MANY * EPOCHS)]


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_ranks_that_join_have_it_imported(tmp_path: Path) -> None:
    """A larger number of ranks, asked for before the first step, is no reason to start again."""
    # Workers may be slow to import.
    env = {"PAWL_LOG": "debug", **program.times(run_settle=program.LIMIT_S)}
    with running(tmp_path, "1:3 -n 1", MANY, "pause=0.5", **env) as run:
        run.wait_for("1 worker started")
        run.scale(2)
        run.wait_for_trained(2)
        environ = Path(f"/proc/{run.pids()[0]}/environ").read_bytes().split(b"\0")
        doors = [os.fsdecode(e).partition("=")[2] for e in environ if b"PAWL_ELASTIC_DOOR=" in e]
        imports = Path(f"{doors[0]}.imports")
        program.wait_until(imports.exists, "what rank 0 has imported", program.LIMIT_S)
        assert {"torch", "pawl.elastic"} <= set(imports.read_text().split("\n"))
        run.wait_for("template: ready")
        run.scale(3)
        run.wait_for_trained(3)
        run.hurry()
        said = run.end()
    check_no_restart(run.out())
    assert not imports.exists()
    afresh = "the template does not answer: starting afresh" in run.out()  # template stood still
    assert afresh or re.search(r"1 more worker started in \d+ ms, from the template", run.out())
    check_each_once(said, n=N_MANY)
    check_weights(said, N_MANY)


def test_below_the_minimum_it_waits(tmp_path: Path) -> None:
    with running(tmp_path, "2:2", "pause=0.1", "kill=0@4") as run:
        said = run.end()
    assert "waiting for ranks: 1 of at least 2" in run.out()
    check_weights(said)
    assert {end.split(": ")[0].split()[-1] for end in ends(said, "END")} == {"2"}


def test_who_comes_too_late_ends(tmp_path: Path) -> None:
    with running(tmp_path, "1:2 -n 1", "pause=0.1", f"hold={tmp_path / 'hold'}") as run:
        run.wait_for_trained(1)
        run.scale(2)
        said = run.end()
    assert len(said) <= 2 and len(ends(said, "END")) == 1
    check_weights(said)


def test_all_are_killed(tmp_path: Path) -> None:
    """The job restarts from the last checkpoint, as a plain job does."""
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    with running(tmp_path, "1:2", "pause=0.1", "kill=0@9,1@9", **env) as run:
        said = run.end()
    assert "restart 1 of 3" in run.out()
    check_weights(said)
    assert set(ends(said, "SAMPLES")) == {str(N * EPOCHS)}


def test_none_is_left_but_who_would_join(tmp_path: Path) -> None:
    """The job restarts, because newcomers have nothing to go on with."""
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    hold = tmp_path / "hold"
    with running(tmp_path, "1:2", MANY, "pause=0.2", f"hold={hold}", **env) as run:
        run.wait_for_trained(2)
        first, leaves = run.by_rank()
        os.kill(leaves, signal.SIGSTOP)  # stopped before it can leave
        run.scale(1)
        run.scale(2)
        os.kill(first, signal.SIGKILL)
        run.wait_for("was killed by SIGKILL")
        os.kill(leaves, signal.SIGKILL)
        run.wait_for("restart 1 of 3")
        hold.touch()
        run.hurry()
        said = run.end()
    check_weights(said, N_MANY)
    assert set(ends(said, "SAMPLES")) == {str(N_MANY * EPOCHS)}


def test_a_door_that_nobody_opens_is_left(tmp_path: Path) -> None:
    """The rank with the join listener is stopped, and another rank opens another listener."""
    with running(tmp_path, "1:3 -n 2", MANY, "pause=0.5", **program.SILENT) as run:
        run.wait_for_trained(2)
        first, _ = run.by_rank()
        os.kill(first, signal.SIGSTOP)
        run.scale(3)
        run.wait_for_trained(3)
        os.kill(first, signal.SIGCONT)
        run.wait_for(rf"\(pid {first}\) exited with code")  # must be noticed before the others end
        run.hurry()
        said = run.end()
    assert "restart" not in run.out()
    check_each_once(said, dead=unended(said), n=N_MANY)
    check_weights(said, N_MANY)


def test_it_is_preempted_and_goes_on(tmp_path: Path) -> None:
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root")}
    with running(tmp_path, "1:4 -n 2", MANY, "pause=0.3", **env) as run:
        run.wait_for_trained(2)
        run.process.send_signal(signal.SIGTERM)
        before = run.end(143)
    (tmp_path / "again").mkdir()
    with running(tmp_path / "again", "1:4 -n 3", MANY, **env) as run:
        after = run.end()
    assert not ends(before, "END") and len(ends(after, "END")) == 3
    check_weights(after, N_MANY)


@pytest.mark.slow
def test_rank_0_is_killed_and_another_one_saves(tmp_path: Path) -> None:
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    with running(tmp_path, "1:2", MANY, "pause=0.5", "kill=0@3", **env) as run:
        run.wait_for_trained(3)
        run.process.send_signal(signal.SIGTERM)
        before = run.end(143)
    (tmp_path / "again").mkdir()
    with running(tmp_path / "again", "1:4 -n 3", MANY, **env) as run:
        after = run.end()
    check_no_restart(run.out())
    assert not ends(before, "END")
    done = {line for said in before for line in said if line.startswith("DID")}
    again = {line for said in after for line in said if line.startswith("DID")}
    assert len(done) > 3 and not done & again  # the last save came after all these steps
    check_weights(after, N_MANY)


def test_who_waits_at_a_door_can_be_told_to_end(tmp_path: Path) -> None:
    """The rank waits before there is a join listener."""
    door = str(tmp_path / "door")
    env = program.clean_env(
        PAWL_ELASTIC_JOIN="1", PAWL_ELASTIC_DOOR=door, PAWL_ELASTIC_ROOT=str(tmp_path / "root")
    )
    (waiting,) = ranks.start_ranks(SCRIPT, 1, env=env)
    caught = Path(f"/proc/{waiting.pid}/status")
    bit = 1 << (signal.SIGTERM - 1)

    def listens() -> bool:
        found = re.search(r"SigCgt:\s*(\w+)", caught.read_text())
        return found is not None and bool(int(found[1], 16) & bit)

    program.wait_until(listens, "SIGTERM is heard", program.LIMIT_S)
    waiting.terminate()
    assert waiting.wait(program.LIMIT_S) == 143
    waiting.communicate()


PLAIN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *args: sys.exit(143))
here = pathlib.Path(f"world{os.environ['WORLD_SIZE']}.rank{os.environ['RANK']}")
here.touch()
while not pathlib.Path("end").exists():
    time.sleep(0.05)  # pace
"""


def test_another_script_starts_again_with_so_many(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)

    def begun(world: int) -> bool:
        return len(list(tmp_path.glob(f"world{world}.rank*"))) == world

    with running(tmp_path, "1:3 -n 2", script=script) as run:  # type: ignore[arg-type]
        program.wait_until(lambda: begun(2), "two ranks")
        run.scale(3)
        program.wait_until(lambda: begun(3), "three ranks")
        run.scale(1)
        program.wait_until(lambda: begun(1), "one rank")
        (tmp_path / "end").touch()
        run.end()
    assert "restart" not in run.out()


def test_what_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    for options, code, text in [
        (["--elastic", "3:2"], 2, "MIN is more than MAX"),
        (["--elastic", "2"], 2, "MIN:MAX is needed, such as 1:8"),
        (["--elastic", "0:2"], 2, "from 1 to 64"),
        (["--elastic", "1:2", "-n", "3"], 2, "from 1 to 2"),
        (["--elastic", "1:2", "--nnodes", "2", "--rendezvous", "::1:1"], 2, "for one node"),
    ]:
        done = program.run_script(script, *options)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    with running(tmp_path, "1:2", script=script) as run:  # type: ignore[arg-type]
        program.wait_until(lambda: len(list(tmp_path.glob("world2.*"))) == 2, "two ranks")
        for words, code, text in [
            ([run.job, "3"], 2, f"3 ranks: job {run.job} can have from 1 to 2"),
            ([run.job, "1", "2"], 2, "unexpected argument 2"),
            ([run.job, "x"], 2, "a whole number"),
            ([], 2, "JOB is needed"),
            (["another"], 3, "no job another of this user runs"),
        ]:
            done = program.run("scale", *words)
            assert (done.returncode, text in done.stderr) == (code, True), done.stderr
        (tmp_path / "end").touch()
        run.end()
    (tmp_path / "end").unlink()
    fixed = program.start_script(script, "--job", run.job)
    program.wait_until(lambda: len(list(tmp_path.glob("world1.*"))) == 1, "one rank")
    done = program.run("scale", run.job, "2")
    assert done.returncode == 1 and "cannot have more or fewer" in done.stderr
    (tmp_path / "end").touch()
    fixed.communicate(timeout=program.LIMIT_S)


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_anything_happens(tmp_path: Path, number: int) -> None:
    """Ranks are killed, stopped, added and sent away at random, with checkpoints meanwhile: the
    result is that of one rank, and every sample is trained once."""
    rng = random.Random(SEED + number)
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.5"}
    env["PAWL_HEARTBEAT"] = "0.5"  # a rank that stands still may be left behind, or not
    with running(tmp_path, "1:4 -n 3", "pause=0.4", **env) as run:
        run.wait_for_trained(3)
        happened, stopped = [], []
        for _ in range(EVENTS):
            waits.any_moment(rng, 0, 1.5)
            pids = [pid for pid in run.pids() if pid not in stopped]
            what = rng.choice(["scale", "scale", "kill", "kill", "stop"])
            if what == "scale" or len(pids) < 2:
                happened.append(f"scale {(wanted := rng.randint(1, 4))}")
                run.scale(wanted)
                continue
            happened.append(f"{what} {(pid := rng.choice(pids))}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
            stopped += [pid] if what == "stop" else []
        print(happened)
        waits.any_moment(rng, 0, 4)  # the others may have gone on without the rank, or not
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        said = run.end()
    check_weights(said)
    if not any(what.startswith(("kill", "stop")) for what in happened):
        assert set(ends(said, "SAMPLES")) == {str(N * EPOCHS)}
    assert len({end.split(": ")[1] for end in ends(said, "END")}) == 1
