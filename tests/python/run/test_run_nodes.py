"""`pawl run --nnodes`: jobs of several nodes, their failures, and admission."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import netns
import nodes
import program
import waits
from conftest import real_core

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

TRAIN = program.script("nodes_rank.py")


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


MEET = """
    import os, torch
    import torch.distributed as dist
    dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    mine = torch.tensor([1.0 + dist.get_rank()])
    dist.all_reduce(mine)
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR"
    print(">", mine.item(), *(os.environ[name] for name in names.split()), flush=True)
    assert "PAWL_TOKEN" not in os.environ
    dist.barrier()
    dist.destroy_process_group()  # or gloo's threads may abort a process that ends
"""

SLEEP = """
    import os, signal, time
    {extra}
    print("> here", os.environ["RANK"], os.environ["PAWL_ATTEMPT"], flush=True)
    time.sleep(1000)  # pace
"""


@pytest.mark.parametrize("backend", ["gloo", "pawl"])
def test_a_script_runs_on_nodes_of_different_size(tmp_path: Path, backend: str) -> None:
    with nodes.job(tmp_path, 2, write(tmp_path / "meet.py", MEET)) as job:
        first = job.start(0, "-n", "2", "--node-rank", "0", BACKEND=backend)
        second = job.start(1, "-n", "1", BACKEND=backend)
        assert job.end() == [0, 0], job.texts()
        assert sorted(first.said()) == [f"6.0 {r} {r} 3 2 0 2 10.79.0.1" for r in (0, 1)]
        assert second.said() == ["6.0 2 0 3 1 1 2 10.79.0.1"]


SERVED = """
    import os, sys, time, torch
    import torch.distributed as dist
    print("> servers", len(os.environ["PAWL_SERVERS"].split(",")), flush=True)
    dist.init_process_group("pawl")
    for step in range(int(sys.argv[1])):
        mine = torch.full((100_000,), 1.0 + dist.get_rank())
        dist.all_reduce(mine)
        assert mine.eq(3).all()
        if step == 3:
            print("> sums", os.environ["PAWL_ATTEMPT"], flush=True)
        time.sleep(0.05)  # pace
"""


def serve(job: nodes.Nodes, host: int, token: str = nodes.TOKEN) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", job.hosts[host], program.find(), "serve"]
    return subprocess.Popen(
        [*command, "--rendezvous", f"{netns.address(0)}:{nodes.PORT}"],
        env=program.clean_env(PAWL_TOKEN=token), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_servers_are_waited_for(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 3, write(tmp_path / "served.py", SERVED), "10") as job:
        ranks = [job.start(host, "--servers", "1") for host in (0, 1)]
        ranks[0].hear("and for 1 of 1 servers")
        server = serve(job, 2)
        assert job.end() == [0, 0], job.texts()
        said = server.communicate(timeout=program.LIMIT_S)[0]
        assert server.returncode == 0, said
        assert all(rank.said() == ["servers 1", "sums 0"] for rank in ranks)
    assert "serves the job at" in said
    assert "a group of 2 ranks, server 0 of 1: begins" in said
    assert "the job ended with status 0" in said


def test_a_lost_server_is_replaced(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 4, write(tmp_path / "served.py", SERVED), "100000") as job:
        ranks = [job.start(host, "--servers", "1", "--max-restarts", "0") for host in (0, 1)]
        server = serve(job, 2)
        ranks[1].hear("> sums 0")
        server.kill()
        server.communicate()
        ranks[1].hear("server 10.79.0.3:.* is lost")
        other = serve(job, 3)
        ranks[1].hear("> sums 1")
        ranks[0].signal(signal.SIGTERM)
        assert job.end() == [143, 143], job.texts()
        other.communicate(timeout=program.LIMIT_S)
        assert other.returncode == 143


def test_a_server_with_another_token_is_not_let_in(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 3, write(tmp_path / "served.py", SERVED), "10") as job:
        first = job.start(0, "--servers", "1")
        first.hear("coordinating at")
        server = serve(job, 2, token="another token of more than sixteen")
        assert server.stdout is not None
        said = server.stdout.readline() + server.stdout.readline()  # name, and a line
        assert "looking for the coordinator" in said
        server.terminate()
        server.communicate()
        assert server.returncode == 128 + signal.SIGTERM
        assert "servers" in first.text()


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_nodes_meet_by_ipv6(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 2, write(tmp_path / "meet.py", MEET)) as job:
        for i, host in enumerate(job.hosts):
            netns.ip("-n", host, "addr", "add", f"fd79::{i + 1}/64", "dev", "eth0", "nodad")
            netns.ip(
                "-n", host, "addr", "flush", "dev", "eth0", "scope", "global", "to", "10.0.0.0/8"
            )
        for i in (0, 1):
            job.start(i, "--rendezvous", "[fd79::1]:29555")
        assert job.end() == [0, 0], job.texts()
        assert job.nodes[1].said()[0].startswith("3.0 1 0 2 1 1 2 fd79::1")


def test_a_worker_that_fails_restarts_all_nodes(tmp_path: Path) -> None:
    script = """
        import os, pathlib, sys, time
        attempt = os.environ["PAWL_ATTEMPT"]
        print("> attempt", attempt, os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
        other = pathlib.Path("0." + attempt)
        if os.environ["RANK"] == "0":
            other.touch()
        while os.environ["RANK"] == "0" or not other.exists():
            time.sleep(0.05)  # pace
        sys.exit(9)
    """
    with nodes.job(tmp_path, 2, write(tmp_path / "fail.py", script)) as job:
        for i in (0, 1):
            job.start(i, "--max-restarts", "2", "--node-rank", str(i), SLURM_RESTART_COUNT="4")
        assert job.end() == [9, 9], job.texts()
        for node in job.nodes:
            assert node.said() == ["attempt 4 0", "attempt 5 1", "attempt 6 2"]
            assert len(re.findall(r"rank 1 \(pid \d+\) exited with code 9", node.text())) == 3


@pytest.mark.parametrize("at", [[0], [1], [0, 1]])
def test_a_signal_at_one_node_reaches_all(tmp_path: Path, at: list[int]) -> None:
    """A signal at all nodes, as by srun, counts as one: no node takes it for a second signal, which
    would kill."""
    extra = """
    def finish(*args):
        time.sleep(0.5); print("> saved", flush=True); os._exit(0)  # pace
    signal.signal(signal.SIGTERM, finish)
    """
    script = textwrap.dedent(SLEEP).format(extra=textwrap.dedent(extra))
    with nodes.job(tmp_path, 2, write(tmp_path / "leave.py", script)) as job:
        for i in (0, 1):
            job.start(i, "--node-rank", str(i))
        for node in job.nodes:
            node.hear("> here")
        told = [job.nodes[i].supervisor() for i in at]
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):  # reaches all at once
            for pid in told:
                os.kill(pid, number)
        assert job.end() == [143, 143], job.texts()
        for node in job.nodes:
            assert node.said()[-1] == "saved"
            assert "SIGTERM: workers have 22 s" in node.text()


def test_a_network_that_parts_and_comes_back(tmp_path: Path) -> None:
    script = write(tmp_path / "sleep.py", SLEEP.format(extra=""))
    with nodes.job(tmp_path, 2, script) as job:
        first, second = (job.start(i) for i in (0, 1))
        for node in job.nodes:
            node.hear("> here . 0")
        netns.ip("-n", job.hosts[1], "link", "set", "eth0", "down")
        first.hear(r"node \d \(10.79.0.2\) is lost: no heartbeat for \d")
        second.hear(r"the coordinator at 10.79.0.1:29555 is lost: no heartbeat for \d")
        second.hear("only a node with that address can take its place")
        netns.ip("-n", job.hosts[1], "link", "set", "eth0", "up")
        for node in job.nodes:
            node.hear("> here . 1")
        first.signal(signal.SIGKILL)
        second.hear("the coordinator at 10.79.0.1:29555 is lost: its connection (ended|broke)")


# ---- checkpoints ----


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "lost"), [("gloo", 1), ("pawl", 1), ("pawl", 0)])
def test_a_lost_host_is_replaced_by_an_empty_one(tmp_path: Path, backend: str, lost: int) -> None:
    """A host is lost while the job saves; 0: the coordinator's host, which has rank 0."""
    root = tmp_path / "root"
    where = ",".join(f"{netns.address(i)}:{nodes.PORT}" for i in (0, 1))
    options = ("-n", "2", "--rendezvous", where)
    with nodes.job(tmp_path, 3, TRAIN, str(root), "40", "0.1") as job:
        for i in (0, 1):
            job.start(i, *options, "--node-rank", str(i), BACKEND=backend)
        job.nodes[1 - lost].hear(r"at 6\b")
        job.nodes[lost].lose()
        job.nodes[1 - lost].hear("is lost: ")
        late = job.start(2, *options, BACKEND=backend)
        assert late.end() == 0, job.texts()
        assert job.nodes[1 - lost].end() == 0, job.texts()
        late.hear(f"node {lost} of 2")
        began = [int(line.split()[-1]) for line in late.said() if "from" in line]
        assert len(set(began)) == 1 and began[0] >= 3, job.texts()
        assert all("durable True None" in node.said()[-1] for node in (job.nodes[1 - lost], late))
    assert program.run("ckpt", "verify", root, "--all").returncode == 0
    last = {path.name for path in (root / "global_step40").iterdir()}
    assert {f"mine-rank{rank}" for rank in range(4)} <= last


def test_a_root_that_is_not_shared_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with nodes.job(tmp_path, 2, TRAIN, str(root), "3") as job:
        job.start(0, "--max-restarts", "0", "--node-rank", "0")
        job.prepare = f"mount -t tmpfs none {root}"
        second = job.start(1, "--max-restarts", "0")
        assert job.end() == [1, 1], job.texts()
        assert "is not the one of that name on rank 0's host" in second.text()
        assert not list(root.glob("global_step*"))


# ---- who is let in ----


def test_a_wrong_token_is_named_at_both_ends(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 2, write(tmp_path / "x.py", "")) as job:
        first = job.start(0)  # waits for as long as the second node asks
        second = job.start(1, "--node-timeout", "6", PAWL_TOKEN="another one, as long")
        assert second.end() == 75, job.texts()
        why = "no coordinator within 6 s: 10.79.0.1:29555 (its token is a different one)"
        assert why in second.text(), job.texts()
        first.hear(r"connection from 10.79.0.2:\d+ closed: its token is a different one")


def test_a_token_on_one_side_only(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 2, write(tmp_path / "x.py", "")) as job:
        first = job.start(0, PAWL_TOKEN="")
        second = job.start(1, "--node-timeout", "6")
        assert second.end() == 75, job.texts()
        assert "it has no token, and this node has one (PAWL_TOKEN)" in second.text(), job.texts()
        first.hear(r"it has a token, and this node has none \(PAWL_TOKEN\)")


def test_nodes_that_do_not_come_are_named(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 1, write(tmp_path / "x.py", "")) as job:
        alone = job.start(0, "--node-timeout", "1")
        assert alone.end() == 75
        assert "only 1 of 2 nodes came within 1 s: 10.79.0.1 (1 worker); 1 missing" in alone.text()


def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    script = write(tmp_path / "x.py", "")
    options = ("--nnodes", "2", "--rendezvous", "127.0.0.1")
    short = program.run_script(script, *options, env=program.clean_env(PAWL_TOKEN="short"))
    assert short.returncode == 2 and "PAWL_TOKEN: a token has 16 to 4096 bytes" in short.stderr
    (tmp_path / "token").write_text("abc\n")
    short = program.run_script(script, *options, "--token-file", str(tmp_path / "token"))
    assert short.returncode == 2 and "token: a token has 16 to 4096 bytes" in short.stderr


def speak(host: str, text: bytes, wait_s: float = 0) -> subprocess.Popen[bytes]:
    """Sends text to the coordinator, and ends once it is sent away."""
    code = f"""
import socket, sys, time
s = socket.create_connection(("{netns.address(0)}", {nodes.PORT}))
for byte in {text!r}:
    s.sendall(bytes([byte])); time.sleep({wait_s})  # pace
try:
    while s.recv(1000): pass
except OSError: pass
"""
    return subprocess.Popen(["ip", "netns", "exec", host, sys.executable, "-c", code])


def test_garbage_is_shrugged_off(tmp_path: Path) -> None:
    """Garbage of every kind, while a job waits for its second node, and while it runs."""
    hello = b"pawl-r\x03\x01"
    with nodes.job(tmp_path, 3, write(tmp_path / "sleep.py", SLEEP.format(extra=""))) as job:
        first = job.start(0)
        first.hear("coordinating at")
        strangers = [
            speak(job.hosts[2], text, wait_s)
            for text, wait_s in (
                (b"", 0),
                (b"GET / HTTP/1.1\r\n\r\n", 0.3),  # a peer that leaves at once may not be read
                (b"pawl-", 0.5),
                (b"pawl-r\x02\x01", 0),
                (hello + b"\x16\x03\x01\x02\x00" + bytes(600), 0),
                (hello + b"\x16\x03\x01\x02\x00\x01", 0.3),
                (hello + b"\x17\x03\x03\x40\x00" + bytes(300), 0),
            )
        ]
        job.start(1)
        for node in job.nodes:
            node.hear("> here")
        for stranger in strangers:
            assert stranger.wait(program.LIMIT_S) in (0, 1)  # sent away, though the job goes on

        def is_mentioned() -> bool:
            speak(job.hosts[2], b"GET / HTTP/1.1\r\n\r\n", 0.3).wait(program.LIMIT_S)
            return "it is not a `pawl run`" in first.text()

        program.wait_until(is_mentioned, "one of them is mentioned: one a second is")

        def all_run() -> bool:
            return all("lost" not in n.text() and n.process.poll() is None for n in job.nodes)

        # longer than the silence that is allowed
        waits.stays(all_run, "all run", 8.5 * program.SCALE)


def test_where_nobody_answers(tmp_path: Path) -> None:
    """Another program listens at the address, none does, or the address has no host."""
    with nodes.job(tmp_path, 2, write(tmp_path / "x.py", "")) as job:
        other = subprocess.Popen(
            ["ip", "netns", "exec", job.hosts[0], sys.executable, "-c",
             "import socket, time\n"
             f"s = socket.create_server(('{netns.address(0)}', {nodes.PORT}))\n"
             "print('up', flush=True)\n"
             "while True: s.accept()[0].sendall(b'SSH-2.0-OpenSSH_9.2\\r\\n')"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"up\n"
            where = f"10.79.0.1:{nodes.PORT},10.79.0.1:1,10.79.0.77"
            node = job.start(1, "--rendezvous", where, "--node-timeout", "6")
            same = job.start(0, "--rendezvous", f"10.79.0.1:{nodes.PORT}", "--node-timeout", "6")
            assert node.end() == same.end() == 75
        finally:
            other.kill()
            other.communicate()
        assert "10.79.0.1:29555 (it is not a `pawl run`" in node.text()
        assert "10.79.0.1:1 (Connection refused)" in node.text()
        assert re.search(
            r"10.79.0.77:29400( \((No route to host|Connection timed)|$)", node.text(), re.M
        )
        assert "no coordinator within 6 s: 10.79.0.1:29555 (it is not a `pawl run`" in same.text()


def test_nodes_that_were_told_different_things(tmp_path: Path) -> None:
    with nodes.job(tmp_path, 3, write(tmp_path / "sleep.py", SLEEP.format(extra=""))) as job:
        job.start(0, nnodes=2).hear("coordinating")
        assert job.start(1, nnodes=3).end() == 2
        assert "--nnodes is 3 there and 2 here" in job.nodes[1].text()
        assert job.start(2, "--job", "another").end() == 2
        assert "give all nodes the same --job" in job.nodes[2].text()


# ---- launchers ----


def test_slurm_says_which_nodes(tmp_path: Path) -> None:
    """Starts as `srun --ntasks-per-node=1 pawl run script.py` does; the test makes the names
    resolve."""
    with nodes.job(tmp_path, 2, write(tmp_path / "meet.py", MEET)) as job:
        names = tmp_path / "hosts"
        names.write_text("127.0.0.1 localhost\n10.79.0.1 gpu07\n10.79.0.2 gpu08\n")
        job.prepare = f"mount --bind {names} /etc/hosts"
        for i in (0, 1):
            job.start(
                i, nnodes=0, SLURM_PROCID=str(i), SLURM_NTASKS="2", SLURM_NODEID=str(i),
                SLURM_NNODES="2", SLURM_LOCALID="0", SLURM_JOB_ID="123077",
                SLURM_JOB_NODELIST="gpu[07-08]", SLURM_TASKS_PER_NODE="1(x2)",
                SLURM_STEP_ID="0",
            )  # fmt: skip
        assert job.end() == [0, 0], job.texts()
        assert "job 123077" in job.nodes[0].text() and "gpu07:29477" in job.nodes[0].text()
        assert job.nodes[1].said()[0].startswith("3.0 1 0 2 1 1 2 10.79.0.1")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--nnodes", "2"], "--rendezvous HOST:PORT is needed"),
        (["--rendezvous", "a:1"], "go with --nnodes"),
        (["--nnodes", "2", "--rendezvous", "0.0.0.0:1"], "that is every address"),
        (["--nnodes", "2", "--rendezvous", "a:b"], "host:port is needed"),
        (["--nnodes", "2", "--rendezvous", "a", "--node-rank", "2"], "from 0 to 1"),
        (["--nnodes", "0"], "a whole number from 1 to 256"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: list[str], text: str) -> None:
    done = program.run_script(write(tmp_path / "x.py", ""), *options)
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_a_port_of_ours_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = program.run_script(
            write(tmp_path / "x.py", ""), "--nnodes", "2", "--rendezvous", where,
            "--node-timeout", "12",  # waits 5 s of it for an answer
        )  # fmt: skip
    assert done.returncode == 75
    assert f"no coordinator within 12 s: {where} (it has sent no greeting" in done.stderr
