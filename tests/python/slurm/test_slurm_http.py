"""Jobs of AdaptDL on a real Slurm: the URL that they get, and the answers there."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import netns
import program
import ranks
import slurm
from cluster import wait
from conftest import real_core
from packages import with_package
from test_sched_http import HINTS
from test_slurm_sched import LIMIT_S, Scheduler, scheduler
from web import TOKEN, Web, secure, write_certificate

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

USER = pwd.getpwuid(os.getuid()).pw_name
HERE = Path(__file__).parent
NODES = 3
Secure = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="module")
def ours() -> Iterator[slurm.Slurm]:
    with slurm.own_cluster(NODES) as made:
        yield made


@pytest.fixture(scope="module")
def tls() -> Iterator[Path]:
    """A folder with cert.pem, key.pem and token, for all who ask."""
    with tempfile.TemporaryDirectory(prefix="pawl-tls-", dir="/tmp") as name:
        write_certificate(Path(name), "DNS:localhost", "IP:127.0.0.1", f"IP:{netns.address(0)}")
        yield Path(name)


def start(made: Scheduler, tls: Path, **env: str) -> None:
    """Starts the scheduler: pilots inherit its environment, and jobs that of their pilots."""
    made.start(REQUESTS_CA_BUNDLE=f"{tls}/cert.pem", SSL_CERT_FILE=f"{tls}/cert.pem", **env)


def asks(made: Scheduler, *options: str, hints: str = "") -> int:
    words = ["--env", f"PAWL_TEST_DIR={made.folder}", *options]
    return made.submit(
        sys.executable, str(HERE / "adaptdl_asks_job.py"), *([hints] if hints else []),
        options=words,
    )  # fmt: skip


def asked(made: Scheduler, group: int) -> list[dict[str, Any]]:
    """Returns the answers that replicas of that group got. A line that is being written does not
    count."""
    path = made.folder / "asked"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [row for row in map(json.loads, lines) if row["group"] == group]


def heard(made: Scheduler, group: int, replicas: int, since: int = 0) -> list[dict[str, Any]]:
    """Waits until each replica has an answer, after the first ``since`` lines of that group."""

    def all_have() -> bool:
        rows = [row for row in asked(made, group)[since:] if row["code"] == 200]
        return {row["rank"] for row in rows} == set(range(replicas))

    wait(all_have, f"{replicas} replicas of group {group} have an answer", LIMIT_S)
    return [row for row in asked(made, group) if row["code"] == 200]


def test_addresses_of_hosts_by_rank(tls: Path) -> None:
    """Three hosts, with addresses of their own: a job on two of them goes on over the scheduler's
    death, and a node's. Answers always match the start of the job."""
    folder = Path(tempfile.mkdtemp(prefix="pawl-slurm-", dir="/tmp"))
    try:
        with slurm.on_hosts(folder, NODES) as hosts:
            port = ranks.free_port()
            options = secure(tls, f"0.0.0.0:{port}")
            where = ("--http-name", netns.address(0))
            with scheduler(hosts, "--pool", "cpu=1:0..3", *options, *where, start=False) as made:
                made.prefix = hosts.inside(0)
                _two_of_three(made, tls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _two_of_three(made: Scheduler, tls: Path) -> None:
    start(made, tls, PAWL_IFNAME="eth0")  # names of these hosts are not looked up
    job = asks(made, "--num-nodes", "2")
    rows = heard(made, 0, 2)
    addresses = rows[0]["nodes"]
    assert len(set(addresses)) == 2 and set(addresses) < {netns.address(i) for i in range(3)}
    made.kill()
    wait(lambda: asked(made, 0)[-1]["code"] == 0, "nobody answers")
    count = len(asked(made, 0))
    start(made, tls, PAWL_IFNAME="eth0")
    rows = heard(made, 0, 2, since=count)
    assert all(row["addresses"] == row["nodes"] == addresses for row in rows), rows
    assert {(row["rank"], row["of"], row["port"]) for row in rows} == {
        (rank, 2, rows[0]["port"]) for rank in (0, 1)
    }
    gone = made.job(job)["nodes"].split()[1].partition(".")[0]
    (pilot,) = (pid for pid, node in made.pilot_processes().items() if node == gone)
    os.kill(pilot, signal.SIGKILL)
    again = heard(made, 1, 2)
    assert all(row["addresses"] == row["nodes"] for row in again), again
    assert {row["code"] for row in asked(made, 0)} <= {200, 0, 408}
    assert all(row["addresses"] == addresses for row in asked(made, 0) if row["code"] == 200)
    assert {row["before"] for row in asked(made, 1) if row["before"]} == {408}
    assert again[0]["port"] != rows[0]["port"]
    made.run("cancel", str(job))
    made.over(job)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["adaptdl-0.2.11", "pawl/compat/adaptdl"])
def test_adaptdls_names_meet_and_tell(ours: slurm.Slurm, tls: Path, whose: str) -> None:
    """AdaptDL's own package, and Pawl's in its place, meet on two nodes, by this host's name."""
    name, _, release = whose.partition("-")
    env = with_package(name, release) if release else program.clean_env()
    options = (*secure(tls, "0.0.0.0:0"), "--http-name", "localhost")
    with scheduler(ours, "--pool", "cpu=1:0..2", *options, start=False) as made:
        start(made, tls)
        job = made.submit(
            sys.executable, str(program.script("adaptdl_client_job.py")),
            options=["--num-nodes", "2", "--env", f"PYTHONPATH={env['PYTHONPATH']}"],
        )  # fmt: skip

        def printed() -> str:
            return "".join(p.read_text() for p in (made.root / f"jobs/{job}").glob("log*"))

        def have_met() -> bool:
            return "TOLD" in printed() and printed().count("MET ") == 2

        wait(lambda: have_met() or made.state(job) == "failed", "they meet, and tell", LIMIT_S)
        met = [line.split() for line in printed().splitlines() if line.startswith("MET ")]
        assert sorted(words[1:3] for words in met) == [["2", "0"], ["2", "1"]], printed()
        assert all(whose in words[3] for words in met), met
        wait(lambda: made.job(job)["goodput"] is not None, "hints that arrived")
        assert "WARNING:adaptdl.sched" not in printed()
        made.run("cancel", str(job))
        made.over(job)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_replicas_are_told_where_they_are_once_they_have_changed(
    ours: slurm.Slurm, tls: Path, nodes: int
) -> None:
    """A job sends hints to its URL, and gets a second replica: on its node, where `pawl run` starts
    both again, or on another, for which the job starts again. Each replica asks anew."""
    pool = f"cpu={2 // nodes}:0..{nodes}"
    options = (*secure(tls, "127.0.0.1:0", "0.0.0.0:0"), "--http-name", "localhost")
    with scheduler(ours, "--pool", pool, *options, start=False) as made:
        start(made, tls)
        assert "jobs get the URL https://localhost:" in made.said_so()
        file = made.folder / "hints"
        file.write_text(json.dumps({**HINTS, "gradParams": {"norm": 1e-3, "var": 1e3}}))
        job = asks(made, "--replicas", "1:2", hints=str(file))
        (address,) = heard(made, 0, 1)[0]["addresses"]
        rows = heard(made, 1, 2)
        assert all(row["addresses"] == [address] * 2 and row["of"] == 2 for row in rows), rows
        assert all(row["addresses"] == [address] for row in asked(made, 0) if row["code"] == 200)
        wait(lambda: made.lines(job) != [], "it says so")
        assert made.lines(job)[0].endswith("TOLD 200 None"), made.log(job)
        assert {len(row["nodes"]) for row in rows} == {nodes}
        wait(lambda: made.state(job) == "running", "it runs")
        here = Web(made, 0)
        there = Web(made, 1, ssl.create_default_context(cafile=f"{tls}/cert.pem"))
        for web in (here, there):
            assert web.get(f"/discover/{USER}/{job}/1", TOKEN).json == [address] * 2
            text = web.metrics(TOKEN)
            assert [n for key, n in text.items() if "job_replicas{" in key] == [2], text
            assert len(web.get("/nodes", TOKEN).json) == nodes
            assert web.get("/", TOKEN).code == 200
        assert there.get("/jobs", TOKEN).json[0]["replicas"] == 2
        assert there.ask("POST", f"/jobs/{job}/cancel", token=TOKEN).code == 200
        made.over(job)
        assert there.get(f"/discover/{USER}/{job}/1", TOKEN).code == 404


def test_no_url_is_told_that_could_not_work(ours: slurm.Slurm, tls: Path) -> None:
    """A URL of this machine alone is useless for jobs on other hosts; it takes hints all
    the same."""
    for addresses in (["127.0.0.1:0"], ["127.0.0.1:0", "0.0.0.0:0"]):
        with scheduler(ours, "--pool", "cpu=1:0..1", *secure(tls, *addresses)) as made:
            assert "jobs get no URL" in made.said_so()
            job = made.sh("env; echo up; sleep 1000")
            wait(lambda job=job, made=made: "up" in made.log(job), "it runs", LIMIT_S)
            assert "PAWL_SCHED_JOB=" in made.log(job) and "ADAPTDL_" not in made.log(job)
            web = Web(made)
            found = web.get(f"/discover/{USER}/{job}/0", TOKEN)
            assert found.code == 200 and len(found.json) == 1
            assert web.ask("PUT", f"/hints/{USER}/{job}", HINTS, token=TOKEN).code == 200
            assert made.job(job)["goodput"] > 0
            made.run("cancel", str(job))
            made.over(job)


def test_what_cannot_be_is_refused(tls: Path) -> None:
    pool = ("--engine", "slurm", "--pool", "cpu=1:0..1")
    with tempfile.TemporaryDirectory(prefix="pawl-", dir="/tmp") as root:
        for options, word in (
            ((*pool, "--http-name", "a"), "need --http"),
            ((*pool, "--http", "127.0.0.1:0", "--http-name", "a"), "that other nodes reach"),
            ((*pool, *secure(tls, "0.0.0.0:0"), "--http-name", "a/b"), "the name of a host"),
            ((*pool, *secure(tls, "0.0.0.0:0"), "--http-name", "a:1"), "the name of a host"),
        ):
            done = program.run("sched", "--root", f"{root}/s", *options)
            assert done.returncode == 2 and word in done.stderr, (options, done)
