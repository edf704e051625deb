"""`pawl run --elastic --door URL`: launchers that have no folder in common, but a scheduler.
The scheduler may be killed, stand still, or be out of reach for good."""

from __future__ import annotations

import contextlib
import http.server
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netns
import program
import waits
from cluster import Cluster, cluster
from elastic_launchers import N, running
from elastic_said import EPOCHS, check_each_once, check_no_restart, check_weights, ends
from web import TOKEN, Web, secure, write_certificate

DOOR = "/memberships/job"


class Door:
    """A job's membership at a scheduler, which has the same port after a restart."""

    def __init__(self, ours: Cluster, port: int, token_file: Path) -> None:
        self.ours = ours
        self.url = f"http://127.0.0.1:{port}{DOOR}"
        self.options = ["--token-file", str(token_file)]

    def text(self) -> str:
        """Returns the membership that the scheduler has."""
        answer = Web(self.ours).ask("POST", DOOR, {"launcher": 1023}, token=TOKEN)
        assert answer.code == 200, answer
        return str(answer.json["membership"])

    def job(self, folder: Path, *args: str, options: tuple[str, ...] = (), **env: str) -> Any:
        return running(
            folder,
            *args,
            url=self.url,
            ask=self.text,
            options=[*self.options, *options],
            **env,
        )


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    http = ("--http", f"127.0.0.1:{port}", "--http-token", str(token))
    with cluster("--node", "n=2", *http) as ours:
        yield Door(ours, port, token)


def test_launchers_meet_at_a_scheduler(door: Door, tmp_path: Path) -> None:
    """One comes, is killed with SIGKILL, another one comes and leaves by SIGTERM; the job ends."""
    with door.job(tmp_path, "pause=0.3", options=("--on-term", "leave")) as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        second = job.start(1, "1:1")
        job.wait_for_ranks(2)
        assert sorted(job.numbers()) == [0, 64]
        second.process.kill()
        job.wait_for_ranks(1)
        third = job.start(2, "1:1")
        job.wait_for_ranks(2)
        third.process.send_signal(signal.SIGTERM)
        third.end(79)
        job.wait_for_ranks(1)
        said = job.end(0, -signal.SIGKILL, 79)
    check_no_restart(job.out())
    assert ends(said, "SAMPLES") == [str(N * EPOCHS)]
    check_weights(said, N)
    assert job.membership() == "over\n"


@pytest.mark.slow
def test_the_scheduler_is_killed_again_and_again(door: Door, tmp_path: Path) -> None:
    """The job trains on, and what launchers know of each other is there again. The founder leaves
    while nobody answers."""
    with door.job(tmp_path, "pause=0.3") as job:
        first = job.start(0, "1:1")
        job.wait_for_trained(1)
        job.start(1, "1:1")
        job.wait_for_ranks(2)
        before = door.text()
        door.ours.kill()
        door.ours.start()
        program.wait_until(lambda: door.text() == before, "the scheduler knows the ranks again")
        door.ours.kill()
        first.process.send_signal(signal.SIGUSR1)
        first.end(79)
        door.ours.start()
        program.wait_until(lambda: job.numbers() == [64], "the scheduler learns who has left")
        job.start(2, "1:1")
        job.wait_for_ranks(2)
        job.end(79, 0, 0)
    check_no_restart(job.out())


@pytest.mark.slow
def test_who_reaches_nobody_ends(door: Door, tmp_path: Path) -> None:
    """The scheduler stands still for good. A launcher with a fence ends by SIGALRM, and its ranks
    with it; one without trains on."""
    with door.job(tmp_path, "pause=0.3") as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        job.options = [*job.options, "--fence", "10"]
        fenced = job.start(1, "1:1")
        job.wait_for_ranks(2)
        (rank,) = job.pids_of(fenced)
        assert door.ours.daemon is not None
        door.ours.daemon.send_signal(signal.SIGSTOP)
        fenced.process.wait(program.LIMIT_S)
        assert fenced.process.returncode == -signal.SIGALRM
        program.wait_until(lambda: not program.is_alive(rank), "its rank has ended")
        door.ours.daemon.send_signal(signal.SIGCONT)
        job.wait_for_ranks(1)
        said = job.end(0, -signal.SIGALRM)
    check_each_once(said, dead=(1,), n=N)


class Livez(http.server.BaseHTTPRequestHandler):
    """Answers as the API server of Kubernetes does to everybody."""

    asked = 0

    def do_GET(self) -> None:
        Livez.asked += self.path == "/livez"
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.slow
def test_in_a_pod_the_api_server_counts_as_somebody(door: Door, tmp_path: Path) -> None:
    """While the API server answers, a launcher outlives a scheduler that does not, and then not."""
    (tmp_path / "tls").mkdir()
    write_certificate(tmp_path / "tls", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls/cert.pem", tmp_path / "tls/key.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Livez)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pod = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(server.server_port),
    }
    with door.job(tmp_path, "pause=0.3", options=("--fence", "10"), **pod) as job:
        launcher = job.start(0, "1:1")
        job.wait_for_trained(1)
        assert door.ours.daemon is not None
        door.ours.daemon.send_signal(signal.SIGSTOP)
        waits.stays(lambda: launcher.process.poll() is None, "the launcher lives", 20)
        assert Livez.asked > 0
        server.shutdown()
        server.server_close()
        launcher.process.wait(program.LIMIT_S)
        assert launcher.process.returncode == -signal.SIGALRM
        door.ours.daemon.send_signal(signal.SIGCONT)


ASK = """
import json, ssl, sys, urllib.request
url, folder = sys.argv[1:]
token = open(f"{folder}/token").read().strip()
request = urllib.request.Request(
    url, b'{"launcher": 1023}', {"Authorization": f"Bearer {token}"}, method="POST")
context = ssl.create_default_context(cafile=f"{folder}/cert.pem")
print(json.load(urllib.request.urlopen(request, timeout=60, context=context))["membership"])
"""


@pytest.mark.slow
def test_hosts_without_a_common_folder(tmp_path: Path) -> None:
    """Three hosts, with the scheduler on the first, by TLS. The founder's host leaves."""
    write_certificate(tmp_path, f"IP:{netns.address(0)}")
    url = f"https://{netns.address(0)}:8443{DOOR}"
    with netns.hosts(3) as hosts:
        first = ["ip", "netns", "exec", hosts[0]]

        def ask() -> str:
            done = subprocess.run(
                [*first, sys.executable, "-c", ASK, url, tmp_path],
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stdout

        with (
            cluster("--node", "n=2", *secure(tmp_path, "0.0.0.0:8443"), start=False) as ours,
            running(
                tmp_path,
                "pause=0.3",
                hosts=[*hosts[1:], hosts[0]],
                url=url,
                ask=ask,
                options=["--token-file", f"{tmp_path}/token"],
                PAWL_IFNAME="eth0",
                PAWL_DOOR_CA=f"{tmp_path}/cert.pem",
            ) as job,
        ):
            ours.prefix = first
            ours.start()
            founder = job.start(0, "1:1")
            job.wait_for_trained(1)
            job.start(1, "1:1")
            job.wait_for_ranks(2)
            founder.process.send_signal(signal.SIGUSR1)
            founder.end(79)
            job.wait_for_ranks(1)
            assert ask().startswith(f"{netns.address(2)}:")
            job.start(2, "1:1")
            job.wait_for_ranks(2)
            said = job.end(79, 0, 0)
    check_weights(said, N)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    words = ("--elastic", "1:1", "--node-rank", "0", *options, "--no-python", "true")
    return program.run("run", *words, env=program.clean_env(**program.times(relay_begin=1)))


def test_refusals_are_explained(door: Door, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another token of the tests\n")
    wrong.chmod(0o600)
    foreign = door.url.replace("/memberships/", f"/job/{64 * 'a'}/membership/me/")
    for options, text in [
        (["--door", door.url, "--fence", "4"], "--fence 4: 0, or at least 5 s"),
        (["--door", "http://"], "http[s]://HOST[:PORT]/PATH is needed"),
        (["--door", "https://h"], "http[s]://HOST[:PORT]/PATH is needed"),
        (["--door", "http://127.0.0.1:1/memberships/x"], "Failed to connect to 127.0.0.1 port 1"),
        (["--door", door.url], "HTTP 401: the token is needed"),
        (["--door", door.url, "--token-file", str(wrong)], "HTTP 401: the token is needed"),
        (["--door", f"{door.url}/more", *door.options], "HTTP 404: there is no such path"),
        (["--door", foreign], "HTTP 403"),
    ]:
        done = run(*options)
        assert done.returncode not in (0, 1) and text in done.stderr, (options, done)


@pytest.mark.slow
def test_a_job_of_the_scheduler_has_a_membership(door: Door, tmp_path: Path) -> None:
    """By its URL, without a token, and only for its own."""
    script = 'echo "$ADAPTDL_SUPERVISOR_URL/membership/$ADAPTDL_JOB_ID" > url && sleep 600'
    number = door.ours.sh(script, cwd=tmp_path)
    url_file = tmp_path / "url"
    program.wait_until(lambda: url_file.exists() and url_file.read_text(), "the job runs")
    url = url_file.read_text().strip()

    def ask() -> str:
        answer = Web(door.ours).ask("POST", url[url.index("/job/") :], {"launcher": 1023})
        return str(answer.json["membership"])

    with running(tmp_path, "pause=0.3", url=url, ask=ask) as job:
        job.start(0, "1:1")
        job.wait_for_trained(1)
        job.start(1, "1:1")
        job.wait_for_ranks(2)
        job.end(0, 0)
    assert door.ours.run("cancel", str(number)).returncode == 0
    door.ours.await_state(number, "cancelled")
    done = run("--door", url)
    assert "HTTP 403" in done.stderr or "HTTP 404" in done.stderr, done.stderr
