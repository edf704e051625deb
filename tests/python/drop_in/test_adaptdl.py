"""Scripts written for AdaptDL, and the protocols between them and its supervisor."""

from __future__ import annotations

import collections
import contextlib
import http.server
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nursery
import program
import ranks
from conftest import real_core

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")
SCRIPT = Path(__file__).parent / "adaptdl_job.py"
TUTORIAL = Path(__file__).parent / "adaptdl_tutorial.py"


class Supervisor(http.server.ThreadingHTTPServer):
    """A supervisor like AdaptDL's: it knows where replicas are once it was asked often enough."""

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


def start(
    replicas: int, script: Path = SCRIPT, args: Sequence[str] = (), **env: str
) -> list[subprocess.Popen[str]]:
    """Starts replicas as AdaptDL's controller does: without other launchers' variables."""
    port = ranks.free_port()
    return [
        nursery.Popen(
            [sys.executable, str(script), *args],
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
    """Checks that the model learns, and that every sample is validated once."""
    epochs = [line.split() for line in said if line.startswith("EPOCH")]
    assert [int(words[1]) for words in epochs] == list(range(6))
    assert float(epochs[-1][2]) < 0.5 * float(epochs[0][2]) or float(epochs[-1][2]) < 0.15
    assert {words[3] for words in epochs} == {"512"}
    assert said[-1] == "END 0.2.11"


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_alone() -> None:
    (said,) = ranks.hear_ranks(start(1))
    check(said)


def heard(text: str) -> list[str]:
    """Returns the first replica's lines, without the rank's name that launchers write
    before them."""
    return [line.partition("> ")[2] for line in text.splitlines() if "> " in line]


def torchrun() -> list[str]:
    options = ["--standalone", "--nproc-per-node=2"]
    return [sys.executable, "-m", "torch.distributed.run", *options]


def mpirun() -> list[str]:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun (apt-get install openmpi-bin)")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # In a world, loopback has two addresses, and Open MPI then takes it only if it is named.
    where = ["--mca", "oob_tcp_if_include", "lo"]
    return ["mpirun", *root, "--oversubscribe", *where, "-np", "2", sys.executable]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [torchrun, mpirun])
def test_under_other_launchers(launcher: Callable[[], list[str]]) -> None:
    done = nursery.run(
        [*launcher(), str(SCRIPT)],
        env=program.clean_env(PAWL_ELASTIC_REFIT="0.05", OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check(heard(done.stdout))


@pytest.mark.parametrize("backend", ["", "pawl"])
def test_pawl_run_says_whether_its_ranks_come_and_go(backend: str, tmp_path: Path) -> None:
    """`pawl run --backend` decides whether ranks come and go, whatever backend the script names."""
    script = tmp_path / "job.py"
    script.write_text(
        "import adaptdl.torch as adl\n"
        "adl.init_process_group('gloo')\n"
        "from pawl.elastic import _context\n"
        "print('>', _context.job().can_go_on, flush=True)\n"
    )
    options = ["-n", "2", "--max-restarts", "0", *(["--backend", backend] if backend else [])]
    done = program.run_script(script, *options)
    assert done.returncode == 0, done.stderr
    assert heard(done.stdout) == [str(backend == "pawl")] * 2


def test_under_pawl_run() -> None:
    env = program.clean_env(PAWL_ELASTIC_REFIT="0.05")
    done = program.run_script(SCRIPT, "-n", "2", "--max-restarts", "0", env=env)
    assert done.returncode == 0, done.stderr
    check(heard(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_order_of_the_tutorial(replicas: int) -> None:
    """The tutorial makes loaders before ranks can meet; making them waits for no rank."""
    pytest.importorskip("sklearn")
    for said in ranks.hear_ranks(start(replicas, TUTORIAL)):
        epochs = [line.split() for line in said if line.startswith("EPOCH")]
        assert [int(words[1]) for words in epochs] == list(range(4))
        assert float(epochs[-1][2]) < float(epochs[0][2]) and int(epochs[-1][3]) > 200
        assert said[-1] == "END gloo"


def test_a_group_of_other_ranks_than_those_that_met_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import adaptdl.torch as adl\n"
        "adl.finished_epochs()  # all have to meet, to know it\n"
        "adl.init_process_group('gloo', world_size=1, rank=0)\n"
        "adl.init_process_group('gloo', world_size=3, rank=2)\n"
    )
    (replica,) = start(1, script)
    said = replica.communicate(timeout=program.LIMIT_S)[0]
    assert replica.returncode == 1
    assert "ValueError: init_process_group: rank 2 of 3; earlier calls were answered" in said


def test_a_package_has_its_modules() -> None:
    """Scripts do `import adaptdl.torch`, and then call `adaptdl.env.replica_rank()`."""
    names = ["checkpoint.State", "collective.allreduce", "env.replica_rank", "goodput.PerfParams"]
    names += ["sched_hints.SCHED_HINTS", "torch.data.AdaptiveDataLoaderHelper"]
    names += ["torch.parallel.AdaptiveDataParallel", "torch.epoch.current_epoch"]
    names += ["torch.accumulator.Accumulator", "torch.scaling_rules.AdaScale"]
    code = "".join(f"adaptdl.{name}\n" for name in names)
    nursery.run(
        [sys.executable, "-c", f"import adaptdl, adaptdl.torch\n{code}"],
        env=program.clean_env(),
        check=True,
        timeout=program.LIMIT_S,
    )


def test_a_supervisor_says_where_replicas_are_and_takes_hints() -> None:
    with supervising(2) as supervisor:
        said = ranks.hear_ranks(start(2, ADAPTDL_SUPERVISOR_URL=supervisor.url))
        check(said[0])
        assert supervisor.asked[0] == "/discover/default/digits/0"
        program.wait_until(lambda: supervisor.hints, "hints")  # hints are sent in passing
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
    assert progress == sorted(progress)
    assert len(told) == 1 or progress[0] < progress[-1]  # none are sent while others are under way
    whole = [of["progress"] + of["remaining"] for of in told]  # 6 epochs, of 512 / 16 batches each
    assert min(whole) > 191 and max(whole) < 192 + 5 * 16, whole  # the last step of a pass has 256


def test_a_supervisor_of_another_version_is_refused() -> None:
    env = {"ADAPTDL_SUPERVISOR_URL": "http://127.0.0.1:9", "ADAPTDL_SCHED_VERSION": "1.2.3"}
    (replica,) = start(1, **env)
    said = replica.communicate(timeout=program.LIMIT_S)[0]
    assert replica.returncode == 1 and "the scheduler is of version 1.2.3" in said


def digits_net() -> nn.Module:
    """Returns the network of the script."""
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def leave_checkpoint(root: Path, make: Callable[[], nn.Module] = digits_net) -> None:
    """Leaves a checkpoint as AdaptDL's scheduler finds it when a job was preempted in its fourth
    epoch."""
    from pawl.compat.adaptdl.goodput import PerfParams

    folder = root / "checkpoint-2"
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    torch.randn(512, 16)
    net = make()
    optimizer = torch.optim.SGD([{"params": [p]} for p in net.parameters()], lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], 0.3)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    groups = len(optimizer.param_groups)
    optimizer.state["gns"] = {  # type: ignore[index]
        "progress": 112.0,
        "prev_scale": 0.0,
        "sqr_avg": np.ones(groups),
        "var_avg": np.zeros(groups),
        "biased": False,
    }
    states = [net.state_dict(), optimizer.state_dict(), schedule.state_dict(), None]
    torch.save((states, 1.0, 1.0), folder / "adaptdl-dataparallel")
    profile = collections.defaultdict(collections.Counter)
    profile[1, 1, 16].update(optim_step_time=1.5, optim_sync_time=0.5, optim_count=9)
    perf = PerfParams(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 1.5)
    pickles: dict[str, list[Any]] = {
        ".adaptdl-epoch": [3],
        "adaptdl-dataloader-epochNone-0": [(256, 0, {})],
        "adaptdl-dataloader-epochNone-1": [(0, 0, {0: 1, 1: 1, 2: 1})],
        "adaptdl-accumulator-epoch3-0": [(collections.defaultdict(list), {"total": 256})],
        "adaptdl-metrics": [profile, perf, (1.0, 2.0), 16, 256, (4, 64), True, 112.0],
    }
    for name, values in pickles.items():
        with (folder / name).open("wb") as file:
            for value in values:
                file.write(pickle.dumps(value, 0).replace(b"pawl.compat.adaptdl", b"adaptdl"))


def test_it_goes_on_from_a_checkpoint_of_adaptdl(tmp_path: Path) -> None:
    root = tmp_path / "root"
    leave_checkpoint(root)
    (said,) = ranks.hear_ranks(start(1, ADAPTDL_CHECKPOINT_PATH=str(root)))
    assert [line.split()[1] for line in said if line.startswith("EPOCH")] == ["3", "4", "5"]
    assert (root / "checkpoint-2" / ".adaptdl-epoch").is_file()


class Wrapped(nn.Module):
    """A model whose only child is called ``module``."""

    def __init__(self) -> None:
        super().__init__()
        self.module = digits_net()


def test_a_model_of_adaptdl_keeps_its_names(tmp_path: Path) -> None:
    """AdaptDL saves the model that it was given, not the one in DDP."""
    from pawl.elastic import _adaptdl

    leave_checkpoint(tmp_path, Wrapped)
    files, _ = _adaptdl.read(str(tmp_path))
    saved = torch.load(io.BytesIO(files["adaptdl-dataparallel"]), weights_only=False)
    assert list(saved["model"]) == list(Wrapped().state_dict())


def test_models_of_adaptdl_may_have_any_name(tmp_path: Path) -> None:
    """Models may have any names, as in a GAN; the program's own states are left as they are."""
    from pawl.elastic import _adaptdl

    leave_checkpoint(tmp_path)
    folder = tmp_path / "checkpoint-2"
    (folder / "adaptdl-dataparallel").rename(folder / "generator")
    torch.save({"model": torch.ones(3)}, folder / "zipped")
    (folder / "plain").write_bytes(b"12")
    files, _ = _adaptdl.read(str(tmp_path))
    saved = torch.load(io.BytesIO(files["generator"]), weights_only=False)
    assert list(saved["model"]) == list(digits_net().state_dict())
    assert files["zipped"] == (folder / "zipped").read_bytes() and files["plain"] == b"12"


def test_all_states_are_durable_when_they_were_saved(tmp_path: Path) -> None:
    """The process ends by os._exit right after its save."""
    script = tmp_path / "job.py"
    script.write_text(SAVING)
    env = {"ADAPTDL_CHECKPOINT_PATH": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "3600"}
    for at, then in (0, 3), (3, 5), (5, 7):
        (replica,) = start(1, script, [str(then)], **env)
        said = replica.communicate(timeout=program.LIMIT_S)[0]
        assert replica.returncode == 7, said
        assert ranks.say(said) == [f"FROM {at}", f"SAVED {then}"]


SAVING = """
import os, sys
import adaptdl.torch as adl, adaptdl.checkpoint as checkpoint
import torch
from torch import nn
from torch.utils.data import TensorDataset

adl.init_process_group("gloo")
net = nn.Linear(256, 8192)
optimizer = torch.optim.Adam(net.parameters())
model = adl.AdaptiveDataParallel(net, optimizer)
loader = adl.AdaptiveDataLoader(TensorDataset(torch.randn(64, 256)), batch_size=4)

class Count(checkpoint.State):
    n = 0
    def save(self, fileobj): fileobj.write(str(self.n).encode())
    def load(self, fileobj): self.n = int(fileobj.read().decode())

count = Count("count")
checkpoint.load_state(count)
print("> FROM", count.n, flush=True)
for epoch in adl.remaining_epochs_until(2):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        count.n += 1
        if count.n == int(sys.argv[1]):
            checkpoint.save_state(count, None)
            checkpoint.save_all_states()
            print("> SAVED", count.n, flush=True)
            os._exit(7)
"""


RULE = """
import adaptdl.torch as adl, numpy as np, torch
from adaptdl.torch.gradient_noise_scale import AdamGradientNoiseScale, GradientNoiseScale
from adaptdl.torch.scaling_rules import AdaScale, ScalingRuleBase
from torch import nn
from torch.utils.data import TensorDataset

class Rule(ScalingRuleBase):
    calls = 0
    def scale_lr(self, scale):
        gns = self.adp.gns
        # A pass's last step may be shorter than the batch; it counts as one whole batch.
        assert np.isclose(max(gns.accum_scale * gns.accum_count, 1.0), scale)
        var, sqr = np.maximum(gns.raw_var_avg, 1e-6), np.maximum(gns.raw_sqr_avg, 0.0)
        same = AdaScale()
        same.adp = self.adp
        factors = (var + sqr) / (var / scale + sqr)
        assert np.allclose(factors, same.scale_lr(scale), rtol=1e-3), (factors, scale)
        self.calls += 1
        return factors

rule = Rule()
try:
    rule.step()
except ValueError:
    print("> NOT YET")
adl.init_process_group("gloo")
net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD([{"params": part.parameters()} for part in net], lr=0.05)
model = adl.AdaptiveDataParallel(net, optimizer, scaling_rule=rule)
loader = adl.AdaptiveDataLoader(TensorDataset(torch.randn(2000, 4)), 8, shuffle=True)
loader.autoscale_batch_size(32, (4, 8), gradient_accumulation=True)
before = net[0].weight.detach().clone()
for epoch in adl.remaining_epochs_until(1):
    for (x,) in loader:
        rule.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        rule.step()
gns = GradientNoiseScale(model, optimizer)
assert isinstance(AdamGradientNoiseScale(model, optimizer), GradientNoiseScale)
assert len(gns.raw_sqr_avg) == len(gns.raw_var_avg) == 2
assert gns.sqr_avg() > 0 and gns.var_avg() > 0 and gns.should_zero_grad
scale = 2.0
want = (gns.var_avg() + gns.sqr_avg()) / (gns.var_avg() / scale + gns.sqr_avg())
assert np.isclose(gns.gain(scale), want)
progress = gns.get_progress()
gns.set_progress(progress + 1)
assert gns.get_progress() == progress + 1 > 1
assert not torch.equal(before, net[0].weight)
print("> END", rule.calls > 0, flush=True)
"""


def test_a_scaling_rule_of_ones_own(tmp_path: Path) -> None:
    """The rule's formula, out of adp.gns, is AdaScale's; its step and zero_grad are the
    optimizer's."""
    script = tmp_path / "job.py"
    script.write_text(RULE)
    said = ranks.hear_ranks(start(2, script))
    assert said == [["NOT YET", "END True"]] * 2


def test_an_iterator_of_torchtext_is_refused_by_name() -> None:
    from pawl import PawlError
    from pawl.compat.adaptdl.torch.iterator import AdaptiveBPTTIterator

    with pytest.raises(PawlError, match="AdaptiveDataLoaderMixin takes its place"):
        AdaptiveBPTTIterator(None, 8, 35)


INTERRUPTED = """
import sys, time
import adaptdl.torch as adl
import torch
from torch import nn
from torch.utils.data import TensorDataset

adl.init_process_group("gloo")
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model = adl.AdaptiveDataParallel(net, optimizer)
loader = adl.AdaptiveDataLoader(TensorDataset(torch.randn(4000, 4)), 4, num_workers=1)
for epoch in adl.remaining_epochs_until(1):
    for step, (x,) in enumerate(loader):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if step == 2:
            print("> AT", adl.current_dataloader().current_index, flush=True)
            time.sleep(float(sys.argv[1]))  # pace
        time.sleep(0.01)  # pace
"""


def interrupt(script: Path, times: int, **env: str) -> tuple[int, list[str]]:
    """Sends Ctrl-C, which all processes of the terminal get, in a step that takes a minute, or a
    second if the step is to end. Returns the exit code and the output."""
    script.write_text(INTERRUPTED)
    job = nursery.Popen(
        [sys.executable, str(script), "60" if times > 1 else "1"],
        env=program.clean_env(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # type: ignore[arg-type,return-value]
    )
    assert job.stdout is not None
    said = []
    try:
        for line in job.stdout:
            said.append(line)
            if line.startswith("> AT") or "another SIGINT" in line:
                times -= 1
                if times >= 0:
                    os.killpg(job.pid, signal.SIGINT)
        return job.wait(program.LIMIT_S), said
    finally:
        job.kill()


@pytest.mark.slow
def test_an_interrupt_is_a_notice_once(tmp_path: Path) -> None:
    script, env = tmp_path / "job.py", {"ADAPTDL_CHECKPOINT_PATH": str(tmp_path / "root")}
    code, first = interrupt(script, 1, **env)
    assert code == 143, first
    code, second = interrupt(script, 1, **env)
    assert code == 143, second
    where = [
        int(line.split()[2]) for said in (first, second) for line in said if line[:4] == "> AT"
    ]
    assert 0 < where[0] < where[1]


@pytest.mark.slow
def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    code, said = interrupt(tmp_path / "job.py", 2, ADAPTDL_CHECKPOINT_PATH=str(tmp_path / "root"))
    assert code == -signal.SIGINT and "KeyboardInterrupt" in said[-1], said


@pytest.mark.slow
def test_without_a_root_an_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    code, said = interrupt(tmp_path / "job.py", 1)
    assert code == -signal.SIGINT and "KeyboardInterrupt" in said[-1], said


def test_goodput() -> None:
    """The names of adaptdl.goodput exist, and give what pawl computes."""
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
