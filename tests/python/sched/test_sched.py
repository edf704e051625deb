"""`pawl sched` and the commands that talk to it: jobs from submission to end on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import pwd
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
from cluster import PROGRAM, Cluster, cluster, wait

LOOP = "while :; do sleep 0.05; done"
PYTHON = os.path.realpath(sys.executable)  # an interpreter that other users can reach


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """A scheduler for tests that leave nothing behind. Its grace is long enough for jobs that save
    on SIGTERM."""
    with cluster("--nodes", "2", "--slots", "4", "--grace", "20", "--round", "1") as made:
        yield made


# ---- from submission to end ----


def test_a_command_runs_where_it_was_submitted_and_ends(shared: Cluster, tmp_path: Path) -> None:
    job = shared.submit("sh", "-c", 'echo "$0 $1" in $(pwd)', "a b", "c;d", cwd=tmp_path)
    shared.await_state(job, "done")
    assert shared.lines(job) == [f"a b c;d in {tmp_path}"]
    row = shared.job(job)
    assert row["exit_code"] == 0 and row["restarts"] == 0 and row["name"] == "sh"
    assert row["user"] == pwd.getpwuid(os.getuid()).pw_name and row["cwd"] == str(tmp_path)


def test_a_start_waits_for_no_round() -> None:
    with cluster("--round", f"{2 * program.LIMIT_S:g}") as ours:
        for _ in range(3):
            ours.await_state(ours.submit("true"), "done")


def test_a_job_file_with_setup_nodes_and_variables(shared: Cluster, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("what is mounted\n")
    (tmp_path / "job.yaml").write_text(
        f"""
        name: two-nodes
        workdir: work
        num_nodes: 2
        envs: {{GREETING: hello, KEY: }}
        secrets: {{TOKEN: hush}}
        file_mounts: {{"{tmp_path}/mnt": "{tmp_path}/data"}}
        setup: echo setup $SKYPILOT_SETUP_NODE_RANK; echo done > $PWD/prepared
        run: |
          cat prepared {tmp_path}/mnt/x
          echo $GREETING $KEY $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES ${{#TOKEN}}
          echo "$SKYPILOT_NODE_IPS" | wc -l
          echo task $SKYPILOT_TASK_ID
        """
    )
    args = ["submit", "--json", "--env", "KEY=k", "job.yaml"]
    done = shared.run(*args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["id"]
    shared.await_state(job, "done", "failed")
    lines = shared.lines(job)
    assert shared.state(job) == "done", shared.log(job)
    assert lines.count("setup 0") == 1  # replicas share one node, or use two
    for rank in (0, 1):
        ours = [line[8:] for line in lines if line.startswith(f"[node{rank}] ")]
        assert ours[:4] == ["done", "what is mounted", f"hello k {rank} of 2 4", "2"]
        assert ours[4].startswith("task pawl-") and ours[4].endswith(f"_two-nodes_{job}-0")
    assert "hush" not in json.dumps(shared.job(job)) + shared.log(job)


def test_ranks_of_an_elastic_job(shared: Cluster) -> None:
    job = shared.sh("echo rank $RANK of $WORLD_SIZE", "--replicas", "2:2", "-n", "ranks")
    shared.await_state(job, "done", "failed")
    assert sorted(shared.lines(job)) == ["[rank0] rank 0 of 2", "[rank1] rank 1 of 2"]


def test_scale_changes_the_bounds_and_the_priority(shared: Cluster) -> None:
    job = shared.sh(LOOP, "--replicas", "1:2", "-n", "scaled")
    fixed = shared.sh(LOOP, "-n", "fixed")
    shared.await_state(job, "running")
    shared.await_state(fixed, "running")
    done = shared.run("scale", "scaled", "3:4", "--priority", "-5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{job} scaled: ")
    assert done.stdout.endswith(", from 3 to 4, priority -5\n")
    wait(lambda: shared.job(job)["replicas"] >= 3, "three replicas", program.LIMIT_S)
    shared.await_state(job, "running", limit_s=program.LIMIT_S)
    row = shared.job(job)
    assert (row["least"], row["most"], row["priority"]) == (3, 4, -5)
    assert ", now from 3 to 4 replicas\n" in shared.run("show", str(job)).stdout
    told = shared.ask("scale", str(fixed), "--priority", "7")
    assert told["id"] == fixed and told["priority"] == 7 and told["least"] == told["most"] == 1
    for args, why, code in (
        ((str(fixed), "1:2"), "not elastic: it runs on num_nodes, 1. Give its job file", 2),
        ((str(job), "99:99"), "a job on one machine has at most 64", 2),
        ((str(job), "9:9"), "replicas: 9 at least, and the nodes here", 2),
        ((str(job), "2:1"), "MAX 1: a whole number from 2", 2),
        ((str(job), "--priority", "9999"), "from -1000 to 1000", 2),
        (("no-such-job", "1:2"), "there is no job no-such-job; `pawl ls -a` shows all", 3),
    ):
        done = shared.run("scale", *args)
        assert done.returncode == code and why in done.stderr, done.stderr
    for one in (job, fixed):
        shared.run("cancel", str(one))
        shared.await_state(one, "cancelled", limit_s=program.LIMIT_S)
    done = shared.run("scale", str(job), "1:2")
    assert done.returncode == 2 and f"job {job} is over: cancelled" in done.stderr


def test_what_fails_is_tried_again_and_then_failed(shared: Cluster) -> None:
    job = shared.sh("echo try $PAWL_ATTEMPT; exit 3", "--retries", "1")
    shared.await_state(job, "failed")
    assert shared.lines(job) == ["try 0", "try 1"]
    row = shared.job(job)
    assert row["exit_code"] == 3 and row["failures"] == 2
    text = shared.run("show", str(job)).stdout
    assert "failed: it ended by itself with 3\n" in text


def test_show_says_why_a_job_failed(shared: Cluster) -> None:
    script = r"seq 100; printf 'no column \033[2J\n 1%%\r 2%%\n'; kill -9 $$"
    job = shared.sh(script, "--priority", "7", "-n", "why")
    shared.await_state(job, "failed")
    text = shared.run("show", "why").stdout
    assert "priority 7\n" in text and "failed: it ended by itself with 137 (SIGKILL)\n" in text
    lines = text.partition(f"logs: {shared.root}/jobs/{job}/log; the last lines:\n")[2]
    shown = lines.partition("history:")[0].splitlines()
    assert shown[-3:] == ["  no column \\x1b[2J", "   2%", f"  pawl: job {job}: ended with 137"]
    assert shown[0] == "  94" and len(shown) == 10
    row = shared.job(job)
    assert row["signal"] == "SIGKILL" and row["log_end"] == [line[2:] for line in shown[:-3]] + [
        "no column \x1b[2J", " 2%", f"pawl: job {job}: ended with 137"
    ]  # fmt: skip
    assert row["priority"] == 7 and row["least"] == row["most"] == 1
    rows = {row["id"]: row for row in shared.ask("ls", "-a")}
    assert rows[job]["priority"] == 7
    # A job that waits for another try; and one that ended well, whose log is not shown.
    again = shared.sh("no-such-program", "--retries", "9")
    last = "the last start ended with 127 (a command was not found)"

    def is_told() -> bool:
        text = shared.run("show", str(again)).stdout
        return last in text and "no-such-program: command not found\n" in text

    wait(is_told, "the reason of a failure")
    shared.run("cancel", str(again))
    well = shared.sh("echo fine")
    shared.await_state(well, "done")
    assert "last lines" not in shared.run("show", str(well)).stdout
    assert shared.job(well)["log_end"] == [] and shared.job(well)["signal"] is None


def test_what_cannot_be_started_says_why(shared: Cluster, tmp_path: Path) -> None:
    job = shared.submit("no-such-program-at-all")
    shared.await_state(job, "failed")
    assert "no-such-program-at-all is not in the PATH" in shared.log(job)
    shown = shared.run("show", str(job)).stdout
    assert "with 125 (it could not be started)" in shown
    assert "no-such-program-at-all is not in the PATH" in shown
    assert shared.job(job)["exit_code"] == 125
    (tmp_path / "job.yaml").write_text("workdir: nowhere\nrun: 'true'\n")
    done = shared.run("submit", "--json", "job.yaml", cwd=tmp_path)
    job = json.loads(done.stdout)["id"]
    shared.await_state(job, "failed")
    assert f"workdir {tmp_path}/nowhere: No such file" in shared.log(job)


def test_one_node_that_fails_ends_the_others(shared: Cluster) -> None:
    script = f"[ $SKYPILOT_NODE_RANK = 1 ] && exit 7; {LOOP}"
    job = shared.sh(script, "--num-nodes", "3")
    shared.await_state(job, "failed")
    assert shared.job(job)["exit_code"] == 7
    wait(lambda: not shared.processes(), "no process is left")


# ---- stops ----


def test_what_ignores_being_told_is_killed_with_all_it_started() -> None:
    script = f"trap '' TERM; (setsid sleep 98761 &); (env -i setsid sleep 98761 &); echo up; {LOOP}"
    with cluster("--grace", "2") as ours:
        job = ours.sh(script)
        wait(lambda: ours.lines(job) == ["up"], "the job's line")
        assert len(ours.processes()) >= 3
        began = time.monotonic()
        assert ours.run("cancel", str(job)).returncode == 0
        ours.await_state(job, "cancelled")
        assert time.monotonic() - began > 1.5
        assert ours.processes() == []
    left = subprocess.run(["pgrep", "-f", "^sleep 98761$"], capture_output=True, text=True).stdout
    assert left == ""  # none is left, not even processes without an environment


def test_pause_and_resume(shared: Cluster) -> None:
    script = f"trap 'echo saved; exit 0' TERM; echo start $PAWL_ATTEMPT; {LOOP}"
    job = shared.sh(script, "-n", "pausable")
    wait(lambda: "start 0" in shared.log(job), "its first start")
    assert shared.run("pause", "pausable").returncode == 0
    shared.await_state(job, "paused")
    assert "saved" in shared.lines(job)
    assert shared.processes() == [] and shared.job(job)["replicas"] == 0
    assert shared.run("resume", str(job)).returncode == 0
    wait(lambda: "start 1" in shared.log(job), "its second start")
    refused = shared.run("resume", str(job))
    assert refused.returncode == 2 and "cannot be resumed" in refused.stderr
    shared.run("cancel", str(job))
    shared.await_state(job, "cancelled")
    refused = shared.run("cancel", str(job))
    assert refused.returncode == 2 and "is over: cancelled" in refused.stderr


def test_a_script_waits_for_what_it_runs_when_told_to_stop(shared: Cluster, tmp_path: Path) -> None:
    """A program in the midst of a script gets the signal, and the time to save."""
    saver = "import signal, sys, time\n"
    saver += "def save(*_):\n time.sleep(0.5); print('saved', flush=True); sys.exit(143)\n"  # pace
    saver += "signal.signal(signal.SIGTERM, save)\nprint('up', flush=True)\n"
    saver += "time.sleep(100)\n"  # pace
    (tmp_path / "saver.py").write_text(saver)
    for head in ("num_nodes: 1", "replicas: 1..1"):
        (tmp_path / "job.yaml").write_text(
            f"name: saver\n{head}\nrun: |\n  cd .\n  python3 saver.py\n  echo not here\n"
        )
        done = shared.run("submit", "--json", "job.yaml", cwd=tmp_path)
        job = json.loads(done.stdout)["id"]
        wait(lambda job=job: "up" in shared.log(job), "the program runs")
        shared.run("pause", str(job))
        shared.await_state(job, "paused")
        assert "saved" in shared.log(job) and "not here" not in shared.log(job)
        shared.run("cancel", str(job))


def test_a_time_limit(shared: Cluster) -> None:
    job = shared.sh(LOOP, "--time-limit", "1s")
    shared.await_state(job, "failed")
    assert shared.job(job)["reason"] == "it reached its time limit"


# ---- who has what ----


@pytest.mark.slow
def test_others_shrink_while_a_job_runs() -> None:
    """Under a policy that gives away all free slots, a job without pawl.elastic restarts
    its ranks."""
    options = ["--nodes", "2", "--slots", "2", "--grace", "2", "--round", "1", "--policy", "fifo"]
    with cluster(*options) as ours:
        first = ours.sh(f"echo of $WORLD_SIZE; {LOOP}", "--replicas", "1:4", "-n", "first")
        wait(lambda: ours.job(first)["replicas"] == 4, "all slots are its own")
        go = ours.root.parent / "go"
        until = f"until [ -e {go} ]; do sleep 0.1; done"
        second = ours.sh(until, "--num-nodes", "2", "-n", "second", "--priority", "5")
        ours.await_state(second, "running")
        assert ours.job(first)["replicas"] == 2
        wait(lambda: "of 2" in ours.log(first), "fewer ranks")
        go.touch()
        ours.await_state(second, "done")
        assert ours.log(first).count(" starts on ") == 1  # a single run all the time


def test_who_waits_is_told_why(shared: Cluster) -> None:
    assert shared.run("drain", "node0").returncode == 0
    much = shared.sh("true", "--num-nodes", "8", "-n", "much")
    needs = "it needs 8 slots together"
    wait(lambda: needs in shared.run("show", "much").stdout, "an explanation")
    shared.run("cancel", str(much))
    assert shared.run("drain", "--undo", "node0").returncode == 0


def test_what_there_can_never_be_room_for_is_refused(tmp_path: Path) -> None:
    queues = ("--queue", "default", "--queue", "small=1:2", "--user-slots", "5")
    with cluster("--node", "a=2:A100", "--node", "b=4", *queues) as ours:
        for options, why in [
            (["--num-nodes", "7"], "num_nodes: 7, and the nodes here that it may be on have 6"),
            (["--replicas", "7:9"], "replicas: 7 at least, and the nodes here"),
            (["--num-nodes", "3", "--queue", "small"], "queue small: its jobs have at most 2"),
            (["--num-nodes", "6"], "jobs of one user have at most 5 slots together"),
        ]:
            done = ours.run("submit", *options, "--", "true")
            assert done.returncode == 2 and why in done.stderr, done.stderr
        (tmp_path / "job.yaml").write_text(
            "num_nodes: 3\nresources: {accelerators: A100}\nrun: x\n"
        )
        done = ours.run("submit", str(tmp_path / "job.yaml"))
        assert done.returncode == 2 and "may be on have 2 slots" in done.stderr
        # A drained node may come back; a job that can also run with less is accepted.
        assert ours.run("drain", "b").returncode == 0
        ours.sh("true", "--num-nodes", "5")
        ours.sh("true", "--replicas", "1:64")
        assert len(ours.ask("ls")) >= 1 and ours.ask("ls")[0]["id"] == 1


def test_drain(shared: Cluster) -> None:
    assert shared.run("drain", "node0").returncode == 0
    job = shared.sh("true")
    shared.await_state(job, "done")
    assert "starts on node1 (1)" in shared.log(job)
    nodes = {node["name"]: node for node in shared.ask("top")["nodes"]}
    assert nodes["node0"]["state"] == "drained" and nodes["node1"]["state"] == "up"
    assert shared.run("drain", "--undo", "node0").returncode == 0
    refused = shared.run("drain", "node9")
    assert refused.returncode == 3 and "node9" in refused.stderr


def test_accelerators_are_types_of_nodes(tmp_path: Path) -> None:
    with cluster("--node", "a=1:A100", "--node", "h=1:H100:2.5") as ours:
        for wanted, node in (("H100", "h"), ("[V100, A100]", "a")):
            (tmp_path / "job.yaml").write_text(
                f"resources: {{accelerators: {wanted}}}\nrun: 'true'\n"
            )
            done = ours.run("submit", "--json", "job.yaml", cwd=tmp_path)
            job = json.loads(done.stdout)["id"]
            ours.await_state(job, "done")
            assert f"starts on {node} (1)" in ours.log(job)
        # A choice that this machine cannot have does not count, nor does its type.
        choices = "{accelerators: A100, memory: 100TB}, {accelerators: H100, memory: 0.1}"
        (tmp_path / "job.yaml").write_text(f"resources: {{any_of: [{choices}]}}\nrun: 'true'\n")
        done = ours.run("submit", "--json", "job.yaml", cwd=tmp_path)
        job = json.loads(done.stdout)["id"]
        ours.await_state(job, "done")
        assert "starts on h (1)" in ours.log(job)
        (tmp_path / "job.yaml").write_text("resources: {accelerators: V100}\nrun: 'true'\n")
        refused = ours.run("submit", "job.yaml", cwd=tmp_path)
        assert refused.returncode == 2 and "no node here has V100" in refused.stderr
        (tmp_path / "job.yaml").write_text("resources: {memory: 100TB}\nrun: 'true'\n")
        refused = ours.run("submit", "job.yaml", cwd=tmp_path)
        assert refused.returncode == 2 and "this machine has fewer CPUs" in refused.stderr


def test_types_of_nodes_keep_their_jobs_whatever_is_named_first(tmp_path: Path) -> None:
    """A scheduler restarts with fewer types, with others, and in another order: jobs that run go
    on, and jobs that wait start on the type they asked for."""

    def submit(wanted: str, run: str) -> Any:
        (tmp_path / "job.yaml").write_text(f"resources: {{accelerators: {wanted}}}\nrun: {run}\n")
        return ours.run("submit", "--json", "job.yaml", cwd=tmp_path)

    def start(wanted: str, run: str) -> int:
        return int(json.loads(submit(wanted, run).stdout)["id"])

    def restart(*nodes: str) -> None:
        assert ours.kill(signal.SIGTERM) == 0
        ours.options = ("--grace", "2", "--round", "1", *(f"--node={node}" for node in nodes))
        ours.start()

    with cluster("--node", "a=1:A100", "--node", "h=1:H100", "--round", "1") as ours:
        before = start("H100", LOOP)
        after = start("h100", "'true'")
        other = start("A100", LOOP)
        waits = start("A100", "'true'")
        ours.await_state(before, "running")
        ours.await_state(other, "running")

        restart("h=1:H100")
        ours.await_state(other, "queued")  # the node has gone
        assert submit("A100", "'true'").returncode == 2
        assert ours.job(before)["state"] == "running" and ours.job(before)["restarts"] == 0
        assert ours.run("cancel", str(before)).returncode == 0
        ours.await_state(after, "done")
        assert "starts on h (1)" in ours.log(after)
        assert ours.run("cancel", str(other)).returncode == 0
        assert ours.state(waits) == "queued"

        restart("b=1:B200", "h=1:H100", "a=1:A100")
        ours.await_state(waits, "done")
        assert "starts on a (1)" in ours.log(waits)
        kinds = {node["name"]: node["type"] for node in ours.ask("top")["nodes"]}
        assert kinds == {"a": "A100", "b": "B200", "h": "H100"}

        # At most eight types are known; types without a use are forgotten at a stop.
        restart("h=1:H100")
        restart(*(f"n{i}=1:T{i}" for i in range(7)), "h=1:H100")
        assert ours.kill(signal.SIGTERM) == 0
        with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as db:
            names = {str(name) for (name,) in db.execute("SELECT name FROM types")}
        assert names == {"H100", *(f"T{i}" for i in range(7))}
        ours.options = ("--node=b=1:B200",)
        ours.daemon = subprocess.Popen(
            [PROGRAM, "sched", "--root", str(ours.root), *ours.options],
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ours.daemon.communicate(timeout=program.LIMIT_S)[1]
        assert ours.daemon.returncode != 0 and "start the scheduler without B200" in said


def test_the_fastest_directory_is_a_jobs_own_until_it_ends(tmp_path: Path) -> None:
    """The fastest directory is measured, so it may be either."""
    folders = [Path(tempfile.mkdtemp(prefix="pawl-", dir=where)) for where in ("/tmp", "/dev/shm")]
    (tmp_path / "job.yaml").write_text(
        """
        resources: {disk_tier: best, disk_size: 0.001}
        setup: echo for run > $PAWL_SCRATCH/x
        run: |
          cat $PAWL_SCRATCH/x; echo in $PAWL_SCRATCH
          mkdir -p $PAWL_SCRATCH/a/b; chmod 700 $PAWL_SCRATCH/a; ln -s /etc $PAWL_SCRATCH/a/b/c
          [ -e ../again ] || { touch ../again; exit 1; }
        retries: 1
        """
    )
    try:
        with cluster("--scratch", str(folders[0]), "--scratch", str(folders[1])) as ours:
            (tmp_path / "work").mkdir()
            done = ours.run("submit", "--json", str(tmp_path / "job.yaml"), cwd=tmp_path / "work")
            job = json.loads(done.stdout)["id"]
            ours.await_state(job, "done", "failed")
            assert ours.state(job) == "done", ours.log(job)
            said = [line for line in ours.lines(job) if line.startswith("in ")]
            assert len(set(said)) == 2 and Path(said[0][3:]).parent in folders
            assert ours.lines(job).count("for run") == 2
            wait(lambda: not any(list(folder.iterdir()) for folder in folders), "they are gone")
            assert "MB/s, the fastest of 2" in ours.said.read_text()
            assert Path("/etc/passwd").exists()
            plain = ours.sh("echo ${PAWL_SCRATCH-none}")
            ours.await_state(plain, "done")
            assert ours.lines(plain) == ["none"]
        with cluster() as ours:  # without --scratch: beside the job's log
            ours.run("submit", str(tmp_path / "job.yaml"), cwd=tmp_path / "work")
            ours.await_state(1, "done")
            said = [line for line in ours.lines(1) if line.startswith("in ")]
            assert said[0].startswith(f"in {ours.root}/jobs/1/scratch-")
            wait(lambda: not list(ours.root.glob("jobs/1/scratch*")), "it is gone")
        said = program.run("sched", "--root", folders[0] / "s", "--scratch", tmp_path / "no").stderr
        assert f"scratch {tmp_path}/no: No such file" in said
    finally:
        for folder in folders:
            shutil.rmtree(folder)


# ---- looking ----


def test_logs_follow_and_cp(shared: Cluster, tmp_path: Path) -> None:
    job = shared.sh("for i in 1 2 3; do echo line $i; sleep 0.2; done; echo out > f", cwd=tmp_path)
    followed = shared.run("logs", "-f", str(job))
    assert [x for x in followed.stdout.splitlines() if x.startswith("line")] == [
        "line 1", "line 2", "line 3",
    ]  # fmt: skip
    (tmp_path / "dest").mkdir()
    assert shared.run("cp", f"{job}:f", str(tmp_path / "dest")).returncode == 0
    assert (tmp_path / "dest" / "f").read_text() == "out\n"
    refused = shared.run("cp", f"{job}:nothing", "x")
    assert refused.returncode == 3 and "nothing: No such file" in refused.stderr
    assert shared.run("cp", "7", "x").returncode == 2


def test_cp_takes_what_a_link_leads_to_and_knows_the_jobs_home(
    shared: Cluster, tmp_path: Path
) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    with tempfile.TemporaryDirectory(prefix="pawl-test-", dir=home) as work:
        name = Path(work).name
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "x").write_text("data\n")
        (tmp_path / "job.yaml").write_text(
            f'workdir: ~/{name}\nfile_mounts: {{"{tmp_path}/in": {tmp_path}/data}}\n'
            "run: echo best > step; ln -s step best; mkdir out; ln -s ../step out/l; pwd\n"
        )
        done = shared.run("submit", "--json", "job.yaml", cwd=tmp_path)
        job = json.loads(done.stdout)["id"]
        shared.await_state(job, "done", "failed")
        assert shared.lines(job) == [work] and shared.job(job)["cwd"] == work
        for path, dest in (("best", "a"), (f"~/{name}/best", "b")):
            done = shared.run("cp", f"{job}:{path}", str(tmp_path / dest))
            assert done.returncode == 0, done.stderr
            assert not (tmp_path / dest).is_symlink()
            assert (tmp_path / dest).read_text() == "best\n"
        assert shared.run("cp", f"{job}:out", str(tmp_path / "out")).returncode == 0
        assert (tmp_path / "out" / "l").is_symlink()
        assert shared.run("cp", f"{job}:{tmp_path}/in", str(tmp_path / "in2")).returncode == 0
        assert not (tmp_path / "in2").is_symlink()
        assert (tmp_path / "in2" / "x").read_text() == "data\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
def test_the_home_of_a_job_is_that_of_who_runs_it() -> None:
    user = pwd.getpwnam("daemon")
    with cluster("--slots", "1", start=False) as ours:
        ours.root.mkdir()
        shutil.chown(ours.root, user.pw_uid)
        ours.said.touch()
        shutil.chown(ours.said, user.pw_uid)
        ours.start("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        (ours.root.parent / "job.yaml").write_text("workdir: '~'\nrun: pwd\n")
        done = ours.run("submit", "--json", "job.yaml")
        assert done.returncode == 0, done.stderr
        ours.await_state(1, "done", "failed")
        assert ours.job(1)["cwd"] == user.pw_dir and ours.lines(1) == [user.pw_dir]


def test_a_log_fills_no_disk(shared: Cluster) -> None:
    """A unit test covers the number and size of the files."""
    job = shared.sh("head -c 20000000 /dev/zero | tr '\\0' x | fold -w 1000; echo the end")
    shared.await_state(job, "done", limit_s=program.LIMIT_S)
    files = [Path(file) for file in shared.ask("logs", str(job))["files"]]
    assert [file.name for file in files] == ["log.1", "log"]
    assert files[-1].read_text().splitlines()[-2].endswith("xthe end")
    assert len(shared.log(job)) > 20000000


def test_a_job_pauses_as_its_log_is_full(shared: Cluster) -> None:
    job = shared.sh("head -c 16777216 /dev/zero; sleep 0.5; echo on; sleep 0.5; echo and on")
    shared.await_state(job, "done", limit_s=program.LIMIT_S)
    assert shared.log(job).endswith(f"on\nand on\npawl: job {job}: ended with 0\n")


def test_lists(shared: Cluster) -> None:
    job = shared.sh("exit 4", "-n", "listed")
    shared.await_state(job, "failed")
    assert job not in [row["id"] for row in shared.ask("ls")]
    rows = {row["id"]: row for row in shared.ask("ls", "-a")}
    assert rows[job]["state"] == "failed" and rows[job]["exit_code"] == 4
    assert shared.job("listed")["id"] == job
    assert "failed (4)" in shared.run("ls", "-a").stdout
    assert "slots used" in shared.run("top").stdout
    nothing = shared.run("show", "nobody")
    assert nothing.returncode == 3 and "there is no job nobody" in nothing.stderr
    nothing = shared.run("show", "")
    assert nothing.returncode == 2 and "no job is named" in nothing.stderr


def test_each_command_has_help() -> None:
    commands = ["sched", "submit", "ls", "show", "logs", "top", "cancel", "pause", "resume"]
    for command in [*commands, "drain", "cp", "shepherd"]:
        done = program.run(command, "--help")
        assert done.returncode == 0 and f"usage: pawl {command}" in done.stdout


def test_without_a_scheduler_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    for command in (["ls"], ["show", "1"], ["submit", "--", "true"], ["top"], ["cancel", "1"]):
        name, *rest = command
        done = program.run(name, "--root", tmp_path, *rest)
        assert done.returncode == 3 and "`pawl sched --root" in done.stderr


# ---- users ----


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
def test_jobs_run_as_their_users_and_nobody_touches_anothers() -> None:
    one, two = pwd.getpwnam("daemon"), pwd.getpwnam("bin")
    with cluster("--nodes", "1", "--slots", "4", "--grace", "2", "--group", "users") as ours:
        us = [{"user": u.pw_uid, "group": u.pw_gid, "extra_groups": ["users"]} for u in (one, two)]
        job = ours.sh(f"id -un; id -Gn; umask 077; echo mine > /tmp/pawl-mine-$$; {LOOP}", **us[0])
        wait(lambda: len(ours.lines(job)) == 2, "the job's lines")
        assert ours.lines(job)[0] == "daemon" and ours.job(job)["user"] == "daemon"
        for command in ("cancel", "pause", "resume"):
            refused = ours.run(command, str(job), **us[1])
            assert refused.returncode == 2 and "is of user daemon" in refused.stderr
        assert ours.run("drain", "node0", **us[1]).returncode == 2
        fellow = {**us[1], "group": one.pw_gid}  # a member of the owner's primary group
        for reader in (us[1], fellow):
            unread = ours.run("logs", str(job), **reader)
            assert unread.returncode != 0 and unread.stdout == ""
        kept = ours.root / "jobs" / str(job)
        assert [stat.S_IMODE(p.stat().st_mode) for p in (kept, kept / "log")] == [0o700, 0o600]
        assert ours.run("logs", str(job), **us[0]).stdout.count("daemon") >= 1
        assert len(json.loads(ours.run("ls", "--json", **us[1]).stdout)) == 1
        database = stat.S_IMODE((ours.root / "sched.db").stat().st_mode)
        assert database == 0o600  # holds secrets
        ranks = ours.sh("id -un; pwd", "--replicas", "2:2", **us[1])
        ours.await_state(ranks, "done", "failed")
        assert ours.lines(ranks).count("[rank1] bin") == 1, ours.log(ranks)
        assert ours.run("cancel", str(job), **us[0]).returncode == 0
        ours.await_state(job, "cancelled")
        outsider = {"user": two.pw_uid, "group": two.pw_gid, "extra_groups": []}
        refused = ours.run("ls", **outsider)
        assert refused.returncode == 1 and "Permission denied" in refused.stderr
    for left in Path("/tmp").glob("pawl-mine-*"):
        left.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="keyctl's number is this machine's")
def test_a_job_of_another_user_has_no_key_of_roots() -> None:
    ask = "import ctypes; print('keyring', ctypes.CDLL(None).syscall(250, 0, -3, 0))"
    if ctypes.CDLL(None).syscall(250, 1, None) < 0:  # a session keyring of this process alone
        pytest.skip("keyrings are not to be had here")
    known = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True)
    user = pwd.getpwnam("daemon")
    with cluster("--nodes", "1", "--group", "users") as ours:
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ["users"]}
        job = ours.submit(PYTHON, "-c", ask, **as_user)
        ours.await_state(job, "done", "failed")
        (said,) = (line for line in ours.lines(job) if line.startswith("keyring"))
        assert int(said.split()[1]) > 0 and said != known.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="two users are needed: run as root")
def test_a_user_whom_nobody_knows_gets_no_group_of_that_number() -> None:
    with cluster("--nodes", "1", "--group", "users") as ours:
        job = ours.sh("id -g", user=54321, group=100, extra_groups=["users"])
        wait(lambda: "user 54321 is not known" in ours.said.read_text(), "the reason")
        wait(lambda: ours.state(job) == "queued", "its next try")
        assert "54321" not in ours.lines(job)
        assert ours.run("cancel", str(job)).returncode == 0


# ---- what may not be ----


def test_a_second_scheduler_is_refused_by_name(shared: Cluster) -> None:
    done = program.run("sched", "--root", shared.root)
    assert done.returncode == 75 and shared.daemon is not None
    assert f"another scheduler (pid {shared.daemon.pid} on " in done.stderr


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    with cluster() as ours:
        ours.kill(signal.SIGTERM)
        with contextlib.closing(sqlite3.connect(ours.root / "sched.db")) as db:
            db.execute("PRAGMA user_version = 99")
        done = program.run("sched", "--root", ours.root)
        assert done.returncode == 1 and "a newer Pawl wrote it" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to become another user")
def test_a_read_only_database_is_named() -> None:
    with cluster(start=False) as ours:
        ours.root.mkdir()
        user = pwd.getpwnam("daemon").pw_uid
        os.chown(ours.root, user, -1)
        (ours.root / "sched.db").write_bytes(b"")
        (ours.root / "sched.db").chmod(0o444)
        done = subprocess.run(
            [PROGRAM, "sched", "--root", str(ours.root)],
            user=user, capture_output=True, text=True, timeout=program.LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 1 and "it is read-only" in done.stderr


def test_bad_options_and_files_are_named(shared: Cluster, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("num_node: 2\nrun: x\n")
    done = shared.run("submit", str(tmp_path / "bad.yaml"))
    assert done.returncode == 2 and "bad.yaml:1:1: unknown key num_node" in done.stderr
    (tmp_path / "good.yaml").write_text("run: x\n")
    done = shared.run("submit", "--replicas", "1:2", str(tmp_path / "good.yaml"))
    assert done.returncode == 2 and "options for COMMAND cannot be used" in done.stderr
    done = shared.run("submit", "--queue", "nowhere", "--", "true")
    assert done.returncode == 3 and "there is no queue nowhere" in done.stderr
    wrong = ["--node a", "--node a=0", "--nodes 2 --node a=1", "--policy best", "--queue q=0"]
    for options in [*wrong, "--policy optimus", "--engine cloud"]:
        done = program.run("sched", "--root", tmp_path / "none", *options.split())
        assert done.returncode == 2, options


def test_noise_at_the_socket_harms_nobody(shared: Cluster) -> None:
    import random
    import socket

    for _ in range(50):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(shared.root / "sched.sock"))
            size = random.choice([0, 5, 12, 40, 3000, 0xFFFFFFFF])
            head = size.to_bytes(4, "little") + random.randbytes(2) + b"\0\0" + random.randbytes(4)
            peer.sendall(head + random.randbytes(random.randrange(4000)))
    assert shared.run("ls").returncode == 0


def test_jobs_are_not_started_beside_themselves_by_another_engine_or_spool() -> None:
    """Another engine or spool is refused while jobs of the first run, which go on; afterwards it
    may take over."""
    with cluster("--nodes", "1", "--slots", "1", "--grace", "0") as made:
        job = made.sh(LOOP)
        made.await_state(job, "running")
        engine, pool = made.root / "engine", ("--engine", "slurm", "--pool", "cpu=1:0..1")
        a, b = made.root.parent / "a", made.root.parent / "b"

        def refused(*options: str) -> str:
            done = program.run("sched", "--root", made.root, *options)
            assert done.returncode != 0, done.stderr
            assert f"job {job} runs under --engine " in done.stderr
            return str(done.stderr)

        made.kill()
        said = refused(*pool, "--spool", str(a))
        assert "under --engine local, of which --engine slurm --spool" in said
        assert f"remove {engine}" in said
        kept = engine.read_text()
        engine.write_text(f"0123abcd --engine slurm --spool {b}\n")  # as if it ran there
        assert f"--spool {b}, of which --engine local knows" in refused("--nodes", "1")
        said = refused(*pool, "--spool", str(a))
        assert f"--spool {b}, of which --engine slurm --spool {a} knows" in said
        engine.write_text(kept)
        made.start()
        assert made.state(job) == "running" and made.job(job)["restarts"] == 0
        assert made.run("cancel", str(job)).returncode == 0
        made.await_state(job, "cancelled")
        made.kill()
        made.options = (*pool, "--spool", str(a))
        made.start()
        assert engine.read_text().endswith(f" --engine slurm --spool {a}\n")
