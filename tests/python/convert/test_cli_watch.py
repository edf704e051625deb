"""`pawl ckpt watch`, beside a job that saves."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import program
import waits

pytest.importorskip("torch")
if importlib.util.find_spec("pawl._core") is None:
    pytest.skip("pawl._core is not built here", allow_module_level=True)
program.find()

# After each step, TRAIN waits for the file SEEN<step>, if it was given such a name.
TRAIN = """
    import os, sys, time, torch, pawl
    state, seen = {"model": torch.nn.Linear(300, 200)}, sys.argv[2:]
    ckpt = pawl.Checkpointer(sys.argv[1], keep=2, persist_every=0)
    for step in range(1, 5):
        assert ckpt.save(step, state).wait("durable")
        while seen and not os.path.exists(f"{seen[0]}{step}"):
            time.sleep(0.02)  # pace
    while len(ckpt.list()) > 2:  # the agent may end with the job
        time.sleep(0.02)  # pace
    ckpt.close()
"""
# LIVE saves until the file END exists.
LIVE = """
    import os, sys, time, torch, pawl
    state, step = {"model": torch.nn.Linear(300, 200)}, 0
    ckpt = pawl.Checkpointer(sys.argv[1], keep=2, persist_every=0)
    while not os.path.exists(sys.argv[2]):
        step += 1
        assert ckpt.save(step, state).wait("durable")
        time.sleep(0.5)  # pace
    ckpt.close()
"""
HEADER = "time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    return path


def start(*words: str | Path, stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [program.find(), "ckpt", "watch", *map(str, words)]
    watch = subprocess.Popen(command, env=program.clean_env(), stdout=stdout, text=True)
    timer = threading.Timer(program.LIMIT_S, watch.kill)  # ends a test's wait
    timer.daemon = True
    timer.start()
    return watch


def hear(
    watch: subprocess.Popen[str], events: list[Any], enough: Callable[[list[Any]], object]
) -> None:
    """Appends events until enough(events) holds."""
    assert watch.stdout is not None
    while not enough(events):
        events.append(json.loads(watch.stdout.readline()))


def end(watch: subprocess.Popen[str], events: list[Any]) -> None:
    """Waits for 20 intervals of watch, which may print surplus events; ends it, and appends all
    that is left."""
    assert watch.stdout is not None
    waits.let_pass(1)
    watch.send_signal(signal.SIGINT)
    events += [json.loads(line) for line in watch.stdout]
    watch.wait(program.LIMIT_S)


def has_ended(events: list[Any]) -> bool:
    jobs = [event["running"] for event in events if event["event"] == "job"]
    return True in jobs and not jobs[-1]


def has_told(events: list[Any], step: int) -> bool:
    return any(e.get("state") == "durable" and e["step"] == step for e in events)


def gone(events: list[Any]) -> list[int]:
    return [event["step"] for event in events if event["event"] == "gone"]


def test_watch_follows_a_job(script: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    watch = start(root, "--json", "--interval", "0.05")
    events: list[Any] = []
    hear(watch, events, len)  # watch starts before there is a job
    job = program.start_script(script, "--job", "gpt", args=[str(root), str(tmp_path / "seen")])
    try:
        for step in range(1, 5):
            hear(watch, events, lambda told: has_told(told, step) or has_ended(told))  # noqa: B023
            (tmp_path / f"seen{step}").touch()
        said = job.communicate(timeout=program.LIMIT_S)[0]
    finally:
        job.kill()
    assert job.returncode == 0, said
    hear(watch, events, has_ended)
    hear(watch, events, lambda told: len(gone(told)) >= 2 and has_told(told, 4))
    end(watch, events)
    assert watch.returncode == 0
    jobs = [event for event in events if event["event"] == "job"]
    assert not jobs[0]["there"] and jobs[0]["holder"] is None
    assert any(job["running"] and job["holder"].startswith("job gpt (pid ") for job in jobs)
    assert jobs[-1]["there"] and not jobs[-1]["running"]
    tags = [e for e in events if e["event"] == "tag" and e["state"] != "writing"]
    assert [(tag["step"], tag["state"]) for tag in tags] == [(s, "durable") for s in range(1, 5)]
    for tag in tags:
        assert tag["tag"] == f"global_step{tag['step']}" and tag["bytes"] > 240_000
        assert tag["stall_ms"] >= 0 and tag["persist_ms"] > 0 and tag["mib_per_s"] > 0
    assert gone(events) == [1, 2]
    rows = (root / "checkpointHistories.csv").read_text().splitlines()[1:]
    assert [row.split(",")[8] for row in rows] == [f"{tag['stall_ms']:.3f}" for tag in tags]


def test_a_tag_is_told_of_with_its_row(script: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert program.run_script(script, args=[str(root)]).returncode == 0
    history = root / "checkpointHistories.csv"
    rows = history.read_text()
    history.write_text(HEADER)
    events: list[Any] = []
    with open(root / ".pawl-lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as if the job were about to write them
        began = time.monotonic()
        watch = start(root, "--json", "--interval", "0.005")
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["running"]
        # The rows take longer to come than many of watch's looks.
        assert not select.select([watch.stdout], [], [], 0.1)[0] or time.monotonic() - began > 4.9
        history.write_text(rows)
        hear(watch, events, lambda told: len(told) >= 2)
        late = time.monotonic() - began > 4.9  # watch may have given up waiting for the rows
        end(watch, events)
    assert [event["step"] for event in events] == [3, 4]
    assert late or all(event["stall_ms"] is not None for event in events)


@pytest.mark.real_interpreters
def test_watch_once(script: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = program.run("ckpt", "watch", root, "--once")
    assert done.returncode == 3 and "does not exist yet" in done.stdout
    assert program.run_script(script, "--job", "a, b", args=[str(root)]).returncode == 0
    (root / "global_step3" / "model").unlink()
    done = program.run("ckpt", "watch", root, "--once")
    assert done.returncode == 0 and "job a, b (pid " in done.stdout
    assert "has ended" in done.stdout and "2 checkpoints" in done.stdout
    assert re.search(r"^ +3  broken .*global_step3$", done.stdout, re.M)
    assert re.search(
        r"^ +4  durable +\d.* +[\d.]+ +[\d.]+ +[\d.]+  .*Z +global_step4$", done.stdout, re.M
    )


def watch_once(root: Path) -> dict[str, Any]:
    done = program.run("ckpt", "watch", root, "--once", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return next(event for event in events if event.get("step") == 4)


def test_rows_are_found_by_their_header(script: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert program.run_script(script, args=[str(root)]).returncode == 0
    history = root / "checkpointHistories.csv"
    for text, stall in (
        (HEADER + "t,a,0,4,global_step4,durable,1,9,1.5,2,3,4\n", 1.5),
        (HEADER + "t,with, a, comma,0,4,global_step4,durable,1,9,2.5,2,3,4\n", 2.5),
        (HEADER + 't,"quoted, job",0,4,global_step4,durable,1,9,3.5,2,3,4\n', 3.5),
        (HEADER + "t,a,0,4,global_step4,durable,1,9,1,2,3,4\n" * 2 + "torn,4,global_step4,", 1),
        (HEADER + "t,a,0,4,global_step4,durable,1,9,1,2,3,4\n", 1),
        ("tag,new,stall_ms\nx,global_step4,7\n,global_step4,\n", None),
        ("step,tag,new,stall_ms\n4,global_step4,x,7\n4,global_step4,y,8\n", 8),
        (HEADER + "t,a,0,4,global_step4,durable,1,9,,,,\n", None),
        ("", None),
        (",global_step4,\n" * 3, None),
    ):
        history.write_text(text)
        assert watch_once(root)["stall_ms"] == stall, text
    history.write_bytes(b"\xff\0,global_step4," + bytes(range(256)) * 50)
    assert watch_once(root)["stall_ms"] is None


def test_watch_draws_a_table(script: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    watch = start(root, "--interval", "0.05", stdout=theirs)
    os.close(theirs)
    seen = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while True:
                seen.extend(os.read(ours, 65536))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    program.wait_until(lambda: b"does not exist yet" in seen, "it watches")
    assert program.run_script(script, args=[str(root)]).returncode == 0

    def last() -> str:
        return re.split(r"\x1b\[\d+A\r\x1b\[J", seen.decode().replace("\r\n", "\n"))[-1]

    def is_over() -> bool:
        return "has ended" in last() and "2 checkpoints" in last()

    program.wait_until(is_over, "both checkpoints of the job that has ended")
    watch.send_signal(signal.SIGTERM)
    assert watch.wait(timeout=program.LIMIT_S) == 128 + signal.SIGTERM
    reader.join(program.LIMIT_S)
    text = seen.decode().replace("\r\n", "\n")
    assert re.search(r"\x1b\[\d+A\r\x1b\[J", text)
    assert "has ended" in last() and "2 checkpoints" in last()
    assert [line.split()[0] for line in last().splitlines()[2:]] == ["STEP", "3", "4"]


def newest(root: Path) -> int:
    return max((int(tag.name[11:]) for tag in root.glob("global_step*")), default=0)


def test_changing_a_live_root_is_refused(script: Path, tmp_path: Path) -> None:
    """The other commands look at the root, and lose nothing, while the job writes."""
    root, over = tmp_path / "root", tmp_path / "over"
    script.write_text(textwrap.dedent(LIVE))
    job = program.start_script(script, "--job", "live", args=[str(root), str(over)])
    try:
        program.wait_until(lambda: newest(root) >= 3, "the third save", program.LIMIT_S)
        for words in (["rm", root, "3"], ["gc", root, "--keep", "1"], ["repair", root]):
            done = program.run("ckpt", *words)
            assert done.returncode == 75 and "job live (pid " in done.stderr
        assert program.run("ckpt", "ls", root).returncode == 0
        assert program.run("ckpt", "export", root, tmp_path / "out").returncode in (0, 3, 4)
    finally:
        over.touch()
        assert "durable" in job.communicate(timeout=program.LIMIT_S)[0]
    assert job.returncode == 0
    assert program.run("ckpt", "verify", root, "--all").returncode == 0
