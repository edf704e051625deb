"""A process that a test leaves behind is named, and ended."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist

import leftovers
import nursery
import pawl
import program
from pawl.elastic import _context, _metrics


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> leftovers.Leftovers:
    """Shortens the wait for processes that do not end."""
    monkeypatch.setattr(leftovers, "LIMIT_S", 0.3)
    return leftovers.Leftovers()


def end(ours: leftovers.Leftovers) -> str:
    return ours.end_module({nursery.nursery.pid()})


def test_the_test_that_left_it_is_named(ours: leftovers.Leftovers) -> None:
    ours.begin("test_one")
    left = subprocess.Popen(["sleep", "1000"])
    program.wait_until(lambda: leftovers.read_process(left.pid).command == "sleep 1000 ", "exec")
    assert end(ours) == f"test_one left process {left.pid}: sleep 1000 "
    assert left.wait() == -signal.SIGKILL
    assert end(ours) == ""


def test_orphans_are_found(ours: leftovers.Leftovers) -> None:
    ours.begin("test_one")
    script = "sleep 1000 >/dev/null 2>&1 & echo $!"
    said = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert f"test_one left process {int(said.stdout)}: " in end(ours)
    program.wait_until(lambda: leftovers.read_process(int(said.stdout)) is None, "it is gone")


def test_what_ends_by_itself_is_waited_for(ours: leftovers.Leftovers) -> None:
    ours.begin("test_one")
    with subprocess.Popen(["sleep", "0.05"]):
        assert end(ours) == ""


def test_an_agent_is_told_to_end(tmp_path: Path) -> None:
    ours = leftovers.Leftovers()
    socket = tmp_path / "socket"
    with subprocess.Popen([program.find(), "agent", "--job=x", f"--socket={socket}"]) as agent:
        program.wait_until(socket.exists, "the agent listens")
        assert end(ours) == ""
    assert agent.returncode == 128 + signal.SIGTERM


def test_what_this_process_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for an elastic job: a real one would leave more behind than this process can let
    go of."""
    assert leftovers.held() == []
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    ckpt = pawl.Checkpointer(tmp_path / "root", job="left")
    job = SimpleNamespace(let_go=lambda: gone.append("job"))
    gone: list[str] = []
    monkeypatch.setattr(_context, "_job", job)
    monkeypatch.setattr(_metrics, "_current", SimpleNamespace())
    assert leftovers.held() == [
        "torch's process group, backend gloo: destroy_process_group()",
        "an elastic job of this process: job and metrics",
        f"an open Checkpointer of {tmp_path / 'root'}: close()",
    ]
    assert gone == ["job"] and leftovers.held() == [] and not dist.is_initialized()
    with pytest.raises(pawl.PawlError, match="closed"):
        ckpt.save(1, {"x": 1})
