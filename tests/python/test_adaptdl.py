"""Scripts written for AdaptDL, and the protocols between them and its supervisor."""

from __future__ import annotations

import collections
import contextlib
import http.server
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
import ranks
from conftest import real_core

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
SCRIPT = Path(__file__).parent / "adaptdl_job.py"


class Supervisor(http.server.ThreadingHTTPServer):
    """As AdaptDL's: it knows where replicas are when it was asked often enough."""

    def __init__(self, replicas: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replicas = replicas
        self.asked: list[str] = []
        self.hints: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Supervisor

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        known = len(self.server.asked) > self.server.replicas
        self.send_response(200 if known else 408)
        self.end_headers()
        if known:
            self.wfile.write(json.dumps(["127.0.0.1"] * self.server.replicas).encode())

    def do_PUT(self) -> None:
        hints = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.hints.append((self.path, hints))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def supervising(replicas: int) -> Iterator[Supervisor]:
    with Supervisor(replicas) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def start(replicas: int, **env: str) -> list[subprocess.Popen[str]]:
    """Replicas as AdaptDL's controller starts them: no other launcher's variables."""
    port = ranks.free_port()
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env=program.clean_env(
                ADAPTDL_REPLICA_RANK=str(rank),
                ADAPTDL_NUM_REPLICAS=str(replicas),
                ADAPTDL_MASTER_PORT=str(port),
                ADAPTDL_JOB_ID="default/digits",
                PAWL_ELASTIC_REFIT="0.05",
                **env,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(replicas)
    ]


def check(said: list[str]) -> None:
    """It learns, and every sample is validated once."""
    epochs = [line.split() for line in said if line.startswith("EPOCH")]
    assert [int(words[1]) for words in epochs] == list(range(6))
    assert float(epochs[-1][2]) < 0.5 * float(epochs[0][2]) or float(epochs[-1][2]) < 0.15
    assert {words[3] for words in epochs} == {"512"}
    assert said[-1] == "END 0.2.11"


def test_alone() -> None:
    (said,) = ranks.hear_ranks(start(1))
    check(said)


def test_under_pawl_run() -> None:
    env = program.clean_env(PAWL_ELASTIC_REFIT="0.05")
    done = program.run_script(SCRIPT, "-n", "2", "--max-restarts", "0", env=env)
    assert done.returncode == 0, done.stderr
    check([line.removeprefix("[rank0] > ") for line in done.stdout.splitlines() if "> " in line])


def test_a_supervisor_says_where_replicas_are_and_takes_hints() -> None:
    with supervising(2) as supervisor:
        said = ranks.hear_ranks(start(2, ADAPTDL_SUPERVISOR_URL=supervisor.url))
        check(said[0])
        assert supervisor.asked[0] == "/discover/default/digits/0"
        assert supervisor.hints
        where, hints = supervisor.hints[-1]
    assert where == "/hints/default/digits"
    assert hints["initBatchSize"] == 16 and hints["maxBatchSize"] == 256
    assert hints["localBszBounds"] == [4, 64] and hints["gradientAccumulation"] is True
    assert hints["maxProfiledReplicas"] == 2
    assert set(hints["gradParams"]) == {"norm", "var"}
    names = {"alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma"}
    assert set(hints["perfParams"]) == names and all(v > 0 for v in hints["perfParams"].values())
    assert hints["hintsVersion"] == 1 and set(hints["stepParams"]) == names | {"delta_n"}
    told = [of for _, of in supervisor.hints]
    progress = [of["progress"] for of in told]
    assert progress == sorted(progress) and progress[0] < progress[-1]
    whole = [of["progress"] + of["remaining"] for of in told]  # 6 epochs, of 512 / 16 batches each
    assert min(whole) > 191 and max(whole) < 230, whole  # the last step of a pass may be worth more


def test_a_supervisor_of_another_version_is_refused() -> None:
    env = {"ADAPTDL_SUPERVISOR_URL": "http://127.0.0.1:9", "ADAPTDL_SCHED_VERSION": "1.2.3"}
    (replica,) = start(1, **env)
    said = replica.communicate(timeout=60)[0]
    assert replica.returncode == 1 and "the scheduler is of version 1.2.3" in said


def leave_checkpoint(root: Path) -> None:
    """As AdaptDL's scheduler finds it when the job was preempted in its fourth epoch."""
    folder = root / "checkpoint-2"
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    torch.randn(512, 16)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD([{"params": [p]} for p in net.parameters()], lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], 0.3)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    optimizer.state["gns"] = {"progress": 96.0}  # type: ignore[index]
    model = {f"module.{name}": value for name, value in net.state_dict().items()}
    states = [model, optimizer.state_dict(), schedule.state_dict(), None]
    torch.save((states, 1.0, 1.0), folder / "adaptdl-dataparallel")
    pickles = {
        ".adaptdl-epoch": [3],
        "adaptdl-dataloader-epochNone-0": [(256, 0, collections.Counter())],
        "adaptdl-dataloader-epochNone-1": [(0, 0, collections.Counter({0: 1, 1: 1, 2: 1}))],
        "adaptdl-accumulator-epoch3-0": [(collections.defaultdict(list), {"total": 256})],
        "adaptdl-metrics": [{}, None, None, 16, 256, (4, 64), True, 112.0],
    }
    for name, values in pickles.items():
        with (folder / name).open("wb") as file:
            for value in values:
                pickle.dump(value, file)


def test_it_goes_on_from_a_checkpoint_of_adaptdl(tmp_path: Path) -> None:
    root = tmp_path / "root"
    leave_checkpoint(root)
    (said,) = ranks.hear_ranks(start(1, ADAPTDL_CHECKPOINT_PATH=str(root)))
    assert [line.split()[1] for line in said if line.startswith("EPOCH")] == ["3", "4", "5"]
    assert (root / "checkpoint-2" / ".adaptdl-epoch").is_file()


def test_goodput() -> None:
    """The names of adaptdl.goodput, and that they are what pawl computes."""
    from pawl.compat.adaptdl.goodput import GoodputFunction, GradParams, PerfParams, fit_perf_params

    perf = PerfParams(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 1.5)
    function = GoodputFunction(perf, GradParams(1.0, 4.0), 128)
    assert function(1, 1, 128, 0) == pytest.approx(function.throughput(1, 1, 128, 0))
    assert function.efficiency(256) == pytest.approx((4 * 128 + 128) / (4 * 128 + 256))
    arrays = function.evaluate([1, 1], [1, 2], [64, 64], [0, 1])
    assert arrays.shape == (2,) and arrays[1] == pytest.approx(function(1, 2, 64, 1))
    goodput, atomic, accum = function.optimize(1, 4, 1024, (16, 128), True)
    assert 4 * atomic * (accum + 1) <= 1024
    assert goodput == pytest.approx(function(1, 4, atomic, accum))
    found = function.optimize([1, 2], [4, 8], 1024, (16, 128), True)
    assert found[0][0] == goodput and len(found[1]) == 2
    rows = [(1, 1, 32), (1, 1, 64), (1, 4, 32), (2, 4, 32), (2, 8, 64)]
    step = [1 / function.throughput(n, k, m) * k * m for n, k, m in rows]
    fitted = fit_perf_params(
        *map(list, zip(*rows, strict=True)), [0.1 + 0.01 * m for _, _, m in rows], step
    )
    assert isinstance(fitted, PerfParams) and fitted.alpha_c == pytest.approx(0.1, rel=0.1)
