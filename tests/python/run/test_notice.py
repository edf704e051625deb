"""Notices that a machine goes away, with real processes and stand-ins for the clouds' services."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import buckets
import clouds
import nursery
import pawl
import program
import ranks
import waits
from buckets import Server
from clouds import Cloud
from pawl import _core

SCRIPT = Path(__file__).with_name("spot_job.py")
EXAMPLE = Path(__file__).parents[3] / "examples" / "spot" / "train.py"
STEPS = 100_000  # more than a test lets a job do
OUTAGE_S = 100  # a job that would wait for its bucket waits 120 s
SOON = program.times(
    notice_aws=0.1, notice_azure=0.1, notice_again=0.1,
    advice_save_min=5000, advice_save_max=10_000,
)  # fmt: skip


@pytest.fixture(autouse=True)
def runtime_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`pawl notice` without JOB is about all jobs of this user: here those of one test."""
    with tempfile.TemporaryDirectory(prefix="pawl") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with clouds.cloud() as one:
        yield one


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with buckets.server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, which this process and those that it starts know by their environment."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return server


class Job:
    """A `pawl run` of spot_job.py, and its log."""

    def __init__(
        self, folder: Path, *options: str, root: str | None = None, how: str = "always",
        steps: int = STEPS, env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.root = root or str(folder / "root")
        self.log, self.out = folder / "log", folder / "out"
        command = ["run", "--python", sys.executable, *options, str(SCRIPT)]
        with self.out.open("ab") as out:
            self.process = nursery.Popen(
                [program.find(), *command, self.root, str(steps), how, str(self.log)],
                env=program.clean_env(**SOON, **(env or {})), stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def steps(self, word: str) -> list[int]:
        text = self.log.read_text() if self.log.exists() else ""
        rows = [line.split() for line in text.splitlines()]
        return [int(row[1]) for row in rows if len(row) == 2 and row[0] == word]

    def wait_for(self, word: str, count: int = 1) -> int:
        def has_said() -> bool:
            assert self.process.poll() is None, self.out.read_text()
            return len(self.steps(word)) >= count

        program.wait_until(has_said, f"{count} times {word}")
        return self.steps(word)[-1]

    def end(self) -> int:
        return self.process.wait(program.LIMIT_S)

    def said(self) -> str:
        return self.out.read_text()

    def last_line(self) -> str:
        return self.said().splitlines()[-1]


def assert_saved(job: Job, status: int) -> int:
    """The job has stopped after a step, which is durable. Returns the step."""
    assert job.end() == status, job.said()
    (step,) = job.steps("stopping")
    assert job.last_line().endswith(
        f"stopped with status {status}: {job.root}: step {step} is durable"
    )
    assert _core.list_root(job.root)[-1]["tag"] == f"global_step{step}"
    return step


# ---- the quick ones ----


def test_aws_advises_and_then_takes_the_machine(tmp_path: Path, cloud: Cloud) -> None:
    """The advice makes a save durable that nobody else would have made; training goes on."""
    options = ("--notice", f"aws+{cloud.url}", "--preempted-code", "33", "--grace", "1")
    job = Job(tmp_path, *options, how="due")
    job.wait_for("step", 3)
    assert not job.steps("saved")
    cloud.aws_advises()
    saved = job.wait_for("saved")
    program.wait_until(
        lambda: _core.list_root(job.root)[-1:] and _core.list_root(job.root)[-1]["step"] == saved,
        "the save that was advised is durable",
    )
    job.wait_for("step", len(job.steps("step")) + 3)
    cloud.aws_terminates(120)
    step = assert_saved(job, 33)
    assert step > saved
    when = r"in 1[12]\d s \(AWS: terminate at \d\d:\d\d:\d\dZ\)"
    assert re.search(f"pawl: notice: this machine goes away {when}", job.said())
    assert job.said().count("AWS recommends") == 1
    assert re.search(r"notice: workers have 1[01]\d s to finish their step", job.said())


def test_pawl_notice_tells_a_job(tmp_path: Path) -> None:
    job = Job(tmp_path, "--job", "told")
    try:
        job.wait_for("committed", 2)
        assert program.run("notice", "another").returncode == 3
        assert program.run("notice", "--in", "soon", "told").returncode == 2
        assert program.run("notice", "told", "told").returncode == 2
    except BaseException:
        job.process.kill()
        raise
    done = program.run("notice", "--in", "60", "--wait", "told")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "told: saves and ends, within 60 s\n"
    assert_saved(job, 143)
    assert "notice: this machine goes away in 60 s (pawl notice)" in job.said() or (
        "notice: this machine goes away in 59 s (pawl notice)" in job.said()
    )


# ---- the slow ones ----


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["aws", "gcp", "azure"])
def test_a_machine_is_lost_and_no_step_with_it(
    kind: str, tmp_path: Path, cloud: Cloud, bucket: Server
) -> None:
    """At the deadline the machine is gone, and all that was on it. Another one goes on."""
    root = bucket.root(f"lost-{kind}")
    job = Job(tmp_path, "--notice", f"{kind}+{cloud.url}", "--job", "spot", root=root)
    job.wait_for("committed", 3)
    if kind == "azure":  # events of others, and others of this one
        cloud.azure_plans("Preempt", 1, "spot_1", "spot_33")
        cloud.azure_plans("Reboot", 1, clouds.NAME)
        seen = len(cloud.requests)
        program.wait_until(lambda: len(cloud.requests) >= seen + 5, "the events are seen")
        job.wait_for("step", len(job.steps("step")) + 3)
        cloud.azure_plans("Preempt", 40, "spot_1", clouds.NAME)
    elif kind == "gcp":
        cloud.gcp_preempts()
    else:
        cloud.aws_terminates(120)
    step = assert_saved(job, 143)
    assert not [line for line in cloud.requests if line.startswith("POST")]  # no ack
    with_nothing = tmp_path / "another machine"
    with_nothing.mkdir()
    again = Job(with_nothing, "--job", "spot", root=root, steps=step + 3)
    assert again.end() == 0, again.said()
    assert again.steps("start") == [step]
    assert again.steps("saved") == [step + 1, step + 2, step + 3]
    assert pawl.load(root, partition="model")["weight"].equal(trained(step + 3))


def trained(steps: int) -> torch.Tensor:
    """The weights after so many steps, without any stop."""
    torch.manual_seed(0)
    model = torch.nn.Linear(100, 100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        x = torch.randn(8, 100, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model.weight.detach()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["notice", "signal", "killed"])
def test_what_does_not_fit_is_not_half_there(how: str, tmp_path: Path, bucket: Server) -> None:
    """The bucket stands still when the job is told to end: the step before stays, and the job says
    so within its time, unless the machine goes before that."""
    root = bucket.root(f"stands-still-{how}")
    first = Job(tmp_path, "--job", "spot", root=root, how="due")
    first.wait_for("step", 2)
    assert program.run("notice", "--in", "3600", "spot").returncode == 0
    safe = assert_saved(first, 143)
    first.log.unlink()
    job = Job(tmp_path, "--job", "spot", "--grace", "12", root=root, how="due")
    job.wait_for("step", 2)
    with bucket.stopped(), waits.sooner_than(OUTAGE_S, "the job ends"):
        if how == "signal":
            job.process.terminate()
        else:
            assert program.run("notice", "--in", "12", "spot").returncode == 0
        if how == "killed":
            job.wait_for("committed")
            job.process.kill()
        job.end()
    (lost,) = job.steps("committed")
    assert lost > safe
    assert job.process.returncode == (-signal.SIGKILL if how == "killed" else 143)
    assert how == "killed" or job.last_line().endswith(
        "stopped with status 143, not all that was committed is durable: "
        f"{root}: step {lost} could not be made durable in time; step {safe} is"
    )
    assert [(one["step"], one["level"]) for one in _core.list_root(root)] == [(safe, "durable")]
    job.log.unlink()
    again = Job(tmp_path, "--job", "spot", root=root, how="due", steps=safe + 1)
    assert again.end() == 0, again.said()
    assert again.steps("start") == [safe]


@pytest.mark.slow
def test_a_plain_agent_tells_its_ranks(tmp_path: Path) -> None:
    """A script that pawl run did not start has an agent, too."""
    log, root = tmp_path / "log", tmp_path / "root"
    script = nursery.Popen(
        [sys.executable, str(SCRIPT), str(root), str(STEPS), "always", str(log)],
        env=program.clean_env(PAWL_JOB_ID="plain", PAWL_PROGRAM=program.find()),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    program.wait_until(lambda: log.exists() and "committed 2" in log.read_text(), "it saves")
    done = program.run("notice", "--in", "30")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "plain: saves and ends, within 30 s\n"
    out, _ = script.communicate(timeout=program.LIMIT_S)
    assert script.returncode == 0, out
    step = int(log.read_text().split("stopping ")[1])
    assert _core.list_root(str(root))[-1]["step"] == step


@pytest.mark.slow
def test_sockets_that_agents_left_behind_are_no_jobs(tmp_path: Path) -> None:
    job = Job(tmp_path, "--job", "killed")
    job.wait_for("committed")
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()
    none = program.run("notice")
    assert none.returncode == 3
    assert "no job of this user runs on this machine" in none.stderr
    assert program.run("notice", "killed").returncode not in (0, 2)


@pytest.mark.slow
def test_a_service_that_is_not_there_is_said_once(tmp_path: Path, cloud: Cloud) -> None:
    with clouds.cloud() as gone:
        url = gone.url
    job = Job(tmp_path, "--notice", f"azure+{url}", steps=200)
    assert job.end() == 0, job.said()
    assert job.said().count("gives no notice") == 1
    assert job.said().count("warning: notice") == 1


@pytest.mark.slow
def test_auto_asks_nobody_on_a_machine_of_nobody(tmp_path: Path) -> None:
    vendor = tmp_path / "sys_vendor"
    vendor.write_text("QEMU\n")
    env = {"PAWL_TEST_DMI": str(tmp_path)}
    job = Job(tmp_path, "--notice", "auto", steps=3, env=env)
    assert job.end() == 0, job.said()
    assert "nobody is asked whether it goes away" in job.said()
    vendor.write_text("Google\n")
    job = Job(tmp_path, "--notice", "auto", steps=6, env=env)
    assert job.end() == 0, job.said()
    assert "GCP is asked whether this machine goes away, at http://169.254.169.254" in job.said()


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path, cloud: Cloud, bucket: Server) -> None:
    """docs/spot.md: from an empty bucket to a job that goes on."""
    root, out = bucket.root("runs/first"), tmp_path / "out"
    options = ["--python", sys.executable, "--notice", f"aws+{cloud.url}"]
    options += ["--preempted-code", "34", str(EXAMPLE), root]
    env = program.clean_env(**SOON)

    def run(steps: int) -> subprocess.Popen[str]:
        with out.open("w") as file:
            return nursery.Popen(
                [program.find(), "run", *options, str(steps)],
                env=env, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    job = run(1_000_000)
    program.wait_until(lambda: "step 100:" in out.read_text(), "it trains")
    cloud.aws_terminates(120)
    assert job.wait(program.LIMIT_S) == 34, out.read_text()
    last = out.read_text().splitlines()[-1]
    found = re.fullmatch(rf"pawl: stopped with status 34: {root}: step (\d+) is durable", last)
    assert found, out.read_text()
    step = int(found[1])
    cloud.action = None
    again = run(step + 5)
    assert again.wait(program.LIMIT_S) == 0, out.read_text()
    assert [one["step"] for one in _core.list_root(root)] == [step, step + 5]


WAITS = """
trap 'exit 0' TERM
echo waits
while :; do sleep 0.1; done
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1])
def test_a_machine_of_two_goes_away(at: int, tmp_path: Path) -> None:
    """With --on-notice stop at the coordinator, all nodes end, with its code, and know which
    machine it is."""
    script = tmp_path / "waits"
    script.write_text("#!/bin/sh" + WAITS)
    script.chmod(0o755)
    place = f"127.0.0.1:{ranks.free_port()}"
    outs = [tmp_path / f"out{node}" for node in range(2)]
    envs = []
    nodes = []
    for node in range(2):
        own = Path(os.environ["XDG_RUNTIME_DIR"], str(node))  # a machine's
        own.mkdir(mode=0o700)
        envs.append(program.clean_env(XDG_RUNTIME_DIR=str(own)))
        options = ["--nnodes", "2", "--rendezvous", place, "--node-rank", str(node)]
        options += ["--job", "two", "--on-notice", "stop", "--preempted-code", str(33 + node)]
        options += ["--no-python"]
        with outs[node].open("w") as out:
            nodes.append(
                nursery.Popen(
                    [program.find(), "run", *options, str(script)],
                    env=envs[node], stdout=out, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
        if node == 0:
            program.wait_until(lambda: "1 of 2 nodes" in outs[0].read_text(), "it coordinates")
    program.wait_until(lambda: all("waits" in out.read_text() for out in outs), "both run")
    assert program.run("notice", "--in", "60", env=envs[at]).returncode == 0
    assert [node.wait(program.LIMIT_S) for node in nodes] == [33, 33]
    for node, out in enumerate(outs):
        text = out.read_text()
        assert text.count("this machine goes away in") == 1
        assert (f"node {at} (127.0.0.1): notice: this machine" in text) == (node != at)
