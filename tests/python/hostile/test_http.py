"""HTTP as a stranger uses it: another job's secret, no token, host names that are not ours, bytes
that are no request, and connections that only take places. Meanwhile others are served, and a
stranger changes nothing that belongs to others."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

import program
import waits
from cluster import Cluster, cluster
from test_sched_http import HINTS, OPTIONS, USER, a_job, path_of
from test_sched_http import root as root  # fixtures
from test_sched_http import shared as shared
from test_sched_http import token_file as token_file
from test_sched_http import web as web
from web import TOKEN, Web

LONG = bool(os.environ.get("PAWL_LONG"))

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
        # A job's name stands for its number.
        assert web.ask("PUT", mine.removesuffix(f"/{one}") + "/one", HINTS).code == 200
        assert shared.job(one)["goodput"] > 0 and shared.job(two)["goodput"] is None
        bare = f"/hints/{USER}/{two}"
        assert web.ask("PUT", bare, HINTS).code == 401
        assert web.ask("PUT", bare, HINTS, token=TOKEN + "x").code == 401
        assert web.ask("PUT", bare, HINTS, token=TOKEN[:-1]).code == 401
        assert shared.job(two)["goodput"] is None
        assert web.ask("PUT", bare, HINTS, token=TOKEN).code == 200
        assert shared.job(two)["goodput"] > 0
        # A job's secret is good for nothing else.
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
            # The job uses the URL on this machine.
            assert env["ADAPTDL_SUPERVISOR_URL"].startswith(here.url)
            assert web_code(Web(ours, 1), "/healthz") != 200  # no plain HTTP on a port of TLS
            found = there.get(f"/discover/{USER}/{job}/1?timeout=1", TOKEN)
            assert found.code == 408
            assert there.ask("POST", f"/jobs/{job}/cancel", token=TOKEN).code == 200


def web_code(web: Web, path: str) -> int:
    try:
        return web.get(path).code
    except (OSError, http.client.HTTPException):
        return 0


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
        context.set_ciphers(NO_AEAD)  # ciphers in CBC mode
        with pytest.raises(ssl.SSLError):
            web.get("/healthz")


def test_a_host_that_is_not_ours_is_refused(token_file: Path) -> None:
    """The Host header is that of a page whose name was made to mean 127.0.0.1 (DNS rebinding)."""
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
        # A tunnel of ssh, a scrape by address, this machine by name, and a proxy by its own name.
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
        # The answer comes before the body is sent.
        assert b" 413 " in web.raw(f"{head}\r\n".encode())
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
    """Each connection has sent half a request. make test-long opens more of them than the server
    allows."""
    with contextlib.ExitStack() as stack:
        for i in range(2000 if LONG else 200):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(web.address)
            if i % 2 == 0:
                with contextlib.suppress(OSError):
                    one.send(b"GET /healthz HTTP/1.1\r\nHos")
        assert shared.run("ls").returncode == 0  # the socket of the commands is not affected
        assert web.get("/healthz").code == 200


def test_who_takes_all_places_silences_nobody() -> None:
    """More connections than there are places send single bytes slowly. Others are served meanwhile,
    and also after all slow ones were closed in one sweep."""
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
    """At most 128 requests may wait in discovery. Then the first one of the job that has most gets
    the answer to ask again. The server notices clients that have left while they waited."""
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
            assert b" 503 " in wait_for(many).recv(4096)  # the job itself takes all the places
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
