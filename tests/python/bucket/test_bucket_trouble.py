"""Checkpoints in a bucket while its service or the network has troubles: saves go on, and become
durable in the end. The service is the S3 server of the C tests, which does wrong what it is told
to, and rclone, which ignores conditions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import buckets
import pawl
import program
import waits
from buckets import StandIn
from conftest import SEED, SOCKETS
from pawl import _core

JOB = "trouble"
LONG = bool(os.environ.get("PAWL_LONG"))
WIDTH = 2100  # inputs of a layer whose file is uploaded in two parts
STEPS = 20 if LONG else 4
OUTAGE_S = 60 if LONG else 3
SESSION_S, SESSIONS_S = (20, 600) if LONG else (6, 20)
STATE_MIB = 18

# How a fifth of the requests goes wrong: see tests/lib/s3_weather.c.
WAYS = [
    "error", "slow_down", "retry_after", "too_many", "error_200", "reset_early", "reset_late",
    "lose", "torn_early", "short", "flip_request", "stall", "slow", "any",
]  # fmt: skip


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A stand-in, which this process and those that it starts know by their environment."""
    with buckets.stand_in() as running:
        for name, value in running.env.items():
            monkeypatch.setenv(name, value)
        try:
            yield running
        finally:
            program.kill_agent(JOB)  # else the agent waits for a service that is gone


def make_state(seed: int) -> dict[str, torch.nn.Module]:
    torch.manual_seed(seed)
    return {"model": torch.nn.Linear(WIDTH, WIDTH)}


def assert_holds(root: str, step: int) -> None:
    """The newest step is this one, and all are whole."""
    tags = _core.list_root(root)
    assert not [one["why"] for one in tags if one["why"]]
    assert tags[-1]["step"] == step
    weight = pawl.load(root, partition="model")["weight"]
    assert weight.equal(make_state(step)["model"].weight)
    done = program.run("ckpt", "verify", "--all", root, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_saves_become_durable_in_bad_weather(
    way: str, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in program.times(bucket_stall=1).items():
        monkeypatch.setenv(name, value)
    root = service.root("weather")
    service.command(f"weather {way} 20 {SEED}")
    with pawl.Checkpointer(root, job=JOB, persist_every=0) as ckpt:
        for step in range(1, STEPS + 1):
            assert ckpt.save(step, make_state(step)).wait("durable", program.LIMIT_S)
    service.command(f"weather {way} 0 0")
    assert service.counts()["spoiled"] > STEPS / 2
    assert_holds(root, STEPS)
    program.kill_agent(JOB)
    with pawl.Checkpointer(root, job=JOB) as ckpt:
        assert ckpt.restore(make_state(0)) == STEPS
    assert service.counts()["open"] == 0


@pytest.mark.slow
def test_an_outage_in_mid_upload_loses_nothing(service: StandIn) -> None:
    """Saves go on meanwhile, and the newest is durable soon after."""
    root = service.root("outage")
    with pawl.Checkpointer(root, job=JOB, persist_every=0.1) as ckpt:
        service.command(f"set 0 {STATE_MIB / 4} 0")  # an upload takes four seconds
        ckpt.save(1, make_state(1))
        program.wait_until(lambda: service.counts()["requests"]["part"] > 0, "it uploads")
        with service.stopped():
            for step in range(2, 2 + 2 * OUTAGE_S):
                assert ckpt.save(step, make_state(step)).wait("committed", program.LIMIT_S)
                waits.moment(0.5)
        service.command("set 0 0 0")
        last = ckpt.save(step + 1, make_state(step + 1))
        assert last.wait("durable", program.LIMIT_S)
    assert_holds(root, step + 1)


def memory_files(pid: int) -> int:
    """Returns the bytes of all memory files that a process has."""
    found = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(fd).startswith("/memfd:"):
            status = fd.stat()
            found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


@pytest.mark.slow
def test_memory_has_a_bound_while_nothing_is_durable(service: StandIn) -> None:
    """The service stands still: of many saves the agent keeps the newest, and few more."""
    root, most = service.root("bound"), 0
    with pawl.Checkpointer(root, job=JOB, persist_every=0.1) as ckpt:
        assert ckpt.save(1, make_state(1)).wait("durable", program.LIMIT_S)
        agent = program.agent_of(JOB)
        assert agent is not None
        with service.stopped():
            for step in range(2, 12):
                assert ckpt.save(step, make_state(step)).wait("committed", program.LIMIT_S)
                most = max(most, memory_files(agent))
        assert ckpt.save(12, make_state(12)).wait("durable", program.LIMIT_S)
    assert most <= 3 * (STATE_MIB + 1) << 20
    assert_holds(root, 12)


@pytest.mark.slow
def test_keys_that_end_soon_fail_no_save(
    service: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The endpoint of a container gives them; a secret is in no log and no command line."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{service.url}/creds")
    service.command(f"sessions {SESSION_S}")
    root = service.root("keys")
    with pawl.Checkpointer(root, job=JOB, persist_every=0) as ckpt:
        for step in range(1, 1 + SESSIONS_S):
            assert ckpt.save(step, make_state(step)).wait("durable", program.LIMIT_S)
            waits.moment(1)
    said = [path.read_text(errors="replace") for path in Path(SOCKETS).rglob("*") if path.is_file()]
    said += [path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert "hush" not in "".join([*said, caplog.text])
    counts = service.counts()
    given = counts["requests"]["creds"]
    print(f"{step} saves, {given} keys, {counts['stale']} requests with old ones")
    assert given >= SESSIONS_S // SESSION_S
    assert counts["stale"] <= given
    assert_holds(root, step)


def test_a_server_that_ignores_conditions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the root has a single writer, as the job says."""
    with buckets.rclone(tmp_path) as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        root = server.root("ignored")
        with pytest.raises(pawl.PawlError, match=r"ignores If-None-Match.*\?single_writer=1"):
            pawl.Checkpointer(root, job=JOB)
        assert _core.list_root(root) == []
        with pawl.Checkpointer(f"{root}?single_writer=1", job=JOB, persist_every=0) as ckpt:
            for step in (1, 2):
                assert ckpt.save(step, make_state(step)).wait("durable", program.LIMIT_S)
        assert_holds(root, 2)
