"""pawl.elastic.step_boundary() in plain DDP scripts: the same results as without it, and ranks go
and come."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import nursery
import program
import ranks
from elastic_runs import running
from elastic_said import check_no_restart, ends

program.find()
SCRIPT = Path(__file__).with_name("boundary_rank.py")


def what_it_came_to(said: list[list[str]], steps: int = 40) -> str:
    """Returns the result of all ranks that came to the end; all must have the same."""
    (found,) = set(ends(said, "END:"))
    assert found.startswith(f"{steps} steps")
    return found


def groups(said: list[list[str]]) -> set[str]:
    """Returns the numbers of ranks that steps had."""
    return {line.split()[-1] for one in said for line in one if line.startswith("STEP")}


@pytest.mark.slow("plain")
@pytest.mark.parametrize(
    "options", [(), ("parts=2",), ("scaler=1",)], ids=["plain", "parts", "amp"]
)
def test_as_without_it(options: tuple[str, ...]) -> None:
    plain, ours = (ranks.run_ranks(SCRIPT, 2, *options, *more) for more in (("plain=1",), ()))
    assert ends(plain, "NORM:") == ends(ours, "NORM:")
    if "parts=2" not in options:  # DDP adds to reduced gradients in another order there
        assert what_it_came_to(ours).split()[2:] == what_it_came_to(plain).split()[2:]


def test_a_rank_is_killed_and_replaced(tmp_path: Path) -> None:
    options = ("pause=0.2", "kill=1@9", "waits=3@10")
    with running(tmp_path, "1:3", *options, script=SCRIPT) as run:
        said = run.end()
    check_no_restart(run.out())
    assert len(ends(said, "END:")) == 3 and groups(said) == {"2", "3"}
    what_it_came_to(said)
    (alone,) = ranks.run_ranks(SCRIPT, 1)
    (norm,) = ends([alone], "NORM:")
    assert all(abs(float(found) / float(norm) - 1) < 0.02 for found in ends(said, "NORM:"))


@pytest.mark.slow
@pytest.mark.real_interpreters
def test_ranks_are_more_and_fewer(tmp_path: Path) -> None:
    options = ("pause=0.2", "steps=60", "waits=3@10")
    with running(tmp_path, "1:3 -n 1", *options, script=SCRIPT) as run:
        run.wait_for("STEP 2 0 of 1")  # the first step has called step_boundary()
        run.scale(3)
        program.wait_until(lambda: "3" in groups(run.said()), "three ranks", program.LIMIT_S)
        run.scale(2)
        said = run.end()
    check_no_restart(run.out())
    assert groups(said) == {"1", "2", "3"}
    assert len(ends(said, "END:")) == 2
    what_it_came_to(said, 60)


@pytest.mark.parametrize("keeps", ["rank", "sampler"])
def test_what_keeps_its_rank_starts_again(tmp_path: Path, keeps: str) -> None:
    env = {"PAWL_ELASTIC_ROOT": str(tmp_path / "root"), "PAWL_ELASTIC_INTERVAL": "0.2"}
    options = (f"keeps={keeps}", "pause=0.2", "kill=1@9", "steps=60")
    with running(tmp_path, "1:3 -n 2", *options, script=SCRIPT, **env) as run:
        program.wait_until(lambda: "attempt 1" in run.out(), "a restart", program.LIMIT_S)
        run.wait_for(r"STEP 1\d", 2)
        run.scale(1)
        said = run.end()
    assert "all ranks restart whenever their number changes: " in run.out()
    assert {"rank": "does not ask", "sampler": "a DistributedSampler"}[keeps] in run.out()
    assert len(ends(said, "END:")) == 1 and groups(said) == {"2", "1"}
    assert "attempt 2" in run.out()
    begun = [int(one[0].split()[1]) for one in said]
    assert sorted(begun)[:2] == [0, 0] and 0 < sorted(begun)[2] <= 9 < max(begun)


REFUSED = """
import torch, torch.distributed as dist
import pawl.elastic as el
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("pawl", store=dist.HashStore(), rank=0, world_size=1)
nets = [torch.nn.Linear(2, 1) for _ in range(2)]
{code}
try:
    el.step_boundary()
except Exception as refused:
    print("> ", refused)
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("", "no model in DistributedDataParallel"),
        ("models = [DistributedDataParallel(net) for net in nets]", "two models are alike"),
        ("model = DistributedDataParallel(nets[0])", "no optimizer"),
        (
            "model = DistributedDataParallel(nets[0])\n"
            "both = [torch.optim.SGD(model.parameters(), lr=1) for _ in range(2)]",
            "2 optimizers",
        ),
        (
            "model = DistributedDataParallel(nets[0], process_group=dist.new_group([0]))\n"
            "opt = torch.optim.SGD(model.parameters(), lr=1)",
            "a process group of its own",
        ),
    ],
    ids=["none", "alike", "optimizer", "optimizers", "group"],
)
def test_what_is_refused(code: str, why: str) -> None:
    done = nursery.run(
        [sys.executable, "-c", REFUSED.replace("{code}", code)],
        env=program.clean_env(),
        capture_output=True,
        text=True,
        timeout=program.LIMIT_S,
        check=False,
    )
    assert why in done.stdout, done.stdout + done.stderr
