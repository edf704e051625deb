"""The scheduler over HTTP: what AdaptDL's clients ask, metrics, remote control; and who may not."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pwd
import re
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
import waits
from cluster import Cluster, cluster, wait
from packages import with_package
from web import TOKEN, Answer, Web

USER = pwd.getpwuid(os.getuid()).pw_name
LOOP = "while :; do sleep 0.05; done"
LONG = bool(os.environ.get("PAWL_LONG"))
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
    """For tests that leave nothing behind."""
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
    """One that runs, and what AdaptDL's client reads of its environment."""
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


@pytest.mark.parametrize("whose", ["adaptdl-0.2.11", "pawl/compat/adaptdl"])
def test_adaptdls_names_meet_and_tell(shared: Cluster, whose: str) -> None:
    """Its own package, as it is; and Pawl's in its place."""
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
            # another port; the secret is the same
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
    left.start()  # of a group that never is
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


# ---- nobody touches another's job ----


def test_a_jobs_secret_is_that_jobs(shared: Cluster, web: Web) -> None:
    with a_job(shared, name="one") as (one, env), a_job(shared, name="two") as (two, other):
        mine, yours = path_of(env, web, "hints"), path_of(other, web, "hints")
        secret = mine.split("/")[2]
        assert secret != yours.split("/")[2]
        assert web.ask("PUT", mine, HINTS).code == 200
        for wrong in (
            mine.removesuffix(f"/{one}") + f"/{two}",
            mine.removesuffix(f"/{one}") + "/two",
            mine.removesuffix(f"/{one}") + "/999999",
            mine.replace(f"/{USER}/", "/nobody-of-that-name/"),
            mine.replace(secret, secret[:-1] + ("0" if secret[-1] != "0" else "1")),
            yours.removesuffix(f"/{two}") + f"/{one}",
        ):
            answer = web.ask("PUT", wrong, HINTS)
            assert answer.code == 403 and "not the URL of that job" in answer.error, wrong
        assert web.ask("PUT", mine.removesuffix(f"/{one}") + "/one", HINTS).code == 200  # its name
        assert shared.job(one)["goodput"] > 0 and shared.job(two)["goodput"] is None
        bare = f"/hints/{USER}/{two}"
        assert web.ask("PUT", bare, HINTS).code == 401
        assert web.ask("PUT", bare, HINTS, token=TOKEN + "x").code == 401
        assert web.ask("PUT", bare, HINTS, token=TOKEN[:-1]).code == 401
        assert shared.job(two)["goodput"] is None
        assert web.ask("PUT", bare, HINTS, token=TOKEN).code == 200
        assert shared.job(two)["goodput"] > 0
        # a job's secret is good for nothing else
        prefix = "/job/" + secret
        for path in ("/jobs", f"/jobs/{one}", "/metrics", "/healthz", "/", "/nodes"):
            assert web.get(prefix + path, TOKEN).code in (400, 404)
        assert (shared.root / "http.key").stat().st_mode & 0o777 == 0o600


def test_what_needs_a_token_and_what_does_not(shared: Cluster, web: Web) -> None:
    assert web.get("/healthz").code == 200 and web.get("/metrics").code == 200
    for path in ("/", "/jobs", "/jobs/1", "/nodes", f"/discover/{USER}/1/0"):
        answer = web.get(path)
        assert answer.code == 401 and "Authorization: Bearer TOKEN" in answer.error
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert web.ask("GET", path, Authorization="Bearer ").code == 401
        assert web.ask("GET", path, Authorization="Basic !!!").code == 401
        assert web.ask("GET", path, Authorization="Negotiate x").code == 401
    assert web.ask("POST", "/jobs/1/cancel").headers["www-authenticate"] == "Bearer"


def test_without_a_token_file_nobody_has_one() -> None:
    with cluster(*OPTIONS, "--http", "127.0.0.1:0") as ours:
        web = Web(ours)
        assert web.get("/healthz").code == 200
        for token in (None, "", TOKEN):
            answer = web.get("/jobs", token)
            assert answer.code == 401 and "pawl sched --http-token FILE" in answer.error
        with a_job(ours) as (job, env):
            assert web.ask("PUT", path_of(env, web, "hints"), HINTS).code == 200
            assert ours.job(job)["goodput"] > 0


# ---- control ----


def test_jobs_are_seen_and_controlled_with_the_token(shared: Cluster, web: Web) -> None:
    with a_job(shared, name="seen") as (job, _):
        (row,) = [row for row in web.get("/jobs", TOKEN).json if row["id"] == job]
        (mine,) = [row for row in shared.ask("ls") if row["id"] == job]
        assert row.keys() == mine.keys() and row["nodes"] == mine["nodes"]
        shown = web.get(f"/jobs/{job}", TOKEN).json
        assert (
            shown.keys() == shared.job(job).keys() - {"history"}
            and shown["cwd"] == shared.job(job)["cwd"]
        )
        assert web.get("/jobs/seen", TOKEN).json["id"] == job
        assert web.get("/nodes", TOKEN).json == shared.ask("top")["nodes"]
        basic = {"Authorization": "Basic " + _base64(f"me:{TOKEN}")}
        page = web.ask("GET", "/", **basic)
        assert page.code == 200 and f"<td>{job}</td><td>seen</td>" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        # what a browser sends by itself changes nothing
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
        assert now["pawl_sched_decision_gap"] == 0  # so little is solved exactly
        assert not any(f'job="{job}"' in name for job in (done, failed, queued) for name in now)
        ours.kill()
        ours.start()
        wait(lambda: ours.state(runs) == "running", "it is found")
        again = Web(ours).metrics()
        assert {name: again[name] for name in counters} == counters
        assert again['adaptdl_sched_job_completion_time_sum{status="Failed"}'] == took
        assert again['pawl_sched_events_total{kind="submit"}'] == 0  # since it was started


# ---- from elsewhere ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
               "subjectAltName=IP:127.0.0.1,DNS:certified.example",
               "-keyout", str(key), "-out", str(cert)]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=program.LIMIT_S)
    except FileNotFoundError:
        pytest.skip("openssl, which makes a certificate, is not there")
    return cert, key


@pytest.fixture
def root() -> Iterator[Path]:
    """Of a scheduler: short enough for the sockets in it, as tmp_path may not be."""
    with tempfile.TemporaryDirectory(prefix="pawl-") as name:
        yield Path(name, "s")


def test_others_reach_it_with_token_and_tls_only(
    token_file: Path, certificate: tuple[Path, Path], root: Path
) -> None:
    cert, key = certificate
    token = ("--http-token", str(token_file))
    tls = ("--http-cert", str(cert), "--http-key", str(key))
    for some in ((), token, tls, (*token, *tls[:2]), (*token, *tls[2:])):
        done = program.run("sched", "--root", root, "--http", "0.0.0.0:0", *some)
        assert done.returncode == 2 and "--http-token, --http-cert, --http-key" in done.stderr
    with cluster(*OPTIONS, "--http", "127.0.0.1:0", "--http", "0.0.0.0:0", *token, *tls) as ours:
        context = ssl.create_default_context(cafile=str(cert))
        here, there = Web(ours, 0), Web(ours, 1, context)
        assert here.url.startswith("http://") and there.url.startswith("https://")
        assert there.get("/healthz").code == 200
        assert there.get("/metrics").code == 401 and here.get("/metrics").code == 200
        assert there.metrics(TOKEN)['pawl_sched_nodes{state="up"}'] == 2
        assert there.metrics(TOKEN)["pawl_sched_http_connections"] >= 1
        assert there.get("/jobs", TOKEN).json == []
        with a_job(ours) as (job, env):
            assert env["ADAPTDL_SUPERVISOR_URL"].startswith(here.url)  # it is here
            assert web_code(Web(ours, 1), "/healthz") != 200  # not in the clear
            found = there.get(f"/discover/{USER}/{job}/1?timeout=1", TOKEN)
            assert found.code == 408
            assert there.ask("POST", f"/jobs/{job}/cancel", token=TOKEN).code == 200


def web_code(web: Web, path: str) -> int:
    try:
        return web.get(path).code
    except (OSError, http.client.HTTPException):
        return 0


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
        (("--http", "127.0.0.1"), 2, "ADDR:PORT is needed"),
        (("--http", "example.org:80"), 2, "names are not looked up"),
        (("--http", "127.0.0.1:70000"), 2, "ADDR:PORT is needed"),
        ((*here, *here, *here), 2, "2 at most"),
        (("--http-token", str(token_file)), 2, "need --http"),
        ((*here, "--http-token", str(short)), 2, "16 to 4096"),
        ((*here, "--http-token", str(known)), 2, "others may read it (mode 644): chmod 600"),
        ((*here, "--http-token", str(tmp_path / "none")), 3, "No such file"),
    ):
        done = program.run("sched", "--root", root, *options)
        assert done.returncode == code and word in done.stderr, (options, done)
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        done = program.run("sched", "--root", root, "--http", where)
        assert done.returncode == 75 and "another program has that port" in done.stderr


NO_AEAD = "ECDHE-ECDSA-AES256-SHA:ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0"


def test_names_of_the_certificate_and_ciphers_that_authenticate(
    token_file: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    tls = ("--http-cert", str(cert), "--http-key", str(key))
    http = ("--http", "0.0.0.0:0", "--http-token", str(token_file))
    with cluster(*OPTIONS, *http, *tls) as ours:
        context = ssl.create_default_context(cafile=str(cert))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        web = Web(ours, 0, context)
        for host, code in (("certified.example", 200), ("rebound.example", 421)):
            assert web.ask("GET", "/healthz", Host=host).code == code
        context.set_ciphers(NO_AEAD)  # CBC
        with pytest.raises(ssl.SSLError):
            web.get("/healthz")


def test_a_host_that_is_not_ours_is_refused(token_file: Path) -> None:
    """As a page has it whose name was made to mean 127.0.0.1 (DNS rebinding)."""
    http = ("--http", "127.0.0.1:0", "--http-name", "sched.example", "--http-token", token_file)
    with cluster(*OPTIONS, *map(str, http)) as ours:
        web = Web(ours)
        port = web.address[1]
        for host in ("rebound.example", f"rebound.example:{port}", "localhost.rebound.example", ""):
            for path in ("/healthz", "/metrics", "/jobs", "/nothing"):
                answer = web.ask("GET", path, token=TOKEN, Host=host)
                assert answer.code == 421 and "pawl sched --http-name" in answer.error, host
        twice = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\n"
        assert b" 200 " not in web.raw(twice, whole=True)
        steers = b"GET /healthz HTTP/1.1\r\nHost: a\xe2\x80\xae\xff\r\n\r\n"
        assert rb"a\\u202e\\xff" in web.raw(steers, whole=True)
        # a tunnel of ssh, a scrape by address, this machine by name, a proxy by its own
        for host in ("localhost:9000", f"127.0.0.1:{port}", "10.1.2.3:9090", "[::1]:80",
                     socket.gethostname(), "sched.example:443"):  # fmt: skip
            assert web.ask("GET", "/healthz", Host=host).code == 200, host
        assert b" 200 " in web.raw(b"GET /healthz HTTP/1.0\r\n\r\n", whole=True)


# ---- attacks ----


def nested(depth: int) -> bytes:
    return b'{"gradParams":' * depth + b"1" + b"}" * depth


WRONG_HINTS: dict[str, bytes] = {
    "empty": b"",
    "text": b"hints",
    "array": b"[]",
    "null": b"null",
    "cut": json.dumps(HINTS).encode()[:-1],
    "more": json.dumps(HINTS).encode() + b"{}",
    "NaN": json.dumps({**HINTS, "progress": float("nan")}).encode(),
    "Infinity": json.dumps({**HINTS, "progress": float("inf")}).encode(),
    "negative": json.dumps({**HINTS, "maxBatchSize": -1}).encode(),
    "negative time": json.dumps({**HINTS, "perfParams": {"alpha_c": -1, "beta_c": 1}}).encode(),
    "1e300": json.dumps({**HINTS, "initBatchSize": 1e300}).encode(),
    "1e400": json.dumps(HINTS).encode().replace(b"0.001", b"1e400"),
    "300 digits": json.dumps({**HINTS, "maxBatchSize": 10**300}).encode(),
    "60,000 digits": json.dumps(HINTS).encode().replace(b"256", b"9" * 60000),
    "texts": json.dumps({**HINTS, "perfParams": {"alpha_c": "0.1"}}).encode(),
    "types": json.dumps({**HINTS, "perfParams": [1, 2]}).encode(),
    "bounds": json.dumps({**HINTS, "localBszBounds": [64]}).encode(),
    "turned bounds": json.dumps({**HINTS, "localBszBounds": [64, 8]}).encode(),
    "twice": json.dumps(HINTS).encode().replace(b"{", b'{"maxBatchSize": 1,', 1),
    "nested": nested(1000),
    "nested deep": nested(3000),
    "binary": bytes(range(256)) * 16,
    "no UTF-8": json.dumps(HINTS).encode().replace(b"gamma", b"g\xff\xfea"),
    "NUL": json.dumps(HINTS).encode().replace(b"gamma", b"g\\u0000a", 1) + b"\0",
}


def test_hints_that_are_wrong_leave_those_that_are_right(shared: Cluster, web: Web) -> None:
    with a_job(shared) as (job, env):
        path = path_of(env, web, "hints")
        assert web.ask("PUT", path, HINTS).code == 200
        right = shared.job(job)["goodput"]
        for what, body in WRONG_HINTS.items():
            answer = web.ask("PUT", path, body)
            assert answer.code == 400 and answer.error, (what, answer)
            assert shared.job(job)["goodput"] == right, what
        assert web.ask("PUT", path, iter([json.dumps(HINTS).encode()])).code == 200  # in chunks
        kind = 'pawl_sched_events_total{kind="hints"}'
        taken = web.metrics()[kind]
        assert web.ask("PUT", path, {**HINTS, "unknown": [1]}).code == 200
        assert web.metrics()[kind] == taken + 1


def test_bodies_are_bounded(shared: Cluster, web: Web) -> None:
    with a_job(shared) as (job, env):
        path = path_of(env, web, "hints")
        assert web.ask("PUT", path, b" " * 65537).code == 413
        assert web.ask("PUT", path, iter([b" " * 30000] * 5)).code == 413
        head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n"
        assert b" 413 " in web.raw(f"{head}\r\n".encode())  # before it is sent
        assert b" 413 " in web.raw(f"{head}Expect: 100-continue\r\n\r\n".encode())
        with pytest.raises((OSError, http.client.HTTPException)):  # a stream without end
            web.ask("PUT", path, iter([b" " * 65536] * 1600))
        assert web.get("/healthz").code == 200 and shared.job(job)["goodput"] is None


def test_methods_and_paths_that_are_not(shared: Cluster, web: Web) -> None:
    for method in (
        "POST",
        "PUT",
        "DELETE",
        "OPTIONS",
        "PATCH",
        "TRACE",
        "CONNECT",
        "get",
        "X" * 99,
    ):
        answer = web.ask(method, "/metrics")
        assert answer.code == 405 and answer.headers["allow"] == "GET, HEAD", method
    assert web.get("/hints/a/b").headers["allow"] == "PUT"
    assert web.ask("PUT", "/jobs/1/cancel").headers["allow"] == "POST"
    head = web.ask("HEAD", "/metrics")
    assert head.code == 200 and head.text == "" and int(head.headers["content-length"]) > 1000
    for path in ("/nothing", "/healthz/x", "/hints/a", "/a/b/c/d/e/f/g/h"):
        assert web.get(path, TOKEN).code == 404, path
    for path in ("/../etc/passwd", "/jobs/..", "/jobs/%2e%2e/x", "/jobs/%2fetc", "/jobs/%00",
                 "/healthz%00", "/jobs/%", "/jobs/%zz", "//healthz", "/jobs/" + "a" * 100,
                 "/jobs/%ff", "/jobs/a%0d%0ab"):  # fmt: skip
        assert web.get(path, TOKEN).code == 400, path
    assert web.get("/healthz?" + "a=b&" * 100).code == 200
    assert web.get("/" + "a" * 100000).code in (400, 414, 431)
    assert web.ask("GET", "/healthz", X="y" * 100000).code == 431


def test_what_is_no_http_is_no_request(web: Web) -> None:
    head = (
        f"PUT /hints/a/b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    )
    for text in (
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",  # no Host
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500 + b"\r\n\r\n",  # TLS
        head + b"Content-Length: -5\r\n\r\n",
        head + b"Content-Length: 5x\r\n\r\n",
        head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}   ",
        head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        b"POST /jobs/1/cancel HTTP/1.0\r\n\r\n",
    ):
        answer = web.raw(text, whole=True)
        assert b" 200 " not in answer.split(b"\r\n")[0], text
        assert web.get("/healthz").code == 200


def test_connections_that_say_nothing_do_not_keep_others_out(shared: Cluster, web: Web) -> None:
    """Each with half a request. In make test-long there are more of them than there may be."""
    with contextlib.ExitStack() as stack:
        for i in range(2000 if LONG else 200):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(web.address)
            if i % 2 == 0:
                with contextlib.suppress(OSError):
                    one.send(b"GET /healthz HTTP/1.1\r\nHos")
        assert shared.run("ls").returncode == 0  # the socket is another matter
        assert web.get("/healthz").code == 200


def test_who_takes_all_places_silences_nobody() -> None:
    """Connections that drip, more of them than there are places. Who comes is served meanwhile; and
    after all of them were ended at one sweep, and are gone, as well."""
    with (
        cluster(*OPTIONS, "--http", "127.0.0.1:0", start=False) as ours,
        contextlib.ExitStack() as stack,
    ):
        ours.start(PAWL_TEST_TIMES="http_request=2,http_sweep=4")
        web = Web(ours)
        alive = [stack.enter_context(socket.socket()) for _ in range(300)]
        for one in alive:
            one.setblocking(False)
            one.connect_ex(web.address)

        def drip() -> bool:
            for one in list(alive):
                try:
                    one.send(b"GET /healthz HTTP/1.1\r\nX-a: ")
                except BlockingIOError:
                    pass
                except OSError:
                    alive.remove(one)
            return not alive

        drip()
        program.wait_until(
            lambda: web.metrics()["pawl_sched_http_connections"] >= 250, "places that are taken"
        )
        assert web.get("/healthz").code == 200 and len(alive) > 200
        program.wait_until(drip, "an end of all that drip")
        assert web.get("/healthz").code == 200


def test_a_job_that_waits_much_leaves_room_for_another(shared: Cluster, web: Web) -> None:
    """128 may wait in discovery: of the job that has most the first is told to ask again. Who has
    left while it waited is found out."""
    with a_job(shared, name="many") as (many, _), a_job(shared, name="one") as (one, _):
        with contextlib.ExitStack() as stack:

            def wait_for(job: int) -> socket.socket:
                asks = stack.enter_context(socket.create_connection(web.address))
                asks.settimeout(program.LIMIT_S)
                asks.sendall(
                    f"GET /discover/{USER}/{job}/9?timeout=300 HTTP/1.1\r\nHost: localhost\r\n"
                    f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
                )
                return asks

            def connections() -> float:
                return web.metrics()["pawl_sched_http_connections"]

            waiting = [wait_for(many) for _ in range(128)]
            program.wait_until(lambda: connections() >= 129, "all of them")
            assert b" 503 " in wait_for(many).recv(4096)  # it has no more than itself to blame
            wait_for(one)
            first, _, _ = select.select(waiting, [], [], program.LIMIT_S)
            assert len(first) == 1 and b" 408 " in first[0].recv(4096)
        program.wait_until(lambda: connections() < 10, "the others' end")


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a minute: in make test-long")
def test_a_request_that_drips_is_ended(web: Web) -> None:
    with socket.create_connection(web.address, timeout=program.LIMIT_S) as slow:
        began = time.monotonic()
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")

        def is_ended() -> bool:
            try:
                slow.sendall(b"X: y\r\n")
            except ConnectionError:
                return True
            waits.pretend_to_work(2)
            return False

        program.wait_until(is_ended, "it is ended")
        assert time.monotonic() - began > 30
    assert web.get("/healthz").code == 200
