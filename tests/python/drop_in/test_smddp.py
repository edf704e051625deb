"""SMDDP's names on Pawl: its calls, its backend, and scripts for it under every launcher."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netns
import nursery
import program
import ranks
import slurm
from conftest import real_core
from pawl.compat.smdistributed.dataparallel.torch import _device

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

HERE = Path(__file__).parent
CHECKS = [
    "who_is_who", "reductions", "moves", "ddp_averages", "ddp_no_sync",
    "ddp_leaves_buffers_alone", "ddp_of_some_ranks",
]  # fmt: skip
JOBS = ["smddp_job.py", "smddp_backend_job.py"]
WORLD = 3
ONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def call(command: Sequence[str | Path], **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command on CPUs: there may be fewer devices than ranks. test_cuda_ranks.py uses a
    device."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if torch.cuda.is_available() else {}
    return nursery.run(
        [str(word) for word in command],
        env=program.clean_env(OMP_NUM_THREADS="1", **hidden, **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
    )


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return call([sys.executable, "-c", code], **env)


# ---- launchers ----


def torchrun(world: int) -> list[str]:
    port = f"--master-port={ranks.free_port()}"
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}", port]


def pawl_run(world: int) -> list[str]:
    return [program.find(), "run", "--python", sys.executable, "-n", str(world)]


def mpirun(world: int, *options: str) -> list[str]:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun (apt-get install openmpi-bin)")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # In a world, loopback has two addresses, and Open MPI then takes it only if it is named.
    where = options or ("--mca", "oob_tcp_if_include", "lo")
    return ["mpirun", *root, "--oversubscribe", "-np", str(world), *where, sys.executable]


LAUNCHERS = pytest.mark.parametrize("launcher", [torchrun, pawl_run, mpirun])


def all_held(done: subprocess.CompletedProcess[str], world: int) -> None:
    """Checks that all checks of all ranks held; mpirun and srun may mix the lines of ranks up."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(re.findall(r"> (\w+)", done.stdout)) == dict.fromkeys(CHECKS, world)


@pytest.mark.slow
@LAUNCHERS
def test_every_call(launcher: Callable[[int], list[str]]) -> None:
    all_held(call([*launcher(WORLD), HERE / "smddp_rank.py"]), WORLD)


def numbers() -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(9)
    y = torch.randint(0, 4, (480,), generator=made)
    return torch.randn(4, 20, generator=made)[y] + 0.1 * torch.randn(480, 20, generator=made), y


def train_alone() -> list[nn.Parameter]:
    """Trains as the jobs do, in one process with the whole batch."""
    torch.manual_seed(0)
    first, last = nn.Linear(20, 64), nn.Linear(64, 4)
    parameters = [*first.parameters(), *last.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    x, y = numbers()
    for _ in range(2):
        for data, target in zip(x.split(48), y.split(48), strict=True):
            optimizer.zero_grad()
            F.nll_loss(F.log_softmax(last(torch.relu(first(data))), dim=1), target).backward()
            optimizer.step()
    return parameters


def run_job(job: str, command: Sequence[str], folder: Path, **env: str) -> None:
    """Runs a job as a user would, and checks that its model is that of one process."""
    torch.save(numbers(), folder / "train.pt")
    places = {"SM_CHANNEL_TRAINING": str(folder), "SM_MODEL_DIR": str(folder)}
    done = call([*command, HERE / job], **places, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    if job == "smddp_backend_job.py":
        assert f"> {' '.join(['smddp'] * WORLD)}" in done.stdout, done.stdout
    else:
        assert "Test set: Accuracy: 100%" in done.stdout, done.stdout
    made = torch.load(folder / "model.pth").values()
    for got, wanted in zip(made, train_alone(), strict=True):
        torch.testing.assert_close(got, wanted.detach())


@pytest.mark.slow
@LAUNCHERS
@pytest.mark.parametrize("job", JOBS)
def test_jobs(launcher: Callable[[int], list[str]], job: str, tmp_path: Path) -> None:
    run_job(job, launcher(WORLD), tmp_path)


# ---- several hosts ----

AGENT = """#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
case "$1" in {cases} esac; shift
exec ip netns exec "$ns" unshare -u sh -c "hostname $ns; $*"
"""


def mpirun_hosts(
    hosts: Sequence[str], where: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Runs mpirun on the first host; its ssh is a shell that enters the other ones."""
    agent = folder / "agent.sh"
    cases = " ".join(f"{netns.address(i)}) ns={name} ;;" for i, name in enumerate(hosts))
    agent.write_text(AGENT.format(cases=cases))
    agent.chmod(0o755)
    words = ["--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", "eth0"]
    world = sum(int(host.partition(":")[2]) for host in where.split(","))
    command = mpirun(world, *words, "--host", where, *options)
    inside = ["ip", "netns", "exec", hosts[0], "unshare", "-u", "sh", "-c"]
    inside += [f'hostname {hosts[0]} && exec "$@"', "sh"]
    return call([*inside, *command, HERE / "smddp_rank.py"])


@pytest.mark.slow
def test_mpirun_on_hosts(tmp_path: Path) -> None:
    with netns.hosts(2) as hosts:
        where = f"{netns.address(0)}:2,{netns.address(1)}:2"
        all_held(mpirun_hosts(hosts, where, tmp_path), 4)


@pytest.mark.slow
def test_mpirun_away_from_rank_0(tmp_path: Path) -> None:
    """The error says so, and MASTER_ADDR corrects it."""
    with netns.hosts(3) as hosts:
        where = f"{netns.address(1)}:1,{netns.address(2)}:1"
        done = mpirun_hosts(hosts, where, tmp_path)
        text = f"rank 0 is not at {netns.address(0)}, as the variables of openmpi have it"
        assert done.returncode != 0 and text in done.stderr, done.stderr
        master = f"MASTER_ADDR={netns.address(1)}"
        all_held(mpirun_hosts(hosts, where, tmp_path, "-x", master), 2)


@pytest.mark.skipif("PAWL_LONG" not in os.environ, reason="long: PAWL_LONG=1")
def test_slurm(tmp_path: Path) -> None:
    """Two nodes, which are namespaces, with names that nothing resolves."""
    with slurm.on_hosts(tmp_path, 2) as cluster:
        srun = cluster.inside(0, "srun", "-N2", "--ntasks-per-node=2", sys.executable)
        all_held(call([*srun, HERE / "smddp_rank.py"], **cluster.env), 4)
        one = cluster.inside(0, "srun", "-N1", f"-n{WORLD}", sys.executable)
        for job in JOBS:
            run_job(job, one, tmp_path, **cluster.env)


# ---- names ----


@pytest.mark.real_interpreters
def test_names_are_one_module_each() -> None:
    done = python(
        "import sys, smdistributed\n"
        "assert 'torch' not in sys.modules\n"
        "import smdistributed.dataparallel.torch.parallel.distributed as theirs\n"
        "import pawl.compat.smdistributed.dataparallel.torch.parallel.distributed as ours\n"
        "assert theirs is ours\n"
        "from smdistributed.dataparallel.torch.parallel import DistributedDataParallel\n"
        "assert DistributedDataParallel is ours.DistributedDataParallel\n"
        "import smdistributed.modelparallel.torch as theirs\n"
        "import pawl.compat.smdistributed.modelparallel.torch as ours\n"
        "assert theirs is ours\n"
        "import smdistributed.other\n"
    )
    assert done.stderr.strip().endswith(
        "ModuleNotFoundError: No module named 'smdistributed.other'"
    ), done.stderr


def test_without_the_import_the_backend_is_unknown() -> None:
    """The error is torch's; Pawl's own backend is still there."""
    code = "import torch.distributed as dist\ndist.init_process_group('{}')\n"
    done = python(code.format("smddp"), **ONE)
    assert re.search(r"(Unknown|Invalid) backend.*smddp", done.stderr), done.stderr
    assert python(code.format("pawl"), **ONE).returncode == 0


def test_the_backend_beside_others() -> None:
    done = python(
        "import smdistributed.dataparallel.torch.torch_smddp\n"
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('cpu:gloo,cuda:smddp')\n"
        "print(type(dist.group.WORLD).__name__, sorted(dist.group.WORLD._others))\n"
        "group = dist.new_group([0], backend='smddp')\n"
        "t = torch.ones(2)\n"
        "dist.all_reduce(t, group=group)\n"
        "print(dist.get_backend(group), t.tolist())\n",
        **ONE,
    )
    assert done.stdout.splitlines() == ["ProcessGroup ['cpu']", "smddp [1.0, 1.0]"], done.stderr


def test_importing_the_backend_never_fails() -> None:
    """A script may set rank 0's address itself."""
    done = python(
        "import smdistributed.dataparallel.torch.torch_smddp\n"
        "import torch.distributed as dist\n"
        f"dist.init_process_group('smddp', init_method='tcp://127.0.0.1:{ranks.free_port()}',\n"
        "                        rank=0, world_size=1)\n"
        "print(dist.get_backend())\n",
        RANK="0", WORLD_SIZE="1",
    )  # fmt: skip
    assert done.stdout == "smddp\n", done.stderr
    assert "set MASTER_ADDR to its host" in done.stderr


@pytest.mark.slow
def test_a_plain_process_is_no_rank() -> None:
    code = "import smdistributed.dataparallel.torch.distributed as d\nprint(d.is_available())\n"
    assert python(code).stdout == "False\n"
    assert python(code, SLURM_PROCID="0", SLURM_NTASKS="1").stdout == "True\n"
    code = "import os, smdistributed.dataparallel.torch.torch_smddp\nprint('RANK' in os.environ)\n"
    assert python(code).stdout == "False\n"  # the process may start ranks of its own


@pytest.mark.parametrize(("local_rank", "pinned"), [("1", [1]), ("3", [])])
def test_a_gpu_a_process(
    monkeypatch: pytest.MonkeyPatch, local_rank: str, pinned: list[int]
) -> None:
    """A process uses the GPU of its local rank, unless the launcher shows each process only its
    own."""
    variables = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": local_rank}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    _device.pin()
    assert found == pinned
