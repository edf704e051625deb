"""The scheduler over HTTP: requests of AdaptDL's clients, metrics, remote control.
hostile/test_http.py has unauthorized and malicious clients."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
from cluster import Cluster, cluster, wait
from packages import with_package
from web import TOKEN, Answer, Web

USER = pwd.getpwuid(os.getuid()).pw_name
LOOP = "while :; do sleep 0.05; done"
OPTIONS = ("--nodes", "2", "--slots", "4", "--grace", "2", "--round", "1")
HINTS: dict[str, Any] = {
    "initBatchSize": 32, "maxBatchSize": 256, "localBszBounds": [8, 64], "globalBatchSize": 64,
    "maxProfiledReplicas": 2, "gradientAccumulation": False,
    "gradParams": {"norm": 1.0, "var": 2.0},
    "perfParams": {"alpha_c": 0.1, "beta_c": 0.001, "alpha_n": 0.1, "beta_n": 0.01,
                   "alpha_r": 0.1, "beta_r": 0.01, "gamma": 1.5},
}  # fmt: skip


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.touch(0o600)
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture(scope="module")
def shared(token_file: Path) -> Iterator[Cluster]:
    """A scheduler for tests that leave nothing behind."""
    http = ("--http", "127.0.0.1:0", "--http-token", str(token_file))
    with cluster(*OPTIONS, *http) as made:
        yield made


@pytest.fixture(scope="module")
def web(shared: Cluster) -> Web:
    return Web(shared)


@contextlib.contextmanager
def a_job(
    ours: Cluster, *options: str, name: str = "a", replicas: int = 1
) -> Iterator[tuple[int, dict[str, str]]]:
    """Runs a job. Yields its number, and the variables that AdaptDL's client reads."""
    script = f"env | grep ^ADAPTDL_; echo up; {LOOP}"
    job = ours.sh(script, "-n", name, *options)
    wait(lambda: len(re.findall("(?m)up$", ours.log(job))) == replicas, "the job's lines")
    lines = [line.split("] ")[-1] for line in ours.lines(job)]
    env = dict(line.split("=", 1) for line in lines if line.startswith("ADAPTDL_"))
    try:
        yield job, env
    finally:
        ours.run("cancel", str(job))
        ours.await_state(job, "cancelled")


def path_of(env: dict[str, str], web: Web, what: str) -> str:
    assert env["ADAPTDL_SUPERVISOR_URL"].startswith(web.url)
    prefix = env["ADAPTDL_SUPERVISOR_URL"].removeprefix(web.url)
    return f"{prefix}/{what}/{env['ADAPTDL_JOB_ID']}"


# ---- what AdaptDL's clients ask ----


def test_a_replica_finds_what_adaptdl_gives_its_own(shared: Cluster, web: Web) -> None:
    with a_job(shared, "--num-nodes", "2", replicas=2) as (job, env):
        assert env["ADAPTDL_JOB_ID"] == f"{USER}/{job}"
        assert env["ADAPTDL_NUM_REPLICAS"] == "2" and env["ADAPTDL_NUM_RESTARTS"] == "0"
        assert env["ADAPTDL_SCHED_VERSION"] == "0.2.11" and int(env["ADAPTDL_MASTER_PORT"]) > 0
        ranks = [line for line in shared.lines(job) if "ADAPTDL_REPLICA_RANK" in line]
        assert sorted(ranks) == [f"[node{i}] ADAPTDL_REPLICA_RANK={i}" for i in (0, 1)]
        answer = web.get(f"{path_of(env, web, 'discover')}/0")
        assert answer.code == 200 and answer.json == ["127.0.0.1", "127.0.0.1"]


def test_ranks_of_replicas_have_their_own(shared: Cluster, web: Web) -> None:
    with a_job(shared, "--replicas", "2:2", replicas=2) as (job, env):
        ranks = [line for line in shared.lines(job) if "ADAPTDL_REPLICA_RANK" in line]
        assert sorted(ranks) == [f"[rank{i}] ADAPTDL_REPLICA_RANK={i}" for i in (0, 1)]
        assert env["ADAPTDL_NUM_REPLICAS"] == "2" and env["ADAPTDL_NUM_NODES"] == "1"
        assert web.get(f"{path_of(env, web, 'discover')}/5").json == ["127.0.0.1"] * 2


@pytest.mark.slow("adaptdl-0.2.11")
@pytest.mark.parametrize("whose", ["adaptdl-0.2.11", "pawl/compat/adaptdl"])
def test_adaptdls_names_meet_and_tell(shared: Cluster, whose: str) -> None:
    """Both AdaptDL's own package and Pawl's in its place meet and send hints."""
    name, _, release = whose.partition("-")
    env = with_package(name, release) if release else program.clean_env()
    script = Path(__file__).with_name("adaptdl_client_job.py")
    options = ["--num-nodes", "2", "--env", f"PYTHONPATH={env['PYTHONPATH']}"]
    job = shared.submit(sys.executable, str(script), options=options)
    try:
        wait(lambda: "TOLD" in shared.log(job), "hints that were told", program.LIMIT_S)
        wait(lambda: shared.log(job).count(" MET ") == 2, "both have met", program.LIMIT_S)
        met = [line.split()[1:] for line in shared.lines(job) if " MET " in line]
        assert sorted(words[1:3] for words in met) == [["2", "0"], ["2", "1"]], shared.log(job)
        assert all(whose in words[3] for words in met)
        wait(lambda: shared.job(job)["goodput"] is not None, "hints that arrived")
        assert "WARNING:adaptdl.sched" not in shared.log(job)
    finally:
        shared.run("cancel", str(job))


def test_hints_reach_the_policy_and_survive_a_restart(token_file: Path) -> None:
    http = ("--http", "127.0.0.1:0", "--http-token", str(token_file))
    with cluster(*OPTIONS, *http) as ours:
        web = Web(ours)
        with a_job(ours, "--replicas", "1:2") as (job, env):
            assert ours.job(job)["goodput"] is None
            assert web.ask("PUT", path_of(env, web, "hints"), HINTS).code == 200
            goodput = ours.job(job)["goodput"]
            assert goodput > 0
            ours.kill()
            ours.start()
            web = Web(ours)
            assert ours.job(job)["goodput"] > 0
            # The port is another one; the secret is the same.
            secret = env["ADAPTDL_SUPERVISOR_URL"].split("/job/")[1]
            path = f"/job/{secret}/hints/{env['ADAPTDL_JOB_ID']}"
            assert web.ask("PUT", path, HINTS).code == 200


def test_discovery_waits_until_all_are_there(shared: Cluster, web: Web, tmp_path: Path) -> None:
    go = tmp_path / "go"
    setup = f"while [ ! -e {go} ]; do sleep 0.05; done"
    (tmp_path / "job.yaml").write_text(
        f"name: waits\nnum_nodes: 2\nsetup: {setup!r}\nrun: {LOOP!r}\n"
    )
    done = shared.run("submit", "--json", "job.yaml", cwd=tmp_path)
    job = json.loads(done.stdout)["id"]
    where = f"/discover/{USER}/{job}"
    answer = web.get(f"{where}/0?timeout=0", TOKEN)
    assert answer.code == 408 and f"job {job} does not run as group 0" in answer.error
    found: list[Answer] = []
    ask = threading.Thread(target=lambda: found.append(web.get(f"{where}/0?timeout=300", TOKEN)))
    left = threading.Thread(target=lambda: found.append(web.get(f"{where}/7?timeout=300", TOKEN)))
    ask.start()
    go.touch()
    ask.join(program.LIMIT_S)
    assert [answer.json for answer in found] == [["127.0.0.1"] * 2]
    left.start()  # asks for a group that never exists
    assert web.get(f"/discover/{USER}/waits/0", TOKEN).json == ["127.0.0.1"] * 2  # by name
    shared.run("cancel", str(job))
    left.join(program.LIMIT_S)
    assert found[1].code == 404 and "that is not over" in found[1].error


def test_who_waits_when_the_scheduler_ends_is_let_go(token_file: Path) -> None:
    http = ("--http", "127.0.0.1:0", "--http-token", str(token_file))
    with cluster(*OPTIONS, *http) as ours:
        web = Web(ours)
        job = ours.sh(LOOP)
        ours.await_state(job, "running")
        with socket.create_connection(web.address, timeout=program.LIMIT_S) as waiting:
            waiting.sendall(
                f"GET /discover/{USER}/{job}/9?timeout=300 HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            wait(lambda: web.metrics()["pawl_sched_http_connections"] >= 2, "it is connected")
            assert ours.kill(15) == 0
            assert not (ours.root / "http").exists()
            with contextlib.suppress(ConnectionResetError):
                assert waiting.recv(1) == b""


@pytest.mark.parametrize("group", ["x", "-1", "1.5", "99999999999999999999", "0?timeout=301",
                                   "0?timeout=-1", "0?timeout=1e9", "0?timeout="])  # fmt: skip
def test_groups_and_timeouts_are_numbers(shared: Cluster, web: Web, group: str) -> None:
    assert web.get(f"/discover/{USER}/1/{group}", TOKEN).code == 400


# ---- control ----


def test_jobs_are_seen_and_controlled_with_the_token(shared: Cluster, web: Web) -> None:
    with a_job(shared, name="seen") as (job, _):
        (row,) = [row for row in web.get("/jobs", TOKEN).json if row["id"] == job]
        (mine,) = [row for row in shared.ask("ls") if row["id"] == job]
        assert row.keys() == mine.keys() and row["nodes"] == mine["nodes"]
        shown = web.get(f"/jobs/{job}", TOKEN).json
        by_hand = shared.job(job)  # pawl show also reads the job's log, and the history
        assert shown.keys() == by_hand.keys() - {"history", "signal", "log_end"}
        assert shown["cwd"] == by_hand["cwd"]
        assert web.get("/jobs/seen", TOKEN).json["id"] == job
        assert web.get("/nodes", TOKEN).json == shared.ask("top")["nodes"]
        basic = {"Authorization": "Basic " + _base64(f"me:{TOKEN}")}
        page = web.ask("GET", "/", **basic)
        assert page.code == 200 and f"<td>{job}</td><td>seen</td>" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        # Requests as a browser sends them by itself change nothing.
        assert web.ask("POST", f"/jobs/{job}/cancel", **basic).code == 401
        assert web.ask("POST", f"/jobs/{job}/pause", token=TOKEN).json == {"id": job}
        shared.await_state(job, "paused")
        answer = web.ask("PUT", f"/hints/{USER}/{job}", HINTS, token=TOKEN)
        assert answer.code == 409 and "it is paused" in answer.error
        assert web.ask("POST", "/jobs/seen/resume", token=TOKEN).code == 200
        shared.await_state(job, "running")
        assert web.ask("POST", f"/jobs/{job}/cancel", token=TOKEN).code == 200
        shared.await_state(job, "cancelled")
        answer = web.ask("POST", f"/jobs/{job}/cancel", token=TOKEN)
        assert answer.code == 409 and answer.error == f"job {job} is over: cancelled"
        assert web.get("/jobs/999999", TOKEN).code == 404
        assert web.get(f"/jobs/{job}", TOKEN).json["state"] == "cancelled"


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()


# ---- metrics ----


def test_metrics_say_what_there_is_and_survive_a_kill() -> None:
    with cluster("--node", "a=2:A100", "--node", "b=3", "--queue", "default", "--queue", "night",
                 "--round", "1", "--http", "127.0.0.1:0") as ours:  # fmt: skip
        web = Web(ours)
        first = web.metrics()
        assert first['pawl_sched_nodes{state="up"}'] == 2
        assert (
            first['pawl_sched_slots{type="A100"}'] == 2 and first['pawl_sched_slots{type=""}'] == 3
        )
        assert first["adaptdl_sched_job_submission_count"] == 0
        done, failed = ours.sh("true"), ours.sh("echo; exit 3", "--retries", "1")
        ours.await_state(done, "done")
        ours.await_state(failed, "failed")
        runs = ours.sh(LOOP, "--num-nodes", "3", "--queue", "night", "-n", "runs")
        ours.await_state(runs, "running")
        queued = ours.sh(LOOP, "--num-nodes", "5")
        now = web.metrics()
        counters = {
            "adaptdl_sched_job_submission_count": 4,
            "adaptdl_sched_job_submission_count_total": 4,
            'adaptdl_sched_job_completion_time_count{status="Succeeded"}': 1,
            'adaptdl_sched_job_completion_time_count{status="Failed"}': 1,
            'adaptdl_sched_job_completion_time_count{status="Cancelled"}': 0,
            "pawl_sched_job_failures_total": 2,
            "pawl_sched_job_restarts_total": ours.job(failed)["restarts"],
        }
        assert {name: now[name] for name in counters} == counters
        row = ours.job(failed)
        took = now['adaptdl_sched_job_completion_time_sum{status="Failed"}']
        assert abs(took - (row["since"] - row["submitted"])) < 0.01
        assert now['pawl_sched_jobs{queue="night",state="running"}'] == 1
        assert now['pawl_sched_jobs{queue="default",state="queued"}'] == 1
        assert now[f'pawl_sched_job_replicas{{job="{runs}",name="runs"}}'] == 3
        assert sum(v for k, v in now.items() if k.startswith("pawl_sched_slots_used")) == 3
        assert now['pawl_sched_queue_wait_seconds{queue="default"}'] > 0
        assert now['pawl_sched_queue_wait_seconds{queue="night"}'] == 0
        assert now['pawl_sched_events_total{kind="submit"}'] == 4
        assert now["pawl_sched_job_wait_seconds_count"] == 3
        assert now["pawl_sched_decision_seconds_count"] > 0
        assert now["pawl_sched_decision_gap"] == 0  # a small problem is solved exactly
        assert not any(f'job="{job}"' in name for job in (done, failed, queued) for name in now)
        ours.kill()
        ours.start()
        wait(lambda: ours.state(runs) == "running", "it is found")
        again = Web(ours).metrics()
        assert {name: again[name] for name in counters} == counters
        assert again['adaptdl_sched_job_completion_time_sum{status="Failed"}'] == took
        assert again['pawl_sched_events_total{kind="submit"}'] == 0  # since the start


# ---- starting ----


@pytest.fixture
def root() -> Iterator[Path]:
    """Yields a root that is short enough for the sockets in it, as tmp_path may not be."""
    with tempfile.TemporaryDirectory(prefix="pawl-") as name:
        yield Path(name, "s")


def test_what_cannot_be_is_refused_at_the_start(
    token_file: Path, root: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short"
    short.touch(0o600)
    short.write_text("too short\n")
    known = tmp_path / "known"
    known.write_text(TOKEN)
    known.chmod(0o644)
    here = ("--http", "127.0.0.1:0")
    for options, code, word in (
        (("--http", "127.0.0.1"), 2, "must be ADDR:PORT"),
        (("--http", "example.org:80"), 2, "names are not looked up"),
        (("--http", "127.0.0.1:70000"), 2, "must be ADDR:PORT"),
        ((*here, *here, *here), 2, "2 at most"),
        (("--http-token", str(token_file)), 2, "need --http"),
        ((*here, "--http-token", str(short)), 2, "16 to 4096"),
        ((*here, "--http-token", str(known)), 2, "others may read it (mode 644): run chmod 600"),
        ((*here, "--http-token", str(tmp_path / "none")), 3, "No such file"),
    ):
        done = program.run("sched", "--root", root, *options)
        assert done.returncode == code and word in done.stderr, (options, done)
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        done = program.run("sched", "--root", root, "--http", where)
        assert done.returncode == 75 and "another program has that port" in done.stderr
