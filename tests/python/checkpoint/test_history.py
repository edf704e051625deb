"""A row for every save, and a line for each event of the workers: complete, whatever breaks."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nursery
import pawl
import program
import waits
from conftest import real_core
from program import LIMIT_S
from test_faults import state_of
from test_killed import agent_pid, await_gone, kill
from waits import eventually

pytestmark = pytest.mark.skipif(real_core is None, reason="pawl._core is not built here")

HEADER = (
    "time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s,"
    "begun,ranks,partitions,why"
)


def rows(root: Path, file: str = "checkpointHistories.csv") -> list[dict[str, str]]:
    path = root / file
    if not path.exists():
        return []
    with path.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert all(None not in row and None not in row.values() for row in found), "not whole"
    return found


def events(root: Path) -> list[str]:
    return [row["event"] for row in rows(root, "checkpointEvents.csv")]


def end_agent(root: Path, over: bool = True) -> None:
    """Ends the agent at once, as its idle timeout would later. over: all was durable when the ranks
    left."""
    if over:
        program.await_let_go(root)
    pid = agent_pid(root)
    os.kill(pid, signal.SIGTERM)
    await_gone(pid)


def test_a_row_for_every_save(tmp_path: Path) -> None:
    began = time.monotonic()
    with pawl.Checkpointer(tmp_path, persist_every=0.5, job="rows") as ckpt:
        for step in range(1, 41):
            ckpt.save(step, {"state": state_of(step, 1000), "b,c": 1})
            waits.pretend_to_work(0.03)
    took = time.monotonic() - began
    end_agent(tmp_path)
    found = rows(tmp_path)
    assert (tmp_path / "checkpointHistories.csv").read_text().splitlines()[0] == HEADER
    assert sorted(int(row["step"]) for row in found) == list(range(1, 41))
    durable = [row for row in found if row["level"] == "durable"]
    over = [row for row in found if row["level"] == "committed"]
    assert len(durable) + len(over) == 40 and 2 <= len(durable) <= 3 + took / 0.5
    assert durable[-1]["step"] == "40"
    assert all(row["why"] == "superseded" and not row["persist_ms"] for row in over)
    for row in found:
        assert row["tag"] == f"global_step{row['step']}" and row["job"] == "rows"
        assert row["partitions"] == "state b,c rng" and row["files"] == "3"
        assert row["ranks"] == "1" and row["begun"] <= row["time"][:-1] + ".999Z"
        assert int(row["bytes"]) >= 4000 and float(row["stall_ms"]) > 0
    for row in durable:
        assert row["why"] == "" and float(row["persist_ms"]) > 0 and float(row["mib_per_s"]) > 0
    assert events(tmp_path) == ["started", "ended"]


def test_nothing_is_written_before_there_is_a_checkpoint(tmp_path: Path) -> None:
    with pawl.Checkpointer(tmp_path, persist_every=600, job="first") as ckpt:
        for step in range(5):
            ckpt.save(step, {"state": state_of(step, 1000)})
        waits.stays(lambda: not list(tmp_path.glob("*.csv")), "there is no table", 1.5)
        assert ckpt.flush(LIMIT_S)
        assert eventually(lambda: len(rows(tmp_path)) == 4)  # step 3 is only in memory so far
    end_agent(tmp_path)
    assert [row["step"] for row in rows(tmp_path)] == ["0", "1", "2", "4", "3"]


def test_a_save_that_failed_says_why(tmp_path: Path) -> None:
    """The second of two ranks never comes, then is replaced: every save has a row."""
    with pawl.Checkpointer(tmp_path, persist_every=0, job="why") as ckpt:
        assert ckpt.save(1, {"state": state_of(1, 1000)}).wait(timeout=LIMIT_S)
    end_agent(tmp_path)
    first = pawl.Checkpointer(tmp_path, rank=0, world_size=2, job="why")
    first.save(2, {"state": state_of(2, 1000)})
    with pytest.raises(pawl.NotDurable):
        first.close(0)
    end_agent(tmp_path, over=False)
    last = rows(tmp_path)[-1]
    assert (last["step"], last["level"], last["ranks"]) == ("2", "failed", "2")
    assert last["why"] == "the agent left before it was durable"


def test_a_root_that_is_removed_hurts_no_save(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    with pawl.Checkpointer(root, persist_every=0.2, job="removed") as ckpt:
        assert ckpt.save(1, {"state": state_of(1, 1000)}).wait(timeout=LIMIT_S)
        shutil.rmtree(root)
        for step in range(2, 60):
            save = ckpt.save(step, {"state": state_of(step, 1000)})
            assert save.wait("committed", LIMIT_S)
            waits.pretend_to_work(0.03)
        assert save.wait(timeout=LIMIT_S)
    assert "59" in {row["step"] for row in rows(root) if row["level"] == "durable"}
    assert capfd.readouterr().err.count("history of") <= 1


WORKER = """
import os, sys, time, torch, pawl
ckpt = pawl.Checkpointer(sys.argv[1], persist_every=0.2)
state = {"w": torch.zeros(10)}
begin = (ckpt.restore(state) or 0) + 1
for step in range(begin, 13):
    ckpt.save(step, state).wait(timeout=120)
    if step == int(sys.argv[2]) and begin == 1:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.real_interpreters
def test_what_happens_to_the_workers(tmp_path: Path) -> None:
    """A worker is killed after step 5 under `pawl run`, and restored from memory; then the agent is
    killed, too."""
    script, root = tmp_path / "worker.py", tmp_path / "root"
    script.write_text(WORKER)
    command = [Path(sys.executable).with_name("pawl"), "run", "--max-restarts", "1"]
    command += ["--no-template", script, root, "5"]
    nursery.run([str(word) for word in command], check=True, timeout=program.LIMIT_S)
    found = rows(root, "checkpointEvents.csv")
    assert [row["event"] for row in found] == ["started", "failed", "started", "restored", "ended"]
    assert [row["attempt"] for row in found] == ["0", "0", "1", "1", "1"]
    assert [row["step"] for row in found] == ["", "5", "", "5", "12"]
    assert "is gone" in found[1]["why"] and found[3]["why"] == "memory"
    assert [row["time"] for row in found] == sorted(row["time"] for row in found)
    assert [row["step"] for row in rows(root)] == [str(step) for step in range(1, 13)]

    ckpt = pawl.Checkpointer(root, job="next")
    assert ckpt.save(20, {"w": 1}).wait(timeout=LIMIT_S)
    assert eventually(lambda: events(root)[-1] == "started")
    pid = agent_pid(root)
    kill(pid)
    await_gone(pid)
    ckpt.close(1)
    with pawl.Checkpointer(root, job="next") as ckpt:
        assert ckpt.restore({"w": 1}) == 20
    end_agent(root)
    assert events(root)[-4:] == ["lost", "started", "restored", "ended"]


FAILS = """
import sys, torch, pawl
ckpt = pawl.Checkpointer(sys.argv[1], persist_every=0, job="fails")
ckpt.save(3, {"w": torch.zeros(10)}).wait(timeout=120)
if sys.argv[2] == "raise":
    raise RuntimeError("loss is nan")
sys.exit(0)
"""


@pytest.mark.parametrize(
    ("end", "event", "why"),
    [("raise", "failed", "rank 0: RuntimeError: loss is nan"), ("exit", "ended", "")],
)
def test_an_error_is_a_failure_though_the_end_is_orderly(
    tmp_path: Path, end: str, event: str, why: str
) -> None:
    script, root = tmp_path / "fails.py", tmp_path / "root"
    script.write_text(FAILS)
    command = [sys.executable, script, root, end]
    nursery.run(command, timeout=program.LIMIT_S, stderr=subprocess.DEVNULL)
    end_agent(root)
    last = rows(root, "checkpointEvents.csv")[-1]
    assert (last["event"], last["why"], last["step"]) == (event, why, "3")
